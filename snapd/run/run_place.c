#include "run_place.h"

#include "cleanup.h"
#include "fdio.h"
#include "publish.h"
#include "run_internal.h"
#include "tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESERVE "reserve"

enum {
    RESERVE_FILES = 16, /* an inode each */
    RESERVE_BYTES = 65536,
};

void run_place_close(struct run_place *place)
{
    if (place->own) {
        (void)close(place->dir_fd);
        (void)close(place->temp_fd);
    }
    free(place->dir);
    free(place->temp);
    *place = (struct run_place)RUN_PLACE_INIT;
}

/* `below`: the layer's directory lies there in `root`, and not in it itself. */
static int name_it(const struct run_place *place, const char *id, const char *root,
                   const char *below, struct run_place *ret, struct err *err)
{
    cleanup_free char *dir = NULL;
    cleanup_free char *temp = NULL;
    if (asprintf(&dir, "%s%s%s", root, below ? "/" : "", below ? below : "") < 0)
        dir = NULL;
    if (asprintf(&temp, "%s/tmp", root) < 0)
        temp = NULL;
    if (!dir || !temp)
        return err_errno(err, ENOMEM, "cannot name the directories of run %s", id);
    *ret = *place;
    ret->dir = steal_ptr(dir);
    ret->temp = steal_ptr(temp);
    return 0;
}

int run_place_open_plain(struct node *node, const char *id, struct run_place *ret, struct err *err)
{
    struct run_place place = {.dir_fd = node->runs_fd, .temp_fd = node->temp_fd};
    (void)snprintf(place.name, sizeof place.name, "%s", id);
    /* No run can have this name, as an ID begins with a letter or digit. */
    (void)snprintf(place.next, sizeof place.next, ".next-%s", id);
    return name_it(&place, id, node->data_dir, "runs", ret, err);
}

/* The root of what is mounted at `path`. Returns a descriptor. */
static int open_root(const char *path, const char *id, struct err *err)
{
    struct statx stx;
    cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot open %s", path);
    if (fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    if (fd >= 0 && (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
        return steal_fd(&fd);
    int rc = err_fail(err, ERR_CONFLICT, "the volume of run %s is not mounted", id);
    err_hint(err, "mount it again with `varve recover`, which says what is wrong with it");
    return rc;
}

static int open_on_volume(struct node *node, const char *id, struct run_place *ret, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    struct run_place place = {.name = "run", .next = ".next", .own = true};
    int rc = run_paths_make(node, id, &paths, err);
    cleanup_fd int dir = rc < 0 ? rc : open_root(paths.volume, id, err);
    cleanup_fd int temp = dir < 0 ? dir : fdio_open_dir(dir, "tmp", 0700, err);
    if (temp < 0)
        return temp;
    place.dir_fd = dir;
    place.temp_fd = temp;
    rc = name_it(&place, id, paths.volume, NULL, ret, err);
    if (rc == 0) {
        (void)steal_fd(&dir);
        (void)steal_fd(&temp);
    }
    return rc;
}

int run_place_open(struct node *node, const char *id, struct run_place *ret, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    int found = run_find(node, id, &run, err);
    if (found < 0)
        return found;
    return found && run.volume ? open_on_volume(node, id, ret, err)
                               : run_place_open_plain(node, id, ret, err);
}

void run_place_keep_room(const struct run_place *place)
{
    cleanup_fd int dir = place->own ? fdio_open_dir(place->dir_fd, RESERVE, 0700, NULL) : -1;
    for (int i = 0; dir >= 0 && i < RESERVE_FILES; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%d", i);
        cleanup_fd int fd = openat(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 || fallocate(fd, 0, 0, RESERVE_BYTES) < 0)
            return;
    }
}

bool run_place_make_room(const struct run_place *place)
{
    if (!place->own || faccessat(place->dir_fd, RESERVE, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
        tree_remove(place->dir_fd, RESERVE, NULL) < 0)
        return false;
    (void)syncfs(place->dir_fd); /* what is freed can be used when the journal has it */
    return true;
}

int run_place_move_away(const struct run_place *place, const char *name, char temp[32],
                        struct err *err)
{
    struct stat st;
    int rc = publish_temp_name(temp, err);
    if (rc < 0)
        return rc;
    if (renameat(place->dir_fd, name, place->temp_fd, temp) < 0) {
        int num = errno;
        if (num != ENOENT)
            return err_errno(err, num, "cannot move %s/%s away", place->dir, name);
        if (fstatat(place->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
            return 0;
        /* The kernel says the same of a target directory that somebody has deleted. */
        rc = err_fail(err, ERR_IO, "cannot move %s/%s away: %s was deleted", place->dir, name,
                      place->temp);
        err_hint(err, "restart varved, which makes it again");
        return rc;
    }
    if (fsync(place->dir_fd) < 0 || fsync(place->temp_fd) < 0)
        return err_errno(err, errno, "cannot sync the removal of %s/%s", place->dir, name);
    return 1;
}
