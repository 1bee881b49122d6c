#include "volume_resident.h"

#include "cleanup.h"

#include <linux/mempolicy.h>
#include <malloc.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    TOUCH = 4096, /* no page is smaller */
    HUGE = 2 << 20,
    KEEP_BYTES = 1 << 30, /* the heap is never made smaller */
};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t volume_resident_round(size_t bytes)
{
    return (bytes + page_bytes() - 1) & ~(page_bytes() - 1);
}

int volume_resident_heap(struct err *err)
{
    /* Sanitizers have an allocator of their own, which takes no advice. */
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_MAX, 0);
    (void)mallopt(M_TRIM_THRESHOLD, KEEP_BYTES);
    char *grown = malloc(VOLUME_HEAP_BYTES);
    if (!grown)
        return err_errno(err, ENOMEM, "cannot make a heap");
    explicit_bzero(grown, VOLUME_HEAP_BYTES);
    free(grown);
    return 0;
}

int volume_resident_map(size_t bytes, struct volume_resident *ret, struct err *err)
{
    bytes = volume_resident_round(bytes);
    const size_t mapped = bytes + HUGE;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return err_errno(err, errno, "cannot get %zu bytes of memory", bytes);
    /* Large pages are made and given back faster, which counts when a worker dies. */
    char *region = (char *)(((uintptr_t)start + HUGE - 1) & ~((uintptr_t)HUGE - 1));
    if (region > start)
        (void)munmap(start, (size_t)(region - start));
    if (start + mapped > region + bytes)
        (void)munmap(region + bytes, (size_t)(start + mapped - (region + bytes)));
    (void)madvise(region, bytes, MADV_HUGEPAGE);
    /* A child that shared the pages would make the next write to them a fault. */
    (void)madvise(region, bytes, MADV_DONTFORK);
    if (madvise(region, bytes, MADV_POPULATE_WRITE) < 0) /* before Linux 5.14 */
        memset(region, 0, bytes);
    *ret = (struct volume_resident){.region = region, .bytes = bytes};
    return 0;
}

void volume_resident_keep(void)
{
    /* Both take present pages away for moments, to learn who uses them or to join them. */
    (void)syscall(SYS_set_mempolicy, MPOL_LOCAL, NULL, 0);
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

void volume_resident_unmap(struct volume_resident *resident)
{
    if (resident->region)
        (void)munmap(resident->region, resident->bytes);
    *resident = (struct volume_resident){.region = NULL};
}

void *volume_resident_take(struct volume_resident *resident, size_t bytes)
{
    bytes = volume_resident_round(bytes);
    if (bytes > resident->bytes - resident->used)
        return NULL;
    void *taken = resident->region + resident->used;
    resident->used += bytes;
    return taken;
}

size_t volume_resident_stack_bytes(void)
{
    return VOLUME_STACK_BYTES + page_bytes();
}

int volume_resident_stack(struct volume_resident *resident, pthread_attr_t *ret, struct err *err)
{
    char *at = volume_resident_take(resident, volume_resident_stack_bytes());
    if (!at || mprotect(at, page_bytes(), PROT_NONE) < 0)
        return err_errno(err, at ? errno : ENOMEM, "cannot make a stack");
    int rc = pthread_attr_init(ret);
    if (rc == 0)
        rc = pthread_attr_setstack(ret, at + page_bytes(), VOLUME_STACK_BYTES);
    if (rc == 0) /* they end with the process */
        rc = pthread_attr_setdetachstate(ret, PTHREAD_CREATE_DETACHED);
    return rc ? err_errno(err, rc, "cannot make a stack") : 0;
}

/* A locked stack that has to grow later would count against a limit that may be small. */
static void __attribute__((noinline)) touch_stack(void)
{
    volatile char stack[VOLUME_MAIN_STACK_BYTES];
    for (size_t i = 0; i < sizeof stack; i += TOUCH)
        stack[i] = 0;
}

static uint64_t locked_bytes(void)
{
    cleanup_file FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmLck: %llu", &kib) == 1)
            return kib * 1024;
    return 0;
}

uint64_t volume_resident_lock(const struct volume_resident *resident)
{
    struct rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    bool unlimited = setrlimit(RLIMIT_MEMLOCK, &all) == 0;
    touch_stack();
    /* Not by its name, which sanitizers make do nothing. It stops at the first guard page, as that
     * cannot be made present; the rest is present already, and locked. */
    (void)syscall(SYS_mlock, resident->region, resident->bytes);
    if (mlockall(MCL_CURRENT | (unlimited ? MCL_FUTURE : 0)) < 0)
        return 0;
    return locked_bytes();
}
