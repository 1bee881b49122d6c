/* Answers of a child, also of one that was taken over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "convert_answer.h"

#define HEX "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static int parse(const char *text, struct convert_answer *ret, struct err *err)
{
    err_clear(err);
    return convert_answer_parse(text, strlen(text), ret, err);
}

static void test_good(void **state)
{
    (void)state;
    struct convert_answer answer;
    struct err err = ERR_INIT;
    assert_int_equal(parse("{\"needs_lowers\":true}", &answer, &err), 0);
    assert_int_equal(answer.kind, CONVERT_ANSWER_LOWERS);
    assert_int_equal(parse("{\"names\":7}", &answer, &err), 0);
    assert_int_equal(answer.kind, CONVERT_ANSWER_CHECKED);
    assert_int_equal(answer.names, 7);
    assert_int_equal(parse("{\"diff_id\":\"sha256:" HEX "\",\"tar_bytes\":1,\"image_bytes\":2,"
                           "\"entries\":3,\"used_lowers\":true,\"dropped\":4,"
                           "\"dropped_first\":\"a\\nb\\n\"}",
                           &answer, &err),
                     0);
    assert_int_equal(answer.kind, CONVERT_ANSWER_DONE);
    assert_string_equal(digest_hex(&answer.result.diff_id).s, HEX);
    assert_int_equal(answer.result.tar_bytes, 1);
    assert_int_equal(answer.result.image_bytes, 2);
    assert_int_equal(answer.result.entries, 3);
    assert_true(answer.result.used_lowers);
    assert_int_equal(answer.result.dropped, 4);
    assert_string_equal(answer.result.dropped_first, "a\nb\n");
    convert_result_free(&answer.result);
}

static void test_failures(void **state)
{
    (void)state;
    struct convert_answer answer;
    struct err err = ERR_INIT;
    assert_true(parse("{\"error\":{\"code\":\"no_space\",\"message\":\"full\",\"hint\":\"h\"}}",
                      &answer, &err) < 0);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_string_equal(err.text, "full");
    assert_string_equal(err.hint, "h");
    /* A code that nobody knows, none at all, and text that would steer a terminal. */
    assert_true(parse("{\"error\":{\"code\":\"??\",\"message\":\"a\\u001b[2J\\u009bb\\nc\"}}",
                      &answer, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_string_equal(err.text, "a?[2J??b?c");
    assert_true(parse("{\"error\":{\"code\":\"none\",\"message\":\"x\"}}", &answer, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_true(parse("{\"error\":{\"message\":\"x\"}}", &answer, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

static void test_nonsense(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "x",
        "[]",
        "{}",
        "{\"error\":1}",
        "{\"needs_lowers\":1}",
        "{\"names\":-1}",
        "{\"names\":\"1\"}",
        "{\"names\":1.5}",
        "{\"names\":1}{}",
        "{\"names\":99999999999999999999}",
        "{\"diff_id\":\"md5:1\",\"tar_bytes\":1,\"image_bytes\":2,\"entries\":3,\"dropped\":0,"
        "\"dropped_first\":\"\"}",
        "{\"diff_id\":\"sha256:" HEX "\",\"tar_bytes\":-1,\"image_bytes\":2,\"entries\":3,"
        "\"dropped\":0,\"dropped_first\":\"\"}",
        "{\"diff_id\":\"sha256:" HEX "\",\"tar_bytes\":1,\"image_bytes\":2,\"entries\":3,"
        "\"dropped\":0}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct convert_answer answer;
        struct err err = ERR_INIT;
        if (parse(texts[i], &answer, &err) == 0)
            fail_msg("%s was accepted", texts[i]);
        assert_true(err.text[0] != '\0');
    }
}

/* A list that is too long is cut, and every line of it is plain. */
static void test_list_of_dropped(void **state)
{
    (void)state;
    char text[4096];
    int len = snprintf(text, sizeof text,
                       "{\"diff_id\":\"sha256:" HEX "\",\"tar_bytes\":1,\"image_bytes\":2,"
                       "\"entries\":3,\"dropped\":99,\"dropped_first\":\"");
    for (int i = 0; i < 99; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "f\\t%d\\n", i);
    snprintf(text + len, sizeof text - (size_t)len, "\"}");
    struct convert_answer answer;
    struct err err = ERR_INIT;
    assert_int_equal(parse(text, &answer, &err), 0);
    size_t lines = 1;
    for (const char *at = answer.result.dropped_first; *at; at++)
        lines += *at == '\n';
    assert_int_equal(lines, CONVERT_DROPPED_MAX);
    assert_memory_equal(answer.result.dropped_first, "f?0\nf?1\n", 8);
    assert_non_null(strstr(answer.result.dropped_first, "f?15"));
    convert_result_free(&answer.result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_list_of_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
