#include "path_text.h"

#include "cleanup.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_utf8(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain",
                                       "caf\xc3\xa9",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"caf\xe9",
                                      "\x80",
                                      "\xc0\xaf",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xe2\x82",
                                      "\xe2\x28\xa1",
                                      "\xc3"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(path_text_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(path_text_is_utf8(bad[i], strlen(bad[i])));
    assert_false(path_text_is_utf8("\xc3\xa9", 1));
}

static void check_dup(const char *path, const char *expected)
{
    cleanup_free char *text = path_text_dup(path);
    assert_string_equal(text, expected);
}

static void test_document_form(void **state)
{
    (void)state;
    check_dup("", "");
    check_dup("etc/passwd", "etc/passwd");
    check_dup("a\\x2db", "a\\x2db");
    check_dup("\xc3\xa9", "\xc3\xa9");
    check_dup("caf\xe9\\x/\xc3\xa9", "caf\\xE9\\\\x/\xc3\xa9");
    check_dup("a\nb", "a\\x0Ab");
    check_dup("\x7f", "\\x7F");
}

static void test_message_form(void **state)
{
    (void)state;
    char path[3000];
    assert_string_equal(path_text("").s, "/");
    assert_string_equal(path_text("a/b").s, "a/b");
    memset(path, 'x', PATH_TEXT_MAX);
    path[PATH_TEXT_MAX - 1] = '\0';
    assert_string_equal(path_text(path).s, path);
    path[PATH_TEXT_MAX - 1] = 'x';
    path[PATH_TEXT_MAX] = '\0';
    struct path_text cut = path_text(path);
    assert_true(strlen(cut.s) < PATH_TEXT_MAX);
    assert_non_null(strstr(cut.s, "x[...]x"));
}

/* Wherever the cut falls, no character is cut in two. */
static void test_cut_between_characters(void **state)
{
    (void)state;
    char path[3000];
    for (size_t shift = 0; shift < 4; shift++) {
        size_t len = shift;
        memset(path, 'x', shift);
        for (size_t i = 0; i < 700; i++, len += 4)
            memcpy(path + len, "\xf0\x9f\x98\x80", 4);
        for (size_t end = 0; end < 4; end++) {
            path[len + end] = '\0';
            struct path_text text = path_text(path);
            assert_true(path_text_is_utf8(text.s, strlen(text.s)));
            assert_true(strlen(text.s) < PATH_TEXT_MAX);
            assert_non_null(strstr(text.s, "[...]"));
            path[len + end] = 'y';
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_document_form),
        cmocka_unit_test(test_message_form),
        cmocka_unit_test(test_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
