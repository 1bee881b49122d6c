#include "registry_fixture.h"

#include "oci_image.h"
#include "registry_retry.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define OTHER        "sha256:0000000000000000000000000000000000000000000000000000000000000000"
#define STATUS(line) "HTTP/1.1 " line "\r\nContent-Length: 0\r\n\r\n"
#define EMPTY_MANIFEST                                                                             \
    "{\"config\":{\"digest\":\"" OTHER "\",\"mediaType\":\"" OCI_MEDIA_CONFIG                      \
    "\",\"size\":2},\"layers\":[],\"mediaType\":\"" OCI_MEDIA_MANIFEST "\",\"schemaVersion\":2}"

/* An answer with this Content-Type (NULL: none) and body. Caller frees. */
static char *answer(const char *type, const char *body)
{
    char *text;
    assert_true(asprintf(&text, "HTTP/1.1 200 OK\r\n%s%s%sContent-Length: %zu\r\n\r\n%s",
                         type ? "Content-Type: " : "", type ? type : "", type ? "\r\n" : "",
                         strlen(body), body) > 0);
    return text;
}

static int get(struct registry_fixture *fixture, const char *reference, struct remote_manifest *ret,
               struct err *err)
{
    return fixture->remote->ops->manifest_get(fixture->remote, "a/n", reference, NULL, NULL, ret,
                                              err);
}

static void all_kinds_are_asked_for(void **state)
{
    struct registry_fixture *fixture = *state;
    cleanup_free char *response = answer(OCI_MEDIA_MANIFEST, EMPTY_MANIFEST);
    struct fake_http_rule rule = {"GET", "/v2/a/n/manifests/t.1", .response = response};
    fake_http_set(fixture->fake, &rule, 1);
    cleanup_remote_manifest struct remote_manifest manifest = {0};
    assert_int_equal(get(fixture, "t.1", &manifest, NULL), 0);
    assert_string_equal(manifest.bytes, EMPTY_MANIFEST);
    assert_int_equal(manifest.len, strlen(EMPTY_MANIFEST));
    assert_string_equal(manifest.media_type, OCI_MEDIA_MANIFEST);
    struct digest digest;
    assert_int_equal(digest_bytes(EMPTY_MANIFEST, strlen(EMPTY_MANIFEST), &digest, NULL), 0);
    assert_true(digest_equal(&digest, &manifest.digest));
    const char *headers = fake_http_at(fixture->fake, 0)->headers;
    assert_non_null(strstr(headers, "Accept: " OCI_MEDIA_MANIFEST "\r\n"));
    assert_non_null(strstr(headers, "Accept: " OCI_MEDIA_INDEX "\r\n"));
    assert_non_null(strstr(headers, "Accept: " DOCKER_MEDIA_MANIFEST "\r\n"));
    assert_non_null(strstr(headers, "Accept: " DOCKER_MEDIA_LIST "\r\n"));
}

static void media_types_come_without_parameters(void **state)
{
    struct registry_fixture *fixture = *state;
    static const char *const cases[][2] = {
        {OCI_MEDIA_MANIFEST "; charset=utf-8", OCI_MEDIA_MANIFEST},
        {OCI_MEDIA_INDEX ";charset=utf-8", OCI_MEDIA_INDEX},
        {DOCKER_MEDIA_MANIFEST " ; x=y", DOCKER_MEDIA_MANIFEST},
        {DOCKER_MEDIA_LIST, DOCKER_MEDIA_LIST},
        {"Application/VND.oci.image.Manifest.v1+JSON", OCI_MEDIA_MANIFEST},
        {"application/json", OCI_MEDIA_MANIFEST}, /* the document says */
        {"text/plain; charset=utf-8", OCI_MEDIA_MANIFEST},
        {NULL, OCI_MEDIA_MANIFEST},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *response = answer(cases[i][0], EMPTY_MANIFEST);
        struct fake_http_rule rule = {"GET", "", .response = response};
        fake_http_set(fixture->fake, &rule, 1);
        cleanup_remote_manifest struct remote_manifest manifest = {0};
        struct err err = ERR_INIT;
        if (get(fixture, "t", &manifest, &err) < 0)
            fail_msg("%s: %s", cases[i][0] ? cases[i][0] : "nothing", err.text);
        assert_string_equal(manifest.media_type, cases[i][1]);
    }
}

