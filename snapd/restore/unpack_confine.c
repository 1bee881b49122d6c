#include "unpack_confine.h"

#include "cleanup.h"
#include "unpack_seccomp.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    MEMORY_MAX_MIB = 1024, /* address space: a 128 MiB window, 256 MiB of whiteouts, and room */
    FILES_MAX = 1024,      /* descriptors: 127 lower directories, each open twice while walking */
};

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static const uint64_t target_attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC |
                                     MOUNT_ATTR_NOATIME | MOUNT_ATTR_NOSYMFOLLOW;

/* A mount of its own for a directory. Returns a descriptor or -errno. */
static int detach(int fd, uint64_t attrs, struct err *err)
{
    cleanup_fd int tree =
        open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)AT_EMPTY_PATH);
    if (tree < 0)
        return err_errno(err, errno, "cannot make a mount of a directory");
    struct mount_attr attr = {
        .attr_set = attrs, .attr_clr = MOUNT_ATTR__ATIME, .propagation = MS_PRIVATE};
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return err_errno(err, errno, "cannot restrict the mount of a directory");
    return steal_fd(&tree);
}

/* An empty read-only file system, not mounted anywhere. */
static int empty_root(struct err *err)
{
    cleanup_fd int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "size", "4k", 0) < 0 ||
        fsconfig(context, FSCONFIG_SET_STRING, "mode", "0555", 0) < 0 ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_errno(err, errno, "cannot make an empty file system");
    int fd = fsmount(context, FSMOUNT_CLOEXEC,
                     MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot mount an empty file system");
    return fd;
}

/* Makes the file system behind `root` the root of this process, and lets go of the host's. */
static int enter_root(int root, struct err *err)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        move_mount(root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 || fchdir(root) < 0)
        return err_errno(err, errno, "cannot enter an empty root directory");
    if (syscall(SYS_pivot_root, ".", ".") == 0) {
        /* The old root now lies over the new one. */
        if (umount2(".", MNT_DETACH) < 0)
            return err_errno(err, errno, "cannot let go of the host's mounts");
        return chdir("/") < 0 ? err_errno(err, errno, "cannot enter an empty root directory") : 0;
    }
    /* A root that is no mount point (an initramfs, a chroot) cannot be exchanged. Without
     * CAP_SYS_CHROOT and without a descriptor of it there is no way back to it either. */
    if (errno != EINVAL)
        return err_errno(err, errno, "cannot exchange the root directory");
    if (chroot(".") < 0 || chdir("/") < 0)
        return err_errno(err, errno, "cannot enter an empty root directory");
    return 0;
}

int unpack_confine_view(int *target_fd, int *lower_fds, size_t lower_count, struct err *err)
{
    /* Before unshare(): only mounts of the caller's own namespace can be cloned. */
    cleanup_fd int target = detach(*target_fd, target_attrs, err);
    if (target < 0)
        return target;
    for (size_t i = 0; i < lower_count; i++) {
        int fd = detach(lower_fds[i], target_attrs | MOUNT_ATTR_RDONLY, err);
        if (fd < 0)
            return err_wrap(err, fd, "lower layer %zu", i);
        close(lower_fds[i]);
        lower_fds[i] = fd;
    }
    cleanup_fd int root = empty_root(err);
    if (root < 0)
        return root;
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
        return err_errno(err, errno, "cannot make namespaces of its own");
    int rc = enter_root(root, err);
    if (rc < 0)
        return rc;
    int fd = openat(target, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the target directory");
    close(*target_fd);
    *target_fd = fd;
    return 0;
}

static int limit(int what, rlim_t value, struct err *err)
{
    struct rlimit have;
    if (getrlimit(what, &have) < 0)
        return err_errno(err, errno, "cannot read a resource limit");
    if (have.rlim_max != RLIM_INFINITY && have.rlim_max < value)
        value = have.rlim_max;
    struct rlimit want = {.rlim_cur = value, .rlim_max = value};
    if (setrlimit(what, &want) < 0)
        return err_errno(err, errno, "cannot set a resource limit");
    return 0;
}

static int drop_capabilities(struct err *err)
{
    static const cap_value_t kept[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER,   CAP_FSETID,
                                       CAP_MKNOD, CAP_SETFCAP,      CAP_SYS_ADMIN};
    for (cap_value_t cap = 0; cap_get_bound(cap) >= 0; cap++) {
        bool keep = false;
        for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
            keep = keep || kept[i] == cap;
        if (!keep && cap_drop_bound(cap) < 0)
            return err_errno(err, errno, "cannot give up capability %d", cap);
    }
    cap_t caps = cap_init();
    int rc = !caps || cap_reset_ambient() < 0 ||
                     cap_set_flag(caps, CAP_PERMITTED, ARRAY_SIZE(kept), kept, CAP_SET) < 0 ||
                     cap_set_flag(caps, CAP_EFFECTIVE, ARRAY_SIZE(kept), kept, CAP_SET) < 0 ||
                     cap_set_proc(caps) < 0
                 ? -errno
                 : 0;
    cap_free(caps);
    return rc < 0 ? err_errno(err, rc, "cannot give up capabilities") : 0;
}

int unpack_confine_rights(struct err *err)
{
    int rc = limit(RLIMIT_CORE, 0, err);
    if (rc == 0)
        rc = limit(RLIMIT_NOFILE, FILES_MAX, err);
    if (rc == 0 && !SANITIZED)
        rc = limit(RLIMIT_AS, (rlim_t)MEMORY_MAX_MIB << 20, err);
    if (rc == 0)
        rc = drop_capabilities(err);
    if (rc < 0)
        return rc;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot give up new privileges");
    return unpack_seccomp_apply(err);
}
