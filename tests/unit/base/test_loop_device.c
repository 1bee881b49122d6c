#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "loop_device.h"
#include "scratch.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* Real devices. All are autoclear, so that a test that fails leaves none behind. */

#define MIB ((uint64_t)1 << 20)

static int make_file(const struct scratch *scratch, const char *name)
{
    int fd = openat(scratch->fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(4 * MIB)), 0);
    return fd;
}

struct wanted {
    const char *path;
    int count;
};

static int count_path(void *arg, const struct loop_device *loop, struct err *err)
{
    struct wanted *wanted = arg;
    (void)err;
    wanted->count += strcmp(loop->backing, wanted->path) == 0;
    return 0;
}

/* How many devices have this file behind them. */
static int count_devices(const char *path)
{
    struct wanted wanted = {.path = path};
    assert_int_equal(loop_device_each("", count_path, &wanted, NULL), 0);
    return wanted.count;
}

static int attach(int file, struct loop_device *ret)
{
    const struct loop_device_options options = {
        .autoclear = true, .direct = LOOP_DEVICE_DIRECT_WANTED, .name = "varve test"};
    struct err err = ERR_INIT;
    int fd = loop_device_attach(file, &options, ret, &err);
    if (fd < 0)
        fail_msg("%s", err.text);
    return fd;
}

static void test_attach_and_look(void **state)
{
    const struct scratch *scratch = *state;
    struct loop_device loop;
    struct loop_device looked;
    struct stat st;
    int block = 0;
    cleanup_fd int file = make_file(scratch, "f");
    int fd = attach(file, &loop);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(S_ISBLK(st.st_mode));
    assert_int_equal(st.st_rdev, loop.device);
    assert_int_equal(ioctl(fd, BLKSSZGET, &block), 0);
    assert_int_equal(block, LOOP_DEVICE_BLOCK);
    assert_int_equal(loop.size, 4 * MIB);
    assert_true(loop.autoclear && loop.direct && !loop.read_only);
    assert_string_equal(loop.backing, scratch_path(scratch, "f"));
    assert_int_equal(loop_device_look(loop.number, &looked, NULL), 0);
    assert_string_equal(looked.path, loop.path);
    assert_int_equal(looked.device, loop.device);
    close(fd);
    /* Autoclear; another test may have taken the number at once. */
    struct err err = ERR_INIT;
    if (loop_device_look(loop.number, &looked, &err) < 0)
        assert_int_equal(err.code, ERR_NOT_FOUND);
    else
        assert_string_not_equal(looked.backing, loop.backing);
}

