#include "sandbox.h"

#include "cleanup.h"
#include "fdio.h"
#include "output.h"
#include "sandbox_args.h"
#include "sandbox_cgroup.h"
#include "sandbox_child.h"
#include "sandbox_io.h"
#include "sandbox_net.h"
#include "sandbox_proc.h"
#include "sandbox_resolv.h"
#include "sandbox_wire.h"
#include "spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    USER_MAX = 16 + 11 * (SANDBOX_GROUPS_MAX + 1), /* bytes of the user as varve-init reads it */
    ARGS_MAX = 4 << 20,     /* bytes of bubblewrap's options, mostly the environment */
    END_WAIT_MS = 30 * 1000 /* for process 1 to be gone after SIGKILL */
};

/* One life of a sandbox, as its client sees it. */
struct life {
    const struct sandbox *sandbox;
    struct sandbox_io io;
    struct sandbox_resolv resolv;
    struct sandbox_cgroup cgroup;
    struct sandbox_net_pasta pasta;
    char bwrap[4096];
    char init[4096];
    int init_fd;       /* varve-init, for its number */
    int args_fd;       /* bubblewrap's options */
    int said;          /* what bubblewrap writes to standard error */
    int control;       /* to varve-init */
    int control_inner; /* varve-init's end */
    int signals;       /* signalfd */
    sigset_t old_mask;
    pid_t child; /* bubblewrap; 0 once it was waited for */
    int init_pidfd;
    bool exited;                      /* the command's status is known */
    int status;                       /* wait status */
    int failed;                       /* errno of a command that could not be started */
    enum sandbox_wire_kind failed_at; /* FAILED, NO_CWD or NO_USER */
    char user[USER_MAX];
};

/* --- Before the start --- */

static int make_control(struct life *life, struct err *err)
{
    int pair[2];
    int on = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "cannot make a socket pair");
    life->control = pair[0];
    life->control_inner = pair[1];
    if (setsockopt(life->control, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
        return err_errno(err, errno, "cannot set up a socket pair");
    life->said = memfd_create("bwrap", MFD_CLOEXEC);
    return life->said < 0 ? err_errno(err, errno, "cannot make a memory file") : 0;
}

static int find_programs(struct life *life, struct err *err)
{
    int rc = spawn_find_tool("bwrap", life->bwrap, err);
    if (rc < 0) {
        err_hint(err, "install the package bubblewrap");
        return rc;
    }
    if (life->sandbox->init)
        snprintf(life->init, sizeof life->init, "%s", life->sandbox->init);
    else
        rc = spawn_find("varve-init", life->init, err);
    if (rc < 0)
        return rc;
    life->init_fd = open(life->init, O_RDONLY | O_CLOEXEC);
    return life->init_fd < 0 ? err_errno(err, errno, "cannot open %s", life->init) : 0;
}

static int make_args(struct life *life, struct err *err)
{
    cleanup_free struct sandbox_proc_entry *proc = NULL;
    cleanup_buf struct buf text = BUF_INIT(ARGS_MAX);
    struct sandbox_args args = {.sandbox = life->sandbox,
                                .console = life->io.terminal,
                                .resolv_fd = life->resolv.fd,
                                .resolv_path = life->resolv.path};
    int rc = sandbox_proc_list("/proc", &proc, &args.proc_count, err);
    if (rc < 0)
        return rc;
    args.proc = proc;
    rc = sandbox_args_build(&args, &text, err);
    if (rc < 0)
        return rc;
    life->args_fd = memfd_create("args", MFD_CLOEXEC);
    rc = life->args_fd < 0 ? -errno : fdio_write_full(life->args_fd, text.data, text.len);
    if (rc < 0 || lseek(life->args_fd, 0, SEEK_SET) < 0)
        return err_errno(err, rc < 0 ? rc : errno, "cannot hold the options of bubblewrap");
    return 0;
}

/* From here on the signals that end a program arrive through a descriptor. */
static int take_signals(struct life *life, struct err *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT, SIGPIPE};
    sigset_t mask;
    sigemptyset(&mask);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        sigaddset(&mask, numbers[i]);
    sigprocmask(SIG_BLOCK, &mask, &life->old_mask);
    life->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return life->signals < 0 ? err_errno(err, errno, "cannot receive signals") : 0;
}

