#include "cleanup.h"
#include "volume_queue.h"
#include "worker_rig.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What a worker has and has not when it serves, and what it refuses to serve. */

/* The number after `name` in /proc/PID/status of each thread: calls `look` with its text. */
static void each_thread(pid_t pid, const char *name, void (*look)(const char *))
{
    char path[64];
    int threads = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    cleanup_dir DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char line[256];
        snprintf(line, sizeof line, "%s/%.20s/status", path, entry->d_name);
        cleanup_file FILE *f = fopen(line, "re");
        assert_non_null(f);
        bool found = false;
        while (fgets(line, sizeof line, f)) {
            if (strncmp(line, name, strlen(name)) != 0 || line[strlen(name)] != ':')
                continue;
            found = true;
            look(line + strlen(name) + 1);
        }
        assert_true(found);
        threads++;
    }
    assert_true(threads > VOLUME_THREADS);
}

static void is_zero(const char *text)
{
    assert_int_equal(strtoull(text, NULL, 16), 0);
}

static void is_one(const char *text)
{
    assert_int_equal(strtoull(text, NULL, 10), 1);
}

static void is_two(const char *text)
{
    assert_int_equal(strtoull(text, NULL, 10), 2);
}

static void is_owner(const char *text)
{
    int ids[4];
    assert_int_equal(sscanf(text, "%d %d %d %d", &ids[0], &ids[1], &ids[2], &ids[3]), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ids[i], WORKER_RIG_UID);
}

static void has_none(const char *text)
{
    assert_int_equal(strspn(text, " \t\n"), strlen(text));
}

static void it_has_no_rights(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    each_thread(rig->pid, "Uid", is_owner);
    each_thread(rig->pid, "Gid", is_owner);
    each_thread(rig->pid, "Groups", has_none);
    each_thread(rig->pid, "CapInh", is_zero);
    each_thread(rig->pid, "CapPrm", is_zero);
    each_thread(rig->pid, "CapEff", is_zero);
    each_thread(rig->pid, "CapBnd", is_zero);
    each_thread(rig->pid, "CapAmb", is_zero);
    each_thread(rig->pid, "NoNewPrivs", is_one);
    each_thread(rig->pid, "Seccomp", is_two);
    char path[64];
    char root[160];
    snprintf(path, sizeof path, "/proc/%d/root", (int)rig->pid);
    ssize_t n = readlink(path, root, sizeof root - 1);
    assert_true(n > 0);
    root[n] = '\0';
    assert_string_equal(root, rig->directory);
}

static void it_waits_for_the_one_before(void **state)
{
    struct worker_rig *rig = *state;
    char path[160];
    snprintf(path, sizeof path, "%s/data", rig->directory);
    cleanup_fd int held = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_EX), 0);
    worker_rig_start(rig, NULL);
    assert_int_equal(worker_rig_wait(rig, 500), -1);
    assert_int_equal(atomic_load(&rig->live.header->pid), 0);
    assert_int_equal(flock(held, LOCK_UN), 0);
    worker_rig_await(rig, LIVE_FACT_READY);
    assert_int_equal(atomic_load(&rig->live.header->pid), rig->pid);
}

static void it_ends_with_the_mount(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    assert_int_equal(umount2(rig->mount, 0), 0);
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_STOPPED);
    assert_true(atomic_load(&rig->live.header->facts) & LIVE_FACT_DESTROYED);
}

static void it_does_not_wait_when_the_mount_is_gone(void **state)
{
    struct worker_rig *rig = *state;
    char path[160];
    snprintf(path, sizeof path, "%s/data", rig->directory);
    cleanup_fd int held = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_EX), 0);
    worker_rig_start(rig, NULL);
    assert_int_equal(worker_rig_wait(rig, 300), -1);
    assert_int_equal(umount2(rig->mount, MNT_FORCE), 0);
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_STOPPED);
}

static void refused(struct worker_rig *rig, const char *why)
{
    worker_rig_start(rig, NULL);
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_REFUSED);
    if (!strstr(rig->live.header->text, why))
        fail_msg("'%s' does not speak of '%s'", rig->live.header->text, why);
}

static void what_does_not_belong_together_is_refused(void **state)
{
    struct worker_rig *rig = *state;
    char path[160];
    rig->live.header->uuid[3] ^= 1;
    refused(rig, "map");
    rig->live.header->uuid[3] ^= 1;
    snprintf(path, sizeof path, "%s/data", rig->directory);
    assert_int_equal(truncate(path, WORKER_RIG_SIZE - VOLUME_SIZE_UNIT), 0);
    refused(rig, "data");
    assert_int_equal(truncate(path, WORKER_RIG_SIZE), 0);
    worker_rig_serve(rig, NULL);
}

