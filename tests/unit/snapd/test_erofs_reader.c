#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_agree.h"
#include "erofs_check.h"
#include "scratch.h"
#include "spawn.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

/* mkfs.erofs writes what the reader takes, when it is told to. */
static void test_agree_with_kernel_on_foreign_image(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdir(scratch_path(scratch, "tree"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "tree/many"), 02775), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "mnt"), 0755), 0);
    char name[128];
    for (int i = 0; i < 700; i++) {
        snprintf(name, sizeof name, "tree/many/a-name-of-some-length-%d", i * 7);
        scratch_write(scratch, name, name, i % 60);
    }
    static char bytes[70000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31 + i / 256);
    static const long sizes[] = {0, 1, 4095, 4096, 4097, 8191, 8192, 70000};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        snprintf(name, sizeof name, "tree/size-%ld", sizes[i]);
        scratch_write(scratch, name, bytes, sizes[i]);
    }
    assert_int_equal(
        link(scratch_path(scratch, "tree/size-1"), scratch_path(scratch, "tree/many/linked")), 0);
    assert_int_equal(symlink("size-1", scratch_path(scratch, "tree/link")), 0);
    assert_int_equal(
        mknod(scratch_path(scratch, "tree/device"), S_IFBLK | 0600, makedev(300, 70000)), 0);
    assert_int_equal(mkfifo(scratch_path(scratch, "tree/fifo"), 0644), 0);
    const char *owned = scratch_path(scratch, "tree/size-4096");
    assert_int_equal(chown(owned, 100000, 4000000000), 0);
    assert_int_equal(setxattr(owned, "user.alone", bytes, 300, 0), 0);
    for (int i = 1; i < 8; i++) {
        snprintf(name, sizeof name, "tree/many/a-name-of-some-length-%d", i * 7);
        assert_int_equal(setxattr(scratch_path(scratch, name), "user.shared", "value", 5, 0), 0);
    }
    char image[4200];
    snprintf(image, sizeof image, "%s", scratch_path(scratch, "image"));
    const char *const argv[] = {"mkfs.erofs", "--quiet",
                                "-E",         "force-inode-extended,legacy-compress",
                                image,        scratch_path(scratch, "tree"),
                                NULL};
    struct err err = ERR_INIT;
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s", err.text);
    struct erofs_agree_count count;
    erofs_agree(image, scratch_path(scratch, "mnt"), &count);
    assert_int_equal(count.inodes, 1 + 1 + 700 + 8 + 1 + 3);
    assert_int_equal(count.xattrs, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_agree_with_kernel_on_foreign_image, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