static int prepare(struct life *life, struct err *err)
{
    int rc = find_programs(life, err);
    if (rc == 0)
        rc = make_control(life, err);
    if (rc == 0)
        rc = sandbox_io_open(&life->io, err);
    if (rc == 0)
        rc = sandbox_resolv_make(life->sandbox->rootfs, life->sandbox->net, &life->resolv, err);
    if (rc == 0 && life->resolv.missing)
        output_warning(stderr,
                       "/etc/resolv.conf of %s is no file, so host names are not resolved in it; "
                       "an empty file there is enough",
                       life->sandbox->id);
    if (rc == 0)
        rc = make_args(life, err);
    if (rc == 0)
        life->cgroup = sandbox_cgroup_make(life->sandbox->id);
    return rc;
}

/* --- The start --- */

static void format_user(const struct sandbox_user *user, char ret[USER_MAX])
{
    int len = snprintf(ret, USER_MAX, "%u:%u", user->uid, user->gid);
    for (size_t i = 0; i < user->group_count && i < SANDBOX_GROUPS_MAX; i++)
        len += snprintf(ret + len, (size_t)(USER_MAX - len), ",%u", user->groups[i]);
}

/* The command line of bubblewrap; numbers get their room in `numbers`. */
static char **make_argv(struct life *life, char numbers[6][32], struct err *err)
{
    size_t count = 0;
    while (life->sandbox->argv[count])
        count++;
    char **argv = calloc(count + 13, sizeof *argv);
    if (!argv) {
        err_errno(err, ENOMEM, "cannot prepare the command");
        return NULL;
    }
    snprintf(numbers[0], sizeof numbers[0], "%d", life->args_fd);
    snprintf(numbers[1], sizeof numbers[1], "/proc/self/fd/%d", life->init_fd);
    snprintf(numbers[2], sizeof numbers[2], "%d", life->control_inner);
    for (int i = 0; i < SANDBOX_IO_STREAMS; i++)
        snprintf(numbers[3 + i], sizeof numbers[0], "%d", life->io.inner[i]);
    size_t n = 0;
    argv[n++] = (char *)"bwrap";
    argv[n++] = (char *)"--args";
    argv[n++] = numbers[0];
    argv[n++] = (char *)"--";
    char **init = argv + n;
    init[0] = numbers[1];
    init[SANDBOX_WIRE_ARG_CONTROL] = numbers[2];
    for (int i = 0; i < SANDBOX_IO_STREAMS; i++)
        init[SANDBOX_WIRE_ARG_STDIN + i] = numbers[3 + i];
    init[SANDBOX_WIRE_ARG_TERMINAL] = (char *)(life->io.terminal ? "1" : "0");
    init[SANDBOX_WIRE_ARG_CWD] = (char *)(life->sandbox->cwd ? life->sandbox->cwd : "/");
    format_user(&life->sandbox->user, life->user);
    init[SANDBOX_WIRE_ARG_USER] = life->user;
    for (size_t i = 0; i < count; i++)
        init[SANDBOX_WIRE_ARG_COMMAND + i] = (char *)life->sandbox->argv[i];
    return argv;
}

static int start(struct life *life, struct err *err)
{
    char numbers[6][32];
    cleanup_free char **argv = make_argv(life, numbers, err);
    int sync[2];
    if (!argv)
        return -ENOMEM;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync) < 0)
        return err_errno(err, errno, "cannot make a socket pair");
    struct sandbox_child child = {.rootfs = life->sandbox->rootfs,
                                  .console = life->io.terminal ? life->io.console : NULL,
                                  .bwrap = life->bwrap,
                                  .argv = argv,
                                  .init = life->init,
                                  .init_fd = life->init_fd,
                                  .sync = sync[1],
                                  .said = life->said,
                                  .parent = getpid()};
    const int keep[] = {life->args_fd,         life->control_inner, life->io.inner[0],
                        life->io.inner[1],     life->io.inner[2],   life->resolv.fd,
                        life->sandbox->lock_fd};
    for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
        if (keep[i] >= 0)
            child.keep[child.keep_count++] = keep[i];
    life->child = sandbox_cgroup_fork(&life->cgroup);
    if (life->child == 0) {
        close(sync[0]);
        sandbox_child_run(&child);
    }
    int rc = life->child < 0 ? err_errno(err, errno, "cannot start a child") : 0;
    close(sync[1]);
    sandbox_io_given(&life->io);
    close(life->control_inner);
    life->control_inner = -1;
    if (rc == 0)
        rc = sandbox_child_lead(sync[0], life->child, err);
    close(sync[0]);
    return rc;
}

