#include "recover_internal.h"

#include "catalog_layer.h"
#include "fdio.h"
#include "mount_users.h"
#include "overlay.h"
#include "publish.h"
#include "run_internal.h"
#include "tree.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

typedef int each_entry(struct recover *recover, const char *name, struct err *err);

/* Calls `take` with every name in a directory but "." and "..". */
static int each(struct recover *recover, int dir_fd, each_entry *take, struct err *err)
{
    cleanup_dir DIR *dir = fdio_list(dir_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list a directory of this node");
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list a directory of this node") : 0;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int rc = take(recover, entry->d_name, err);
        if (rc < 0)
            return rc;
    }
}

static bool is_stale(const struct recover *recover, int dir_fd, const char *name)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    return st.st_ctim.tv_sec * CLOCK_NS_PER_S + st.st_ctim.tv_nsec < recover->stale_before_ns;
}

/* Nothing that a process uses is unmounted. */
static int check_idle(const char *path, struct err *err)
{
    pid_t pid = 0;
    char name[32];
    int count = mount_users_find(path, &pid, name, err);
    if (count > 0)
        return err_fail(err, ERR_CONFLICT, "%s is in use by process %d (%s)", path, pid, name);
    return count < 0 ? count : 0;
}

/* Takes the directory out of the way of a run that may get this ID: the look and the step are one
 * transaction, and all that takes time comes afterwards (I5). 1, or 0 when there is such a run. */
static int move_aside(struct node *node, const char *name, char temp[32], struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = publish_temp_name(temp, err);
    if (rc == 0)
        rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = run_find(node, name, &run, err);
    if (rc == 0 &&
        renameat2(node->run_runs_fd, name, node->run_runs_fd, temp, RENAME_NOREPLACE) < 0)
        rc = err_errno(err, errno, "cannot move %s/runs/%s", node->run_dir, name);
    catalog_rollback(node->catalog);
    return rc < 0 ? rc : rc == 0;
}

static int remove_mount_point(struct node *node, const char *name, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    cleanup_run_paths struct run_paths aside = {0};
    char temp[32];
    int rc = run_paths_make(node, name, &paths, err);
    if (rc == 0)
        rc = check_idle(paths.rootfs, err);
    if (rc == 0)
        rc = move_aside(node, name, temp, err);
    if (rc <= 0)
        return rc;
    rc = run_paths_make(node, temp, &aside, err);
    if (rc == 0)
        rc = overlay_unmount(aside.rootfs, err);
    /* The next recover finds a volume that is attached for nothing. */
    if (rc == 0 && umount2(aside.volume, UMOUNT_NOFOLLOW | MNT_DETACH) < 0 && errno != EINVAL &&
        errno != ENOENT)
        rc = err_errno(err, errno, "cannot unmount %s", aside.volume);
    if (rc == 0)
        return tree_remove(node->run_runs_fd, temp, err);
    (void)renameat2(node->run_runs_fd, temp, node->run_runs_fd, name, RENAME_NOREPLACE);
    return rc;
}

static int take_mount_point(struct recover *recover, const char *name, struct err *err)
{
    struct node *node = recover->node;
    cleanup_catalog_run struct catalog_run run = {0};
    struct err failure = ERR_INIT;
    char object[300];
    /* The name of one that was moved aside may have been listed too. */
    if (faccessat(node->run_runs_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    int rc = run_find(node, name, &run, &failure);
    if (rc == 1)
        return 0;
    snprintf(object, sizeof object, "RUN/runs/%s", name);
    const struct recover_item item = {.object = object,
                                      .found = "no run has this mount point",
                                      .will = "unmount and remove it",
                                      .done = "removed"};
    if (rc == 0 && !recover->plan)
        rc = remove_mount_point(node, name, &failure);
    return recover_add(recover, &item, rc, &failure, err);
}

/* May be somebody's only copy (I4). */
static int take_data(struct recover *recover, const char *name, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    struct err failure = ERR_INIT;
    char object[300];
    /* ".next-ID" belongs to a run that is being changed (run_switch.h). */
    static const char next[] = ".next-";
    const char *id = strncmp(name, next, sizeof next - 1) == 0 ? name + sizeof next - 1 : name;
    int rc = run_find(recover->node, id, &run, &failure);
    if (rc == 1)
        return 0;
    snprintf(object, sizeof object, "DATA/runs/%s", name);
    const struct recover_item item = {.object = object,
                                      .found = "no run has this writable layer",
                                      .will = "leave it, as it may be the only copy",
                                      .done = "left, as it may be the only copy"};
    return recover_add(recover, &item, rc, &failure, err);
}

static int take_temp(struct recover *recover, const char *name, struct err *err)
{
    struct node *node = recover->node;
    struct err failure = ERR_INIT;
    char object[300];
    if (!is_stale(recover, node->temp_fd, name))
        return 0;
    snprintf(object, sizeof object, "DATA/tmp/%s", name);
    const struct recover_item item = {
        .object = object, .found = "no job works on it", .will = "remove it", .done = "removed"};
    int rc = recover->plan ? 0 : tree_remove(node->temp_fd, name, &failure);
    return recover_add(recover, &item, rc, &failure, err);
}

/* Whether a layer image has its row: 1, 0, or -errno. */
static int has_row(struct node *node, const char *key, struct err *err)
{
    cleanup_catalog_layer_image struct catalog_layer_image row = {0};
    struct err failure = ERR_INIT;
    return err_found(err, catalog_layer_get(node->catalog, key, &row, &failure), &failure);
}

static int remove_layer(struct node *node, const char *name, struct err *err)
{
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = has_row(node, name, err);
    if (rc == 0 && unlinkat(node->layers_fd, name, 0) < 0 && errno != ENOENT)
        rc = err_errno(err, errno, "cannot remove the layer image %s", name);
    catalog_rollback(node->catalog);
    return rc < 0 ? rc : 0;
}

/* A layer image gets its row right after its name; it is a cache, so it can go. */
static int take_layer(struct recover *recover, const char *name, struct err *err)
{
    struct node *node = recover->node;
    struct err failure = ERR_INIT;
    char object[300];
    if ((strncmp(name, "diff-", 5) != 0 && strncmp(name, "chain-", 6) != 0) ||
        !is_stale(recover, node->layers_fd, name))
        return 0;
    int rc = has_row(node, name, &failure);
    if (rc == 1)
        return 0;
    snprintf(object, sizeof object, "DATA/layers/%s", name);
    const struct recover_item item = {.object = object,
                                      .found = "the catalog has no such layer image",
                                      .will = "remove it",
                                      .done = "removed"};
    if (rc == 0 && !recover->plan)
        rc = remove_layer(node, name, &failure);
    return recover_add(recover, &item, rc, &failure, err);
}

int recover_leftovers(struct recover *recover, struct err *err)
{
    struct node *node = recover->node;
    int rc = each(recover, node->run_runs_fd, take_mount_point, err);
    if (rc == 0)
        rc = each(recover, node->runs_fd, take_data, err);
    if (rc == 0)
        rc = each(recover, node->temp_fd, take_temp, err);
    return rc == 0 ? each(recover, node->layers_fd, take_layer, err) : rc;
}
