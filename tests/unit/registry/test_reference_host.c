#include "reference_host.h"

#include "cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void canonical_forms(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"host", "host"},
        {"HOST.Example:5000", "host.example:5000"},
        {"127.0.0.1", "127.0.0.1"},
        {"[::1]:80", "[::1]:80"},
        {"[2001:DB8:0:0::1]", "[2001:db8::1]"},
        {"[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"},
        {"9p.example", "9p.example"},
        {"1x", "1x"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        struct err err = ERR_INIT;
        cleanup_free char *host = NULL;
        if (reference_host_canonical(pairs[i][0], &host, &err) < 0)
            fail_msg("%s: %s", pairs[i][0], err.text);
        assert_string_equal(host, pairs[i][1]);
    }
}

static void bad_hosts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",           ":80",        "a b",
        "a/b",        "a..b",       ".a",
        "a.",         "a_b",        "-a",
        "a-",         "a:",         "a:0",
        "a:080",      "a:65536",    "a:1x",
        "[::1",       "::1",        "[::1]80",
        "[::g]",      "[1.2.3.4]",  "1.2.3",
        "0x7f.1",     "127.0.0.01", "0x7f000001",
        "12345",      "a\nb",       "\xc3\xa4.example",
        "a@b",        "a#b",        "a?b",
        "[::1%25lo]", "a:+80",      "a: 80",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = ERR_INIT;
        char *host = NULL;
        if (reference_host_canonical(bad[i], &host, &err) != -EINVAL)
            fail_msg("'%s' was not refused", bad[i]);
        assert_int_equal(err.code, ERR_INVALID);
        assert_null(host);
        for (const char *p = err.text; *p; p++)
            assert_in_range(*p, ' ', '~');
    }
}

static void loopback(void **state)
{
    (void)state;
    static const char *const yes[] = {"localhost",          "localhost:1", "127.0.0.1",
                                      "127.255.255.254:80", "[::1]",       "[::1]:80"};
    static const char *const no[] = {"localhost.example",
                                     "128.0.0.1",
                                     "126.255.255.255",
                                     "[::2]",
                                     "[::1:1]",
                                     "10.0.0.1",
                                     "a",
                                     "a:80",
                                     "notlocalhost",
                                     "127.example"};
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        if (!reference_host_is_loopback(yes[i]))
            fail_msg("%s is loopback", yes[i]);
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        if (reference_host_is_loopback(no[i]))
            fail_msg("%s is not loopback", no[i]);
}

static void lists_are_checked(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_int_equal(reference_host_check_list(NULL, &err), 0);
    assert_int_equal(reference_host_check_list("", &err), 0);
    assert_int_equal(reference_host_check_list("  ", &err), 0);
    assert_int_equal(reference_host_check_list("a", &err), 0);
    assert_int_equal(reference_host_check_list(" a.example:80 , [::1] ,", &err), 0);
    static const char *const bad[] = {"a,,b", ",a", "a b", "a:x", "http://a", "a;b"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        err_clear(&err);
        assert_int_equal(reference_host_check_list(bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "insecure"));
    }
}

static void lists_name_hosts(void **state)
{
    (void)state;
    static const char list[] = "plain.example, Port.example:5000,[2001:db8::1],10.0.0.1:80";
    static const char *const yes[] = {"plain.example", "plain.example:1",  "port.example:5000",
                                      "[2001:db8::1]", "[2001:db8::1]:80", "10.0.0.1:80"};
    static const char *const no[] = {"port.example",    "port.example:5001", "x.plain.example",
                                     "plain.example.x", "10.0.0.1",          "[2001:db8::2]",
                                     "lain.example",    "plain.exampl"};
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        if (!reference_host_is_listed(yes[i], list))
            fail_msg("%s is in the list", yes[i]);
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        if (reference_host_is_listed(no[i], list))
            fail_msg("%s is not in the list", no[i]);
    assert_false(reference_host_is_listed("a", NULL));
    assert_false(reference_host_is_listed("a", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_forms),  cmocka_unit_test(bad_hosts_are_refused),
        cmocka_unit_test(loopback),         cmocka_unit_test(lists_are_checked),
        cmocka_unit_test(lists_name_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
