#include "sandbox_args.h"

#include "cleanup.h"

#include <linux/capability.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The options as one text, words parted by spaces. */
static char *build(const struct sandbox_args *args)
{
    cleanup_buf struct buf buf = BUF_INIT(1 << 20);
    assert_int_equal(sandbox_args_build(args, &buf, NULL), 0);
    assert_int_equal(buf.data[buf.len - 1], '\0'); /* every word has its end */
    for (size_t i = 0; i < buf.len; i++)
        if (buf.data[i] == '\0')
            buf.data[i] = ' ';
    char *text = buf_steal(&buf);
    assert_non_null(text);
    return text;
}

static const char *const no_argv[] = {"true", NULL};

static void test_everything_is_parted_from_the_host(void **state)
{
    (void)state;
    struct sandbox sandbox = {.id = "r-1", .rootfs = "/r/rootfs", .argv = no_argv};
    struct sandbox_args args = {.sandbox = &sandbox, .resolv_fd = -1};
    cleanup_free char *text = build(&args);
    static const char *const parts[] = {"--unshare-pid ",
                                        "--unshare-ipc ",
                                        "--unshare-uts ",
                                        "--unshare-net ",
                                        "--unshare-cgroup-try ",
                                        "--as-pid-1 ",
                                        "--die-with-parent ",
                                        "--hostname r-1 ",
                                        "--bind /r/rootfs / ",
                                        "--proc /proc ",
                                        "--dev /dev ",
                                        "--clearenv ",
                                        "--perms 1777 --tmpfs /tmp ",
                                        "--perms 1777 --tmpfs /dev/shm "};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        assert_non_null(strstr(text, parts[i]));
    /* The user namespace is ours, and no user namespace of bubblewrap's maps one id over it. */
    assert_null(strstr(text, "--unshare-user"));
    assert_null(strstr(text, "/sys"));
    assert_null(strstr(text, "console"));
    assert_null(strstr(text, "resolv"));
}

static void test_only_listed_capabilities_stay(void **state)
{
    (void)state;
    struct sandbox sandbox = {.id = "r", .rootfs = "/r", .argv = no_argv};
    struct sandbox_args args = {.sandbox = &sandbox, .resolv_fd = -1};
    cleanup_free char *text = build(&args);
    const char *drop = strstr(text, "--cap-drop ALL ");
    const char *add = strstr(text, "--cap-add ");
    assert_non_null(drop);
    assert_non_null(add);
    assert_true(drop < add);
    static const int refused[] = {
        CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE,      CAP_SYS_MODULE,   CAP_SYS_RAWIO,
        CAP_SYS_TIME,  CAP_SYS_BOOT,  CAP_DAC_READ_SEARCH, CAP_SYS_RESOURCE, CAP_SYSLOG,
        CAP_BPF,       CAP_NET_RAW,   CAP_LINUX_IMMUTABLE};
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        assert_int_equal(sandbox_args_cap_mask() >> refused[i] & 1, 0);
    assert_int_equal(sandbox_args_cap_mask(), 0xa80405fb);
    assert_null(strstr(text, "CAP_SYS_ADMIN"));
}

static void test_network_and_terminal(void **state)
{
    (void)state;
    struct sandbox sandbox = {.id = "r", .rootfs = "/r", .argv = no_argv, .net = SANDBOX_NET_HOST};
    struct sandbox_args args = {
        .sandbox = &sandbox, .console = true, .resolv_fd = 9, .resolv_path = "/etc/resolv.conf"};
    cleanup_free char *host = build(&args);
    assert_null(strstr(host, "--unshare-net"));
    assert_non_null(strstr(host, "--dev /dev --perms"));
    assert_non_null(strstr(host, "--dev-bind /dev/console /dev/console "));
    assert_non_null(strstr(host, "--perms 0644 --ro-bind-data 9 /etc/resolv.conf "));
    sandbox.net = SANDBOX_NET_PASTA;
    cleanup_free char *pasta = build(&args);
    assert_non_null(strstr(pasta, "--unshare-net "));
}

static void test_environment_is_the_given_one(void **state)
{
    (void)state;
    static const char *const env[] = {"PATH=/opt/bin", "A=1=2",         "EMPTY=", "no-pair", "=x",
                                      "A=3",           "S=--bind / /x", NULL};
    struct sandbox sandbox = {.id = "r", .rootfs = "/r", .argv = no_argv, .env = env};
    struct sandbox_args args = {.sandbox = &sandbox, .resolv_fd = -1};
    cleanup_buf struct buf buf = BUF_INIT(1 << 20);
    assert_int_equal(sandbox_args_build(&args, &buf, NULL), 0);
    /* Defaults, then the image's; the last of equal names wins in bubblewrap. */
    static const char expected[] =
        "--clearenv\0"
        "--setenv\0PATH\0/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\0"
        "--setenv\0HOME\0/root\0--setenv\0PATH\0/opt/bin\0--setenv\0A\0"
        "1=2\0"
        "--setenv\0EMPTY\0\0--setenv\0A\0"
        "3\0--setenv\0S\0--bind / /x\0--bind\0/r\0/";
    assert_non_null(memmem(buf.data, buf.len, expected, sizeof expected));
    static const char home[] = "--setenv\0HOME\0/var/mail";
    sandbox.user.home = "/var/mail";
    buf.len = 0;
    assert_int_equal(sandbox_args_build(&args, &buf, NULL), 0);
    assert_non_null(memmem(buf.data, buf.len, home, sizeof home));
    assert_null(memmem(buf.data, buf.len, "/root", 6));
}

static void test_proc_is_covered_as_listed(void **state)
{
    (void)state;
    static const struct sandbox_proc_entry proc[] = {{"acpi", SANDBOX_PROC_HIDE_DIR},
                                                     {"kcore", SANDBOX_PROC_HIDE_FILE},
                                                     {"stat", SANDBOX_PROC_LEAVE},
                                                     {"sys", SANDBOX_PROC_READ_ONLY}};
    struct sandbox sandbox = {.id = "r", .rootfs = "/r", .argv = no_argv};
    struct sandbox_args args = {
        .sandbox = &sandbox, .proc = proc, .proc_count = ARRAY_SIZE(proc), .resolv_fd = -1};
    cleanup_free char *text = build(&args);
    assert_non_null(strstr(text, "--proc /proc --tmpfs /proc/acpi --remount-ro /proc/acpi "
                                 "--dev-bind /dev/null /proc/kcore "
                                 "--ro-bind /proc/sys /proc/sys --dev /dev "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_parted_from_the_host),
        cmocka_unit_test(test_only_listed_capabilities_stay),
        cmocka_unit_test(test_network_and_terminal),
        cmocka_unit_test(test_environment_is_the_given_one),
        cmocka_unit_test(test_proc_is_covered_as_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
