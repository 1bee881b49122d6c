#include "sandbox_net.h"

#include "cleanup.h"
#include "sandbox_resolv.h"
#include "spawn.h"
#include "userns.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* What the holder is given. All descriptors are close-on-exec. */
struct holder {
    char pasta[4096]; /* path */
    bool forward;
    int user_ns;
    int net_ns;
    int client_read;  /* the holder's pid as the host sees it; ends when the client ends */
    int client_write; /* the client's end of it */
    int ready_read;   /* the client's end */
    int ready_write;  /* pasta's pid file */
    int said;         /* pasta's standard error */
};
#define HOLDER_INIT                                                                                \
    {                                                                                              \
        .user_ns = -1, .net_ns = -1, .client_read = -1, .client_write = -1, .ready_read = -1,      \
        .ready_write = -1, .said = -1                                                              \
    }

static void holder_close(struct holder *holder)
{
    int fds[] = {holder->user_ns,    holder->net_ns,      holder->client_read, holder->client_write,
                 holder->ready_read, holder->ready_write, holder->said};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* --- In the holder --- */

static int drop_capabilities(struct err *err)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    return syscall(SYS_capset, &header, none) < 0
               ? err_errno(err, errno, "cannot drop capabilities")
               : 0;
}

/* In the holder's child, once the holder has no capabilities: only then may pasta, which has few,
 * open the holder's descriptors. */
static void become_pasta(const struct holder *holder, pid_t own_pid, int go)
{
    char net_path[64];
    char ready_path[64];
    snprintf(net_path, sizeof net_path, "/proc/%d/fd/%d", (int)own_pid, holder->net_ns);
    snprintf(ready_path, sizeof ready_path, "/proc/%d/fd/%d", (int)own_pid, holder->ready_write);
    const char *const argv[] = {"pasta", "--quiet", "--foreground", "--config-net", "--no-map-gw",
                                /* No port is forwarded in either direction. */
                                "-t", "none", "-u", "none", "-T", "none", "-U", "none",
                                /* The holder's user namespace is the right one already. */
                                "--netns-only", "--no-netns-quit", "--netns", net_path, "--pid",
                                ready_path, holder->forward ? "--dns-forward" : NULL,
                                SANDBOX_RESOLV_FORWARD, NULL};
    static char *const environment[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    char byte;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < NSIG; i++) /* pasta takes an ignored SIGPIPE for a failure */
        (void)signal(i, SIG_DFL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (read(go, &byte, 1) == 1 && null >= 0 && dup2(null, 0) >= 0 && dup2(null, 1) >= 0 &&
        dup2(holder->said, 2) >= 0 && syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) == 0)
        execve(holder->pasta, (char *const *)argv, environment);
    _exit(127);
}

/* Drops what the client has open and must not stay open through the holder: the ends of pipes, the
 * lock of the run. */
static int close_others(const struct holder *holder)
{
    int keep[] = {holder->net_ns, holder->client_read, holder->ready_write, holder->said};
    unsigned int last = 0;
    for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
        last = (unsigned int)keep[i] > last ? (unsigned int)keep[i] : last;
    for (int fd = 0; fd < (int)last; fd++) {
        bool wanted = false;
        for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
            wanted = wanted || fd == keep[i];
        if (!wanted)
            (void)close(fd);
    }
    return syscall(SYS_close_range, last + 1, ~0U, 0U) < 0 ? -errno : 0;
}

/* Ends with the client. The setting is made after the last change of ids, which forgets it. */
static int tie_to_client(const struct holder *holder, struct err *err)
{
    struct pollfd client = {.fd = holder->client_read, .events = POLLIN};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot tie pasta to its client");
    if (poll(&client, 1, 0) != 0)
        return err_fail(err, ERR_INTERRUPTED, "the client has gone");
    return 0;
}

