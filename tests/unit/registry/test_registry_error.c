#include "registry_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char url[] = "http://reg.example:5000/v2/secret-path?secret=1";

/* An answer with a body, borrowing everything. */
static struct registry_http_response answer(long status, const char *type, const char *body,
                                            size_t len)
{
    return (struct registry_http_response){
        .status = status,
        .url = url,
        .content_type = (char *)type,
        .refusal = {.data = (char *)body, .len = len, .cap = len, .max = len},
    };
}

static struct err refuse(long status, const char *type, const char *body)
{
    struct registry_http_response response = answer(status, type, body, strlen(body));
    struct err err = ERR_INIT;
    int rc = registry_error_refusal(&response, &err);
    assert_int_equal(rc, -err.num);
    assert_null(strstr(err.text, "secret"));
    for (const char *p = err.text; *p; p++)
        assert_in_range(*p, ' ', '~');
    return err;
}

static void statuses_have_codes(void **state)
{
    (void)state;
    static const struct {
        long status;
        enum err_code code;
    } cases[] = {
        {401, ERR_DENIED},  {403, ERR_DENIED},  {404, ERR_NOT_FOUND}, {400, ERR_REFUSED},
        {405, ERR_REFUSED}, {409, ERR_REFUSED}, {413, ERR_REFUSED},   {416, ERR_REFUSED},
        {429, ERR_REFUSED}, {500, ERR_REFUSED}, {503, ERR_REFUSED},   {307, ERR_REFUSED},
        {204, ERR_REFUSED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = refuse(cases[i].status, NULL, "");
        assert_int_equal(err.code, cases[i].code);
        char status[16];
        snprintf(status, sizeof status, "answered %ld", cases[i].status);
        assert_non_null(strstr(err.text, status));
        assert_non_null(strstr(err.text, "reg.example:5000"));
    }
}

static void own_words_of_the_registry_are_told(void **state)
{
    (void)state;
    struct err err = refuse(403, "application/json",
                            "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"requested access is "
                            "denied\",\"detail\":[1]},{\"code\":\"OTHER\"}]}");
    assert_non_null(strstr(err.text, "(DENIED: requested access is denied)"));
    err = refuse(500, "application/json", "{\"errors\":[{\"message\":\"no code\"}]}");
    assert_non_null(strstr(err.text, "(no code)"));
    err = refuse(500, "application/json", "{\"errors\":[{\"code\":\"ONLY_CODE\"}]}");
    assert_non_null(strstr(err.text, "(ONLY_CODE)"));
    err = refuse(502, "text/plain", "upstream\r\n\tis away\n");
    assert_non_null(strstr(err.text, "(upstream is away)"));
    err = refuse(502, "text/html; charset=utf-8", "<html><script>");
    assert_non_null(strstr(err.text, "(a web page)"));
}

/* Bodies that are not what the specification says. */
static void odd_bodies_do_no_harm(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "{",
        "[]",
        "{}",
        "null",
        "{\"errors\":null}",
        "{\"errors\":[]}",
        "{\"errors\":{}}",
        "{\"errors\":[1]}",
        "{\"errors\":[null]}",
        "{\"errors\":[{}]}",
        "{\"errors\":[{\"code\":1,\"message\":[]}]}",
        "{\"errors\":[{\"code\":\"a\",\"code\":\"b\"}]}",
        "{\"errors\":[{\"message\":\"\\u0000x\"}]}",
        "\xff\xfe\x80 \x01\x1b[31m",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++)
        assert_int_equal(refuse(500, "application/json", bodies[i]).code, ERR_REFUSED);
    static const char nul[] = "a\0b";
    struct registry_http_response response = answer(500, NULL, nul, 3);
    struct err err = ERR_INIT;
    assert_true(registry_error_refusal(&response, &err) < 0);
    assert_non_null(strstr(err.text, "(a b)"));
}

static void text_is_cleaned(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"  a \r\n\t b  ", "a b"},
        {"\x1b[31mred\x07", "[31mred"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80.", "???."},
        {"a\xc2\x9b"
         "b",
         "a?b"},
        {"\x80\x80", ""},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(registry_error_clean(cases[i][0], strlen(cases[i][0])).s, cases[i][1]);
}

