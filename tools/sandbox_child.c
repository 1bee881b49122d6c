#include "sandbox_child.h"

#include "cleanup.h"
#include "sandbox_args.h"
#include "sandbox_view.h"
#include "userns.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Bytes in step over the sync pair. */
enum {
    STEP_GO = 'g',  /* client: the child is in its cgroup */
    STEP_MAP = 'm', /* child: map my user namespace */
    STEP_MAPPED = 'd',
};

/* --- The child's side --- */

static int say(int sync, char step, struct err *err)
{
    if (send(sync, &step, 1, MSG_NOSIGNAL) != 1)
        return err_errno(err, errno, "the client has gone");
    return 0;
}

static int expect(int sync, char step, struct err *err)
{
    char byte;
    ssize_t n;
    do
        n = recv(sync, &byte, 1, 0);
    while (n < 0 && errno == EINTR);
    if (n != 1 || byte != step)
        return err_fail(err, ERR_INTERRUPTED, "the client has gone");
    return 0;
}

/* Ends with the client. The setting is lost when the ids change, so it is made again. */
static int die_with(pid_t parent, struct err *err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot tie a sandbox to its client");
    if (getppid() != parent)
        return err_fail(err, ERR_INTERRUPTED, "the client has gone");
    return 0;
}

static int part_from_client(const struct sandbox_child *child, struct err *err)
{
    int rc = die_with(child->parent, err);
    if (rc < 0)
        return rc;
    setsid();
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    /* Root's session keyring would be the sandbox's. Where a kernel or seccomp filter has no
     * keyrings, the sandbox has none either. */
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS &&
        errno != EPERM)
        return err_errno(err, errno, "cannot make an empty session keyring");
    return 0;
}

/* Takes all but the sandbox's capabilities out of the bounding set. bubblewrap needs more than
 * those to set things up and has them through the inheritable set, which it clears itself. */
static int bound_capabilities(struct err *err)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return err_errno(err, errno, "cannot read the capabilities");
    for (int i = 0; i < 2; i++)
        data[i].inheritable = data[i].permitted;
    if (syscall(SYS_capset, &header, data) < 0)
        return err_errno(err, errno, "cannot set the inheritable capabilities");
    unsigned long long keep = sandbox_args_cap_mask();
    for (int cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return err_errno(err, errno, "cannot bound the capabilities");
    return 0;
}

static int set_descriptors(const struct sandbox_child *child, struct err *err)
{
    cleanup_fd int init = open(child->init, O_RDONLY | O_CLOEXEC);
    if (init < 0)
        return err_errno(err, errno, "cannot open %s", child->init);
    cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_errno(err, errno, "cannot open /dev/null");
    if (dup2(init, child->init_fd) < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(null, STDOUT_FILENO) < 0 || dup2(child->said, STDERR_FILENO) < 0 ||
        syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot set up the descriptors of a sandbox");
    for (size_t i = 0; i < child->keep_count; i++)
        if (fcntl(child->keep[i], F_SETFD, 0) < 0)
            return err_errno(err, errno, "cannot pass on a descriptor");
    return fcntl(child->init_fd, F_SETFD, 0) < 0
               ? err_errno(err, errno, "cannot pass on a descriptor")
               : 0;
}

static int enter_userns(const struct sandbox_child *child, int proc_fd, struct err *err)
{
    int rc = userns_unshare(err);
    if (rc == 0)
        rc = say(child->sync, STEP_MAP, err);
    if (rc == 0)
        rc = expect(child->sync, STEP_MAPPED, err);
    if (rc == 0)
        rc = userns_become_root(err);
    if (rc == 0)
        rc = userns_forbid_nested(proc_fd, err);
    return rc == 0 ? die_with(child->parent, err) : rc;
}

static int become_bwrap(const struct sandbox_child *child, struct err *err)
{
    /* Of the host's view, where it may be written. */
    cleanup_fd int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (proc_fd < 0)
        return err_errno(err, errno, "cannot open /proc");
    int rc = part_from_client(child, err);
    if (rc == 0)
        rc = expect(child->sync, STEP_GO, err);
    if (rc == 0)
        rc = sandbox_view_enter(child->rootfs, child->console, err);
    if (rc == 0)
        rc = enter_userns(child, proc_fd, err);
    if (rc == 0)
        rc = bound_capabilities(err);
    if (rc == 0 && chdir("/") < 0)
        rc = err_errno(err, errno, "cannot enter /");
    if (rc == 0)
        rc = set_descriptors(child, err);
    if (rc < 0)
        return rc;
    static char *const environment[] = {
        (char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        (char *)"LC_ALL=C", NULL};
    execve(child->bwrap, child->argv, environment);
    return err_errno(err, errno, "cannot start %s", child->bwrap);
}

_Noreturn void sandbox_child_run(const struct sandbox_child *child)
{
    struct err err = ERR_INIT;
    (void)become_bwrap(child, &err);
    (void)send(child->sync, &err, sizeof err, MSG_NOSIGNAL);
    _exit(1);
}

/* --- The client's side --- */

/* The next packet: 0 a step, 1 the end (exec), or the child's failure. */
static int next_step(int sync, char *ret, struct err *err)
{
    union {
        char step;
        struct err failure;
    } packet;
    ssize_t n;
    do
        n = recv(sync, &packet, sizeof packet, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(err, errno, "cannot talk to the sandbox's first process");
    if (n == 0)
        return 1;
    if (n == (ssize_t)sizeof packet.failure) {
        if (err)
            *err = packet.failure;
        return -packet.failure.num;
    }
    *ret = packet.step;
    return 0;
}

int sandbox_child_lead(int sync, pid_t pid, struct err *err)
{
    int rc = say(sync, STEP_GO, err);
    if (rc < 0)
        return rc;
    for (;;) {
        char step = 0;
        rc = next_step(sync, &step, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (step != STEP_MAP)
            return err_fail(err, ERR_INTERNAL, "a sandbox's first process is out of step");
        rc = userns_map(pid, err);
        if (rc == 0)
            rc = say(sync, STEP_MAPPED, err);
        if (rc < 0)
            return rc;
    }
}
