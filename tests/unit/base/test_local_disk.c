#include "local_disk.h"

#include "cleanup.h"
#include "scratch.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int check(const char *path, struct err *err)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return local_disk_check(fd, path, err);
}

static void refused(const char *path, const char *says)
{
    struct err err = ERR_INIT;
    int rc = check(path, &err);
    if (rc != -EOPNOTSUPP || err.code != ERR_UNSUPPORTED || !strstr(err.text, says) ||
        !strstr(err.text, path) || !strstr(err.hint, "ext4"))
        fail_msg("%d %s '%s' '%s'", rc, err_code_name(err.code), err.text, err.hint);
}

static int count_entries(const char *path)
{
    int count = 0;
    cleanup_dir DIR *dir = opendir(path);
    while (dir && readdir(dir))
        count++;
    return count;
}

static void test_a_disk_of_this_host(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    if (check(scratch->path, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(count_entries(scratch->path), 2);
}

static void test_types(void **state)
{
    (void)state;
    assert_string_equal(local_disk_refused(NFS_SUPER_MAGIC), "nfs");
    assert_string_equal(local_disk_refused(0x65735546), "fuse");
    assert_string_equal(local_disk_refused(OVERLAYFS_SUPER_MAGIC), "overlayfs");
    static const uint32_t fine[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                    F2FS_SUPER_MAGIC, TMPFS_MAGIC,     0};
    for (size_t i = 0; i < ARRAY_SIZE(fine); i++)
        assert_null(local_disk_refused(fine[i]));
    assert_true(local_disk_is_memory(TMPFS_MAGIC));
    assert_false(local_disk_is_memory(EXT4_SUPER_MAGIC));
}

static void test_an_overlay(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const dirs[] = {"t/l", "t/u", "t/w", "t/m"};
    char options[300];
    scratch_tmpfs(scratch, "t", 1 << 20);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(mkdir(scratch_path(scratch, dirs[i]), 0755), 0);
    snprintf(options, sizeof options, "lowerdir=%s/t/l,upperdir=%s/t/u,workdir=%s/t/w",
             scratch->path, scratch->path, scratch->path);
    assert_int_equal(mount("o", scratch_path(scratch, "t/m"), "overlay", 0, options), 0);
    refused(scratch_path(scratch, "t/m"), "overlayfs");
}

/* ramfs can do neither holes nor files without a name. */
static void test_what_cannot_make_holes(void **state)
{
    const struct scratch *scratch = *state;
    const char *path = scratch_path(scratch, "r");
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(mount("r", path, "ramfs", 0, NULL), 0);
    refused(path, "give back a part of a file");
    assert_int_equal(count_entries(path), 2);
}

static void test_a_full_one_and_one_that_is_read_only(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    static char bytes[64 * 1024];
    scratch_tmpfs(scratch, "t", sizeof bytes);
    const char *path = scratch_path(scratch, "t");
    if (check(path, &err) < 0)
        fail_msg("%s", err.text);
    scratch_write(scratch, "t/f", bytes, sizeof bytes);
    if (check(path, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(check(path, &err), -EROFS);
    assert_int_equal(err.code, ERR_DENIED);
}

#ifdef VARVE_FAULT_POINTS
/* What this machine has not. */
static void test_simulated_ones(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const cases[][2] = {
        {"nfs", "on nfs"},          {"fuse", "on fuse"},
        {"ceph", "on ceph"},        {"no-locks", "has no locks"},
        {"no-sync", "cannot sync"}, {"no-holes", "give back"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(setenv("VARVE_LOCAL_DISK", cases[i][0], 1), 0);
        refused(scratch->path, cases[i][1]);
    }
    assert_int_equal(unsetenv("VARVE_LOCAL_DISK"), 0);
    assert_int_equal(count_entries(scratch->path), 2);
}
#endif

#define in_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_scratch(test_a_disk_of_this_host),
        cmocka_unit_test(test_types),
        in_scratch(test_an_overlay),
        in_scratch(test_what_cannot_make_holes),
        in_scratch(test_a_full_one_and_one_that_is_read_only),
#ifdef VARVE_FAULT_POINTS
        in_scratch(test_simulated_ones),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
