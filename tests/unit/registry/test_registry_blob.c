#include "registry_fixture.h"

#include "blobs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HELLO        "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
#define OTHER        "sha256:0000000000000000000000000000000000000000000000000000000000000000"
#define STATUS(line) "HTTP/1.1 " line "\r\nContent-Length: 0\r\n\r\n"

static struct digest hello_digest(void)
{
    struct digest digest;
    assert_int_equal(digest_parse(HELLO, &digest, NULL), 0);
    return digest;
}

static int stat_hello(struct registry_fixture *fixture, uint64_t *ret_size, struct err *err)
{
    struct digest digest = hello_digest();
    return fixture->remote->ops->blob_stat(fixture->remote, "a/n", &digest, NULL, NULL, ret_size,
                                           err);
}

static int get_hello(struct registry_fixture *fixture, struct buf *body, struct err *err)
{
    struct digest digest = hello_digest();
    return fixture->remote->ops->blob_get(fixture->remote, "a/n", &digest, UINT64_MAX,
                                          registry_fixture_add, body, NULL, NULL, err);
}

static void stat_tells_presence_and_size(void **state)
{
    struct registry_fixture *fixture = *state;
    uint64_t size = 1;
    registry_fixture_rules(fixture, {"HEAD", "/v2/a/n/blobs/" HELLO,
                                     .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"});
    assert_int_equal(stat_hello(fixture, &size, NULL), 1);
    assert_int_equal(size, 5);
    registry_fixture_rules(
        fixture, {"HEAD", "", .response = "HTTP/1.1 404 Not Found\r\nContent-Length: 99\r\n\r\n"});
    size = 7;
    assert_int_equal(stat_hello(fixture, &size, NULL), 0);
    assert_int_equal(size, 7);
}

static void stat_believes_no_nonsense(void **state)
{
    struct registry_fixture *fixture = *state;
    static const struct {
        const char *response;
        enum err_code code;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n", ERR_DAMAGED},
        {"HTTP/1.1 200 OK\r\nDocker-Content-Digest: " OTHER "\r\nContent-Length: 5\r\n\r\n",
         ERR_DIGEST},
        {STATUS("401 Unauthorized"), ERR_DENIED},
        {STATUS("403 Forbidden"), ERR_DENIED},
        {STATUS("405 Method Not Allowed"), ERR_REFUSED},
        {STATUS("429 Too Many Requests"), ERR_REFUSED},
        {STATUS("500 Oops"), ERR_REFUSED},
        {"HTTP/1.1 204 No Content\r\n\r\n", ERR_REFUSED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_http_rule rule = {"HEAD", "", .response = cases[i].response};
        fake_http_set(fixture->fake, &rule, 1);
        struct err err = ERR_INIT;
        uint64_t size;
        assert_true(stat_hello(fixture, &size, &err) < 0);
        assert_int_equal(err.code, cases[i].code);
        assert_non_null(strstr(err.text, "a/n"));
    }
}

/* Some registries refuse HEAD, and something in between may say 200 to any: what tells no size is
 * asked for by a GET, which is broken off behind its head. */
static void blobs_are_found_without_head(void **state)
{
    static const char *const heads[] = {STATUS("405 Method Not Allowed"),
                                        "HTTP/1.1 200 OK\r\n\r\n"};
    struct registry_fixture *fixture = *state;
    static const struct case_ {
        const char *get;
        size_t repeat;
        int found;
        uint64_t size;
    } cases[] = {
        {"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-0/5000000\r\nContent-Length: 1\r\n\r\nx",
         0, 1, 5000000},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n", 5000000, 1, 5000000},
        {"HTTP/1.1 200 OK\r\n\r\nhello", 0, 1, UINT64_MAX},
        {STATUS("404 Not Found"), 0, 0, 7},
    };
    for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        const struct case_ *it = &cases[i / 2];
        struct fake_http_rule rules[] = {
            {"HEAD", "", .response = heads[i % 2], .end = FAKE_CLOSE},
            {"GET", "", .response = it->get, .repeat = it->repeat, .end = FAKE_CLOSE}};
        fake_http_set(fixture->fake, rules, 2);
        struct digest digest;
        assert_int_equal(digest_bytes("x", 1, &digest, NULL), 0);
        uint64_t size = 7;
        assert_int_equal(
            fixture->remote->ops->blob_stat(fixture->remote, "n", &digest, NULL, NULL, &size, NULL),
            it->found);
        assert_true(size == it->size);
        assert_int_equal(fake_http_count(fixture->fake), 2);
        assert_string_equal(fake_http_header(fake_http_at(fixture->fake, 1), "Range"), "bytes=0-0");
    }
}

static int get_nothing(struct registry_fixture *fixture, struct err *err)
{
    cleanup_buf struct buf body = BUF_INIT(100);
    int rc = get_hello(fixture, &body, err);
    assert_int_equal(body.len, 0);
    return rc;
}

static void downloads(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(fixture,
                           {"GET", "/v2/a/n/blobs/" HELLO,
                            .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"});
    cleanup_buf struct buf body = BUF_INIT(100);
    assert_int_equal(get_hello(fixture, &body, NULL), 0);
    assert_string_equal(buf_str(&body), "hello");
    registry_fixture_refuses(fixture, get_nothing);
}

static int full_sink(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)arg, (void)bytes, (void)len;
    return err_fail(err, ERR_NO_SPACE, "the disk is full");
}

static void failure_of_the_sink_comes_through(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_rules(
        fixture, {"GET", "", .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"});
    struct digest digest = hello_digest();
    struct err err = ERR_INIT;
    assert_int_equal(fixture->remote->ops->blob_get(fixture->remote, "n", &digest, UINT64_MAX,
                                                    full_sink, NULL, NULL, NULL, &err),
                     -ENOSPC);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_non_null(strstr(err.text, "the disk is full"));
}

static int stop_at_second_call(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return ++*(int *)arg >= 2;
}

/* A registry that falls silent holds nobody who wants to go. */
static void silence_can_be_ended(void **state)
{
    struct registry_fixture *fixture = *state;
    struct digest digest = hello_digest();
    const struct remote_ops *ops = fixture->remote->ops;
    for (size_t i = 0; i < 2; i++) {
        if (i == 0)
            registry_fixture_rules(fixture, {"GET", "", .response = "", .end = FAKE_STALL});
        else
            registry_fixture_rules(
                fixture, {"GET", "", .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
                          .end = FAKE_STALL});
        cleanup_buf struct buf body = BUF_INIT(100);
        struct remote_manifest manifest;
        struct err err = ERR_INIT;
        int calls = 0;
        assert_true(ops->blob_get(fixture->remote, "n", &digest, UINT64_MAX, registry_fixture_add,
                                  &body, stop_at_second_call, &calls, &err) < 0);
        assert_int_equal(err.code, ERR_CANCELLED);
        assert_int_equal(calls, 2);
        calls = 0;
        err_clear(&err);
        assert_true(ops->manifest_get(fixture->remote, "n", "t", stop_at_second_call, &calls,
                                      &manifest, &err) < 0);
        assert_int_equal(err.code, ERR_CANCELLED);
        assert_int_equal(calls, 2);
    }
}

/* What a store takes from a lying registry: nothing (I6). */
static void stores_take_nothing_wrong(void **state)
{
    struct registry_fixture *fixture = *state;
    void *scratch_state;
    assert_int_equal(scratch_setup(&scratch_state), 0);
    struct blobs *blobs = NULL;
    assert_int_equal(blobs_open(scratch_path(scratch_state, "store"), &blobs, NULL), 0);
    static const struct {
        struct fake_http_rule rule;
        enum err_code code;
    } cases[] = {
        {{"GET", "", .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellO"}, ERR_DIGEST},
        {{"GET", "", .response = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell"}, ERR_DIGEST},
        {{"GET", "", .response = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!"}, ERR_DIGEST},
        {{"GET", "",
          .response = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
                      "Content-Length: 5\r\n\r\n<htm>"},
         ERR_DIGEST},
        {{"GET", "",
          .response = "HTTP/1.1 200 OK\r\nDocker-Content-Digest: " HELLO "\r\n"
                      "Content-Length: 5\r\n\r\nhellO"},
         ERR_DIGEST},
        {{"GET", "", .response = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n",
          .repeat = 1 << 20},
         ERR_DIGEST},
        {{"GET", "", .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
          .end = FAKE_CLOSE},
         ERR_UNREACHABLE},
        {{"GET", "", .response = "HTTP/1.1 200 OK\r\n\r\nhell", .end = FAKE_CLOSE}, ERR_DIGEST},
    };
    struct digest digest = hello_digest();
    uint64_t size;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_http_set(fixture->fake, &cases[i].rule, 1);
        struct err err = ERR_INIT;
        int rc =
            remote_pull_blob(fixture->remote, "n", blobs, &digest, 5, NULL, NULL, NULL, NULL, &err);
        if (rc >= 0 || err.code != cases[i].code)
            fail_msg("case %zu: %d %s", i, rc, err.text);
        assert_int_equal(blobs_stat(blobs, &digest, &size, NULL), -ENOENT);
    }
    registry_fixture_rules(
        fixture, {"GET", "", .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!!"});
    assert_int_equal(
        remote_pull_blob(fixture->remote, "n", blobs, &digest, 5, NULL, NULL, NULL, NULL, NULL), 0);
    blobs_close(blobs);
    assert_int_equal(scratch_teardown(&scratch_state), 0);
}

#define test(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, registry_fixture_setup, registry_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(stat_tells_presence_and_size),      test(stat_believes_no_nonsense),
        test(blobs_are_found_without_head),      test(downloads),
        test(failure_of_the_sink_comes_through), test(silence_can_be_ended),
        test(stores_take_nothing_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