static int start_pasta(const struct holder *holder, pid_t own_pid, struct err *err)
{
    int go[2];
    if (pipe2(go, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    pid_t pasta = fork();
    if (pasta == 0)
        become_pasta(holder, own_pid, go[0]);
    if (pasta < 0)
        return err_errno(err, errno, "cannot start pasta");
    int rc = drop_capabilities(err);
    if (rc == 0 && write(go[1], "g", 1) != 1)
        rc = err_errno(err, errno, "cannot start pasta");
    return rc;
}

static int hold(const struct holder *holder, struct err *err)
{
    pid_t own_pid = 0;
    close(holder->client_write);
    setsid(); /* a terminal's signals are for the command */
    if (read(holder->client_read, &own_pid, sizeof own_pid) != (ssize_t)sizeof own_pid)
        return err_fail(err, ERR_INTERRUPTED, "the client has gone");
    if (setns(holder->user_ns, CLONE_NEWUSER) < 0)
        return err_errno(err, errno, "cannot enter the user namespace of the sandbox");
    int rc = userns_become_root(err);
    if (rc == 0)
        rc = tie_to_client(holder, err);
    if (rc == 0 && close_others(holder) < 0)
        rc = err_errno(err, errno, "cannot close descriptors");
    /* The change of ids has made this process undumpable; pasta opens descriptors of it. */
    if (rc == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        rc = err_errno(err, errno, "cannot prepare pasta");
    if (rc == 0)
        rc = start_pasta(holder, own_pid, err);
    /* pasta goes on until it is killed; whatever else ends first ends this pid namespace. */
    while (rc == 0 && (wait(NULL) >= 0 || errno == EINTR))
        ;
    return rc;
}

_Noreturn static void run_holder(const struct holder *holder)
{
    struct err err = ERR_INIT;
    if (hold(holder, &err) < 0)
        (void)dprintf(holder->said, "%s\n", err.text);
    _exit(1);
}

/* --- In the client --- */

static int open_namespace(pid_t pid, const char *name, int *ret, struct err *err)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name);
    *ret = open(path, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? err_errno(err, errno, "cannot open the %s namespace of the sandbox", name)
                    : 0;
}

static int prepare(pid_t pid, struct holder *holder, struct err *err)
{
    int rc = spawn_find_tool("pasta", holder->pasta, err);
    if (rc < 0) {
        err_hint(err, "install the package passt, or use --net none or host");
        return rc;
    }
    rc = open_namespace(pid, "user", &holder->user_ns, err);
    if (rc == 0)
        rc = open_namespace(pid, "net", &holder->net_ns, err);
    if (rc < 0)
        return rc;
    int client[2];
    int ready[2];
    if (pipe2(client, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    holder->client_read = client[0];
    holder->client_write = client[1];
    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    holder->ready_read = ready[0];
    holder->ready_write = ready[1];
    holder->said = memfd_create("pasta", MFD_CLOEXEC);
    return holder->said < 0 ? err_errno(err, errno, "cannot make a memory file") : 0;
}

static int fail_pasta(const struct holder *holder, const char *what, struct err *err)
{
    char line[SPAWN_LINE_MAX];
    spawn_last_line(holder->said, line);
    int rc = err_fail(err, ERR_IO, "pasta %s%s%s", what, *line ? ": " : "", line);
    err_hint(err, "the host needs a route to a network; --net none works without");
    return rc;
}

static int await_ready(struct holder *holder, struct err *err)
{
    close(holder->ready_write); /* so that the holder's end is seen */
    holder->ready_write = -1;
    struct pollfd ready = {.fd = holder->ready_read, .events = POLLIN};
    int n;
    do
        n = poll(&ready, 1, SANDBOX_NET_READY_S * 1000);
    while (n < 0 && errno == EINTR);
    char pid[32];
    if (n == 0)
        return fail_pasta(holder, "is not ready in time", err);
    if (n < 0 || read(holder->ready_read, pid, sizeof pid) <= 0)
        return fail_pasta(holder, "cannot connect the sandbox", err);
    return 0;
}

int sandbox_net_start(pid_t pid, bool forward, struct sandbox_net_pasta *ret, struct err *err)
{
    struct holder holder = HOLDER_INIT;
    holder.forward = forward;
    int rc = prepare(pid, &holder, err);
    pid_t child = -1;
    if (rc == 0) {
        struct clone_args args = {.flags = CLONE_NEWPID, .exit_signal = SIGCHLD};
        child = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        if (child == 0)
            run_holder(&holder);
        if (child < 0)
            rc = err_errno(err, errno, "cannot start the holder of pasta");
    }
    if (rc == 0 && write(holder.client_write, &child, sizeof child) != (ssize_t)sizeof child)
        rc = err_errno(err, errno, "cannot talk to the holder of pasta");
    if (rc == 0)
        rc = await_ready(&holder, err);
    if (rc == 0) {
        *ret = (struct sandbox_net_pasta){child, holder.client_write};
        holder.client_write = -1;
    } else if (child > 0) {
        sandbox_net_stop(&(struct sandbox_net_pasta){child, -1});
    }
    holder_close(&holder);
    return rc;
}

void sandbox_net_stop(struct sandbox_net_pasta *pasta)
{
    if (pasta->client >= 0)
        close(pasta->client);
    pasta->client = -1;
    if (pasta->holder <= 0)
        return;
    (void)kill(pasta->holder, SIGKILL);
    while (waitpid(pasta->holder, NULL, 0) < 0 && errno == EINTR)
        ;
    pasta->holder = -1;
}
