/* What varved does to files beside what every recorded program does. */
#include "recorder.h"

#include "deadline_child.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE = 1 << 20, /* of what a tool has written */
};

static bool is_file(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

ssize_t __real_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    struct recorder_entry entry = {.kind = 'W'};
    bool is_wanted = recorder_is_on() && !recorder_is_own(fd) && is_file(fd);
    if (is_wanted) {
        const struct iovec iov = {.iov_base = (void *)bytes, .iov_len = len};
        entry = recorder_begin('W', fd);
        entry.offset = (uint64_t)lseek(fd, 0, SEEK_CUR);
        recorder_put(&entry, &iov, 1);
    }
    ssize_t written = __real_write(fd, bytes, len);
    if (is_wanted)
        recorder_end(entry, written);
    return written;
}

/* A new directory; `offset` is the inode of the one that it lies in. */
int __real_mkdirat(int dir_fd, const char *name, mode_t mode);
int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode);
int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    struct stat st;
    int rc = __real_mkdirat(dir_fd, name, mode);
    if (rc == 0 && recorder_is_on() && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        const struct iovec iov = {.iov_base = (void *)name, .iov_len = strlen(name)};
        struct recorder_entry entry = recorder_begin('M', dir_fd);
        entry.offset = entry.inode;
        entry.inode = st.st_ino;
        recorder_put(&entry, &iov, 1);
    }
    return rc;
}

/* As if the caller had written it: nothing of it is synced yet. */
static void record_content(int fd)
{
    static char piece[PIECE];
    off_t end = 0;
    off_t at;
    while ((at = lseek(fd, end, SEEK_DATA)) >= 0 && (end = lseek(fd, at, SEEK_HOLE)) > at) {
        while (at < end) {
            ssize_t n = pread(fd, piece, end - at < PIECE ? (size_t)(end - at) : PIECE, at);
            recorder_need(n > 0);
            const struct iovec iov = {.iov_base = piece, .iov_len = (size_t)n};
            struct recorder_entry entry = recorder_begin('W', fd);
            entry.offset = (uint64_t)at;
            recorder_put(&entry, &iov, 1);
            recorder_end(entry, n);
            at += n;
        }
    }
}

/* mke2fs is another program; what it has made is looked at when it is done. */
int __real_deadline_child_tool(const struct deadline_child *child, const char *const *argv,
                               const char *const *envp, char *ret_said, size_t said_size,
                               struct err *err);
int __wrap_deadline_child_tool(const struct deadline_child *child, const char *const *argv,
                               const char *const *envp, char *ret_said, size_t said_size,
                               struct err *err);
int __wrap_deadline_child_tool(const struct deadline_child *child, const char *const *argv,
                               const char *const *envp, char *ret_said, size_t said_size,
                               struct err *err)
{
    int rc = __real_deadline_child_tool(child, argv, envp, ret_said, said_size, err);
    for (size_t i = 0; rc == 0 && recorder_is_on() && i < child->keep_count; i++) {
        if (strstr(argv[0], "mke2fs") && recorder_inode(child->keep[i]) != 0 &&
            (fcntl(child->keep[i], F_GETFL) & O_ACCMODE) == O_RDWR && is_file(child->keep[i]))
            record_content(child->keep[i]);
    }
    return rc;
}
