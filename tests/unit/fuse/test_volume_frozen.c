#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "deadline_child.h"
#include "fs_site.h"
#include "volume_frozen.h"
#include "volume_fs.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* After the headers of the C library, whose sys/mount.h has the same names as linux/mount.h. */
#include <sys/mount.h>

enum {
    WAIT_MS = 20000,
};

/* Never of the file system below, which is the host's. */
static int ask(const struct fs_site *site, unsigned long request)
{
    struct stat st;
    cleanup_fd int fd = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == site->loop.device);
    return ioctl(fd, request, 0) == 0 ? 0 : -errno;
}

static void freeze(const struct fs_site *site)
{
    assert_int_equal(ask(site, FIFREEZE), 0);
}

static void thaw(const struct fs_site *site)
{
    assert_int_equal(ask(site, FITHAW), 0);
}

static int setup(void **state)
{
    assert_int_equal(fs_site_setup(state), 0);
    struct fs_site *site = *state;
    fs_site_mount(site);
    fs_site_write(site, "f", 100000, false);
    return 0;
}

/* Nothing that a failed test has frozen may stay. */
static int teardown(void **state)
{
    const struct fs_site *site = *state;
    (void)volume_frozen_end(site->loop.device, WAIT_MS, NULL);
    return fs_site_teardown(state);
}

static bool is_frozen(const struct fs_site *site)
{
    struct err err = ERR_INIT;
    int rc = volume_frozen_at(site->mount, site->loop.device, WAIT_MS, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    return rc;
}

static bool is_frozen_hidden(const struct fs_site *site)
{
    struct err err = ERR_INIT;
    int rc = volume_frozen_hidden(site->loop.device, WAIT_MS, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    return rc;
}

/* Whether ext4 has a file system on the device. */
static bool lives(const struct fs_site *site)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/sys/fs/ext4/loop%d", site->loop.number);
    return stat(path, &st) == 0;
}

static void test_it_is_seen(void **state)
{
    struct fs_site *site = *state;
    assert_false(is_frozen(site));
    assert_false(is_frozen_hidden(site));
    for (int i = 0; i < 3; i++) {
        freeze(site);
        assert_true(is_frozen(site));
        assert_true(is_frozen_hidden(site));
        assert_int_equal(ask(site, FIFREEZE), -EBUSY); /* the look has not thawed it */
        thaw(site);
        assert_false(is_frozen(site));
        fs_site_write(site, "g", 5000, true);
        assert_false(is_frozen(site));
    }
    assert_int_equal(deadline_child_reap(), 0);
}

static void test_read_only(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    const struct volume_fs_source source = fs_site_source(site);
    assert_int_equal(volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, &err), 0);
    assert_int_equal(volume_fs_mount(&source, site->mount, true, WAIT_MS, &err), 0);
    assert_false(is_frozen(site));
    assert_false(is_frozen_hidden(site));
    freeze(site);
    assert_true(is_frozen(site));
    assert_true(is_frozen_hidden(site));
    assert_int_equal(volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, &err),
                     -EBUSY);
    thaw(site);
    assert_false(is_frozen(site));
    assert_int_equal(ask(site, FITHAW), -EINVAL); /* the look has frozen nothing */
}

/* A mount for reading of a file system that is mounted for writing, as a bind mount can be. */
static void test_a_mount_for_reading_alone(void **state)
{
    struct fs_site *site = *state;
    assert_int_equal(mount(NULL, site->mount, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    assert_false(is_frozen(site));
    freeze(site);
    assert_true(is_frozen(site));
    thaw(site);
}

/* As fencing does. */
static void test_one_that_is_shut_down(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    freeze(site);
    if (volume_fs_shutdown(site->mount, site->loop.device, WAIT_MS, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(is_frozen(site));
    assert_true(is_frozen_hidden(site));
    thaw(site);
    assert_false(is_frozen(site));
    /* What had waited has gone, and the device is as good as before. */
    assert_int_equal(volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, NULL), 0);
    assert_false(lives(site));
    fs_site_mount(site);
    assert_int_equal(volume_fs_shutdown(site->mount, site->loop.device, WAIT_MS, NULL), 0);
    assert_false(is_frozen(site));
    assert_int_equal(volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, NULL), 0);
    fs_site_mount(site);
}

static void test_it_is_not_unmounted(void **state)
{
    struct fs_site *site = *state;
    struct clock clock = clock_system();
    struct err err = ERR_INIT;
    freeze(site);
    int64_t begin = clock_mono_ns(&clock);
    int rc = volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, &err);
    assert_true(clock_mono_ns(&clock) - begin < 10 * CLOCK_NS_PER_S);
    assert_int_equal(rc, -EBUSY);
    assert_non_null(strstr(err.text, "frozen"));
    assert_non_null(strstr(err.hint, "fsfreeze -u"));
    assert_non_null(strstr(err.hint, site->mount));
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 1);
    assert_true(is_frozen(site));
    thaw(site);
    fs_site_write(site, "g", 5000, true);
    assert_int_equal(volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, NULL), 0);
    assert_false(lives(site));
}

