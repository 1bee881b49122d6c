#include "sandbox_resolv.h"

#include "cleanup.h"
#include "fdio.h"
#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_copies(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool no_loopback;
        int servers;
        const char *copy;
    } cases[] = {
        {"nameserver 10.0.0.1\nsearch a b\n", true, 1, "nameserver 10.0.0.1\nsearch a b\n"},
        {"nameserver 127.0.0.53\noptions edns0\n", true, 0, "options edns0\n"},
        {"nameserver 127.0.0.53\n", false, 1, "nameserver 127.0.0.53\n"},
        {"nameserver ::1\nnameserver\tfd00::1%eth0\n", true, 1, "nameserver\tfd00::1%eth0\n"},
        {"nameserver 0.0.0.0\nnameserver ::\n", true, 0, ""},
        {"# nameserver 127.0.0.1", true, 0, "# nameserver 127.0.0.1\n"},
        {"nameserver 9.9.9.9", true, 1, "nameserver 9.9.9.9\n"},
        {"nameserver\nnameserver   \nnameservers 127.0.0.1\n", true, 0,
         "nameserver\nnameserver   \nnameservers 127.0.0.1\n"},
        {"", true, 0, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_buf struct buf copy = BUF_INIT(1000);
        assert_int_equal(sandbox_resolv_copy(cases[i].text, cases[i].no_loopback, &copy, NULL),
                         cases[i].servers);
        assert_string_equal(buf_str(&copy), cases[i].copy);
    }
}

static void make_root(const struct scratch *scratch)
{
    assert_int_equal(mkdir(scratch_path(scratch, "root"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "root/etc"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "root/run"), 0755), 0);
}

static void expect_target(const struct scratch *scratch, const char *path)
{
    struct sandbox_resolv resolv = {.fd = -1};
    assert_int_equal(
        sandbox_resolv_make(scratch_path(scratch, "root"), SANDBOX_NET_HOST, &resolv, NULL), 0);
    if (path) {
        assert_string_equal(resolv.path, path);
        assert_true(resolv.fd >= 0);
        assert_false(resolv.missing);
        assert_false(resolv.forward);
        close(resolv.fd);
    } else {
        assert_true(resolv.missing);
        assert_int_equal(resolv.fd, -1);
    }
}

static void test_target_is_found_inside(void **state)
{
    const struct scratch *scratch = *state;
    make_root(scratch);
    scratch_write(scratch, "root/etc/resolv.conf", "own", 3);
    expect_target(scratch, "/etc/resolv.conf");
    assert_int_equal(unlink(scratch_path(scratch, "root/etc/resolv.conf")), 0);
    /* A link is resolved as it is inside, also an absolute one and one that tries to leave. */
    static const char *const links[] = {"/run/resolv.conf", "../run/resolv.conf",
                                        "../../../../run/resolv.conf"};
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        assert_int_equal(symlink(links[i], scratch_path(scratch, "root/etc/resolv.conf")), 0);
        scratch_write(scratch, "root/run/resolv.conf", "", 0);
        expect_target(scratch, "/run/resolv.conf");
        assert_int_equal(unlink(scratch_path(scratch, "root/run/resolv.conf")), 0);
        assert_int_equal(unlink(scratch_path(scratch, "root/etc/resolv.conf")), 0);
    }
}

static void expect_empty(const struct scratch *scratch, const char *path)
{
    struct stat st;
    assert_int_equal(lstat(scratch_path(scratch, path), &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(st.st_uid, 0);
}

/* A missing one is made, empty, where the name leads inside. */
static void test_a_missing_one_is_made(void **state)
{
    const struct scratch *scratch = *state;
    static const struct {
        const char *link;
        const char *second; /* what root/run/first is */
        const char *target;
    } cases[] = {
        {NULL, NULL, "/etc/resolv.conf"},
        {"/run/resolv.conf", NULL, "/run/resolv.conf"},
        {"../run/a/b/c.conf", NULL, "/run/a/b/c.conf"},
        {"../../../../run/up.conf", NULL, "/run/up.conf"},
        {"/top.conf", NULL, "/top.conf"},
        {"/run/first", "../var/lib/second", "/var/lib/second"},
    };
    make_root(scratch);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char name[200];
        snprintf(name, sizeof name, "root%s", cases[i].target);
        if (cases[i].link)
            assert_int_equal(symlink(cases[i].link, scratch_path(scratch, "root/etc/resolv.conf")),
                             0);
        if (cases[i].second)
            assert_int_equal(symlink(cases[i].second, scratch_path(scratch, "root/run/first")), 0);
        expect_target(scratch, cases[i].target);
        expect_empty(scratch, name);
        assert_int_equal(unlink(scratch_path(scratch, "root/etc/resolv.conf")), 0);
    }
    /* Also without /etc. */
    assert_int_equal(rmdir(scratch_path(scratch, "root/etc")), 0);
    expect_target(scratch, "/etc/resolv.conf");
    expect_empty(scratch, "root/etc/resolv.conf");
}

/* Links in a circle, and places where the sandbox has a file system of its own. */
static void test_what_is_not_made(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const links[] = {"resolv.conf", "/proc/self/resolv", "/dev/resolv", "/tmp/x",
                                        "/run/"};
    make_root(scratch);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        assert_int_equal(symlink(links[i], scratch_path(scratch, "root/etc/resolv.conf")), 0);
        expect_target(scratch, NULL);
        assert_int_equal(unlink(scratch_path(scratch, "root/etc/resolv.conf")), 0);
    }
    struct stat st;
    assert_int_equal(stat(scratch_path(scratch, "root/proc"), &st), -1);
    assert_int_equal(stat(scratch_path(scratch, "root/dev"), &st), -1);
}

static void test_what_is_no_file_is_no_target(void **state)
{
    const struct scratch *scratch = *state;
    make_root(scratch);
    const char *path = scratch_path(scratch, "root/etc/resolv.conf");
    assert_int_equal(mkdir(path, 0755), 0);
    expect_target(scratch, NULL);
    assert_int_equal(rmdir(scratch_path(scratch, "root/etc/resolv.conf")), 0);
    assert_int_equal(mkfifo(scratch_path(scratch, "root/etc/resolv.conf"), 0644), 0);
    expect_target(scratch, NULL); /* and nobody waits for the other end of the pipe */
    assert_int_equal(unlink(scratch_path(scratch, "root/etc/resolv.conf")), 0);
    assert_int_equal(symlink("/proc/self/exe", scratch_path(scratch, "root/etc/resolv.conf")), 0);
    expect_target(scratch, NULL);
}

static void test_no_network_needs_no_names(void **state)
{
    const struct scratch *scratch = *state;
    make_root(scratch);
    struct sandbox_resolv resolv = {.missing = true};
    assert_int_equal(
        sandbox_resolv_make(scratch_path(scratch, "root"), SANDBOX_NET_NONE, &resolv, NULL), 0);
    assert_int_equal(resolv.fd, -1);
    assert_false(resolv.missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test_setup_teardown(test_target_is_found_inside, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_missing_one_is_made, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_not_made, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_file_is_no_target, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_no_network_needs_no_names, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
