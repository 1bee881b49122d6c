#include "registry_head.h"

#include "registry_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int take(struct registry_http_response *response, const char *line, struct err *err)
{
    return registry_head_take(response, line, strlen(line), err);
}

static void values_are_kept(void **state)
{
    (void)state;
    cleanup_http_response struct registry_http_response r = {0};
    const struct {
        const char *line;
        char **to;
        const char *value;
    } cases[] = {
        {"Location: /a?b=c\r\n", &r.location, "/a?b=c"},
        {"content-type:text/html\n", &r.content_type, "text/html"},
        {"DOCKER-CONTENT-DIGEST: \t sha256:00 \t\r\n", &r.content_digest, "sha256:00"},
        {"Retry-After: 3\r\n", &r.retry_after, "3"},
        {"Range: 0-99\r\n", &r.range, "0-99"},
        {"Content-Range: bytes 1-2/3\r\n", &r.content_range, "bytes 1-2/3"},
        {"OCI-Chunk-Min-Length: 5\r\n", &r.chunk_min_length, "5"},
        {"OCI-Subject: sha256:11\r\n", &r.oci_subject, "sha256:11"},
        {"Link: </a>; rel=\"next\"\r\n", &r.link, "</a>; rel=\"next\""},
        {"WWW-Authenticate: Basic realm=\"x\"\r\n", &r.challenges, "Basic realm=\"x\""},
        {"Location:\r\n", &r.location, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(take(&r, cases[i].line, NULL), 0);
        assert_string_equal(*cases[i].to, cases[i].value);
    }
    registry_head_forget(&r);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_null(*cases[i].to);
}

static void other_lines_are_passed_over(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "X-Location: /a\r\n", "Location /a\r\n",         "\r\n", "Locatio: /a\r\n", ": x\r\n", "",
        " Location: /a\r\n",  "Accept-Ranges: bytes\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct registry_http_response r = {0};
        static const struct registry_http_response none = {0};
        assert_int_equal(take(&r, lines[i], NULL), 0);
        assert_memory_equal(&r, &none, sizeof r);
    }
}

static void repeated_headers(void **state)
{
    (void)state;
    cleanup_http_response struct registry_http_response r = {0};
    static const char *const lines[] = {"Location: /1\r\n",
                                        "Location: /2\r\n",
                                        "Link: <1>; rel=next\r\n",
                                        "Link: <2>; rel=last\r\n",
                                        "WWW-Authenticate: Basic a\r\n",
                                        "WWW-Authenticate: Bearer b, Digest c\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        assert_int_equal(take(&r, lines[i], NULL), 0);
    assert_string_equal(r.location, "/2");
    assert_string_equal(r.link, "<1>; rel=next, <2>; rel=last");
    assert_string_equal(r.challenges, "Basic a\nBearer b, Digest c");
}

static char *long_line(const char *name, size_t len)
{
    static char line[3 * REGISTRY_HTTP_LOCATION_MAX];
    int at = snprintf(line, sizeof line, "%s: ", name);
    memset(line + at, 'y', len);
    snprintf(line + at + len, sizeof line - (size_t)at - len, "\r\n");
    return line;
}

static void values_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t max;
    } cases[] = {{"Location", REGISTRY_HTTP_LOCATION_MAX},
                 {"Range", REGISTRY_HTTP_VALUE_MAX},
                 {"Content-Range", REGISTRY_HTTP_VALUE_MAX}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_http_response struct registry_http_response r = {0};
        assert_int_equal(take(&r, long_line(cases[i].name, cases[i].max - 1), NULL), 0);
        cleanup_http_response struct registry_http_response other = {0};
        struct err err = ERR_INIT;
        assert_int_equal(take(&other, long_line(cases[i].name, cases[i].max), &err), -EFBIG);
        assert_int_equal(err.code, ERR_TOO_LARGE);
        assert_non_null(strstr(err.text, cases[i].name));
    }
}

