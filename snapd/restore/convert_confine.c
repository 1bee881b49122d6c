#include "convert_confine.h"

#include "cleanup.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum {
    /* Private writable memory: a 128 MiB window, the names, attributes and inodes of the largest
     * image (erofs_writer.h) and room. Mapped images do not count. */
    MEMORY_MAX_MIB = 1536,
    FILES_MAX = 256, /* descriptors: 127 lower images and a few */
    NOBODY = 65534,
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

int convert_confine_view(struct err *err)
{
    /* varved's log is for varved's words; but a sanitizer's must be seen. */
    if (!SANITIZED && dup2(STDIN_FILENO, STDERR_FILENO) < 0)
        return err_errno(err, errno, "cannot leave the standard error");
    cleanup_fd int root = empty_root(err);
    if (root < 0)
        return root;
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
        return err_errno(err, errno, "cannot make namespaces of its own");
    return enter_root(root, err);
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

static int set_limits(uint64_t file_bytes_max, struct err *err)
{
    /* A write that passes the limit answers EFBIG instead of ending the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
    int rc = limit(RLIMIT_CORE, 0, err);
    if (rc == 0)
        rc = limit(RLIMIT_NOFILE, FILES_MAX, err);
    if (rc == 0)
        rc = limit(RLIMIT_FSIZE, file_bytes_max, err);
    if (rc == 0 && !SANITIZED)
        rc = limit(RLIMIT_DATA, (rlim_t)MEMORY_MAX_MIB << 20, err);
    return rc;
}

/* Where the user namespace has no such owner, the process stays what it is, without rights. */
static int become_nobody(struct err *err)
{
    if (setgroups(0, NULL) < 0 && errno != EPERM)
        return err_errno(err, errno, "cannot give up its groups");
    if (setresgid(NOBODY, NOBODY, NOBODY) < 0 && errno != EINVAL)
        return err_errno(err, errno, "cannot give up its group");
    if (setresuid(NOBODY, NOBODY, NOBODY) < 0 && errno != EINVAL)
        return err_errno(err, errno, "cannot give up its user");
    return 0;
}

static int drop_capabilities(struct err *err)
{
    for (cap_value_t cap = 0; cap_get_bound(cap) >= 0; cap++)
        if (cap_drop_bound(cap) < 0)
            return err_errno(err, errno, "cannot give up capability %d", cap);
    if (cap_reset_ambient() < 0)
        return err_errno(err, errno, "cannot give up capabilities");
    int rc = become_nobody(err);
    if (rc < 0)
        return rc;
    cap_t none = cap_init();
    rc = !none || cap_set_proc(none) < 0 ? -errno : 0;
    cap_free(none);
    return rc < 0 ? err_errno(err, rc, "cannot give up capabilities") : 0;
}

int convert_confine_rights(uint64_t file_bytes_max, pid_t parent, struct err *err)
{
    int rc = set_limits(file_bytes_max, err);
    if (rc == 0)
        rc = drop_capabilities(err);
    if (rc < 0)
        return rc;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot give up new privileges");
    /* After the change of owner, which forgets it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot bind its life to varved's");
    if (getppid() != parent)
        return err_fail(err, ERR_INTERRUPTED, "varved ended");
    return 0;
}
