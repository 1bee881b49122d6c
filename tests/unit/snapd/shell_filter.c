#include "shell_filter.h"

#include "fdio.h"
#include "spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <cmocka.h>

int memory_file(const void *bytes, size_t len)
{
    int fd = memfd_create("bytes", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fdio_write_full(fd, bytes, len), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

char *shell_filter(const struct scratch *scratch, const char *command, const void *bytes,
                   size_t len, size_t *ret_len)
{
    struct err err = ERR_INIT;
    struct buf out = BUF_INIT(256 << 20);
    cleanup_fd int in = memory_file(bytes, len);
    cleanup_fd int result = memory_file("", 0);
    char line[1024];
    snprintf(line, sizeof line, "cd '%s' && %s", scratch->path, command);
    const char *const argv[] = {"/bin/sh", "-c", line, NULL};
    const struct spawn spawn = {.argv = argv, .stdin_fd = in, .stdout_fd = result, .stderr_fd = -1};
    pid_t pid = spawn_start(&spawn, &err);
    assert_true(pid > 0);
    assert_int_equal(spawn_wait(pid, &err), 0);
    assert_int_equal(lseek(result, 0, SEEK_SET), 0);
    assert_int_equal(fdio_read_all(result, command, &out, &err), 0);
    *ret_len = out.len;
    return buf_steal(&out);
}
