#include "run_internal.h"

#include "fdio.h"
#include "layers.h"
#include "layers_mount.h"
#include "log.h"
#include "oci_image.h"
#include "overlay.h"
#include "publish.h"
#include "run_attr.h"
#include "run_volume_internal.h"
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

/* Gives the upper directory what the root of the merged tree shows: the attributes of the topmost
 * layer that lists its root directory (docs/FORMAT.md, "Layer images"). */
static int set_attributes(struct node *node, const struct catalog_image *image, int upper,
                          struct err *err)
{
    for (size_t i = image->layer_count; i-- > 0;) {
        char key[LAYERS_KEY_LEN];
        int rc = layers_find(node, &image->layers[i], key, err);
        if (rc == 0)
            rc = err_fail(err, ERR_NOT_FOUND, "the image of layer %zu is gone", i + 1);
        cleanup_fd int root = rc < 0 ? rc : layers_mount_open(node, key, err);
        if (root < 0)
            return root;
        rc = run_attr_is_implied(root, err);
        if (rc != 1)
            return rc < 0 ? rc : run_attr_copy(root, upper, err);
    }
    return run_attr_default(upper, err);
}

static int make_upper(struct node *node, int dir_fd, const struct catalog_image *image,
                      struct err *err)
{
    if (image->layer_count == 0)
        return err_fail(err, ERR_UNSUPPORTED, "the image has no layers");
    cleanup_fd int upper = fdio_open_dir(dir_fd, "upper", 0755, err);
    int rc = upper < 0 ? upper : set_attributes(node, image, upper, err);
    return rc < 0 ? rc : steal_fd(&upper);
}

/* The directories have no content that others rely on, and the row says "creating" until they are
 * complete and synced, so they are made in place. The layers are mounted. */
static int fill(struct node *node, int dir_fd, const struct catalog_image *image, struct err *err)
{
    cleanup_fd int upper = make_upper(node, dir_fd, image, err);
    if (upper < 0)
        return upper;
    cleanup_fd int work = fdio_open_dir(dir_fd, "work", 0700, err);
    if (work < 0)
        return work;
    /* One after the other and not between the steps: the first one writes the journal, and the
     * others find everything done. */
    if (fsync(upper) < 0 || fsync(work) < 0 || fsync(dir_fd) < 0)
        return err_errno(err, errno, "cannot sync the directories");
    return 0;
}

int run_dirs_fill(struct node *node, int dir_fd, const struct catalog_image *image, struct err *err)
{
    char holder[32];
    /* The run itself holds the image that it has, perhaps not this one. */
    snprintf(holder, sizeof holder, ":upper-%p", (void *)&holder);
    int rc = layers_mount_take(node, holder, image, err);
    if (rc == 0)
        rc = fill(node, dir_fd, image, err);
    layers_mount_release(node, holder);
    return rc;
}

int run_dirs_make(struct node *node, const char *id, const struct catalog_image *image,
                  struct err *err)
{
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = run_place_open(node, id, &place, err);
    if (rc < 0)
        return rc;
    rc = layers_mount_take(node, id, image, err);
    cleanup_fd int dir = rc < 0 ? rc : fdio_open_dir(place.dir_fd, place.name, 0700, err);
    rc = dir < 0 ? dir : fill(node, dir, image, err);
    run_place_keep_room(&place);
    if (rc == 0 && fsync(place.dir_fd) < 0)
        rc = err_errno(err, errno, "cannot sync it");
    return rc < 0 ? err_wrap(err, rc, "cannot make %s/%s", place.dir, place.name) : 0;
}

/* The names of the layers in RUN/layers, topmost first. */
struct lowers {
    char names[OCI_LAYERS_MAX][LAYERS_KEY_LEN];
    const char *list[OCI_LAYERS_MAX];
    size_t count;
};

static bool has_lower(const struct lowers *lowers, const char *name)
{
    for (size_t i = 0; i < lowers->count; i++)
        if (strcmp(lowers->list[i], name) == 0)
            return true;
    return false;
}

/* An image may have the same layer several times (empty ones often). overlayfs takes a directory
 * once; the topmost place is the right one, as the layer hides there all that it has itself
 * further down. */
