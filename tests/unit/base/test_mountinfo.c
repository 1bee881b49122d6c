#include "mountinfo.h"

#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_options(void **state)
{
    (void)state;
    assert_true(mountinfo_has_option("rw", "rw"));
    assert_true(mountinfo_has_option("rw,nodev,relatime", "nodev"));
    assert_true(mountinfo_has_option("nodev,relatime", "relatime"));
    assert_false(mountinfo_has_option("rw,nodev2", "nodev"));
    assert_false(mountinfo_has_option("rw,xnodev", "nodev"));
    assert_false(mountinfo_has_option("", "rw"));
    assert_true(mountinfo_has_option("rw,,ro", "ro"));
}

/* Finds the mount at a path; returns whether it is shared, or -1 when there is none. */
static int find(const char *point, dev_t dev)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int shared = -1;
    int rc;
    assert_int_equal(mountinfo_open("self", &info, NULL), 0);
    while ((rc = mountinfo_next(&info, &entry, NULL)) > 0)
        if (strcmp(entry.point, point) == 0) {
            assert_string_equal(entry.type, "tmpfs");
            assert_string_equal(entry.source, "a source");
            assert_true(mountinfo_has_option(entry.options, "noexec"));
            assert_int_equal(makedev(entry.dev_major, entry.dev_minor), dev);
            shared = entry.shared;
        }
    assert_int_equal(rc, 0);
    return shared;
}

static void test_a_mount_with_an_awkward_name(void **state)
{
    const struct scratch *scratch = *state;
    static const char name[] = "a b\tc\nd\\e\\040f";
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch->path, name);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(find(path, 0), -1);
    assert_int_equal(mount("a source", path, "tmpfs", MS_NOEXEC, NULL), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(mount(NULL, path, NULL, MS_PRIVATE, NULL), 0);
    assert_int_equal(find(path, st.st_dev), 0);
    assert_int_equal(mount(NULL, path, NULL, MS_SHARED, NULL), 0);
    assert_int_equal(find(path, st.st_dev), 1);
    assert_int_equal(umount(path), 0);
    assert_int_equal(find(path, 0), -1);
}

/* Reads text as if it were the file of a process. */
static int parse(const char *text, struct mountinfo_entry *ret, struct mountinfo *info)
{
    *info = (struct mountinfo){.path = "the file"};
    info->file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(info->file);
    return mountinfo_next(info, ret, NULL);
}

static void test_lines(void **state)
{
    (void)state;
    struct mountinfo info;
    struct mountinfo_entry entry;
    assert_int_equal(parse("31 1 8:17 / /a\\040b rw,nodev master:3 shared:7 - ext4  rw,errors=x\n",
                           &entry, &info),
                     1);
    assert_int_equal(entry.id, 31);
    assert_int_equal(entry.dev_major, 8);
    assert_int_equal(entry.dev_minor, 17);
    assert_string_equal(entry.point, "/a b");
    assert_true(entry.shared);
    assert_string_equal(entry.type, "ext4");
    assert_string_equal(entry.source, "");
    assert_string_equal(entry.super_options, "rw,errors=x");
    assert_int_equal(mountinfo_next(&info, &entry, NULL), 0);
    mountinfo_close(&info);
    assert_int_equal(parse("31 1 8:17 / / rw master:3 - ext4 /dev/a rw\n", &entry, &info), 1);
    assert_false(entry.shared);
    mountinfo_close(&info);
    /* No byte has these numbers, so they are no escapes. */
    assert_int_equal(parse("31 1 8:17 / \\400\\000\\377 rw - ext4 a rw\n", &entry, &info), 1);
    assert_string_equal(entry.point, "\\400\\000\377");
    mountinfo_close(&info);
}

static void test_damaged_lines(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "\n",
        "x 1 8:17 / / rw - ext4 a rw\n",
        "31 1 8 / / rw - ext4 a rw\n",
        "31 1 8:17 / / rw shared:1 ext4 a rw\n",
        "31 1 8:17 / / rw - ext4\n",
        "31 1 8:17 / / rw - ext4 a\n",
        "31 1 8:17 / /\n",
        " 1 8:17 / / rw - ext4 a rw\n",
        "31  8:17 / / rw - ext4 a rw\n",
        "31 1  / / rw - ext4 a rw\n",
        "31 1 8:17  / rw - ext4 a rw\n",
        "31 1 8:17 /  rw - ext4 a rw\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct mountinfo info;
        struct mountinfo_entry entry;
        assert_int_equal(parse(lines[i], &entry, &info), -EBADMSG);
        mountinfo_close(&info);
    }
}

static void test_no_such_process(void **state)
{
    (void)state;
    struct mountinfo info = MOUNTINFO_INIT;
    struct err err = ERR_INIT;
    assert_int_equal(mountinfo_open("0", &info, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/proc/0/mountinfo"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test_setup_teardown(test_a_mount_with_an_awkward_name, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_damaged_lines),
        cmocka_unit_test(test_no_such_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
