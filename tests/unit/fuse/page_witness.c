#include "page_witness.h"

#include "fd_pass.h"
#include "volume_format.h"
#include "volume_queue.h"
#include "volume_resident.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

enum {
    PAGE = 4096,
    BUFFER_PAGES = 1 + VOLUME_MAX_WRITE / PAGE,
    KEPT_PAGES = 2, /* heads of requests, and a FUSE_INIT */
};

static atomic_int reads;
static char *trap; /* NULL, or a page that is missing */

static void need(int is_done)
{
    if (!is_done) {
        perror("page_witness");
        _exit(99);
    }
}

static void watch(int uffd, void *start, size_t bytes)
{
    struct uffdio_register range = {.range = {.start = (uintptr_t)start, .len = bytes},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    need(ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
}

static uint64_t count_missing(const char *start, size_t bytes)
{
    uint64_t missing = 0;
    for (size_t at = 0; at < bytes; at += PAGE) {
        unsigned char there = 0;
        need(mincore((void *)(start + at), PAGE, &there) == 0);
        missing += (there & 1) == 0;
    }
    return missing;
}

/* Of each buffer; they are the first in the region. */
static void drop_payload(char *region)
{
    for (size_t i = 0; i < VOLUME_BUFFERS; i++)
        need(madvise(region + (i * BUFFER_PAGES + KEPT_PAGES) * PAGE,
                     (size_t)(BUFFER_PAGES - KEPT_PAGES) * PAGE, MADV_DONTNEED_LOCKED) == 0);
}

uint64_t __real_volume_resident_lock(const struct volume_resident *resident);
uint64_t __wrap_volume_resident_lock(const struct volume_resident *resident);
uint64_t __wrap_volume_resident_lock(const struct volume_resident *resident)
{
    const char *spec = getenv("VARVE_WITNESS");
    if (!spec)
        return __real_volume_resident_lock(resident);
    int report = (int)strtol(spec, NULL, 10);
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {.api = UFFD_API};
    need(uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0);
    watch(uffd, resident->region, resident->bytes);
    struct page_witness said = {.region = (uintptr_t)resident->region, .bytes = resident->bytes};
    uint64_t locked = __real_volume_resident_lock(resident);
    said.reads = atomic_load(&reads);
    said.missing = count_missing(resident->region, resident->bytes);
    said.drop_num = madvise(resident->region, PAGE, MADV_DONTNEED) == 0 ? 0 : errno;
    if (strstr(spec, ":request"))
        drop_payload(resident->region);
    if (strstr(spec, ":reply")) {
        trap = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need(trap != MAP_FAILED && munlock(trap, PAGE) == 0 &&
             madvise(trap, PAGE, MADV_DONTNEED) == 0);
        watch(uffd, trap, PAGE);
    }
    need(fd_pass_send(report, &said, sizeof said, &uffd, 1, true) == 0);
    return locked;
}

ssize_t __real_read(int fd, void *buffer, size_t len);
ssize_t __wrap_read(int fd, void *buffer, size_t len);
ssize_t __wrap_read(int fd, void *buffer, size_t len)
{
    if (fd == VOLUME_FD_FUSE)
        atomic_fetch_add(&reads, 1);
    return __real_read(fd, buffer, len);
}

ssize_t __real_writev(int fd, const struct iovec *iov, int count);
ssize_t __wrap_writev(int fd, const struct iovec *iov, int count);
ssize_t __wrap_writev(int fd, const struct iovec *iov, int count)
{
    struct iovec changed[2];
    if (!trap || fd != VOLUME_FD_FUSE || count != 2 || iov[1].iov_len != PAGE)
        return __real_writev(fd, iov, count);
    changed[0] = iov[0];
    changed[1] = (struct iovec){.iov_base = trap, .iov_len = PAGE};
    return __real_writev(fd, changed, count);
}
