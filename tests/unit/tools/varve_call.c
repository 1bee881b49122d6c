#include "varve_call.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void read_file(const struct scratch *scratch, const char *name, char *ret)
{
    cleanup_fd int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : fdio_read_full(fd, ret, VARVE_CALL_OUTPUT_MAX - 1);
    ret[n > 0 ? n : 0] = '\0';
}

static void become_varve(const struct scratch *scratch, int stdin_fd, const char *const *args)
{
    char host[200];
    const char *argv[64] = {"varve", "--host", host};
    snprintf(host, sizeof host, "unix:%s/sock", scratch->path);
    for (size_t i = 0; args[i] && i < ARRAY_SIZE(argv) - 4; i++)
        argv[3 + i] = args[i];
    int in = stdin_fd ? stdin_fd : open("/dev/null", O_RDONLY);
    int out = openat(scratch->fd, "out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int err = openat(scratch->fd, "err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2)
        execv(VARVE_PROGRAM, (char *const *)argv);
    _exit(99);
}

void varve_call(const struct scratch *scratch, const struct varve_call_setup *setup,
                const char *const *args, struct varve_call *ret)
{
    memset(ret, 0, sizeof *ret);
    if (setup->answers)
        fake_varved_start(&ret->fake, scratch_path(scratch, "sock"), setup->answers,
                          setup->answer_count);
    pid_t pid = fork();
    if (pid == 0)
        become_varve(scratch, setup->stdin_fd, args);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ret->status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    if (setup->answers)
        fake_varved_stop(&ret->fake);
    read_file(scratch, "out", ret->out);
    read_file(scratch, "err", ret->err);
}

void varve_call_free(struct varve_call *call)
{
    fake_varved_free(&call->fake);
}

void varve_call_expect_error(const struct varve_call *call, int status, const char *text)
{
    const char *end = strchr(call->err, '\n');
    if (call->status != status || strncmp(call->err, "varve: ", 7) != 0 || !end || end[1] ||
        !strstr(call->err, text))
        fail_msg("status %d, '%s'", call->status, call->err);
    assert_string_equal(call->out, "");
}
