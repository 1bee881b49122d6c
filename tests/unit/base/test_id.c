#include "id.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_new_ids_are_valid_and_differ(void **state)
{
    (void)state;
    struct id a;
    struct id b;
    assert_int_equal(id_new("r", &a, NULL), 0);
    assert_int_equal(id_new("r", &b, NULL), 0);
    assert_int_equal(strlen(a.s), 14);
    assert_memory_equal(a.s, "r-", 2);
    assert_int_equal(id_check(a.s, "run ID", NULL), 0);
    assert_string_not_equal(a.s, b.s);
}

static void test_hex_has_the_asked_length(void **state)
{
    (void)state;
    char hex[65];
    assert_int_equal(id_random_hex(hex, 64, NULL), 0);
    assert_int_equal(strspn(hex, "0123456789abcdef"), 64);
    assert_int_equal(strlen(hex), 64);
    assert_true(id_random_hex(hex, 65, NULL) < 0);
}

static void test_check_table(void **state)
{
    (void)state;
    char longest[65];
    memset(longest, 'a', sizeof longest);
    longest[63] = '\0';
    static const char *const good[] = {"a", "0", "agent-7", "a.b_c-d"};
    static const char *const bad[] = {"",    "-a",       ".",   "..", "A",   "a/b",
                                      "a b", "\xc3\xa4", "a\n", "_a", "a:b", "../../etc"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(id_check(good[i], "run ID", NULL), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = ERR_INIT;
        assert_int_equal(id_check(bad[i], "run ID", &err), -EINVAL);
        assert_non_null(strstr(err.text, "run ID"));
        assert_true(err.hint[0] != '\0');
    }
    assert_int_equal(id_check(longest, "run ID", NULL), 0);
    longest[63] = 'a';
    longest[64] = '\0';
    assert_int_equal(id_check(longest, "run ID", NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_ids_are_valid_and_differ),
        cmocka_unit_test(test_hex_has_the_asked_length),
        cmocka_unit_test(test_check_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
