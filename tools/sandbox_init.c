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
#include <grp.h>
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
    GROUPS_MAX = 1024,   /* SANDBOX_GROUPS_MAX */
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

/* Makes what is missing of a path, as root; a name of this sandbox's own file system, whatever
 * links are in it. */
static void make_path(char *path)
{
    for (char *slash = strchr(path + (path[0] == '/'), '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    (void)mkdir(path, 0755);
}

/* 0 or an errno. */
static int enter_cwd(char *path)
{
    if (chdir(path) == 0)
        return 0;
    if (errno != ENOENT)
        return errno;
    make_path(path);
    return chdir(path) < 0 ? errno : 0;
}

/* "UID:GID,GID..." from our own client. The streams become the user's, as it may want to open
 * /dev/stdout; one that is nobody's to give (a socket of elsewhere) stays. 0 or an errno. */
static int become_user(const char *text)
{
    static gid_t groups[GROUPS_MAX];
    size_t count = 0;
    char *at;
    uid_t uid = (uid_t)strtoul(text, &at, 10);
    gid_t gid = *at == ':' ? (gid_t)strtoul(at + 1, &at, 10) : 0;
    while (*at == ',' && count < GROUPS_MAX)
        groups[count++] = (gid_t)strtoul(at + 1, &at, 10);
    if (*at != '\0')
        return EINVAL;
    for (int i = 0; i < 3 && uid != 0; i++)
        (void)fchown(i, uid, (gid_t)-1);
    if (setgroups(count, groups) < 0 || setresgid(gid, gid, gid) < 0 ||
        setresuid(uid, uid, uid) < 0)
        return errno;
    return 0;
}

/* In the child: becomes the command, or tells why not. */
static void start_command(int control, char **argv)
{
    enum sandbox_wire_kind kind = SANDBOX_WIRE_FAILED;
    int num;
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
    umask(022);
    kind = SANDBOX_WIRE_NO_CWD;
    errno = enter_cwd(argv[SANDBOX_WIRE_ARG_CWD]);
    if (errno)
        goto fail;
    drop_inheritable();
    kind = SANDBOX_WIRE_NO_USER;
    errno = become_user(argv[SANDBOX_WIRE_ARG_USER]);
    if (errno)
        goto fail;
    kind = SANDBOX_WIRE_FAILED;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[SANDBOX_WIRE_ARG_COMMAND], argv + SANDBOX_WIRE_ARG_COMMAND);
fail:
    num = errno;
    (void)tell(control, kind, num);
    _exit(kind == SANDBOX_WIRE_FAILED && num == ENOENT ? 127 : 126);
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
