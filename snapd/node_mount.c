#include "node_internal.h"

#include "cleanup.h"
#include "mountinfo.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* 1 the same, 0 different, -errno cannot be seen. */
static int same_by_link(void)
{
    struct stat own;
    struct stat first;
    if (stat("/proc/self/ns/mnt", &own) < 0 || stat("/proc/1/ns/mnt", &first) < 0)
        return -errno;
    return own.st_dev == first.st_dev && own.st_ino == first.st_ino;
}

/* The ID of the first mount that a process sees. 1, 0 when it sees none, or -errno. */
static int find_mount(const char *process, const uint64_t *wanted, uint64_t *ret, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = mountinfo_open(process, &info, err);
    while (rc >= 0 && (rc = mountinfo_next(&info, &entry, err)) > 0) {
        if (wanted && entry.id != *wanted)
            continue;
        *ret = entry.id;
        return 1;
    }
    return rc;
}

/* Some hosts hide the namespace of pid 1 even from root, but not its mounts; a mount belongs to
 * one namespace. */
static int same_by_mounts(struct err *err)
{
    uint64_t own;
    uint64_t found;
    int rc = find_mount("self", NULL, &own, err);
    if (rc == 0)
        return err_fail(err, ERR_DENIED, "this process sees no mount at all");
    return rc < 0 ? rc : find_mount("1", &own, &found, err);
}

int node_mount_check_namespace(struct err *err)
{
    int same = same_by_link();
    if (same < 0)
        same = same_by_mounts(err);
    if (same < 0) {
        err_hint(err, "start it where /proc is mounted, or with --allow-other-mount-namespace");
        return err_wrap(err, same, "cannot compare the mount namespace with that of pid 1");
    }
    if (same == 1)
        return 0;
    int rc = err_fail(err, ERR_CONFLICT,
                      "this process runs in another mount namespace than pid 1, where nobody else "
                      "would see the runs that it mounts");
    err_hint(err, "start it without unshare, PrivateMounts= or another private view of the mounts");
    return rc;
}

enum kind {
    NO_MOUNT, /* a directory of the mount around it */
    PRIVATE_MOUNT,
    SHARED_MOUNT,
};

/* What the path is, or -errno. */
static int look(const char *path, struct err *err)
{
    struct statx stx;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &stx) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    if (!(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        return NO_MOUNT;
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = mountinfo_open("self", &info, err);
    while (rc >= 0 && (rc = mountinfo_next(&info, &entry, err)) > 0)
        if (entry.id == stx.stx_mnt_id)
            return entry.shared ? SHARED_MOUNT : PRIVATE_MOUNT;
    return rc < 0 ? rc : err_fail(err, ERR_INTERNAL, "the mount of %s is not listed", path);
}

/* A plain bind mount joins the peer group of the mount around it, so every mount in the one would
 * appear a second time, hidden, in the other. So the copy leaves that group before it is attached;
 * attached to a shared mount it reaches the other namespaces as a new group. */
static int bind_to_itself(const char *path, struct err *err)
{
    struct mount_attr attr = {.propagation = MS_PRIVATE};
    cleanup_fd int tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0 ||
        move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_errno(err, errno, "cannot bind %s to itself", path);
    return 0;
}

int node_mount_share(const char *path, struct err *err)
{
    int rc = look(path, err);
    if (rc == SHARED_MOUNT)
        return 0;
    if (rc == NO_MOUNT)
        rc = bind_to_itself(path, err);
    if (rc < 0)
        return rc;
    if (mount(NULL, path, NULL, MS_SHARED, NULL) < 0)
        return err_errno(err, errno, "cannot make the mount %s shared", path);
    return 0;
}
