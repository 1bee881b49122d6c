#include "output.h"

#include "cleanup.h"
#include "clock.h"
#include "text.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NOW (INT64_C(1795970336) * CLOCK_NS_PER_S) /* 2026-11-29T16:38:56Z */

struct capture {
    char *text;
    size_t len;
    FILE *out;
};

static void capture_begin(struct capture *capture)
{
    capture->text = NULL;
    capture->out = open_memstream(&capture->text, &capture->len);
    assert_non_null(capture->out);
}

static void expect_captured(struct capture *capture, const char *expected)
{
    fclose(capture->out);
    assert_string_equal(capture->text, expected);
    free(capture->text);
}

static json_t *json(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    return value;
}

static void test_table_is_aligned(void **state)
{
    (void)state;
    static const struct output_column columns[] = {{"NAME", "names", OUTPUT_TEXT},
                                                   {"DIGEST", "digest", OUTPUT_DIGEST},
                                                   {"SIZE", "size", OUTPUT_SIZE},
                                                   {"ERROR", "error.code", OUTPUT_TEXT},
                                                   {"AGE", "created", OUTPUT_AGE}};
    cleanup_json json_t *rows = json(
        "[{\"names\":[\"a:1\",\"bü:2\"],\"digest\":\"sha256:0123456789abcdef\",\"size\":2048,"
        "\"created\":\"2026-11-29T16:38:51Z\"},"
        "{\"names\":[],\"digest\":null,\"error\":{\"code\":\"no_space\"},\"created\":\"soon\"}]");
    struct capture capture;
    capture_begin(&capture);
    assert_int_equal(output_table(capture.out, rows, columns, 5, NOW, NULL), 0);
    expect_captured(&capture, "NAME      DIGEST        SIZE     ERROR     AGE\n"
                              "a:1,bü:2  0123456789ab  2.0 KiB  -         5 s\n"
                              "-         -             -        no_space  soon\n");
}

static void test_table_without_rows_has_its_header(void **state)
{
    (void)state;
    static const struct output_column columns[] = {{"ID", "id", OUTPUT_TEXT}};
    cleanup_json json_t *rows = json("[]");
    struct capture capture;
    capture_begin(&capture);
    assert_int_equal(output_table(capture.out, rows, columns, 1, NOW, NULL), 0);
    expect_captured(&capture, "ID\n");
}

static void test_table_escapes_foreign_text(void **state)
{
    (void)state;
    static const struct output_column columns[] = {{"ID", "id", OUTPUT_TEXT},
                                                   {"N", "n", OUTPUT_TEXT}};
    cleanup_json json_t *rows = json("[{\"id\":\"a\\u001b[2J\\nb\",\"n\":1},7]");
    struct capture capture;
    capture_begin(&capture);
    assert_int_equal(output_table(capture.out, rows, columns, 2, NOW, NULL), 0);
    expect_captured(&capture, "ID             N\n"
                              "a\\x1b[2J\\x0ab  1\n"
                              "-              -\n");
}

static void test_record(void **state)
{
    (void)state;
    cleanup_json json_t *object = json(
        "{\"id\":\"s-1\",\"size\":1536,\"created\":\"2026-11-29T16:36:56Z\",\"token\":null,"
        "\"mounted\":true,\"labels\":{\"k\":\"v\\u0007\",\"long\":\"w\"},\"names\":[\"a\",\"b\"],"
        "\"none\":[],\"empty\":{},\"steps\":[{\"name\":\"pull\",\"attempt\":1}],"
        "\"expires\":\"2026-11-29T16:39:56Z\"}");
    struct capture capture;
    capture_begin(&capture);
    assert_int_equal(output_record(capture.out, object, NOW, NULL), 0);
    expect_captured(&capture, "id       s-1\n"
                              "size     1.5 KiB\n"
                              "created  2026-11-29T16:36:56Z (2 min ago)\n"
                              "token    -\n"
                              "mounted  yes\n"
                              "labels   k     v\\x07\n"
                              "         long  w\n"
                              "names    a\n"
                              "         b\n"
                              "none     -\n"
                              "empty    -\n"
                              "steps    name pull  attempt 1\n"
                              "expires  2026-11-29T16:39:56Z (in 60 s)\n");
}

static void test_times_of_this_second(void **state)
{
    (void)state;
    static const struct {
        int64_t later_ns;
        const char *says;
    } cases[] = {
        {0, "(now)"},
        {999999999, "(now)"},
        {-999999999, "(now)"},
        {1000000000, "(1 s ago)"},
        {-1000000000, "(in 1 s)"},
    };
    cleanup_json json_t *object = json("{\"created\":\"2026-11-29T16:38:56Z\"}");
    int64_t at;
    assert_int_equal(text_parse_time("2026-11-29T16:38:56Z", &at, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "created  2026-11-29T16:38:56Z %s\n", cases[i].says);
        struct capture capture;
        capture_begin(&capture);
        assert_int_equal(output_record(capture.out, object, at + cases[i].later_ns, NULL), 0);
        expect_captured(&capture, expected);
    }
}

static void test_json_is_sorted_and_one_line(void **state)
{
    (void)state;
    cleanup_json json_t *object = json("{\"b\": 1, \"a\": [true, null]}");
    struct capture capture;
    capture_begin(&capture);
    assert_int_equal(output_json(capture.out, object, NULL), 0);
    expect_captured(&capture, "{\"a\":[true,null],\"b\":1}\n");
}

static void test_errors_are_one_line(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err_fail(&err, ERR_NOT_FOUND, "there is no run %s", "a\nb");
    struct capture capture;
    capture_begin(&capture);
    output_error(capture.out, &err);
    err_hint(&err, "see varve run ls");
    output_error(capture.out, &err);
    output_warning(capture.out, "left out %s", "x\r");
    expect_captured(&capture, "varve: there is no run a?b\n"
                              "varve: there is no run a?b; see varve run ls\n"
                              "varve: warning: left out x\\x0d\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_aligned),
        cmocka_unit_test(test_table_without_rows_has_its_header),
        cmocka_unit_test(test_table_escapes_foreign_text),
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_times_of_this_second),
        cmocka_unit_test(test_json_is_sorted_and_one_line),
        cmocka_unit_test(test_errors_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
