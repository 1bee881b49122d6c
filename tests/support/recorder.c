#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    IOV_MOST = 64
};

static int log_fd = -1;
static int bytes_fd = -1;
static pid_t owner; /* children that fork() makes share the descriptors, and record nothing */
static bool is_slow;
static atomic_uint_fast64_t calls;
static atomic_uint_fast64_t bytes_end;

/* Before main(): the worker gives up its rights there. */
__attribute__((constructor)) static void open_log(void)
{
    const char *path = getenv("VARVE_RECORD");
    char name[4096];
    if (path) {
        snprintf(name, sizeof name, "%s.%d", path, (int)getpid());
        bytes_fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        log_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    }
    if (path && (log_fd < 0 || bytes_fd < 0))
        perror(path);
    is_slow = getenv("VARVE_RECORD_SLOW") != NULL;
    owner = getpid();
}

bool recorder_is_on(void)
{
    return log_fd >= 0 && getpid() == owner;
}

bool recorder_is_own(int fd)
{
    return fd == log_fd || fd == bytes_fd;
}

/* Lets other threads in between this call and the next. */
static void dawdle(uint64_t id)
{
    if (is_slow && id * UINT64_C(0x9E3779B97F4A7C15) >> 61 == 0)
        (void)usleep(1000);
}

void recorder_need(bool is_written)
{
    if (!is_written)
        _exit(99);
}

ssize_t __real_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);

void recorder_put(struct recorder_entry *entry, const struct iovec *iov, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len;
    int saved = errno;
    memcpy(entry->magic, "VREC", sizeof entry->magic);
    entry->bytes = (uint32_t)bytes;
    entry->at = atomic_fetch_add(&bytes_end, bytes);
    if (bytes > 0)
        recorder_need(__real_pwritev64(bytes_fd, iov, count, (off_t)entry->at) == (ssize_t)bytes);
    recorder_need(write(log_fd, entry, sizeof *entry) == sizeof *entry);
    errno = saved;
}

uint64_t recorder_inode(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

struct recorder_entry recorder_begin(char kind, int fd)
{
    struct recorder_entry entry = {.kind = (uint8_t)kind, .inode = recorder_inode(fd)};
    entry.id = (uint64_t)getpid() << 32 | (uint32_t)atomic_fetch_add(&calls, 1);
    return entry;
}

void recorder_end(struct recorder_entry entry, int64_t result)
{
    if (!recorder_is_on())
        return;
    entry.kind = (uint8_t)(entry.kind - 'A' + 'a');
    entry.result = result < 0 ? -errno : result;
    recorder_put(&entry, NULL, 0);
    dawdle(entry.id);
}

void recorder_note(char kind, uint64_t a, uint64_t b, uint64_t c)
{
    if (!recorder_is_on())
        return;
    struct recorder_entry entry = {.kind = (uint8_t)kind,
                                   .id = (uint64_t)getpid() << 32,
                                   .inode = a,
                                   .offset = b,
                                   .length = c};
    recorder_put(&entry, NULL, 0);
}

ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset)
{
    struct recorder_entry entry = {.kind = 'W'};
    if (recorder_is_on()) {
        entry = recorder_begin('W', fd);
        entry.offset = (uint64_t)offset;
        recorder_put(&entry, iov, count);
    }
    ssize_t written = __real_pwritev64(fd, iov, count, offset);
    recorder_end(entry, written);
    return written;
}

int __real_fallocate64(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t length)
{
    struct recorder_entry entry = {.kind = 'P'};
    if (recorder_is_on()) {
        entry = recorder_begin('P', fd);
        entry.offset = (uint64_t)offset;
        entry.length = (uint64_t)length;
        entry.flags = (uint32_t)mode;
        recorder_put(&entry, NULL, 0);
    }
    int rc = __real_fallocate64(fd, mode, offset, length);
    recorder_end(entry, rc);
    return rc;
}

int __real_ftruncate64(int fd, off_t length);
int __wrap_ftruncate64(int fd, off_t length);
int __wrap_ftruncate64(int fd, off_t length)
{
    struct recorder_entry entry = {.kind = 'T'};
    if (recorder_is_on()) {
        entry = recorder_begin('T', fd);
        entry.length = (uint64_t)length;
        recorder_put(&entry, NULL, 0);
    }
    int rc = __real_ftruncate64(fd, length);
    recorder_end(entry, rc);
    return rc;
}

static int record_sync(int fd, int (*real)(int))
{
    struct recorder_entry entry = {.kind = 'S'};
    if (recorder_is_on()) {
        entry = recorder_begin('S', fd);
        recorder_put(&entry, NULL, 0);
    }
    int rc = real(fd);
    recorder_end(entry, rc);
    return rc;
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return record_sync(fd, __real_fdatasync);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return record_sync(fd, __real_fsync);
}

/* A new file, known by its inode from here on; `offset` is the inode of its directory. */
int __real_openat64(int dir_fd, const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    int fd = __real_openat64(dir_fd, path, flags, mode);
    if (fd >= 0 && recorder_is_on() && flags & O_EXCL) {
        struct recorder_entry entry = recorder_begin('C', fd);
        entry.offset = recorder_inode(dir_fd);
        struct iovec name = {(void *)path, strlen(path)};
        recorder_put(&entry, &name, 1);
    }
    return fd;
}

/* `inode` is that of the file or directory, `offset` that of the directory where its name is. */
int __real_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    struct recorder_entry entry = {.kind = 'R'};
    struct stat st;
    if (recorder_is_on() && fstatat(from, old, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        entry = recorder_begin('R', to);
        entry.offset = entry.inode;
        entry.inode = st.st_ino;
        struct iovec name = {(void *)new, strlen(new)};
        recorder_put(&entry, &name, 1);
    }
    int rc = __real_renameat2(from, old, to, new, flags);
    recorder_end(entry, rc);
    return rc;
}
