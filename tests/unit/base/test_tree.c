#include "tree.h"

#include "cleanup.h"
#include "scratch.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool exists(const struct scratch *scratch, const char *name)
{
    return faccessat(scratch->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_missing_name_is_fine(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(tree_remove(scratch->fd, "none", NULL), 0);
}

static void test_files_links_and_special_files(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "keep", "x", 1);
    assert_int_equal(mkdirat(scratch->fd, "kept", 0700), 0);
    scratch_write(scratch, "kept/f", "x", 1);
    assert_int_equal(mkdirat(scratch->fd, "t", 0700), 0);
    assert_int_equal(symlinkat("../keep", scratch->fd, "t/link"), 0);
    assert_int_equal(symlinkat("../kept", scratch->fd, "t/dirlink"), 0);
    assert_int_equal(mkfifoat(scratch->fd, "t/fifo", 0600), 0);
    assert_int_equal(mkdirat(scratch->fd, "t/closed", 0000), 0);
    assert_int_equal(tree_remove(scratch->fd, "t", NULL), 0);
    assert_false(exists(scratch, "t"));
    assert_true(exists(scratch, "keep"));
    assert_true(exists(scratch, "kept/f"));
    assert_int_equal(symlinkat("kept", scratch->fd, "t"), 0);
    assert_int_equal(tree_remove(scratch->fd, "t", NULL), 0);
    assert_true(exists(scratch, "kept/f"));
}

/* Deeper than PATH_MAX and than any recursion or table of descriptors would bear. */
static void test_very_deep_tree(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "t", 0700), 0);
    int fd = openat(scratch->fd, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(mkdirat(fd, "d", 0700), 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = next;
    }
    close(fd);
    assert_int_equal(tree_remove(scratch->fd, "t", NULL), 0);
    assert_false(exists(scratch, "t"));
}

static void test_wide_tree(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "t", 0700), 0);
    for (int i = 0; i < 50; i++) {
        char name[64];
        snprintf(name, sizeof name, "t/d%d", i);
        assert_int_equal(mkdirat(scratch->fd, name, 0700), 0);
        for (int j = 0; j < 40; j++) {
            snprintf(name, sizeof name, "t/d%d/s%d", i, j);
            assert_int_equal(mkdirat(scratch->fd, name, 0700), 0);
            snprintf(name, sizeof name, "t/d%d/s%d/f", i, j);
            scratch_write(scratch, name, "x", 1);
        }
    }
    assert_int_equal(tree_remove(scratch->fd, "t", NULL), 0);
    assert_false(exists(scratch, "t"));
}

static void mount_is_never_emptied(const struct scratch *scratch, const char *at)
{
    scratch_tmpfs(scratch, at, 1 << 20);
    char file[64];
    snprintf(file, sizeof file, "%s/precious", at);
    scratch_write(scratch, file, "x", 1);
    struct err err = ERR_INIT;
    assert_true(tree_remove(scratch->fd, "t", &err) < 0);
    assert_true(exists(scratch, file));
}

static void test_mounts_inside_are_never_emptied(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "t", 0700), 0);
    mount_is_never_emptied(scratch, "t/m");
}

static void test_mount_two_levels_down_is_never_emptied(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "t", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "t/d", 0700), 0);
    mount_is_never_emptied(scratch, "t/d/m");
}

static void test_top_that_is_a_mount_is_refused(void **state)
{
    mount_is_never_emptied(*state, "t");
}

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch(test_missing_name_is_fine),
        with_scratch(test_files_links_and_special_files),
        with_scratch(test_very_deep_tree),
        with_scratch(test_wide_tree),
        with_scratch(test_mounts_inside_are_never_emptied),
        with_scratch(test_mount_two_levels_down_is_never_emptied),
        with_scratch(test_top_that_is_a_mount_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
