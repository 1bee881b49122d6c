#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "fs_site.h"
#include "volume_kernel_users.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* After the headers of the C library, whose sys/mount.h has the same names as linux/mount.h. */
#include <sys/mount.h>

static struct volume_kernel_users swaps(const char *text, const char *point)
{
    struct volume_kernel_users users = {.count = 0};
    cleanup_file FILE *file = fmemopen((void *)text, strlen(text), "r");
    assert_non_null(file);
    volume_kernel_users_add_swaps(file, point, &users);
    return users;
}

static void test_swap_files(void **state)
{
    (void)state;
    static const char text[] =
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        "/dev/sda2                               partition\t4\t0\t-2\n"
        "/m/a/swap                               file\t\t8188\t0\t-3\n"
        "/m/ab/swap                              file\t\t8188\t0\t-3\n"
        "/m/a/with\\040a\\134b\\012                    file\t\t8188\t0\t-4\n";
    struct volume_kernel_users users = swaps(text, "/m/a");
    assert_int_equal(users.count, 2);
    assert_string_equal(users.text, "the swap file swap, the swap file with a\\b\n");
    users = swaps(text, "/m/ab");
    assert_int_equal(users.count, 1);
    assert_int_equal(swaps(text, "/m/b").count, 0);
    assert_int_equal(swaps("x", "/m/a").count, 0);
    assert_int_equal(swaps("\n\n", "/m/a").count, 0);
}

static void test_more_than_are_shown(void **state)
{
    (void)state;
    char text[2048] = "";
    for (int i = 0; i < VOLUME_KERNEL_USERS_SHOWN + 3; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "/m/%0*d file 1 0 -3\n", 100, i);
    }
    struct volume_kernel_users users = swaps(text, "/m");
    assert_true(users.count >= 1);
    assert_true(strlen(users.text) < sizeof users.text);
}

static struct volume_kernel_users find(const struct fs_site *site)
{
    struct volume_kernel_users users;
    struct err err = ERR_INIT;
    if (volume_kernel_users_find(site->loop.device, &users, &err) < 0)
        fail_msg("%s", err.text);
    return users;
}

static int take_loop(const struct fs_site *site, const char *name, struct loop_device *ret)
{
    char path[256];
    struct err err = ERR_INIT;
    const struct loop_device_options options = {.autoclear = true};
    fs_site_write(site, name, 1 << 20, true);
    snprintf(path, sizeof path, "%s/%s", site->mount, name);
    cleanup_fd int file = open(path, O_RDWR | O_CLOEXEC);
    int fd = loop_device_attach(file, &options, ret, &err);
    if (fd < 0)
        fail_msg("%s", err.text);
    return fd;
}

static void test_loop_devices(void **state)
{
    struct fs_site *site = *state;
    struct loop_device first;
    struct loop_device second;
    fs_site_mount(site);
    assert_int_equal(find(site).count, 0);
    int fd = take_loop(site, "one", &first);
    struct volume_kernel_users users = find(site);
    assert_int_equal(users.count, 1);
    assert_non_null(strstr(users.text, first.path));
    int other = take_loop(site, "two", &second);
    assert_int_equal(find(site).count, 2);
    /* The same file system at another place has no other users. */
    assert_int_equal(mount(site->mount, site->mount, NULL, MS_BIND, NULL), 0);
    users = find(site);
    assert_int_equal(umount2(site->mount, 0), 0);
    assert_int_equal(users.count, 2);
    close(other);
    close(fd);
    assert_int_equal(find(site).count, 0);
}

static int setup_namespace(void **state)
{
    (void)state;
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0
                                                                                               : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_files),
        cmocka_unit_test(test_more_than_are_shown),
        cmocka_unit_test_setup_teardown(test_loop_devices, fs_site_setup, fs_site_teardown),
    };
    return cmocka_run_group_tests(tests, setup_namespace, NULL);
}
