#include "cleanup.h"
#include "volume_queue.h"
#include "worker_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    MIB = 1 << 20,
};

static void writes_are_read(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    cleanup_fd int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(MIB, 1);
    cleanup_free char *back = worker_rig_bytes(MIB, 2);
    assert_int_equal(pread(fd, back, MIB, 8 * MIB), MIB);
    for (size_t i = 0; i < MIB; i++)
        assert_int_equal(back[i], 0);
    assert_int_equal(pwrite(fd, bytes, MIB, 4096), MIB);
    assert_int_equal(pread(fd, back, MIB, 4096), MIB);
    assert_memory_equal(back, bytes, MIB);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 65536), 0);
    assert_int_equal(pread(fd, back, MIB, 4096), MIB);
    memset(bytes + 65536 - 4096, 0, 65536);
    assert_memory_equal(back, bytes, MIB);
}

static void a_successor_goes_on(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    cleanup_fd int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(MIB, 3);
    cleanup_free char *back = worker_rig_bytes(MIB, 4);
    assert_int_equal(pwrite(fd, bytes, MIB, 0), MIB);
    worker_rig_kill(rig);
    worker_rig_serve(rig, NULL);
    assert_int_equal(pread(fd, back, MIB, 0), MIB);
    assert_memory_equal(back, bytes, MIB);
    assert_int_equal(atomic_load(&rig->live.header->starts), 2);
    assert_int_equal(atomic_load(&rig->live.header->opens), 1);
}

static size_t count_rings(pid_t pid)
{
    char path[64];
    char target[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    cleanup_dir DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        count += strcmp(target, "anon_inode:[io_uring]") == 0;
    }
    return count;
}

static void each_thread_that_serves_has_a_ring(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    assert_int_equal(count_rings(rig->pid), VOLUME_THREADS);
}

#ifdef VARVE_FAULT_POINTS
/* As where io_uring is forbidden. The two kinds succeed each other. */
static void it_serves_without_rings(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, "VARVE_VOLUME_RING=off");
    assert_int_equal(count_rings(rig->pid), 0);
    cleanup_fd int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(MIB, 3);
    cleanup_free char *back = worker_rig_bytes(MIB, 4);
    for (int round = 0; round < 3; round++) {
        memset(bytes, 'a' + round, MIB);
        assert_int_equal(pwrite(fd, bytes, MIB, 0), MIB);
        assert_int_equal(fsync(fd), 0);
        worker_rig_kill(rig);
        worker_rig_serve(rig, round == 1 ? "VARVE_VOLUME_RING=off" : NULL);
        assert_int_equal(pread(fd, back, MIB, 0), MIB);
        assert_memory_equal(back, bytes, MIB);
    }
}
#endif

static void it_is_one_file(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    struct stat st;
    struct statfs fs;
    char path[256];
    assert_int_equal(stat(rig->device, &st), 0);
    assert_int_equal(st.st_size, WORKER_RIG_SIZE);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(st.st_ino, VOLUME_NODE_DEVICE);
    assert_int_equal(statfs(rig->mount, &fs), 0);
    assert_int_equal(fs.f_bsize, VOLUME_CHUNK);
    snprintf(path, sizeof path, "%s/other", rig->mount);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600), -1);
    cleanup_dir DIR *dir = opendir(rig->mount);
    assert_non_null(dir);
    int entries = 0;
    while (readdir(dir))
        entries++;
    assert_int_equal(entries, 3);
}

static void close_and_stop(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    int fd = worker_rig_open(rig);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_ATTACH, 0, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_FLUSH, 0, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), -EBUSY);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_STOP, 0, NULL), -EBUSY);
    assert_int_equal(close(fd), 0);
    for (int i = 0; i < 2000 && atomic_load(&rig->live.header->opens) > 0; i++)
        (void)usleep(1000);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_STOP, 0, NULL), 0);
    assert_int_equal(worker_rig_wait(rig, 5000), VOLUME_EXIT_STOPPED);
}

int main(void)
{
#define RIG(f) cmocka_unit_test_setup_teardown(f, worker_rig_setup, worker_rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG(writes_are_read),
        RIG(a_successor_goes_on),
        RIG(each_thread_that_serves_has_a_ring),
#ifdef VARVE_FAULT_POINTS
        RIG(it_serves_without_rings),
#endif
        RIG(it_is_one_file),
        RIG(close_and_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