static void test_read_only(void **state)
{
    const struct scratch *scratch = *state;
    const struct loop_device_options options = {.read_only = true, .autoclear = true};
    struct loop_device loop;
    close(make_file(scratch, "f"));
    cleanup_fd int file = openat(scratch->fd, "f", O_RDONLY | O_CLOEXEC);
    cleanup_fd int fd = loop_device_attach(file, &options, &loop, NULL);
    assert_true(fd >= 0);
    assert_true(loop.read_only && !loop.direct);
    /* A writable device of a file that is open for reading is not what was asked for. */
    const struct loop_device_options writable = {.autoclear = true};
    struct err err = ERR_INIT;
    struct loop_device other;
    assert_true(loop_device_attach(file, &writable, &other, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

static void test_direct_io_is_not_silently_left_out(void **state)
{
    const struct scratch *scratch = *state;
    struct loop_device_options options = {.autoclear = true, .direct = LOOP_DEVICE_DIRECT_REQUIRED};
    struct loop_device loop;
    struct err err = ERR_INIT;
    assert_int_equal(mkdirat(scratch->fd, "ram", 0700), 0);
    /* A file system without direct I/O. */
    assert_int_equal(mount("none", scratch_path(scratch, "ram"), "ramfs", 0, NULL), 0);
    cleanup_fd int file = make_file(scratch, "ram/f");
    assert_true(loop_device_attach(file, &options, &loop, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "direct I/O"));
    assert_int_equal(count_devices(scratch_path(scratch, "ram/f")), 0);
    options.direct = LOOP_DEVICE_DIRECT_WANTED;
    cleanup_fd int fd = loop_device_attach(file, &options, &loop, NULL);
    assert_true(fd >= 0);
    assert_false(loop.direct);
}

/* The path is that which the file has now. */
static void test_a_backing_file_that_is_deleted(void **state)
{
    const struct scratch *scratch = *state;
    struct loop_device loop;
    char deleted[256];
    snprintf(deleted, sizeof deleted, "%s (deleted)", scratch_path(scratch, "f"));
    cleanup_fd int file = make_file(scratch, "f");
    assert_int_equal(count_devices(scratch_path(scratch, "f")), 0);
    cleanup_fd int fd = attach(file, &loop);
    assert_int_equal(count_devices(scratch_path(scratch, "f")), 1);
    assert_int_equal(unlinkat(scratch->fd, "f", 0), 0);
    cleanup_fd int other = make_file(scratch, "f");
    assert_int_equal(count_devices(scratch_path(scratch, "f")), 0);
    assert_int_equal(count_devices(deleted), 1);
}

static int count_ours(void *arg, const struct loop_device *loop, struct err *err)
{
    int *count = arg;
    (void)err;
    if (strstr(loop->backing, "/each-"))
        ++*count;
    return 0;
}

static int stop_at_once(void *arg, const struct loop_device *loop, struct err *err)
{
    (void)loop;
    ++*(int *)arg;
    return err_fail(err, ERR_CANCELLED, "enough");
}

static void test_each(void **state)
{
    const struct scratch *scratch = *state;
    struct loop_device loop;
    int count = 0;
    cleanup_fd int a = make_file(scratch, "each-a");
    cleanup_fd int b = make_file(scratch, "each-b");
    cleanup_fd int loop_a = attach(a, &loop);
    cleanup_fd int loop_b = attach(b, &loop);
    assert_int_equal(loop_device_each("", count_ours, &count, NULL), 0);
    assert_true(count >= 2); /* this test may run twice at once */
    struct err err = ERR_INIT;
    count = 0;
    assert_int_equal(loop_device_each("", stop_at_once, &count, &err), -ECANCELED);
    assert_int_equal(count, 1);
    assert_string_equal(err.text, "enough");
}

static void test_grow(void **state)
{
    const struct scratch *scratch = *state;
    struct loop_device loop;
    uint64_t size = 0;
    cleanup_fd int file = make_file(scratch, "f");
    cleanup_fd int fd = attach(file, &loop);
    assert_int_equal(loop_device_grow(fd, &size, NULL), 0);
    assert_int_equal(size, 4 * MIB);
    assert_int_equal(ftruncate(file, (off_t)(64 * MIB)), 0);
    assert_int_equal(loop_device_grow(fd, &size, NULL), 0);
    assert_int_equal(size, 64 * MIB);
    assert_int_equal(loop_device_look(loop.number, &loop, NULL), 0);
    assert_int_equal(loop.size, 64 * MIB);
    struct err err = ERR_INIT;
    assert_true(loop_device_grow(file, &size, &err) < 0);
    assert_int_equal(size, 64 * MIB);
}

static void read_queue(int number, const char *name, char ret[128])
{
    char path[96];
    snprintf(path, sizeof path, "/sys/block/loop%d/queue/%s", number, name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, ret, 127);
    assert_true(n > 0);
    ret[n] = '\0';
}

static void test_tune(void **state)
{
    const struct scratch *scratch = *state;
    struct loop_device loop;
    char text[128];
    char scheduler[128];
    cleanup_fd int file = make_file(scratch, "f");
    cleanup_fd int fd = attach(file, &loop);
    read_queue(loop.number, "scheduler", scheduler);
    const struct loop_device_queue queue = {
        .max_kb = 128,
        .requests = 64,
        .scheduler = strstr(scheduler, "mq-deadline") ? "mq-deadline" : NULL,
        .others = strstr(scheduler, "mq-deadline") ? 48 : 0};
    const struct loop_device_queue before = {
        .max_kb = 1280, .requests = 128, .scheduler = queue.scheduler ? "none" : NULL};
    const struct loop_device_queue nothing = {.max_kb = 0};
    const struct loop_device_queue wrong = {
        .max_kb = 1, .requests = 1U << 30, .scheduler = "nonesuch"};
    assert_int_equal(loop_device_tune(loop.number, &queue), 0);
    read_queue(loop.number, "max_sectors_kb", text);
    assert_string_equal(text, "128\n");
    read_queue(loop.number, "nr_requests", text);
    assert_string_equal(text, "64\n");
    read_queue(loop.number, "scheduler", text);
    if (queue.scheduler) {
        assert_non_null(strstr(text, "[mq-deadline]"));
        read_queue(loop.number, "iosched/async_depth", text);
        assert_string_equal(text, "48\n");
    }
    assert_int_equal(loop_device_tune(loop.number, &nothing), 0);
    assert_int_equal(loop_device_tune(loop.number, &wrong), 3);
    read_queue(loop.number, "max_sectors_kb", text);
    assert_string_equal(text, "128\n");
    /* It still works, and the next user finds it as it was. */
    static _Alignas(4096) char block[4096] = "x";
    assert_int_equal(pwrite(fd, block, sizeof block, 0), sizeof block);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(pread(file, text, 1, 0), 1);
    assert_int_equal(text[0], 'x');
    assert_int_equal(loop_device_tune(loop.number, &before), 0);
    assert_int_equal(loop_device_tune(999999, &queue), queue.scheduler ? 4 : 2);
}

static void test_clear(void **state)
{
    const struct scratch *scratch = *state;
    struct loop_device loop;
    cleanup_fd int file = make_file(scratch, "f");
    const struct loop_device_options options = {.direct = LOOP_DEVICE_DIRECT_WANTED};
    int fd = loop_device_attach(file, &options, &loop, NULL);
    assert_true(fd >= 0);
    assert_false(loop.autoclear);
    /* Closed it stays, opened again it is the same. */
    close(fd);
    cleanup_fd int again = loop_device_open(loop.number, true, NULL);
    assert_true(again >= 0);
    assert_int_equal(count_devices(scratch_path(scratch, "f")), 1);
    assert_int_equal(loop_device_clear(again, NULL), 0);
    close(steal_fd(&again));
    assert_int_equal(count_devices(scratch_path(scratch, "f")), 0);
    /* On one without a file. */
    cleanup_fd int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = ioctl(control, 0x4C82 /* LOOP_CTL_GET_FREE */);
    cleanup_fd int empty = loop_device_open(number, true, NULL);
    assert_true(empty >= 0);
    assert_int_equal(loop_device_clear(empty, NULL), 0);
}

enum {
    AT_ONCE = 8
};

static void *attach_one(void *arg)
{
    struct loop_device loop;
    const struct loop_device_options options = {.autoclear = true};
    int fd = loop_device_attach(*(int *)arg, &options, &loop, NULL);
    return (void *)(intptr_t)fd;
}

static void test_many_at_once(void **state)
{
    const struct scratch *scratch = *state;
    pthread_t threads[AT_ONCE];
    int files[AT_ONCE];
    dev_t devices[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        files[i] = make_file(scratch, name);
        assert_int_equal(pthread_create(&threads[i], NULL, attach_one, &files[i]), 0);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        void *result;
        struct stat st;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        int fd = (int)(intptr_t)result;
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &st), 0);
        devices[i] = st.st_rdev;
        for (int k = 0; k < i; k++)
            assert_true(devices[k] != devices[i]);
        /* Left open until all are there. */
        files[i] = (close(files[i]), fd);
    }
    for (int i = 0; i < AT_ONCE; i++)
        close(files[i]);
}

/* In a child with a /dev of its own. */
static void with_dev(const struct scratch *scratch, bool with_control, const char *word,
                     const char *hint)
{
    cleanup_fd int file = make_file(scratch, "f");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct loop_device_options options = {.autoclear = true};
        struct err err = ERR_INIT;
        struct loop_device loop;
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("none", "/dev", "tmpfs", 0, NULL) < 0 ||
            (with_control && mknod("/dev/loop-control", S_IFCHR | 0600, makedev(10, 237)) < 0))
            _exit(90);
        int rc = loop_device_attach(file, &options, &loop, &err);
        if (rc >= 0 || err.code != ERR_UNSUPPORTED || !strstr(err.text, word) ||
            !strstr(err.hint, hint)) {
            fprintf(stderr, "%d %s; %s\n", rc, err.text, err.hint);
            _exit(91);
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_nodes_are_missing(void **state)
{
    with_dev(*state, false, "there is no /dev/loop-control", "kernel module loop");
    with_dev(*state, true, "there is no /dev/loop", "devtmpfs");
}

static void test_what_is_no_loop_device(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct loop_device loop = {.number = 42};
    static const char *const paths[] = {"",
                                        "/dev/loop",
                                        "/dev/sda1",
                                        "loop3",
                                        "/dev/loop3p1",
                                        "/dev/loop-1",
                                        "/dev/loop99999999999"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        assert_true(loop_device_number(paths[i], &err) < 0);
        assert_int_equal(err.code, ERR_INVALID);
        err_clear(&err);
    }
    assert_int_equal(loop_device_number("/dev/loop12", NULL), 12);
    assert_true(loop_device_open(999999, false, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    err_clear(&err);
    assert_true(loop_device_look(999999, &loop, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(loop.number, 42);
}

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch(test_attach_and_look),
        with_scratch(test_read_only),
        with_scratch(test_direct_io_is_not_silently_left_out),
        with_scratch(test_a_backing_file_that_is_deleted),
        with_scratch(test_each),
        with_scratch(test_tune),
        with_scratch(test_grow),
        with_scratch(test_clear),
        with_scratch(test_many_at_once),
        with_scratch(test_nodes_are_missing),
        cmocka_unit_test(test_what_is_no_loop_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