/* Many together are bounded, too: links are malformed then, challenges are left out. */
static void repeated_headers_are_bounded(void **state)
{
    (void)state;
    cleanup_http_response struct registry_http_response r = {0};
    size_t half = REGISTRY_HTTP_LINK_MAX / 2;
    assert_int_equal(take(&r, long_line("Link", half), NULL), 0);
    assert_int_equal(take(&r, long_line("Link", half - 3), NULL), 0);
    assert_int_equal(strlen(r.link), REGISTRY_HTTP_LINK_MAX - 1);
    assert_int_equal(take(&r, "Link: y\r\n", NULL), 0);
    assert_string_equal(r.link, "?");
    half = REGISTRY_HTTP_CHALLENGES_MAX / 2;
    for (int i = 0; i < 5; i++)
        assert_int_equal(take(&r, long_line("WWW-Authenticate", half), NULL), 0);
    assert_int_equal(strlen(r.challenges), half);
    assert_int_equal(take(&r, long_line("WWW-Authenticate", half - 2), NULL), 0);
    assert_int_equal(strlen(r.challenges), REGISTRY_HTTP_CHALLENGES_MAX - 1);
}

static void values_are_printable(void **state)
{
    (void)state;
    static const char *const lines[] = {"Location: /a\x1b[1m\r\n", "Range: 0-\x7f\r\n",
                                        "Content-Range: \xc3\xa4\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        cleanup_http_response struct registry_http_response r = {0};
        struct err err = ERR_INIT;
        assert_true(take(&r, lines[i], &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
    }
    cleanup_http_response struct registry_http_response r = {0};
    assert_int_equal(registry_head_take(&r, "Location: a\0b\r\n", 15, NULL), -EBADMSG);
}

/* What a request may do without ends none. */
static void values_that_are_not_needed(void **state)
{
    (void)state;
    static const char *const names[] = {"Content-Type", "Docker-Content-Digest",
                                        "Retry-After",  "OCI-Chunk-Min-Length",
                                        "OCI-Subject",  "WWW-Authenticate"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct registry_http_response r = {0};
        static const struct registry_http_response none = {0};
        char line[64];
        snprintf(line, sizeof line,
                 "%s: a\xe4"
                 "b\r\n",
                 names[i]);
        assert_int_equal(take(&r, line, NULL), 0);
        assert_int_equal(take(&r, long_line(names[i], REGISTRY_HTTP_CHALLENGES_MAX), NULL), 0);
        assert_memory_equal(&r, &none, sizeof r);
    }
    cleanup_http_response struct registry_http_response r = {0};
    char *next;
    struct err err = ERR_INIT;
    assert_int_equal(take(&r, "Link: </\xe4>; rel=next\r\n", NULL), 0);
    assert_int_equal(take(&r, "Link: </b>; rel=next\r\n", NULL), 0);
    assert_true(registry_link_next(r.link, &next, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

static void ranges(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        struct registry_head_range range;
    } cases[] = {
        {"bytes 0-0/1", {0, 0, 1}},
        {"bytes 5-9/10", {5, 9, 10}},
        {"Bytes 5-9/*", {5, 9, UINT64_MAX}},
        {"bytes=5-9/10", {5, 9, 10}},
        {"bytes 0-1099511627775/1099511627776", {0, 1099511627775, 1099511627776}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct registry_head_range range;
        assert_int_equal(registry_head_range(cases[i].value, &range, NULL), 0);
        assert_memory_equal(&range, &cases[i].range, sizeof range);
    }
    static const char *const wrong[] = {"",
                                        "bytes",
                                        "bytes ",
                                        "bytes 1-",
                                        "bytes -1/2",
                                        "bytes 1-0/2",
                                        "bytes 0-2/2",
                                        "bytes 0-1",
                                        "bytes 0-1/",
                                        "bytes 0-1/2x",
                                        "bytes */2",
                                        "lines 0-1/2",
                                        "0-1/2",
                                        "bytes 0-99999999999999999999/*",
                                        "bytes 0-1/18446744073709551617",
                                        "bytes 0 - 1/2"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct registry_head_range range = {.first = 77};
        struct err err = ERR_INIT;
        if (registry_head_range(wrong[i], &range, &err) >= 0)
            fail_msg("%s was taken", wrong[i]);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_int_equal(range.first, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_kept),
        cmocka_unit_test(other_lines_are_passed_over),
        cmocka_unit_test(repeated_headers),
        cmocka_unit_test(values_are_bounded),
        cmocka_unit_test(repeated_headers_are_bounded),
        cmocka_unit_test(values_are_printable),
        cmocka_unit_test(values_that_are_not_needed),
        cmocka_unit_test(ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
