#include "sandbox_probe.h"

#include "cleanup.h"
#include "fdio.h"
#include "tiny_root.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *const names[] = {"stdin", "stdout", "stderr"};

static void run_child(const struct scratch *scratch, const struct sandbox_probe *probe)
{
    const char *const script[] = {"sh", "-c", probe->script, NULL};
    for (int i = 0; i < 3; i++) {
        int fd = probe->fds[i];
        if (fd == 0)
            fd = openat(scratch->fd, names[i], (i == 0 ? O_RDONLY : O_WRONLY | O_TRUNC) | O_CREAT,
                        0600);
        if (fd < 0 || dup2(fd, i) < 0)
            _exit(SANDBOX_PROBE_FAILED + 1);
    }
    /* An end of a pipe that stays open here would never end for the command. */
    unsigned int lock = probe->lock_fd ? (unsigned int)probe->lock_fd : 2;
    if (!probe->leaky &&
        ((lock > 3 && close_range(3, lock - 1, 0) < 0) || close_range(lock + 1, ~0U, 0) < 0))
        _exit(SANDBOX_PROBE_FAILED + 1);
    struct sandbox sandbox = {.id = "r-test",
                              .rootfs = probe->rootfs ? probe->rootfs : tiny_root_path(scratch),
                              .lock_fd = probe->lock_fd ? probe->lock_fd : -1,
                              .env = probe->env,
                              .cwd = probe->cwd,
                              .user = probe->user,
                              .net = probe->net,
                              .argv = probe->script ? script : probe->argv,
                              .init = VARVE_INIT};
    struct err err = ERR_INIT;
    int status = sandbox_run(&sandbox, &err);
    if (err.code != ERR_NONE)
        dprintf(STDERR_FILENO, "%s; %s\n", err.text, err.hint);
    _exit(status < 0 ? SANDBOX_PROBE_FAILED : status);
}

pid_t sandbox_probe_start(const struct scratch *scratch, const struct sandbox_probe *probe)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails */
        run_child(scratch, probe);
    }
    return pid;
}

static void read_stream(const struct scratch *scratch, const char *name, char *ret, size_t room)
{
    ret[0] = '\0';
    cleanup_fd int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : fdio_read_full(fd, ret, room - 1);
    ret[n > 0 ? n : 0] = '\0';
}

void sandbox_probe_wait(const struct scratch *scratch, pid_t pid, struct sandbox_probe_result *ret)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    ret->status = WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
    read_stream(scratch, "stdout", ret->out, sizeof ret->out);
    read_stream(scratch, "stderr", ret->err, sizeof ret->err);
}

void sandbox_probe_run(const struct scratch *scratch, const struct sandbox_probe *probe,
                       struct sandbox_probe_result *ret)
{
    sandbox_probe_wait(scratch, sandbox_probe_start(scratch, probe), ret);
}

void sandbox_probe_script(const struct scratch *scratch, const char *script,
                          struct sandbox_probe_result *ret)
{
    struct sandbox_probe probe = {.script = script};
    sandbox_probe_run(scratch, &probe, ret);
}

void sandbox_probe_await(bool (*condition)(void *arg), void *arg, const char *what)
{
    for (int i = 0; i < 2000; i++) {
        struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
        if (condition(arg))
            return;
        nanosleep(&pause, NULL);
    }
    fail_msg("%s did not happen within 20 s", what);
}
