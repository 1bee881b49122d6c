#include "recorder.h"

#include "volume_ring.h"

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
}

/* Lets other threads in between this call and the next. */
static void dawdle(uint64_t id)
{
    if (is_slow && id * UINT64_C(0x9E3779B97F4A7C15) >> 61 == 0)
        (void)usleep(1000);
}

/* A log with a hole in it would tell lies. */
static void need(bool is_written)
{
    if (!is_written)
        _exit(99);
}

ssize_t __real_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);

static void put(struct recorder_entry *entry, const struct iovec *iov, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len;
    int saved = errno;
    memcpy(entry->magic, "VREC", sizeof entry->magic);
    entry->bytes = (uint32_t)bytes;
    entry->at = atomic_fetch_add(&bytes_end, bytes);
    if (bytes > 0)
        need(__real_pwritev64(bytes_fd, iov, count, (off_t)entry->at) == (ssize_t)bytes);
    need(write(log_fd, entry, sizeof *entry) == sizeof *entry);
    errno = saved;
}

static struct recorder_entry begin(char kind, int fd)
{
    struct recorder_entry entry = {.kind = (uint8_t)kind};
    struct stat st;
    if (fstat(fd, &st) == 0)
        entry.inode = st.st_ino;
    entry.id = (uint64_t)getpid() << 32 | (uint32_t)atomic_fetch_add(&calls, 1);
    return entry;
}

static void end(struct recorder_entry entry, int64_t result)
{
    if (log_fd < 0)
        return;
    entry.kind = (uint8_t)(entry.kind - 'A' + 'a');
    entry.result = result < 0 ? -errno : result;
    put(&entry, NULL, 0);
    dawdle(entry.id);
}

void recorder_note(char kind, uint64_t a, uint64_t b, uint64_t c)
{
    if (log_fd < 0)
        return;
    struct recorder_entry entry = {.kind = (uint8_t)kind,
                                   .id = (uint64_t)getpid() << 32,
                                   .inode = a,
                                   .offset = b,
                                   .length = c};
    put(&entry, NULL, 0);
}

ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset)
{
    struct recorder_entry entry = {.kind = 'W'};
    if (log_fd >= 0) {
        entry = begin('W', fd);
        entry.offset = (uint64_t)offset;
        put(&entry, iov, count);
    }
    ssize_t written = __real_pwritev64(fd, iov, count, offset);
    end(entry, written);
    return written;
}

/* Writes in a ring: only one thread at a time has any (volume_queue.h). */
static struct {
    void *token;
    struct recorder_entry entry;
} under_way[VOLUME_RING_ENTRIES];

struct ended {
    volume_ring_done *done;
    void *arg;
};

bool __real_volume_ring_write(struct volume_ring *ring, int fd, const void *buffer, size_t len,
                              uint64_t offset, void *token);
bool __wrap_volume_ring_write(struct volume_ring *ring, int fd, const void *buffer, size_t len,
                              uint64_t offset, void *token);
bool __wrap_volume_ring_write(struct volume_ring *ring, int fd, const void *buffer, size_t len,
                              uint64_t offset, void *token)
{
    size_t at = 0;
    if (log_fd < 0)
        return __real_volume_ring_write(ring, fd, buffer, len, offset, token);
    while (at < VOLUME_RING_ENTRIES && under_way[at].token)
        at++;
    need(at < VOLUME_RING_ENTRIES);
    const struct iovec iov = {.iov_base = (void *)buffer, .iov_len = len};
    under_way[at].token = token;
    under_way[at].entry = begin('W', fd);
    under_way[at].entry.offset = offset;
    put(&under_way[at].entry, &iov, 1);
    if (__real_volume_ring_write(ring, fd, buffer, len, offset, token))
        return true;
    errno = ECANCELED;
    end(under_way[at].entry, -1);
    under_way[at].token = NULL;
    return false;
}

static void note_end(void *arg, void *token, int result)
{
    const struct ended *ended = arg;
    for (size_t i = 0; i < VOLUME_RING_ENTRIES; i++) {
        if (under_way[i].token != token)
            continue;
        errno = result < 0 ? -result : 0;
        end(under_way[i].entry, result < 0 ? -1 : result);
        under_way[i].token = NULL;
    }
    ended->done(ended->arg, token, result);
}

unsigned __real_volume_ring_reap(struct volume_ring *ring, volume_ring_done *done, void *arg);
unsigned __wrap_volume_ring_reap(struct volume_ring *ring, volume_ring_done *done, void *arg);
unsigned __wrap_volume_ring_reap(struct volume_ring *ring, volume_ring_done *done, void *arg)
{
    struct ended ended = {.done = done, .arg = arg};
    return __real_volume_ring_reap(ring, note_end, &ended);
}

int __real_fallocate64(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t length)
{
    struct recorder_entry entry = {.kind = 'P'};
    if (log_fd >= 0) {
        entry = begin('P', fd);
        entry.offset = (uint64_t)offset;
        entry.length = (uint64_t)length;
        entry.flags = (uint32_t)mode;
        put(&entry, NULL, 0);
    }
    int rc = __real_fallocate64(fd, mode, offset, length);
    end(entry, rc);
    return rc;
}

int __real_ftruncate64(int fd, off_t length);
int __wrap_ftruncate64(int fd, off_t length);
int __wrap_ftruncate64(int fd, off_t length)
{
    struct recorder_entry entry = {.kind = 'T'};
    if (log_fd >= 0) {
        entry = begin('T', fd);
        entry.length = (uint64_t)length;
        put(&entry, NULL, 0);
    }
    int rc = __real_ftruncate64(fd, length);
    end(entry, rc);
    return rc;
}

static int record_sync(int fd, int (*real)(int))
{
    struct recorder_entry entry = {.kind = 'S'};
    if (log_fd >= 0) {
        entry = begin('S', fd);
        put(&entry, NULL, 0);
    }
    int rc = real(fd);
    end(entry, rc);
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

/* A new file, known by its inode from here on. */
int __real_openat64(int dir_fd, const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    int fd = __real_openat64(dir_fd, path, flags, mode);
    if (fd >= 0 && log_fd >= 0 && flags & O_EXCL) {
        struct recorder_entry entry = begin('C', fd);
        struct iovec name = {(void *)path, strlen(path)};
        put(&entry, &name, 1);
    }
    return fd;
}

/* Of one directory to itself; `inode` is that of the file, `offset` that of the directory. */
int __real_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    struct recorder_entry entry = {.kind = 'R'};
    struct stat st;
    if (log_fd >= 0 && fstatat(from, old, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        entry = begin('R', to);
        entry.offset = entry.inode;
        entry.inode = st.st_ino;
        struct iovec name = {(void *)new, strlen(new)};
        put(&entry, &name, 1);
    }
    int rc = __real_renameat2(from, old, to, new, flags);
    end(entry, rc);
    return rc;
}
