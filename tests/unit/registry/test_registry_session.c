#include "quick_time.h"
#include "registry_fixture.h"
#include "registry_sender.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HELLO     "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
#define HELLO_URL "sha256%3A2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
#define OTHER     "sha256:0000000000000000000000000000000000000000000000000000000000000000"
#define OPENED(location)                                                                           \
    "HTTP/1.1 202 Accepted\r\nLocation: " location "\r\nContent-Length: 0\r\n\r\n"
#define STATUS(line) "HTTP/1.1 " line "\r\nContent-Length: 0\r\n\r\n"
#define CREATED(digest)                                                                            \
    "HTTP/1.1 201 Created\r\nDocker-Content-Digest: " digest "\r\nContent-Length: 0\r\n\r\n"

static struct quick_time quick;

static int setup(void **state)
{
    int rc = registry_fixture_setup(state);
    struct registry_fixture *fixture = *state;
    quick_time_init(&quick);
    if (rc == 0)
        quick_time_use(&quick, registry_http_pool(registry_of(fixture->remote)->http));
    return rc;
}

static struct digest hello_digest(void)
{
    struct digest digest;
    assert_int_equal(digest_parse(HELLO, &digest, NULL), 0);
    return digest;
}

static int put_hello(struct registry_fixture *fixture, struct err *err)
{
    struct digest digest = hello_digest();
    cleanup_fd int fd = registry_fixture_file("hello", 5);
    struct remote_upload upload = {.sessions = NULL};
    return fixture->remote->ops->blob_put(fixture->remote, "a/n", &digest, fd, 5, NULL, NULL,
                                          &upload, err);
}