static void text_is_bounded(void **state)
{
    (void)state;
    char text[1000];
    memset(text, 'a', sizeof text);
    struct registry_error_text clean = registry_error_clean(text, REGISTRY_ERROR_TEXT_MAX);
    assert_int_equal(strlen(clean.s), REGISTRY_ERROR_TEXT_MAX);
    clean = registry_error_clean(text, REGISTRY_ERROR_TEXT_MAX + 1);
    assert_int_equal(strlen(clean.s), REGISTRY_ERROR_TEXT_MAX);
    for (size_t i = 0; i < sizeof text; i += 2)
        text[i] = ' ';
    clean = registry_error_clean(text, sizeof text);
    assert_in_range(strlen(clean.s), REGISTRY_ERROR_TEXT_MAX - 1, REGISTRY_ERROR_TEXT_MAX);
}

static void hints_say_what_to_do(void **state)
{
    (void)state;
    assert_non_null(strstr(refuse(401, NULL, "").hint, "login"));
    assert_non_null(strstr(refuse(500, NULL, "").hint, "later"));
    assert_non_null(strstr(refuse(413, NULL, "").hint, "size"));
    assert_non_null(strstr(refuse(307, NULL, "").hint, "redirect"));
    struct registry_http_response response = answer(429, NULL, "", 0);
    response.retry_after = (char *)"30";
    struct err err = ERR_INIT;
    registry_error_refusal(&response, &err);
    assert_string_equal(err.hint, "try again in 30 seconds");
    assert_non_null(strstr(err.text, "answered 429 and asks not to come back for 30 s"));
    response.retry_after = (char *)"Fri, 31 Dec 2077 23:59:50 GMT";
    err_clear(&err);
    registry_error_refusal(&response, &err);
    assert_non_null(strstr(err.hint, "try again after 2077-12-31T23:59:5"));
    response.retry_after = (char *)"99999999999999999999";
    err_clear(&err);
    registry_error_refusal(&response, &err);
    assert_non_null(strstr(err.hint, "try again after "));
    response.retry_after = (char *)"soon";
    err_clear(&err);
    registry_error_refusal(&response, &err);
    assert_non_null(strstr(err.hint, "later"));
    assert_null(strstr(err.text, "come back"));
}

static void wrong_digest_of_an_upload_has_its_code(void **state)
{
    (void)state;
    static const char body[] = "{\"errors\":[{\"code\":\"DIGEST_INVALID\",\"message\":\"m\"}]}";
    assert_int_equal(refuse(400, "application/json", body).code, ERR_DIGEST);
    struct registry_http_response response = answer(400, NULL, body, sizeof body - 1);
    assert_true(registry_error_has_code(&response, "DIGEST_INVALID"));
    assert_false(registry_error_has_code(&response, "DIGEST"));
    response = answer(400, NULL, "x", 1);
    assert_false(registry_error_has_code(&response, "x"));
}