/* --- Messages --- */

/* One message of varve-init, with the pid of its sender. False: there is none, or its end. */
static bool receive(struct life *life, struct sandbox_wire *ret, pid_t *ret_pid)
{
    union {
        char room[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } ancillary;
    struct iovec part = {.iov_base = ret, .iov_len = sizeof *ret};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = ancillary.room,
                             .msg_controllen = sizeof ancillary.room};
    if (recvmsg(life->control, &message, MSG_DONTWAIT) != (ssize_t)sizeof *ret)
        return false;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_CREDENTIALS) {
        struct ucred sender;
        memcpy(&sender, CMSG_DATA(header), sizeof sender);
        *ret_pid = sender.pid;
    }
    return true;
}

static void tell(const struct life *life, enum sandbox_wire_kind kind, int value)
{
    struct sandbox_wire message = {.kind = kind, .value = value};
    (void)send(life->control, &message, sizeof message, MSG_NOSIGNAL);
}

/* What varve-init says while the command runs. False: the sandbox has ended. */
static bool on_message(struct life *life)
{
    struct sandbox_wire message;
    pid_t pid;
    if (!receive(life, &message, &pid))
        return false;
    if (message.kind == SANDBOX_WIRE_FAILED || message.kind == SANDBOX_WIRE_NO_CWD ||
        message.kind == SANDBOX_WIRE_NO_USER) {
        life->failed = message.value;
        life->failed_at = message.kind;
    }
    if (message.kind == SANDBOX_WIRE_EXITED) {
        life->exited = true;
        life->status = message.value;
    }
    return true;
}

/* The next signal that asks for an end; 0 for none. */
static int next_signal(struct life *life)
{
    struct signalfd_siginfo info;
    while (read(life->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGWINCH)
            sandbox_io_resize(&life->io);
        else if (number == SIGCONT)
            sandbox_io_raw(&life->io);
        else if (number != SIGPIPE)
            return number;
    }
    return 0;
}

static int fail_setup(const struct life *life, struct err *err)
{
    char line[SPAWN_LINE_MAX];
    spawn_last_line(life->said, line);
    return err_fail(err, ERR_IO, "cannot set up the sandbox of %s: %s", life->sandbox->id,
                    *line ? line : "bubblewrap ended without a word");
}

/* Waits until varve-init stands. 0, or 128 + the signal that ended the waiting, or a failure. */
static int await_init(struct life *life, struct err *err)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = life->control, .events = POLLIN},
                               {.fd = life->signals, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot wait for the sandbox");
        int number = next_signal(life);
        if (number > 0)
            return 128 + number;
        struct sandbox_wire message;
        pid_t pid = 0;
        if (!fds[0].revents)
            continue;
        if (!receive(life, &message, &pid) || message.kind != SANDBOX_WIRE_READY || pid <= 0)
            return fail_setup(life, err);
        life->init_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (life->init_pidfd < 0)
            return err_errno(err, errno, "cannot watch the sandbox");
        if (life->sandbox->net != SANDBOX_NET_PASTA)
            return 0;
        return sandbox_net_start(pid, life->resolv.forward, &life->pasta, err);
    }
}