static int list_lowers(struct node *node, const struct catalog_image *image, struct lowers *ret,
                       struct err *err)
{
    ret->count = 0;
    if (image->layer_count > OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the image has %zu layers, more than %d",
                        image->layer_count, OCI_LAYERS_MAX);
    for (size_t i = image->layer_count; i-- > 0;) {
        char *name = ret->names[ret->count];
        int rc = layers_find(node, &image->layers[i], name, err);
        if (rc == 0)
            rc = err_fail(err, ERR_NOT_FOUND, "the image of layer %zu is not in %s/layers", i + 1,
                          node->data_dir);
        if (rc < 0)
            return rc;
        if (!has_lower(ret, name))
            ret->list[ret->count++] = name;
    }
    return 0;
}

static int mount_overlay(struct node *node, const char *id, const struct catalog_image *image,
                         const struct run_paths *paths, struct err *err)
{
    struct lowers lowers;
    char upper[OVERLAY_PATH_MAX];
    char work[OVERLAY_PATH_MAX];
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = list_lowers(node, image, &lowers, err);
    if (rc == 0)
        rc = run_place_open(node, id, &place, err);
    if (rc < 0)
        return rc;
    (void)snprintf(upper, sizeof upper, "%s/%s/upper", place.dir, place.name);
    (void)snprintf(work, sizeof work, "%s/%s/work", place.dir, place.name);
    struct overlay_mount mount = {.lowers_dir = node->run_layers_fd,
                                  .lowers = lowers.list,
                                  .lower_count = lowers.count,
                                  .upper = upper,
                                  .work = work,
                                  .target = paths->rootfs};
    return place.own ? run_volume_mount(&place, &mount, err) : overlay_mount(&mount, err);
}

/* A run that is mounted was by an earlier life of the daemon. It stands on its layers by itself,
 * whatever became of their files. */
static void take_references(struct node *node, const char *id, const struct catalog_image *image)
{
    struct err failure = ERR_INIT;
    if (layers_mount_take(node, id, image, &failure) < 0)
        log_event(LOG_WARN, "layers-not-shared", "run", id, "error", failure.text, NULL);
}

static int mount_on_layers(struct node *node, const char *id, const struct catalog_image *image,
                           const struct run_paths *paths, struct err *err)
{
    int rc = overlay_is_mounted(paths->rootfs, err);
    if (rc == 1)
        take_references(node, id, image);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = layers_mount_take(node, id, image, err);
    if (rc == 0)
        rc = mount_overlay(node, id, image, paths, err);
    if (rc < 0)
        layers_mount_release(node, id);
    return rc < 0 ? rc : 0;
}

int run_dirs_mount(struct node *node, const char *id, const struct catalog_image *image,
                   struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, id, &paths, err);
    if (rc < 0)
        return rc;
    cleanup_fd int lock = run_lock_open(node, id, err);
    return lock < 0 ? lock : mount_on_layers(node, id, image, &paths, err);
}

int run_dirs_unmount(struct node *node, const struct catalog_run *run, bool lazily, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, run->id, &paths, err);
    if (rc == 0)
        rc = run->volume ? run_volume_unmount(node, run->id, lazily, err)
                         : overlay_unmount(paths.rootfs, err);
    if (rc == 0)
        layers_mount_release(node, run->id);
    return rc;
}

/* Out of sight first, in one durable step; then the removal may take its time, and what a kill
 * leaves of it is swept at the next start. */
static int remove_data(struct node *node, const char *id, struct err *err)
{
    char temp[32];
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = run_place_open_plain(node, id, &place, err);
    if (rc == 0)
        rc = run_place_move_away(&place, id, temp, err);
    if (rc <= 0)
        return rc;
    return tree_remove(place.temp_fd, temp, err);
}

int run_dirs_remove(struct node *node, const char *id, struct err *err)
{
    int rc = tree_remove(node->run_runs_fd, id, err);
    if (rc == 0)
        rc = remove_data(node, id, err);
    return rc < 0 ? err_wrap(err, rc, "cannot remove the directories of run %s", id) : 0;
}
