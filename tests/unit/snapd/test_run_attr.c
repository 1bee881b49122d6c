#include "run_attr.h"

#include "cleanup.h"
#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int make(const struct scratch *scratch, const char *name)
{
    assert_int_equal(mkdirat(scratch->fd, name, 0755), 0);
    int fd = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void test_everything_is_copied(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_fd int from = make(scratch, "from");
    cleanup_fd int to = make(scratch, "to");
    static char large[2000];
    char value[4096];
    struct stat st;
    const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = -5, .tv_nsec = 999999999}};
    memset(large, 'x', sizeof large);
    assert_int_equal(fchown(from, 12345, 54321), 0);
    assert_int_equal(fchmod(from, 07705), 0);
    assert_int_equal(fsetxattr(from, "user.empty", "", 0, 0), 0);
    assert_int_equal(fsetxattr(from, "user.large", large, sizeof large, 0), 0);
    assert_int_equal(fsetxattr(from, "trusted.note", "t", 1, 0), 0);
    assert_int_equal(fsetxattr(from, "trusted.overlay.opaque", "y", 1, 0), 0);
    assert_int_equal(fsetxattr(from, "trusted.overlay.origin", "z", 1, 0), 0);
    assert_int_equal(fsetxattr(from, "trusted.varve.implied", "y", 1, 0), 0);
    assert_int_equal(futimens(from, times), 0);
    assert_int_equal(run_attr_copy(from, to, NULL), 0);
    assert_int_equal(fstat(to, &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 07705);
    assert_int_equal(st.st_uid, 12345);
    assert_int_equal(st.st_gid, 54321);
    assert_int_equal(st.st_mtim.tv_sec, -5);
    assert_int_equal(st.st_mtim.tv_nsec, 999999999);
    assert_int_equal(fgetxattr(to, "user.empty", value, sizeof value), 0);
    assert_int_equal(fgetxattr(to, "user.large", value, sizeof value), sizeof large);
    assert_memory_equal(value, large, sizeof large);
    assert_int_equal(fgetxattr(to, "trusted.note", value, sizeof value), 1);
    assert_int_equal(fgetxattr(to, "trusted.overlay.opaque", value, sizeof value), -1);
    assert_int_equal(fgetxattr(to, "trusted.overlay.origin", value, sizeof value), -1);
    assert_int_equal(fgetxattr(to, "trusted.varve.implied", value, sizeof value), -1);
    /* A repeated job does it again. */
    assert_int_equal(run_attr_copy(from, to, NULL), 0);
}

static void test_a_root_that_is_implied(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_fd int fd = make(scratch, "root");
    struct stat st;
    struct err err = ERR_INIT;
    assert_int_equal(run_attr_is_implied(fd, &err), 0);
    assert_int_equal(fsetxattr(fd, "trusted.varve.implied", "y", 1, 0), 0);
    assert_int_equal(run_attr_is_implied(fd, &err), 1);
    assert_int_equal(fsetxattr(fd, "trusted.varve.implied", "something long", 14, 0), 0);
    assert_int_equal(run_attr_is_implied(fd, &err), 1);
    assert_int_equal(run_attr_is_implied(-1, &err), -EBADF);
    assert_int_equal(fchown(fd, 3, 4), 0);
    assert_int_equal(fchmod(fd, 07700), 0);
    assert_int_equal(run_attr_default(fd, NULL), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0755);
    assert_int_equal(st.st_uid, 0);
    assert_int_equal(st.st_gid, 0);
    assert_int_equal(st.st_mtim.tv_sec, 0);
    assert_int_equal(run_attr_default(-1, &err), -EBADF);
}

/* In the kernel's form: version 2, then tag, permissions, id. user::rwx, user:1000:r--,
 * group::r-x, mask::r-x, other::---. */
static const unsigned char acl[] = "\2\0\0\0"
                                   "\1\0\7\0\377\377\377\377"
                                   "\2\0\4\0\350\3\0\0"
                                   "\4\0\5\0\377\377\377\377"
                                   "\20\0\5\0\377\377\377\377"
                                   "\40\0\0\0\377\377\377\377";

enum {
    ACL_LEN = sizeof acl - 1,
};

static void test_access_lists(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const names[] = {"system.posix_acl_access", "system.posix_acl_default"};
    cleanup_fd int from = make(scratch, "from");
    cleanup_fd int to = make(scratch, "to");
    struct stat st;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(fsetxattr(from, names[i], acl, ACL_LEN, 0), 0);
    assert_int_equal(run_attr_copy(from, to, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        unsigned char value[ACL_LEN];
        assert_int_equal(fgetxattr(to, names[i], value, sizeof value), ACL_LEN);
        assert_memory_equal(value, acl, ACL_LEN);
    }
    assert_int_equal(fstat(to, &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0750);
}

static void test_failures(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_fd int from = make(scratch, "from");
    struct err err = ERR_INIT;
    assert_int_equal(run_attr_copy(-1, from, &err), -EBADF);
    assert_non_null(strstr(err.text, "topmost layer"));
    err_clear(&err);
    assert_int_equal(run_attr_copy(from, -1, &err), -EBADF);
    assert_int_equal(err.code, ERR_IO);
}

#define scratch_test(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scratch_test(test_everything_is_copied),
        scratch_test(test_a_root_that_is_implied),
        scratch_test(test_access_lists),
        scratch_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