/* Relays until the sandbox has ended. */
static int relay(struct life *life, struct err *err)
{
    tell(life, SANDBOX_WIRE_GO, 0);
    sandbox_io_raw(&life->io);
    for (;;) {
        struct pollfd fds[SANDBOX_IO_STREAMS + 2];
        sandbox_io_poll(&life->io, fds);
        fds[3] = (struct pollfd){.fd = life->control, .events = POLLIN};
        fds[4] = (struct pollfd){.fd = life->signals, .events = POLLIN};
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot wait for the sandbox");
        if (!sandbox_io_pump(&life->io, fds))
            tell(life, SANDBOX_WIRE_SIGNAL, SIGHUP);
        for (int number; (number = next_signal(life)) > 0;)
            tell(life, SANDBOX_WIRE_SIGNAL, number);
        if (fds[3].revents && !on_message(life))
            return 0;
    }
}

/* --- The end --- */

/* Nothing of the sandbox is left when this returns. */
static void end(struct life *life)
{
    if (life->init_pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, life->init_pidfd, SIGKILL, NULL, 0);
    else if (life->child > 0)
        (void)kill(life->child, SIGKILL);
    if (life->init_pidfd >= 0) {
        /* Process 1 is gone only when all others are. */
        struct pollfd gone = {.fd = life->init_pidfd, .events = POLLIN};
        while (poll(&gone, 1, END_WAIT_MS) < 0 && errno == EINTR)
            ;
    }
    while (life->child > 0 && waitpid(life->child, NULL, 0) < 0 && errno == EINTR)
        ;
    sandbox_net_stop(&life->pasta);
    sandbox_cgroup_remove(&life->cgroup);
}

static void free_life(struct life *life)
{
    /* What is still pending is for a sandbox that has ended, or tells of its closed pipe. */
    while (life->signals >= 0 && next_signal(life) > 0)
        ;
    int fds[] = {life->init_fd,       life->args_fd, life->said,      life->control,
                 life->control_inner, life->signals, life->resolv.fd, life->init_pidfd};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    sandbox_io_close(&life->io);
    sigprocmask(SIG_SETMASK, &life->old_mask, NULL);
}

/* The exit status of what has happened. */
static int conclude(const struct life *life, struct err *err)
{
    const struct sandbox *sandbox = life->sandbox;
    if (life->failed && life->failed_at == SANDBOX_WIRE_NO_CWD) {
        err_errno(err, life->failed, "cannot enter the working directory %.200s in %s",
                  sandbox->cwd ? sandbox->cwd : "/", sandbox->id);
        return 126;
    }
    if (life->failed && life->failed_at == SANDBOX_WIRE_NO_USER) {
        err_errno(err, life->failed, "cannot become user %u in %s", sandbox->user.uid, sandbox->id);
        return 126;
    }
    if (life->failed) {
        bool missing = life->failed == ENOENT;
        char text[128];
        err_fail(err, missing ? ERR_NOT_FOUND : ERR_DENIED, "cannot run %.200s in %s: %s",
                 sandbox->argv[0], sandbox->id,
                 missing ? "no such program in it" : strerror_r(life->failed, text, sizeof text));
        return missing ? 127 : 126;
    }
    if (!life->exited)
        return err_fail(err, ERR_INTERRUPTED, "the sandbox of %s was ended from outside",
                        sandbox->id);
    return WIFSIGNALED(life->status) ? 128 + WTERMSIG(life->status) : WEXITSTATUS(life->status);
}

int sandbox_run(const struct sandbox *sandbox, struct err *err)
{
    struct life life = {.sandbox = sandbox,
                        .pasta = SANDBOX_NET_PASTA_INIT,
                        .resolv.fd = -1,
                        .init_fd = -1,
                        .args_fd = -1,
                        .said = -1,
                        .control = -1,
                        .control_inner = -1,
                        .signals = -1,
                        .init_pidfd = -1};
    sandbox_io_init(&life.io);
    int rc = take_signals(&life, err);
    if (rc == 0)
        rc = prepare(&life, err);
    if (rc == 0)
        rc = start(&life, err);
    if (rc == 0)
        rc = await_init(&life, err);
    if (rc == 0)
        rc = relay(&life, err);
    end(&life);
    if (rc == 0) {
        sandbox_io_drain(&life.io);
        rc = conclude(&life, err);
    }
    free_life(&life);
    return rc;
}
