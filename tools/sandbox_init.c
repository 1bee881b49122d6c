/* varve-init - process 1 of a sandbox: starts the command, reaps orphans, passes signals on.
 *
 * Linked statically, as it is started by its descriptor inside a root filesystem that may hold
 * nothing. The command runs with the same ids and could trace any process of its own user with no
 * more capabilities than itself; so this process marks itself as not dumpable before the command
 * exists, and nothing inside can read its memory, its descriptors (one holds the run's lock) or
 * its executable.
 *
 * The end of this process ends every other one in the sandbox: that is how pid namespaces work.
 */
#include "sandbox_wire.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STATUS_BROKEN = 125, /* of this process when it cannot do its own work */
};

static bool tell(int control, enum sandbox_wire_kind kind, int value)
{
    struct sandbox_wire message = {.kind = kind, .value = value};
    return send(control, &message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message;
}

/* False: the client is gone, or says what no client says. */
static bool hear(int control, struct sandbox_wire *ret)
{
    ssize_t n;
    do
        n = recv(control, ret, sizeof *ret, 0);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *ret;
}

/* The command inherits no capability by other ways than being root inside; with an empty
 * inheritable set a program that it starts as another user has none. */
static void drop_inheritable(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &header, data) == 0) {
        data[0].inheritable = data[1].inheritable = 0;
        (void)syscall(SYS_capset, &header, data);
    }
}

/* This process needs to signal processes of any user inside, and nothing else. */
static void keep_only_kill(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {
        {.effective = 1U << CAP_KILL, .permitted = 1U << CAP_KILL}};
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    (void)syscall(SYS_capset, &header, data);
}

/* In the child: becomes the command, or tells why not. */
static void start_command(int control, char **argv)
{
    int streams[3];
    for (int i = 0; i < 3; i++)
        streams[i] = (int)strtol(argv[SANDBOX_WIRE_ARG_STDIN + i], NULL, 10);
    setsid();
    for (int i = 0; i < 3; i++)
        if (dup2(streams[i], i) < 0)
            goto fail;
    if (argv[SANDBOX_WIRE_ARG_TERMINAL][0] == '1' && ioctl(0, TIOCSCTTY, 0) < 0)
        goto fail;
    /* The control socket too: it tells about a failed exec, and is gone after a good one. */
    if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        goto fail;
    if (chdir(argv[SANDBOX_WIRE_ARG_CWD]) < 0 && chdir("/") < 0)
        goto fail;
    umask(022);
    drop_inheritable();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[SANDBOX_WIRE_ARG_COMMAND], argv + SANDBOX_WIRE_ARG_COMMAND);
fail:;
    int num = errno;
    (void)tell(control, SANDBOX_WIRE_FAILED, num);
    _exit(num == ENOENT ? 127 : 126);
}

/* Shows a short name instead of the command, which the list of processes would else show twice. The
 * arguments lie one after the other. */
static void rename_self(int argc, char **argv)
{
    static const char name[] = "varve-init";
    size_t room = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
    memset(argv[0], 0, room);
    memcpy(argv[0], name, room < sizeof name ? room : sizeof name);
    prctl(PR_SET_NAME, name, 0, 0, 0);
}

static void pass_on(pid_t command, int number)
{
    if (number > 0 && number < NSIG && kill(-command, number) < 0)
        (void)kill(command, number); /* it has not made its process group yet */
}

/* Reaps whatever has ended. True with the status once the command itself has. */
static bool reap(pid_t command, int *ret_status)
{
    int status;
    bool ended = false;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == command) {
            *ret_status = status;
            ended = true;
        }
    return ended;
}

static int serve(int control, int signals, pid_t command)
{
    struct pollfd fds[] = {{.fd = control, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return STATUS_BROKEN;
        if (fds[1].revents) {
            struct signalfd_siginfo info;
            int status;
            if (read(signals, &info, sizeof info) < 0 && errno != EAGAIN && errno != EINTR)
                return STATUS_BROKEN;
            if (reap(command, &status)) {
                (void)tell(control, SANDBOX_WIRE_EXITED, status);
                return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            }
        }
        if (fds[0].revents) {
            struct sandbox_wire message;
            if (!hear(control, &message))
                return STATUS_BROKEN; /* nobody waits for the command any more */
            if (message.kind == SANDBOX_WIRE_SIGNAL)
                pass_on(command, message.value);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc <= SANDBOX_WIRE_ARG_COMMAND || getpid() != 1)
        return STATUS_BROKEN;
    int control = (int)strtol(argv[SANDBOX_WIRE_ARG_CONTROL], NULL, 10);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    sigset_t all;
    sigset_t child;
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &all, NULL);
    int signals = signalfd(-1, &child, SFD_CLOEXEC);
    struct sandbox_wire message;
    if (signals < 0 || !tell(control, SANDBOX_WIRE_READY, 0) || !hear(control, &message) ||
        message.kind != SANDBOX_WIRE_GO)
        return STATUS_BROKEN;
    pid_t command = fork();
    if (command == 0)
        start_command(control, argv);
    if (command < 0) {
        (void)tell(control, SANDBOX_WIRE_FAILED, errno);
        return STATUS_BROKEN;
    }
    keep_only_kill();
    for (int i = SANDBOX_WIRE_ARG_STDIN; i <= SANDBOX_WIRE_ARG_STDERR; i++)
        close((int)strtol(argv[i], NULL, 10));
    rename_self(argc, argv);
    return serve(control, signals, command);
}
