#include "spawn.h"

#include "fdio.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef VARVE_LIBEXECDIR
#define VARVE_LIBEXECDIR "/usr/local/libexec/varve"
#endif

int spawn_find(const char *name, char ret[4096], struct err *err)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        if (slash)
            *slash = '\0';
        int len = snprintf(ret, 4096, "%s/%s", self, name);
        if (len < 4096 && access(ret, X_OK) == 0)
            return 0;
    }
    int len = snprintf(ret, 4096, "%s/%s", VARVE_LIBEXECDIR, name);
    if (len < 4096 && access(ret, X_OK) == 0)
        return 0;
    int rc =
        err_fail(err, ERR_UNSUPPORTED, "helper program %s is neither beside this program nor in %s",
                 name, VARVE_LIBEXECDIR);
    err_hint(err, "install varve completely");
    return rc;
}

/* Nothing ignored, nothing blocked; exec itself takes handlers away. */
static void clean_signals(void)
{
    for (int number = 1; number < NSIG; number++)
        (void)signal(number, SIG_DFL); /* fails for those that nobody can change */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* After the last change of ids, which forgets the setting. Who ended before it does not read what
 * is reported any more; his pid is of no use in a namespace of its own. */
static int tie(int report)
{
    struct pollfd parent = {.fd = report};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -errno;
    return poll(&parent, 1, 0) > 0 && (parent.revents & POLLERR) ? -ESRCH : 0;
}

/* In the child, between fork and exec: only async-signal-safe calls. */
static void child_exec(const struct spawn *spawn, char *const *envp, int report)
{
    int wanted[3 + SPAWN_FDS_MAX] = {spawn->stdin_fd, spawn->stdout_fd, spawn->stderr_fd};
    size_t count = 3 + spawn->extra_count;
    for (size_t i = 0; i < spawn->extra_count; i++)
        wanted[3 + i] = spawn->extra[i];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (wanted[0] < 0)
        wanted[0] = null;
    if (wanted[1] < 0)
        wanted[1] = null;
    if (wanted[2] < 0)
        wanted[2] = 2;
    /* First all out of the way of the final numbers, then each to its place. */
    int moved = fcntl(report, F_DUPFD_CLOEXEC, (int)(3 * count));
    if (moved < 0)
        goto fail; /* nothing has been overwritten yet */
    report = moved;
    for (size_t i = 0; i < count; i++)
        if ((wanted[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, (int)(2 * count))) < 0)
            goto fail;
    for (size_t i = 0; i < count; i++)
        if (dup2(wanted[i], (int)i) < 0)
            goto fail;
    /* Libraries leave descriptors that are not close-on-exec, curl its sockets for one. */
    if (close_range((unsigned)count, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        goto fail;
    clean_signals();
    if (spawn->own_group && setpgid(0, 0) < 0)
        goto fail;
    int rc = spawn->confine ? confine_apply(spawn->confine) : 0;
    if (rc == 0 && spawn->tied)
        rc = tie(report);
    if (rc < 0) {
        errno = -rc;
        goto fail;
    }
    execve(spawn->argv[0], (char *const *)spawn->argv, envp);
fail:;
    int num = errno;
    ssize_t ignored = write(report, &num, sizeof num);
    (void)ignored;
    _exit(127);
}

/* The library's fork() makes no namespaces. */
static pid_t make_child(const struct spawn *spawn)
{
    if (!spawn->confine)
        return fork();
    struct clone_args args = {.flags = CONFINE_NAMESPACES, .exit_signal = SIGCHLD};
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

pid_t spawn_start(const struct spawn *spawn, struct err *err)
{
    static const char *const minimal[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    const char *const *envp = spawn->envp ? spawn->envp : minimal;
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot start %s", spawn->argv[0]);
    pid_t pid = make_child(spawn);
    if (pid == 0)
        child_exec(spawn, (char *const *)envp, report[1]);
    int fork_errno = errno;
    close(report[1]);
    int num = 0;
    ssize_t n = pid < 0 ? 0 : fdio_read_full(report[0], &num, sizeof num);
    close(report[0]);
    if (pid < 0)
        return err_errno(err, fork_errno, "cannot start %s", spawn->argv[0]);
    if (n == sizeof num) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return err_errno(err, num, "cannot start %s", spawn->argv[0]);
    }
    return pid;
}

int spawn_wait(pid_t pid, struct err *err)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_errno(err, errno, "cannot wait for a helper program");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int spawn_find_tool(const char *name, char ret[4096], struct err *err)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                       "/usr/bin",        "/sbin",          "/bin"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        snprintf(ret, 4096, "%s/%.200s", dirs[i], name);
        if (access(ret, X_OK) == 0)
            return 0;
    }
    return err_fail(err, ERR_NOT_FOUND, "the program %s is not installed", name);
}

void spawn_last_line(int fd, char ret[SPAWN_LINE_MAX])
{
    char text[4096];
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > (off_t)sizeof text - 1 ? end - (off_t)sizeof text + 1 : 0;
    ssize_t n = pread(fd, text, sizeof text - 1, from);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    text[n > 0 ? n : 0] = '\0';
    char *line = strrchr(text, '\n');
    snprintf(ret, SPAWN_LINE_MAX, "%.*s", SPAWN_LINE_MAX - 1, line ? line + 1 : text);
}

int spawn_tool(const char *const *argv, struct buf *ret_out, struct err *err)
{
    char path[4096];
    int rc = spawn_find_tool(argv[0], path, err);
    if (rc < 0) {
        err_hint(err, "install the package that brings %s", argv[0]);
        return rc;
    }
    const char *args[64] = {path};
    size_t count = 1;
    for (; argv[count] && count < ARRAY_SIZE(args) - 1; count++)
        args[count] = argv[count];
    if (argv[count])
        return err_fail(err, ERR_INTERNAL, "too many arguments for %s", argv[0]);
    cleanup_fd int said = memfd_create("stderr", MFD_CLOEXEC);
    int out[2];
    if (said < 0 || pipe2(out, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot start %s", argv[0]);
    struct spawn spawn = {
        .argv = args, .stdin_fd = -1, .stdout_fd = ret_out ? out[1] : -1, .stderr_fd = said};
    pid_t pid = spawn_start(&spawn, err);
    close(out[1]);
    rc = pid < 0 ? pid : ret_out ? fdio_read_all(out[0], argv[0], ret_out, err) : 0;
    close(out[0]);
    if (pid < 0)
        return pid;
    int status = spawn_wait(pid, err);
    if (status < 0 || rc < 0)
        return status < 0 ? status : rc;
    if (status == 0)
        return 0;
    char line[SPAWN_LINE_MAX];
    spawn_last_line(said, line);
    return err_fail(err, ERR_IO, "%s ended with status %d: %s", argv[0], status, line);
}
