#include "tree_look.h"

#include "fdio.h"
#include "spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include <cmocka.h>

struct stat look(const struct scratch *scratch, const char *path)
{
    struct stat st;
    if (fstatat(scratch->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        fail_msg("%s: %s", path, strerror(errno));
    return st;
}

bool is_there(const struct scratch *scratch, const char *path)
{
    return faccessat(scratch->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void assert_content(const struct scratch *scratch, const char *path, const char *text)
{
    struct err err = ERR_INIT;
    struct buf buf = BUF_INIT(1 << 20);
    int fd = fdio_open_beneath(scratch->fd, path, O_RDONLY, 0);
    if (fd < 0)
        fail_msg("%s: %s", path, strerror(-fd));
    assert_int_equal(fdio_read_all(fd, path, &buf, &err), 0);
    close(fd);
    assert_string_equal(buf_str(&buf), text);
    buf_free(&buf);
}

void assert_link(const struct scratch *scratch, const char *path, const char *target)
{
    char have[4096];
    ssize_t n = readlinkat(scratch->fd, path, have, sizeof have - 1);
    if (n < 0)
        fail_msg("%s: %s", path, strerror(errno));
    have[n] = '\0';
    assert_string_equal(have, target);
}

void assert_xattr(const struct scratch *scratch, const char *path, const char *name,
                  const void *value, size_t size)
{
    char have[65536];
    ssize_t n = lgetxattr(scratch_path(scratch, path), name, have, sizeof have);
    if (!value) {
        assert_int_equal(n, -1);
        return;
    }
    if (n < 0)
        fail_msg("%s of %s: %s", name, path, strerror(errno));
    assert_int_equal(n, size);
    assert_memory_equal(have, value, size);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

void assert_names(const struct scratch *scratch, const char *path, const char *names)
{
    struct dirent **list;
    int count = scandirat(scratch->fd, path, &list, NULL, by_name);
    if (count < 0)
        fail_msg("%s: %s", path, strerror(errno));
    char have[4096] = "";
    for (int i = 0; i < count; i++) {
        const char *name = list[i]->d_name;
        size_t used = strlen(have);
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            snprintf(have + used, sizeof have - used, "%s%s", used ? " " : "", name);
        free(list[i]);
    }
    free(list);
    assert_string_equal(have, names);
}

static int memory_file(const void *bytes, size_t len)
{
    int fd = memfd_create("blob", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fdio_write_full(fd, bytes, len), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

void filter(const struct scratch *scratch, const char *command, const void *bytes, size_t len,
            char **ret, size_t *ret_len)
{
    struct err err = ERR_INIT;
    struct buf out = BUF_INIT(64 << 20);
    cleanup_fd int in = memory_file(bytes, len);
    cleanup_fd int result = memfd_create("out", MFD_CLOEXEC);
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
    *ret = buf_steal(&out);
}