static uint64_t sum_of_data(const struct fs_site *site)
{
    unsigned char bytes[65536];
    uint64_t sum = 14695981039346656037U;
    off_t at = 0;
    ssize_t n;
    while ((n = pread(site->data_fd, bytes, sizeof bytes, at)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            sum = (sum ^ bytes[i]) * 1099511628211U;
        at += n;
    }
    return sum;
}

/* Nobody can reach it by a path: it is given up, and what lies below has not changed. */
static void test_one_without_a_mount_is_given_up(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    freeze(site);
    uint64_t before = sum_of_data(site);
    assert_int_equal(umount2(site->mount, 0), 0);
    assert_true(lives(site));
    assert_true(is_frozen_hidden(site));
    if (volume_frozen_end(site->loop.device, WAIT_MS, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < 100 && lives(site); i++)
        usleep(20000);
    assert_false(lives(site));
    assert_int_equal(sum_of_data(site), before);
    assert_false(is_frozen_hidden(site));
    assert_int_equal(volume_frozen_end(site->loop.device, WAIT_MS, &err), 0);
    fs_site_mount(site);
}

/* deadline_child_call. Waits for the thaw, killed or not. */
static int call_change(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)result;
    (void)ret_fd;
    int fd = open(arg, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd >= 0 ? 0 : err_errno(err, errno, "cannot make a file");
}

static int change(const struct fs_site *site, const char *object, bool spare, struct err *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/more", site->mount);
    const struct deadline_child child = {
        .what = "make a file", .object = object, .wait_ms = 20, .spare = spare};
    return deadline_child_run(&child, call_change, path, NULL, 0, NULL, err);
}

/* A client that tries one path after the other on what does not answer takes no volume's place. */
static void test_others_have_places(void **state)
{
    const struct fs_site *site = *state;
    struct err err = ERR_INIT;
    char object[32];
    freeze(site);
    /* On a busy host one is killed before it comes to wait. */
    for (int i = 0; i < 1000 && deadline_child_reap() < DEADLINE_CHILD_OTHERS_MAX; i++) {
        (void)snprintf(object, sizeof object, "/dead/%d", i);
        assert_true(change(site, object, true, &err) < 0);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        err_clear(&err);
    }
    assert_int_equal(deadline_child_reap(), DEADLINE_CHILD_OTHERS_MAX);
    assert_true(deadline_child_hangs(object)); /* the last one */
    assert_false(deadline_child_hangs("/dead/x"));
    assert_true(change(site, "/dead/x", true, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    err_clear(&err);
    assert_int_equal(is_frozen(site), 1); /* a volume's own */
    thaw(site);
    for (int i = 0; i < 1000 && deadline_child_reap() > 0; i++)
        (void)usleep(10000);
    assert_int_equal(deadline_child_reap(), 0);
    assert_false(deadline_child_hangs(object));
}

static void test_no_device(void **state)
{
    struct err err = ERR_INIT;
    (void)state;
    assert_int_equal(volume_frozen_hidden(makedev(7, 0xffff), WAIT_MS, &err), 0);
    assert_int_equal(volume_frozen_end(makedev(7, 0xffff), WAIT_MS, &err), 0);
    assert_string_equal(err.text, "");
}

#define on_site(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_site(test_it_is_seen),
        on_site(test_read_only),
        on_site(test_a_mount_for_reading_alone),
        on_site(test_one_that_is_shut_down),
        on_site(test_it_is_not_unmounted),
        on_site(test_one_without_a_mount_is_given_up),
        on_site(test_others_have_places),
        cmocka_unit_test(test_no_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