static void other_answers_are_no_manifests(void **state)
{
    struct registry_fixture *fixture = *state;
    static const struct {
        const char *type;
        const char *body;
        enum err_code code;
    } cases[] = {
        {"text/html", "<html>log in", ERR_DAMAGED},
        {"text/html; charset=utf-8", EMPTY_MANIFEST, ERR_DAMAGED},
        {"application/vnd.docker.distribution.manifest.v1+prettyjws", "{}", ERR_UNSUPPORTED},
        {"application/vnd.example", EMPTY_MANIFEST, ERR_UNSUPPORTED},
        {NULL, "hello", ERR_DAMAGED},
        {NULL, "", ERR_DAMAGED},
        {"application/json", "[1]", ERR_DAMAGED},
        {"application/json", "{}", ERR_DAMAGED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *response = answer(cases[i].type, cases[i].body);
        struct fake_http_rule rule = {"GET", "", .response = response};
        fake_http_set(fixture->fake, &rule, 1);
        struct remote_manifest manifest = {0};
        struct err err = ERR_INIT;
        int rc = get(fixture, "t", &manifest, &err);
        if (rc >= 0 || err.code != cases[i].code)
            fail_msg("case %zu: %d %s", i, rc, err.text);
        assert_null(manifest.bytes);
    }
}

static int get_nothing(struct registry_fixture *fixture, struct err *err)
{
    struct remote_manifest manifest = {0};
    int rc = get(fixture, "t", &manifest, err);
    assert_null(manifest.bytes);
    return rc;
}

static void refusals_have_their_codes(void **state)
{
    registry_fixture_refuses(*state, get_nothing);
}

static void size_is_bounded(void **state)
{
    struct registry_fixture *fixture = *state;
    char head[256];
    for (int more = 0; more < 2; more++) {
        snprintf(head, sizeof head,
                 "HTTP/1.1 200 OK\r\nContent-Type: " OCI_MEDIA_MANIFEST
                 "\r\nContent-Length: %d\r\n\r\n",
                 REMOTE_MANIFEST_MAX + more);
        struct fake_http_rule rule = {"GET", "", .response = head,
                                      .repeat = (size_t)(REMOTE_MANIFEST_MAX + more)};
        fake_http_set(fixture->fake, &rule, 1);
        cleanup_remote_manifest struct remote_manifest manifest = {0};
        struct err err = ERR_INIT;
        int rc = get(fixture, "t", &manifest, &err);
        assert_int_equal(rc, more ? -EFBIG : 0);
        assert_int_equal(err.code, more ? ERR_TOO_LARGE : ERR_NONE);
        assert_int_equal(manifest.len, more ? 0 : REMOTE_MANIFEST_MAX);
    }
}

/* The digest is computed here; what the registry says about it does not count. */
static void digest_is_our_own(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(fixture, {"GET", "",
                                     .response = "HTTP/1.1 200 OK\r\nContent-Type: " OCI_MEDIA_INDEX
                                                 "\r\nDocker-Content-Digest: " OTHER
                                                 "\r\nContent-Length: 2\r\n\r\n{}"});
    cleanup_remote_manifest struct remote_manifest manifest = {0};
    assert_int_equal(get(fixture, OTHER, &manifest, NULL), 0);
    assert_string_equal(digest_format(&manifest.digest).s,
                        "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    struct remote_manifest none;
    struct err err = ERR_INIT;
    assert_true(remote_manifest_get(fixture->remote, "a/n", OTHER, &none, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
}

static int put_or_claim(struct registry_fixture *fixture, const char *tag, const char *type,
                        const char *bytes, size_t len, bool claim, struct err *err)
{
    return fixture->remote->ops->manifest_put(fixture->remote, "a/n", tag, type, bytes, len, claim,
                                              NULL, NULL, NULL, err);
}

static int put(struct registry_fixture *fixture, const char *tag, const char *type,
               const char *bytes, size_t len, struct err *err)
{
    return put_or_claim(fixture, tag, type, bytes, len, false, err);
}

/* Somebody else has the tag, from the beginning or only since the pause after a PUT that the
 * registry put off: then it stays, and no further PUT goes out. */
static void claims_take_no_tag_away(void **state)
{
    struct registry_fixture *fixture = *state;
    cleanup_free char *others = answer(OCI_MEDIA_MANIFEST, "{}");
    struct fake_http_rule rules[] = {{"HEAD", "", .response = STATUS("404 Not Found")},
                                     {"GET", "", .nth = 1, .response = STATUS("404 Not Found")},
                                     {"GET", "", .response = others},
                                     {"PUT", "", .nth = 1, .response = STATUS("503 Later")},
                                     {"PUT", "", .response = STATUS("201 Created")}};
    for (size_t skipped = 0; skipped < 2; skipped++) {
        struct err err = ERR_INIT;
        rules[1].nth = skipped ? 1000 : 1;
        fake_http_set(fixture->fake, rules, ARRAY_SIZE(rules));
        assert_true(put_or_claim(fixture, "t", OCI_MEDIA_MANIFEST, EMPTY_MANIFEST,
                                 strlen(EMPTY_MANIFEST), true, &err) < 0);
        assert_int_equal(err.code, ERR_EXISTS);
        assert_non_null(strstr(err.text, "a/n:t stands for another image"));
        /* Two looks of two requests each, and the PUT; or one look. */
        assert_int_equal(fake_http_count(fixture->fake), skipped ? 2 : 5);
    }
}

/* What nobody has, or who asks has already, is taken; failures that pass are repeated. */
static void claims_are_repeated(void **state)
{
    struct registry_fixture *fixture = *state;
    cleanup_free char *ours = answer(OCI_MEDIA_MANIFEST, EMPTY_MANIFEST);
    struct fake_http_rule rules[] = {
        {"HEAD", "", .response = STATUS("404 Not Found")},
        {"GET", "", .nth = 1, .response = STATUS("404 Not Found")},
        {"GET", "", .response = ours},
        {"PUT", "", .nth = 1, .response = "HTTP/1.1 201 Created\r\n", .end = FAKE_CLOSE},
        {"PUT", "", .nth = 2, .response = STATUS("429 Later")},
        {"PUT", "", .response = STATUS("201 Created")}};
    fake_http_set(fixture->fake, rules, ARRAY_SIZE(rules));
    struct err err = ERR_INIT;
    if (put_or_claim(fixture, "t", OCI_MEDIA_MANIFEST, EMPTY_MANIFEST, strlen(EMPTY_MANIFEST), true,
                     &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(fake_http_count(fixture->fake), 9);
    fake_http_set(fixture->fake, rules, 3);
    struct fake_http_rule refusals[] = {rules[0],
                                        {"GET", "", .response = STATUS("404 Not Found")},
                                        {"PUT", "", .response = STATUS("500 Oops")}};
    fake_http_set(fixture->fake, refusals, ARRAY_SIZE(refusals));
    assert_true(put_or_claim(fixture, "t", OCI_MEDIA_MANIFEST, EMPTY_MANIFEST,
                             strlen(EMPTY_MANIFEST), true, &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_int_equal(fake_http_count(fixture->fake), 3 * REGISTRY_RETRY_MAX);
}

static void manifests_are_put(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(fixture, {"PUT", "", .response = STATUS("201 Created")});
    assert_int_equal(put(fixture, "t", OCI_MEDIA_MANIFEST, "{}", 2, NULL), 0);
    assert_int_equal(put(fixture, NULL, OCI_MEDIA_INDEX, "{}", 2, NULL), 0);
    const struct fake_http_request *by_tag = fake_http_at(fixture->fake, 0);
    assert_string_equal(by_tag->target, "/v2/a/n/manifests/t");
    assert_string_equal(fake_http_header(by_tag, "Content-Type"), OCI_MEDIA_MANIFEST);
    assert_string_equal(by_tag->body, "{}");
    const struct fake_http_request *by_digest = fake_http_at(fixture->fake, 1);
    assert_string_equal(by_digest->target,
                        "/v2/a/n/manifests/"
                        "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    assert_string_equal(fake_http_header(by_digest, "Content-Type"), OCI_MEDIA_INDEX);
}

/* Quay labels its answers so. */
static void success_is_no_web_page(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(fixture, {"PUT", "",
                                     .response = "HTTP/1.1 201 CREATED\r\n"
                                                 "Content-Type: text/html; charset=utf-8\r\n"
                                                 "Content-Length: 2\r\n\r\nOK"});
    assert_int_equal(put(fixture, "t", OCI_MEDIA_MANIFEST, "{}", 2, NULL), 0);
}

static void puts_that_fail(void **state)
{
    struct registry_fixture *fixture = *state;
    static const struct {
        const char *response;
        enum err_code code;
        size_t requests;
    } cases[] = {
        {"HTTP/1.1 201 Created\r\nDocker-Content-Digest: " OTHER "\r\nContent-Length: 0\r\n\r\n",
         ERR_DIGEST, 1},
        {"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n", ERR_DAMAGED, 1},
        {STATUS("400 Bad"), ERR_REFUSED, 1},
        {STATUS("401 Unauthorized"), ERR_DENIED, 1},
        {STATUS("404 Not Found"), ERR_NOT_FOUND, 1},
        {STATUS("409 Conflict"), ERR_REFUSED, 2}, /* the tag is looked at */
        {STATUS("413 Too Large"), ERR_REFUSED, 1},
        {STATUS("500 Oops"), ERR_REFUSED, REGISTRY_RETRY_MAX},
        {"HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", ERR_REFUSED, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_http_rule rules[] = {{"PUT", "", .response = cases[i].response},
                                         {"GET", "", .response = STATUS("404 Not Found")}};
        fake_http_set(fixture->fake, rules, 2);
        struct err err = ERR_INIT;
        assert_true(put(fixture, "t", OCI_MEDIA_MANIFEST, "{}", 2, &err) < 0);
        assert_int_equal(err.code, cases[i].code);
        assert_int_equal(fake_http_count(fixture->fake), cases[i].requests);
    }
}

/* A tag that cannot be given again is success when it is ours, and a conflict otherwise. */
static void tags_that_are_taken(void **state)
{
    struct registry_fixture *fixture = *state;
    static const char *const refusals[] = {STATUS("403 Forbidden"), STATUS("409 Conflict"),
                                           STATUS("412 Precondition Failed"),
                                           "HTTP/1.1 400 Bad\r\nContent-Length: "
                                           "37\r\n\r\n{\"errors\":[{\"code\":\"TAG_INVALID\"}]}  "};
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        cleanup_free char *ours = answer(OCI_MEDIA_MANIFEST, EMPTY_MANIFEST);
        cleanup_free char *others = answer(OCI_MEDIA_MANIFEST, "{}");
        struct fake_http_rule rules[] = {{"PUT", "", .response = refusals[i]},
                                         {"GET", "/v2/a/n/manifests/t", .response = ours}};
        struct err err = ERR_INIT;
        fake_http_set(fixture->fake, rules, 2);
        if (put(fixture, "t", OCI_MEDIA_MANIFEST, EMPTY_MANIFEST, strlen(EMPTY_MANIFEST), &err) < 0)
            fail_msg("%s: %s", refusals[i], err.text);
        rules[1].response = others;
        fake_http_set(fixture->fake, rules, 2);
        assert_true(put(fixture, "t", OCI_MEDIA_MANIFEST, EMPTY_MANIFEST, strlen(EMPTY_MANIFEST),
                        &err) < 0);
        assert_int_equal(err.code, i == 0 ? ERR_DENIED : ERR_CONFLICT);
        assert_non_null(
            strstr(err.text, i == 0 ? "answered 403" : "t is taken by sha256:44136fa3"));
        assert_int_equal(fake_http_count(fixture->fake), 2);
    }
}

/* The first reply is lost; the registry had stored it. */
static void a_lost_reply_is_no_failure(void **state)
{
    struct registry_fixture *fixture = *state;
    cleanup_free char *ours = answer(OCI_MEDIA_MANIFEST, EMPTY_MANIFEST);
    struct fake_http_rule rules[] = {
        {"PUT", "", .nth = 1, .response = "HTTP/1.1 201 Created\r\n", .end = FAKE_CLOSE},
        {"PUT", "", .response = STATUS("409 Conflict")},
        {"GET", "", .response = ours}};
    fake_http_set(fixture->fake, rules, 3);
    assert_int_equal(
        put(fixture, "t", OCI_MEDIA_MANIFEST, EMPTY_MANIFEST, strlen(EMPTY_MANIFEST), NULL), 0);
    assert_int_equal(fake_http_count(fixture->fake), 3);
}

static void bad_puts_are_not_sent(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(fixture, {"PUT", "", .response = STATUS("201 Created")});
    static const char *const types[] = {"", "a b", "a/b\r\nX: y", "a/b;c", "\xff"};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        assert_int_equal(put(fixture, "t", types[i], "{}", 2, NULL), -EINVAL);
    cleanup_free char *bytes = registry_fixture_noise(REMOTE_MANIFEST_MAX + 1, 1);
    struct err err = ERR_INIT;
    assert_int_equal(put(fixture, "t", "a/b", bytes, REMOTE_MANIFEST_MAX + 1, &err), -EFBIG);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(fake_http_count(fixture->fake), 0);
    assert_int_equal(put(fixture, "t", "a/b", bytes, REMOTE_MANIFEST_MAX, NULL), 0);
    assert_int_equal(fake_http_at(fixture->fake, 0)->body_len, REMOTE_MANIFEST_MAX);
}

static void deletes(void **state)
{
    struct registry_fixture *fixture = *state;
    static const struct {
        const char *response;
        enum err_code code;
    } cases[] = {
        {STATUS("202 Accepted"), ERR_NONE},
        {"HTTP/1.1 204 Gone\r\n\r\n", ERR_NONE},
        {STATUS("200 OK"), ERR_NONE},
        {"HTTP/1.1 202 ACCEPTED\r\nContent-Type: text/html; charset=utf-8\r\n"
         "Content-Length: 0\r\n\r\n",
         ERR_NONE},
        {STATUS("404 Not Found"), ERR_NOT_FOUND},
        {STATUS("401 Unauthorized"), ERR_DENIED},
        {STATUS("429 Too Many"), ERR_REFUSED},
        {"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n", ERR_DAMAGED},
        {STATUS("405 Method Not Allowed"), ERR_REFUSED}, /* last, as it is remembered */
    };
    struct digest digest;
    assert_int_equal(digest_bytes("{}", 2, &digest, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_http_rule rule = {"DELETE", "/v2/a/n/manifests/sha256:44136fa3",
                                      .response = cases[i].response};
        fake_http_set(fixture->fake, &rule, 1);
        struct err err = ERR_INIT;
        int rc = fixture->remote->ops->manifest_delete(fixture->remote, "a/n", &digest, NULL, NULL,
                                                       NULL, &err);
        assert_int_equal(rc == 0, cases[i].code == ERR_NONE);
        assert_int_equal(err.code, cases[i].code);
        bool says_how = strstr(err.hint, "REGISTRY_STORAGE_DELETE_ENABLED") != NULL;
        assert_int_equal(says_how, strstr(cases[i].response, "405") != NULL);
    }
}

/* What came encoded, unasked, is called that. */
static void encodings_are_named(void **state)
{
    struct registry_fixture *fixture = *state;
    const struct fake_http_rule rule = {
        "GET", "/v2/a/n/manifests/t",
        .response = "HTTP/1.1 200 OK\r\nContent-Type: " OCI_MEDIA_MANIFEST "\r\n"
                    "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08x"};
    fake_http_set(fixture->fake, &rule, 1);
    struct remote_manifest manifest;
    struct err err = ERR_INIT;
    assert_true(get(fixture, "t", &manifest, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "encoded"));
    assert_non_null(strstr(err.hint, "Content-Encoding: gzip"));
}

#define test(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, registry_fixture_setup, registry_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(all_kinds_are_asked_for),
        test(media_types_come_without_parameters),
        test(other_answers_are_no_manifests),
        test(refusals_have_their_codes),
        test(size_is_bounded),
        test(digest_is_our_own),
        test(manifests_are_put),
        test(claims_take_no_tag_away),
        test(claims_are_repeated),
        test(success_is_no_web_page),
        test(puts_that_fail),
        test(a_lost_reply_is_no_failure),
        test(tags_that_are_taken),
        test(bad_puts_are_not_sent),
        test(deletes),
        test(encodings_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