static void web_pages_are_no_answers(void **state)
{
    (void)state;
    struct registry_http_response response = answer(200, "Text/HTML; charset=x", "", 0);
    struct err err = ERR_INIT;
    assert_true(registry_error_if_web_page(&response, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    response.content_digest = (char *)"sha256:";
    assert_int_equal(registry_error_if_web_page(&response, NULL), 0);
    response.content_digest = NULL;
    response.status = 201;
    assert_int_equal(registry_error_if_web_page(&response, NULL), 0);
    response.status = 200;
    response.content_type = (char *)"application/json";
    assert_int_equal(registry_error_if_web_page(&response, NULL), 0);
    response.content_type = NULL;
    assert_int_equal(registry_error_if_web_page(&response, NULL), 0);
}

static void digests_are_compared(void **state)
{
    (void)state;
    struct digest digest;
    assert_int_equal(digest_bytes("a", 1, &digest, NULL), 0);
    struct digest_text text = digest_format(&digest);
    struct registry_http_response response = answer(201, NULL, "", 0);
    assert_int_equal(registry_error_if_other_digest(&response, &digest, NULL), 0);
    response.content_digest = text.s;
    assert_int_equal(registry_error_if_other_digest(&response, &digest, NULL), 0);
    text.s[DIGEST_TEXT_LEN - 1] = text.s[DIGEST_TEXT_LEN - 1] == '0' ? '1' : '0';
    struct err err = ERR_INIT;
    assert_true(registry_error_if_other_digest(&response, &digest, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    response.content_digest = (char *)"";
    assert_true(registry_error_if_other_digest(&response, &digest, NULL) < 0);
}

static struct remote_missing missing_of(long status, const char *body)
{
    struct registry_http_response response = answer(status, NULL, body, strlen(body));
    struct remote_missing missing = {.count = 99};
    registry_error_missing(&response, &missing);
    return missing;
}

#define D1 "sha256:0000000000000000000000000000000000000000000000000000000000000001"
#define D2 "sha256:0000000000000000000000000000000000000000000000000000000000000002"

/* Details as registries send them: text, object, list; cut off in the middle. */
static void missing_blobs_are_named(void **state)
{
    (void)state;
    static const struct {
        long status;
        const char *body;
        bool any;
        size_t count;
    } cases[] = {
        {400, "{\"errors\":[{\"code\":\"MANIFEST_BLOB_UNKNOWN\",\"detail\":\"" D1 "\"}]}", true, 1},
        {404,
         "{\"errors\":[{\"code\":\"BLOB_UNKNOWN\",\"detail\":{\"digest\":\"" D1
         "\"}},{\"code\":\"BLOB_UNKNOWN\",\"detail\":{\"digest\":\"" D2 "\"}},"
         "{\"code\":\"BLOB_UNKNOWN\",\"detail\":{\"digest\":\"" D1 "\"}}]}",
         true, 2},
        {400, "{\"errors\":[{\"code\":\"MANIFEST_BLOB_UNKNOWN\",\"detail\":[\"" D2 "\"]}", true, 1},
        {400, "{\"errors\":[{\"code\":\"MANIFEST_BLOB_UNKNOWN\",\"detail\":\"sha256:00", true, 0},
        {400, "{\"errors\":[{\"code\":\"BLOB_UNKNOWN\",\"detail\":\"sha256:zz\"}]}", true, 0},
        {400, "{\"errors\":[{\"code\":\"MANIFEST_INVALID\",\"detail\":\"" D1 "\"}]}", false, 0},
        {500, "{\"errors\":[{\"code\":\"BLOB_UNKNOWN\",\"detail\":\"" D1 "\"}]}", false, 0},
        {400, "", false, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct remote_missing missing = missing_of(cases[i].status, cases[i].body);
        assert_int_equal(missing.any, cases[i].any);
        assert_int_equal(missing.count, cases[i].count);
    }
    cleanup_buf struct buf many = BUF_INIT(1 << 20);
    assert_int_equal(buf_add(&many, "BLOB_UNKNOWN ", 13, "x", NULL), 0);
    for (unsigned i = 0; i < REMOTE_MISSING_MAX + 5; i++) {
        char text[80];
        snprintf(text, sizeof text, "sha256:%064x ", i);
        assert_int_equal(buf_add(&many, text, strlen(text), "x", NULL), 0);
    }
    struct remote_missing missing = missing_of(404, buf_str(&many));
    assert_int_equal(missing.count, REMOTE_MISSING_MAX);
    assert_int_equal(missing.digests[REMOTE_MISSING_MAX - 1].bytes[31], REMOTE_MISSING_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_codes),
        cmocka_unit_test(missing_blobs_are_named),
        cmocka_unit_test(own_words_of_the_registry_are_told),
        cmocka_unit_test(odd_bodies_do_no_harm),
        cmocka_unit_test(text_is_cleaned),
        cmocka_unit_test(text_is_bounded),
        cmocka_unit_test(hints_say_what_to_do),
        cmocka_unit_test(wrong_digest_of_an_upload_has_its_code),
        cmocka_unit_test(web_pages_are_no_answers),
        cmocka_unit_test(digests_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
