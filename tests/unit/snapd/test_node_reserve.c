/* The reserve of a node's disk. */
#include "cleanup.h"
#include "node_places.h"
#include "scratch.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct stat look(const struct node *node)
{
    struct stat st = {0};
    assert_int_equal(fstatat(node->data_fd, "reserve", &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

static void test_fill_and_release(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    struct node *node = open_node(&places.options);
    struct stat st = look(node);
    assert_int_equal(st.st_size, NODE_RESERVE_BYTES);
    assert_true(st.st_blocks * 512 >= NODE_RESERVE_BYTES);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_true(node_reserve_release(node));
    st = look(node);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(st.st_blocks, 0);
    assert_false(node_reserve_release(node));
    node_reserve_fill(node);
    node_reserve_fill(node);
    assert_int_equal(look(node).st_size, NODE_RESERVE_BYTES);
    node_close(node);
}

/* A file that only looks full, as a sparse copy of the directory makes it, gets its blocks. */
static void test_holes_are_no_reserve(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    struct node *node = open_node(&places.options);
    assert_true(node_reserve_release(node));
    cleanup_fd int fd = openat(node->data_fd, "reserve", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, NODE_RESERVE_BYTES), 0);
    node_reserve_fill(node);
    assert_true(look(node).st_blocks * 512 >= NODE_RESERVE_BYTES);
    node_close(node);
}

/* What is no file of its own is neither written nor cut. */
static void test_other_things_in_its_place(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    struct node *node = open_node(&places.options);
    scratch_write(scratch, "precious", "precious", 8);
    assert_int_equal(unlinkat(node->data_fd, "reserve", 0), 0);
    assert_int_equal(symlinkat("../precious", node->data_fd, "reserve"), 0);
    node_reserve_fill(node);
    assert_false(node_reserve_release(node));
    assert_int_equal(unlinkat(node->data_fd, "reserve", 0), 0);
    assert_int_equal(linkat(scratch->fd, "precious", node->data_fd, "reserve", 0), 0);
    node_reserve_fill(node);
    assert_false(node_reserve_release(node));
    assert_int_equal(look(node).st_size, 8);
    assert_int_equal(unlinkat(node->data_fd, "reserve", 0), 0);
    assert_int_equal(mkfifoat(node->data_fd, "reserve", 0600), 0);
    node_reserve_fill(node);
    assert_false(node_reserve_release(node));
    node_close(node);
}

static void test_a_small_disk_keeps_its_space(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    assert_int_equal(mkdirat(scratch->fd, "data", 0700), 0);
    assert_int_equal(mount("t", places.data, "tmpfs", 0, "size=8m,mode=0700"), 0);
    struct node *node = open_node(&places.options);
    assert_int_equal(look(node).st_blocks, 0);
    node_close(node);
    assert_int_equal(umount(places.data), 0);
}

#define scratch_test(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scratch_test(test_fill_and_release),
        scratch_test(test_holes_are_no_reserve),
        scratch_test(test_other_things_in_its_place),
        scratch_test(test_a_small_disk_keeps_its_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
