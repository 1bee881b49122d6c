#include "cleanup.h"
#include "volume_queue.h"
#include "worker_rig.h"

#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What the kernel copies requests from and to stays in memory (I10). For builds without sanitizers,
 * as these have memory of their own that nobody locks. */

enum {
    LOCKED_MAX_MIB = 24,
};

/* A volume of 10 GiB. */
static int setup_large(void **state)
{
    void *scratch = NULL;
    struct worker_rig *rig = calloc(1, sizeof *rig);
    if (!rig || scratch_setup(&scratch) != 0)
        return -1;
    rig->scratch = scratch;
    char directory[128];
    snprintf(directory, sizeof directory, "%s", scratch_path(rig->scratch, "volume"));
    if (mkdir(directory, 0700) < 0)
        return -1;
    worker_rig_make(rig, directory, (uint64_t)10 << 30);
    *state = rig;
    return 0;
}

/* The planes of the live map: pages come as asides need them, and no request is copied there. */
static bool is_planes(const struct worker_rig *rig, const char *mapping)
{
    unsigned long long offset = 0;
    return strstr(mapping, "varve-live-map") && sscanf(mapping, "%*x-%*x %*s %llx", &offset) == 1 &&
           offset == live_plane_at(rig->live.capacity, 0);
}

/* Every page of every writable mapping but the planes is there and locked. */
static void all_memory_stays(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    uint64_t locked = atomic_load(&rig->live.header->locked_bytes);
    assert_int_equal(atomic_load(&rig->live.header->residency), 1);
    print_message("# locked: %llu KiB\n", (unsigned long long)locked / 1024);
    assert_in_range(locked, 1 << 20, LOCKED_MAX_MIB << 20);
    char line[512];
    char name[512] = "";
    snprintf(line, sizeof line, "/proc/%d/smaps", (int)rig->pid);
    cleanup_file FILE *f = fopen(line, "re");
    assert_non_null(f);
    unsigned long long size = 0, rss = 0, start = 0, end = 0;
    char rights[8] = "";
    int looked = 0;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx %7s", &start, &end, rights) == 3)
            snprintf(name, sizeof name, "%s", line);
        (void)sscanf(line, "Size: %llu", &size);
        (void)sscanf(line, "Rss: %llu", &rss);
        if (strncmp(line, "VmFlags:", 8) != 0 || strncmp(rights, "rw", 2) != 0)
            continue;
        if (strstr(name, "anon_inode:[io_uring]")) /* the kernel's own pages, always there */
            continue;
        if (is_planes(rig, name))
            continue;
        looked++;
        if (!strstr(line, " lo") || rss != size)
            fail_msg("%s: %llu of %llu KiB are there; %s", name, rss, size, line);
    }
    assert_true(looked > VOLUME_THREADS); /* a stack each, and more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_memory_stays, setup_large, worker_rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