/* Addresses of upload sessions as registries give them. */
static void upload_addresses_are_resolved(void **state)
{
    struct registry_fixture *fixture = *state;
    cleanup_free char *absolute = NULL;
    cleanup_free char *fragment = NULL;
    assert_true(asprintf(&absolute, OPENED("http://%s/v2/x?_state=a%%2Bb%%3D"), fixture->host) > 0);
    assert_true(asprintf(&fragment, OPENED("http://%s/v2/x#frag"), fixture->host) > 0);
    const char *const cases[][2] = {
        {OPENED("/v2/a/n/blobs/uploads/1"), "/v2/a/n/blobs/uploads/1?digest=" HELLO_URL},
        {OPENED("/v2/a/n/blobs/uploads/1?_state=a%2Bb%3D&x="),
         "/v2/a/n/blobs/uploads/1?_state=a%2Bb%3D&x=&digest=" HELLO_URL},
        {OPENED("1"), "/v2/a/n/blobs/uploads/1?digest=" HELLO_URL},
        {OPENED("uploads/1"), "/v2/a/n/blobs/uploads/uploads/1?digest=" HELLO_URL},
        {OPENED("../uploads/1?s=1"), "/v2/a/n/blobs/uploads/1?s=1&digest=" HELLO_URL},
        {absolute, "/v2/x?_state=a%2Bb%3D&digest=" HELLO_URL},
        {fragment, "/v2/x?digest=" HELLO_URL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_http_rule rules[] = {
            {"POST", "/v2/a/n/blobs/uploads/", .response = cases[i][0]},
            {"PUT", "/", .response = CREATED(HELLO)}};
        fake_http_set(fixture->fake, rules, 2);
        struct err err = ERR_INIT;
        if (put_hello(fixture, &err) < 0)
            fail_msg("%s: %s", cases[i][0], err.text);
        assert_int_equal(fake_http_count(fixture->fake), 2);
        const struct fake_http_request *opened = fake_http_at(fixture->fake, 0);
        assert_string_equal(fake_http_header(opened, "Content-Length"), "0");
        assert_null(fake_http_header(opened, "Content-Type"));
        const struct fake_http_request *sent = fake_http_at(fixture->fake, 1);
        cleanup_free char *target = strdup(sent->target);
        for (char *p = target; (p = strstr(p, "%3a")) != NULL;) /* either case is right */
            p[2] = 'A';
        assert_string_equal(target, cases[i][1]);
        assert_string_equal(sent->body, "hello");
        assert_string_equal(fake_http_header(sent, "Content-Length"), "5");
        assert_string_equal(fake_http_header(sent, "Content-Type"), "application/octet-stream");
    }
}

static void upload_to_another_origin(void **state)
{
    struct registry_fixture *fixture = *state;
    struct fake_http *other = NULL;
    assert_int_equal(fake_http_start(NULL, NULL, NULL, &other, NULL), 0);
    cleanup_free char *opened = NULL;
    assert_true(asprintf(&opened, OPENED("http://localhost:%d/up"), fake_http_port(other)) > 0);
    struct fake_http_rule open = {"POST", "", .response = opened};
    struct fake_http_rule put = {"PUT", "/up", .response = CREATED(HELLO)};
    fake_http_set(fixture->fake, &open, 1);
    fake_http_set(other, &put, 1);
    struct err err = ERR_INIT;
    assert_int_equal(put_hello(fixture, &err), 0);
    assert_string_equal(fake_http_at(other, 0)->body, "hello");
    fake_http_stop(other);
}

static void sessions_that_do_not_open(void **state)
{
    struct registry_fixture *fixture = *state;
    static const struct {
        const char *response;
        enum err_code code;
        size_t asked;
    } cases[] = {
        {STATUS("202 Accepted"), ERR_DAMAGED, 1},
        {OPENED(""), ERR_DAMAGED, 1},
        {OPENED("http://other.example/up"), ERR_REFUSED, 1},
        {OPENED("file:///etc/passwd"), ERR_REFUSED, 1},
        {STATUS("200 OK"), ERR_REFUSED, 1},
        {STATUS("401 Unauthorized"), ERR_DENIED, 1},
        {STATUS("404 Not Found"), ERR_NOT_FOUND, 1},
        {STATUS("429 Too Many Requests"), ERR_REFUSED, REGISTRY_RETRY_MAX},
        {STATUS("503 Away"), ERR_REFUSED, REGISTRY_RETRY_MAX},
        {"HTTP/1.1 302 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", ERR_REFUSED, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_http_rule rule = {"POST", "", .response = cases[i].response};
        fake_http_set(fixture->fake, &rule, 1);
        struct err err = ERR_INIT;
        assert_true(put_hello(fixture, &err) < 0);
        assert_int_equal(err.code, cases[i].code);
        assert_int_equal(fake_http_count(fixture->fake), cases[i].asked);
    }
}

static void other_successes_of_an_upload(void **state)
{
    struct registry_fixture *fixture = *state;
    static const char *const answers[] = {
        STATUS("200 OK"), "HTTP/1.1 204 No Content\r\n\r\n", STATUS("201 Created"),
        "HTTP/1.1 201 CREATED\r\nContent-Type: text/html; charset=utf-8\r\n"
        "Content-Length: 0\r\n\r\n"};
    /* Without a digest in the answer the registry is asked. */
    static const char present[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct fake_http_rule rules[] = {{"POST", "", .response = OPENED("/up")},
                                         {"PUT", "/up", .response = answers[i]},
                                         {"HEAD", "/v2/a/n/blobs/" HELLO, .response = present}};
        fake_http_set(fixture->fake, rules, 3);
        assert_int_equal(put_hello(fixture, NULL), 0);
        assert_int_equal(fake_http_count(fixture->fake), 3);
    }
}

static void uploads_that_are_not_confirmed_fail(void **state)
{
    struct registry_fixture *fixture = *state;
    static const struct {
        const char *put;
        const char *head;
        enum err_code code;
    } cases[] = {
        {CREATED(OTHER), STATUS("200 OK"), ERR_DIGEST},
        {CREATED("nonsense"), STATUS("200 OK"), ERR_DIGEST},
        {STATUS("201 Created"), STATUS("404 Not Found"), ERR_REFUSED},
        {STATUS("201 Created"), "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", ERR_DIGEST},
        {STATUS("201 Created"), STATUS("500 Oops"), ERR_REFUSED},
        {"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi",
         STATUS("404 Not Found"), ERR_DAMAGED},
        {STATUS("202 Accepted"), STATUS("404 Not Found"), ERR_REFUSED},
        {STATUS("401 Unauthorized"), STATUS("404 Not Found"), ERR_DENIED},
        {STATUS("403 Forbidden"), STATUS("404 Not Found"), ERR_DENIED},
        {STATUS("404 Not Found"), STATUS("404 Not Found"), ERR_NOT_FOUND},
        {STATUS("413 Too Large"), STATUS("404 Not Found"), ERR_REFUSED},
        {STATUS("500 Oops"), STATUS("404 Not Found"), ERR_REFUSED},
        {STATUS("400 Bad Request"), STATUS("404 Not Found"), ERR_REFUSED},
        {"HTTP/1.1 400 Bad\r\nContent-Length: 65\r\n\r\n"
         "{\"errors\":[{\"code\":\"DIGEST_INVALID\",\"message\":\"not the digest\"}]}",
         STATUS("404 Not Found"), ERR_DIGEST},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_http_rule rules[] = {{"POST", "", .response = OPENED("/up?s=1")},
                                         {"PUT", "/up", .response = cases[i].put},
                                         {"PATCH", "/up", .response = STATUS("405 No")},
                                         {"GET", "/up", .response = STATUS("404 Not Found")},
                                         {"HEAD", "", .response = cases[i].head},
                                         {"DELETE", "/up?s=1", .response = STATUS("204 Gone")}};
        fake_http_set(fixture->fake, rules, ARRAY_SIZE(rules));
        struct err err = ERR_INIT;
        int rc = put_hello(fixture, &err);
        if (rc >= 0 || err.code != cases[i].code)
            fail_msg("case %zu: %d %s", i, rc, err.text);
        size_t opened = 0;
        size_t given_up = 0;
        for (size_t j = 0; j < fake_http_count(fixture->fake); j++) {
            opened += strcmp(fake_http_at(fixture->fake, j)->method, "POST") == 0;
            given_up += strcmp(fake_http_at(fixture->fake, j)->method, "DELETE") == 0;
        }
        assert_in_range(opened, 1, 1 + REGISTRY_UPLOAD_RESTARTS_MAX);
        assert_int_equal(opened, given_up);
    }
}

/* Nobody can tell a registry that does not answer. */
static void a_silent_registry_is_told_nothing(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(fixture, {"POST", "", .response = OPENED("/up")},
                           {"PUT", "/up", .response = "", .end = FAKE_CLOSE},
                           {"HEAD", "", .response = "", .end = FAKE_CLOSE},
                           {"GET", "", .response = "", .end = FAKE_CLOSE});
    assert_int_equal(put_hello(fixture, NULL), -EHOSTUNREACH);
    for (size_t i = 0; i < fake_http_count(fixture->fake); i++)
        assert_string_not_equal(fake_http_at(fixture->fake, i)->method, "DELETE");
}

static void early_success_is_no_success(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(fixture, {"POST", "", .response = OPENED("/up")},
                           {"PATCH", "/up", .response = CREATED(HELLO), .skip_body = true,
                            .no_continue = true, .end = FAKE_CLOSE},
                           {"GET", "/up", .response = STATUS("404 Not Found")},
                           {"HEAD", "", .response = STATUS("404 Not Found")},
                           {"DELETE", "", .response = STATUS("204 Gone")});
    struct digest digest = hello_digest();
    cleanup_free char *bytes = registry_fixture_noise(32 << 20, 1);
    cleanup_fd int fd = registry_fixture_file(bytes, 32 << 20);
    struct err err = ERR_INIT;
    struct remote_upload upload = {.sessions = NULL};
    assert_true(fixture->remote->ops->blob_put(fixture->remote, "n", &digest, fd, 32 << 20, NULL,
                                               NULL, &upload, &err) < 0);
    assert_true(err.code == ERR_DAMAGED || err.code == ERR_UNREACHABLE || err.code == ERR_REFUSED);
}

static void fault_point_ends_an_upload(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(fixture, {"POST", "", .response = OPENED("/up")},
                           {"DELETE", "/up", .response = STATUS("204 Gone")});
    setenv("VARVE_FAULT", "registry.upload-opened=eio", 1);
    int rc = put_hello(fixture, NULL);
    unsetenv("VARVE_FAULT");
#ifdef VARVE_FAULT_POINTS
    assert_int_equal(rc, -EIO);
    assert_int_equal(fake_http_count(fixture->fake), 2);
#else
    assert_int_equal(rc, -EREMOTEIO); /* no rule for the PUT */
#endif
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, registry_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(upload_addresses_are_resolved),       test(upload_to_another_origin),
        test(sessions_that_do_not_open),           test(other_successes_of_an_upload),
        test(uploads_that_are_not_confirmed_fail), test(a_silent_registry_is_told_nothing),
        test(early_success_is_no_success),         test(fault_point_ends_an_upload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