static void a_later_format_is_refused(void **state)
{
    struct worker_rig *rig = *state;
    rig->live.header->version++;
    worker_rig_start(rig, NULL);
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_REFUSED);
    rig->live.header->version--;
    worker_rig_serve(rig, NULL);
}

static void a_stopped_one_shows_no_heartbeat(void **state)
{
    struct worker_rig *rig = *state;
    const struct timespec second = {.tv_sec = 1, .tv_nsec = 200000000};
    worker_rig_serve(rig, NULL);
    assert_int_equal(kill(rig->pid, SIGSTOP), 0);
    uint64_t beat = atomic_load(&rig->live.header->heartbeat_ns);
    (void)nanosleep(&second, NULL);
    assert_int_equal(atomic_load(&rig->live.header->heartbeat_ns), beat);
    assert_int_equal(kill(rig->pid, SIGCONT), 0);
    (void)nanosleep(&second, NULL);
    assert_true(atomic_load(&rig->live.header->heartbeat_ns) > beat);
}

/* docs/FORMAT.md, "FUSE constants". */
static void the_reply_to_init_is_that_of_the_format(void **state)
{
    struct worker_rig *rig = *state;
    const struct live_map_header *header = rig->live.header;
    struct fuse_out_header head;
    struct fuse_init_out init;
    worker_rig_serve(rig, NULL);
    assert_int_equal(header->init_reply_len, sizeof head + sizeof init);
    memcpy(&head, header->init_reply, sizeof head);
    memcpy(&init, header->init_reply + sizeof head, sizeof init);
    assert_int_equal(head.unique, 0);
    assert_int_equal(init.major, 7);
    assert_true(init.minor >= 31);
    assert_int_equal(init.max_write, VOLUME_MAX_WRITE);
    assert_int_equal(init.max_readahead, 0);
    assert_int_equal(init.max_background, VOLUME_MAX_BACKGROUND);
    assert_int_equal(init.congestion_threshold, VOLUME_CONGESTION);
    assert_int_equal(init.max_pages, VOLUME_MAX_WRITE / sysconf(_SC_PAGESIZE));
    assert_int_equal(init.flags & ~FUSE_INIT_EXT,
                     FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_BIG_WRITES | FUSE_MAX_PAGES);
    assert_int_equal(init.flags2, 0);
}

/* Another libfuse, of an upgrade of the host, could answer the recorded INIT otherwise, or be none
 * that this program can be started with. */
static void an_upgrade_of_libfuse_changes_nothing(void **state)
{
    struct worker_rig *rig = *state;
    char line[512];
    int lines = 0;
    worker_rig_serve(rig, NULL);
    snprintf(line, sizeof line, "/proc/%d/maps", (int)rig->pid);
    cleanup_file FILE *f = fopen(line, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        lines++;
        if (strstr(line, "libfuse"))
            fail_msg("%s", line);
    }
    assert_true(lines > 10);
}

#ifdef VARVE_FAULT_POINTS
/* Keeper gives one that has not begun longer: a disk that hangs is not the worker's silence. */
static void it_begins_when_the_disk_has_answered(void **state)
{
    struct worker_rig *rig = *state;
    siginfo_t info = {.si_pid = 0};
    worker_rig_start(rig, "VARVE_FAULT=volume.files-open=stop");
    assert_int_equal(waitid(P_PID, (id_t)rig->pid, &info, WSTOPPED), 0);
    assert_int_equal(atomic_load(&rig->live.header->pid), 0);
    assert_int_equal(atomic_load(&rig->live.header->heartbeat_ns), 0);
    assert_int_equal(kill(rig->pid, SIGCONT), 0);
    worker_rig_await(rig, LIVE_FACT_READY);
    assert_int_equal(atomic_load(&rig->live.header->pid), rig->pid);
    assert_true(atomic_load(&rig->live.header->heartbeat_ns) > 0);
}
#endif

int main(void)
{
#define RIG(f) cmocka_unit_test_setup_teardown(f, worker_rig_setup, worker_rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG(it_has_no_rights),
        RIG(it_waits_for_the_one_before),
        RIG(it_ends_with_the_mount),
        RIG(it_does_not_wait_when_the_mount_is_gone),
        RIG(what_does_not_belong_together_is_refused),
        RIG(a_later_format_is_refused),
        RIG(a_stopped_one_shows_no_heartbeat),
        RIG(the_reply_to_init_is_that_of_the_format),
        RIG(an_upgrade_of_libfuse_changes_nothing),
#ifdef VARVE_FAULT_POINTS
        RIG(it_begins_when_the_disk_has_answered),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
