#include "run_internal.h"

#include "digest.h"
#include "fdio.h"
#include "layers.h"
#include "oci_image.h"
#include "overlay.h"
#include "publish.h"
#include "run_attr.h"
#include "tree.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int run_dirs_check_unused(const struct node *node, const char *id, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, id, &paths, err);
    if (rc < 0)
        return rc;
    rc = overlay_is_mounted(paths.rootfs, err);
    if (rc < 0)
        return rc;
    struct stat st;
    bool there = fstatat(node->runs_fd, id, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there && errno != ENOENT)
        return err_errno(err, errno, "cannot look for %s/runs/%s", node->data_dir, id);
    if (rc == 0 && !there)
        return 0;
    if (there)
        rc = err_fail(err, ERR_EXISTS, "%s/runs/%s is there, but the catalog knows no such run",
                      node->data_dir, id);
    else
        rc = err_fail(err, ERR_EXISTS, "%s is mounted, but the catalog knows no such run",
                      paths.rootfs);
    err_hint(err, "choose another ID, or save and remove what is there");
    return rc;
}

static int make_upper(struct node *node, int dir_fd, const struct catalog_image *image,
                      struct err *err)
{
    if (image->layer_count == 0)
        return err_fail(err, ERR_UNSUPPORTED, "the image has no layers");
    cleanup_fd int layer = layers_open(node, image->layers[image->layer_count - 1].chain_id, err);
    cleanup_fd int upper = layer < 0 ? -1 : fdio_open_dir(dir_fd, "upper", 0755, err);
    if (upper < 0)
        return layer < 0 ? layer : upper;
    int rc = run_attr_copy(layer, upper, err);
    if (rc == 0 && fsync(upper) < 0)
        rc = err_errno(err, errno, "cannot sync the upper directory");
    return rc;
}

/* The directories have no content that others rely on, and the row says "creating" until they are
 * complete and synced, so they are made in place. */
int run_dirs_fill(struct node *node, int dir_fd, const struct catalog_image *image, struct err *err)
{
    int rc = make_upper(node, dir_fd, image, err);
    if (rc < 0)
        return rc;
    cleanup_fd int work = fdio_open_dir(dir_fd, "work", 0700, err);
    if (work < 0)
        return work;
    if (fsync(work) < 0 || fsync(dir_fd) < 0 || fsync(node->runs_fd) < 0)
        return err_errno(err, errno, "cannot sync the directories");
    return 0;
}

int run_dirs_make(struct node *node, const char *id, const struct catalog_image *image,
                  struct err *err)
{
    cleanup_fd int dir = fdio_open_dir(node->runs_fd, id, 0700, err);
    int rc = dir < 0 ? dir : run_dirs_fill(node, dir, image, err);
    return rc < 0 ? err_wrap(err, rc, "cannot make %s/runs/%s", node->data_dir, id) : 0;
}

/* The names of the layers in DATA/layers, topmost first. */
struct lowers {
    struct digest_text names[OCI_LAYERS_MAX];
    const char *list[OCI_LAYERS_MAX];
};

static int list_lowers(const struct catalog_image *image, struct lowers *ret, struct err *err)
{
    if (image->layer_count > OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the image has %zu layers, more than %d",
                        image->layer_count, OCI_LAYERS_MAX);
    for (size_t i = 0; i < image->layer_count; i++) {
        struct digest chain;
        const char *text = image->layers[image->layer_count - 1 - i].chain_id;
        int rc = digest_parse(text, &chain, err);
        if (rc < 0)
            return rc;
        ret->names[i] = digest_hex(&chain);
        ret->list[i] = ret->names[i].s;
    }
    return 0;
}

static int mount_overlay(struct node *node, const struct catalog_image *image,
                         const struct run_paths *paths, struct err *err)
{
    struct lowers lowers;
    int rc = list_lowers(image, &lowers, err);
    if (rc < 0)
        return rc;
    struct overlay_mount mount = {.lowers_dir = node->layers_fd,
                                  .lowers = lowers.list,
                                  .lower_count = image->layer_count,
                                  .upper = paths->upper,
                                  .work = paths->work,
                                  .target = paths->rootfs};
    return overlay_mount(&mount, err);
}

int run_dirs_mount(struct node *node, const char *id, const struct catalog_image *image,
                   struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, id, &paths, err);
    if (rc < 0)
        return rc;
    cleanup_fd int lock = run_lock_open(node, id, err);
    if (lock < 0)
        return lock;
    rc = overlay_is_mounted(paths.rootfs, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return mount_overlay(node, image, &paths, err);
}

int run_dirs_unmount(struct node *node, const char *id, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, id, &paths, err);
    return rc < 0 ? rc : overlay_unmount(paths.rootfs, err);
}

/* Out of sight first, in one durable step; then the removal may take its time, and what a kill
 * leaves of it is swept at the next start. */
static int remove_data(struct node *node, const char *id, struct err *err)
{
    char temp[32];
    int rc = node_move_away(node, node->runs_fd, "runs", id, temp, err);
    if (rc <= 0)
        return rc;
    return tree_remove(node->temp_fd, temp, err);
}

int run_dirs_remove(struct node *node, const char *id, struct err *err)
{
    int rc = tree_remove(node->run_runs_fd, id, err);
    if (rc == 0)
        rc = remove_data(node, id, err);
    return rc < 0 ? err_wrap(err, rc, "cannot remove the directories of run %s", id) : 0;
}
