#include "userns.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* A number in /proc/sys; -1 when there is none. */
static long setting(const char *path)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[32] = "";
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return -1;
    return strtol(text, NULL, 10);
}

static int explain(int num, struct err *err)
{
    if (setting("/proc/sys/user/max_user_namespaces") == 0) {
        int rc = err_fail(err, ERR_DENIED,
                          "user namespaces are forbidden on this host "
                          "(user.max_user_namespaces is 0)");
        err_hint(err, "allow them: sysctl user.max_user_namespaces=65536");
        return rc;
    }
    if (setting("/proc/sys/kernel/unprivileged_userns_clone") == 0) {
        int rc = err_fail(err, ERR_DENIED,
                          "user namespaces are forbidden on this host "
                          "(kernel.unprivileged_userns_clone is 0)");
        err_hint(err, "allow them: sysctl kernel.unprivileged_userns_clone=1");
        return rc;
    }
    if (setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1) {
        int rc = err_fail(err, ERR_DENIED,
                          "AppArmor forbids user namespaces on this host "
                          "(kernel.apparmor_restrict_unprivileged_userns is 1)");
        err_hint(err, "set it to 0, or load an AppArmor profile that allows varve userns");
        return rc;
    }
    if (num == ENOSPC) {
        int rc = err_fail(err, ERR_DENIED, "there are as many user namespaces as this host allows");
        err_hint(err, "raise the sysctl user.max_user_namespaces");
        return rc;
    }
    if (num == EINVAL || num == ENOSYS)
        return err_fail(err, ERR_UNSUPPORTED, "this kernel has no user namespaces");
    int rc = err_errno(err, num, "cannot make a user namespace");
    err_hint(err, "if this is a container, its seccomp profile must allow unshare");
    return rc;
}

int userns_unshare(struct err *err)
{
    return unshare(CLONE_NEWUSER) < 0 ? explain(errno, err) : 0;
}

static int write_map(pid_t pid, const char *file, struct err *err)
{
    char path[64];
    char text[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int len = snprintf(text, sizeof text, "0 0 %d\n", USERNS_IDS);
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : fdio_write_full(fd, text, (size_t)len);
    if (rc == 0)
        return 0;
    rc = err_errno(err, rc, "cannot map the ids 0 to %d into a user namespace", USERNS_IDS - 1);
    err_hint(err, "varve must be root of a namespace that has all of these ids");
    return rc;
}

int userns_map(pid_t pid, struct err *err)
{
    int rc = write_map(pid, "uid_map", err);
    return rc < 0 ? rc : write_map(pid, "gid_map", err);
}

int userns_become_root(struct err *err)
{
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return err_errno(err, errno, "cannot become root of a user namespace");
    return 0;
}

int userns_forbid_nested(int proc_fd, struct err *err)
{
    cleanup_fd int fd = openat(proc_fd, "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : fdio_write_full(fd, "0\n", 2);
    return rc < 0 ? err_errno(err, rc, "cannot forbid nested user namespaces") : 0;
}

/* The child of userns_probe(): its exit status is an errno. */
static void probe_child(int sync)
{
    char byte = 0;
    if (unshare(CLONE_NEWUSER) < 0)
        _exit(errno);
    if (write(sync, "u", 1) != 1 || read(sync, &byte, 1) != 1)
        _exit(EIO);
    struct err err = ERR_INIT;
    _exit(userns_become_root(&err) < 0 ? err.num : 0);
}

int userns_probe(struct err *err)
{
    int sync[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sync) < 0)
        return err_errno(err, errno, "cannot make a socket pair");
    pid_t pid = fork();
    if (pid == 0) {
        close(sync[0]);
        probe_child(sync[1]);
    }
    int num = errno;
    close(sync[1]);
    if (pid < 0) {
        close(sync[0]);
        return err_errno(err, num, "cannot start a child");
    }
    char byte;
    int rc = 0;
    if (read(sync[0], &byte, 1) == 1) {
        rc = userns_map(pid, err);
        if (rc == 0 && send(sync[0], "m", 1, MSG_NOSIGNAL) != 1)
            rc = err_errno(err, errno, "cannot talk to a child");
    }
    close(sync[0]);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc < 0)
        return rc;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return explain(WIFEXITED(status) ? WEXITSTATUS(status) : EIO, err);
    return 0;
}
