#include "client.h"

#include "cleanup.h"
#include "fake_varved.h"
#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* One request against one answer. */
struct call {
    struct fake_varved fake;
    json_t *reply;
    struct err err;
    int rc;
    bool absent;
};

static void call(void **state, const struct fake_answer *answer,
                 const struct client_request *request, struct call *ret)
{
    *ret = (struct call){.rc = 0};
    const char *path = scratch_path(*state, "sock");
    char host[200];
    snprintf(host, sizeof host, "unix:%s", path);
    fake_varved_start(&ret->fake, path, answer, 1);
    cleanup_client struct client client = {0};
    assert_int_equal(client_open(host, &client, NULL), 0);
    ret->rc = client_call(&client, request, &ret->reply, &ret->err);
    ret->absent = client.absent;
    fake_varved_stop(&ret->fake);
}

static void call_free(struct call *call)
{
    json_decref(call->reply);
    fake_varved_free(&call->fake);
}

static const struct client_request get = {.method = "GET", .path = "/v1/runs"};

static void test_answer_is_the_document(void **state)
{
    struct fake_answer answer = {.status = 200, .body = "{\"runs\":[]}"};
    struct call got;
    call(state, &answer, &get, &got);
    assert_int_equal(got.rc, 0);
    assert_true(json_is_array(json_object_get(got.reply, "runs")));
    assert_int_equal(got.fake.request_count, 1);
    assert_ptr_equal(strstr(got.fake.requests[0], "GET /v1/runs HTTP/1.1\r\n"),
                     got.fake.requests[0]);
    call_free(&got);
}

static void test_post_sends_body_and_key(void **state)
{
    struct fake_answer answer = {.status = 202, .body = "{\"job\":\"j-1\"}"};
    cleanup_json json_t *body = json_pack("{s:s}", "image", "a:1");
    struct client_request request = {
        .method = "POST", .path = "/v1/runs", .body = body, .key = "my-key"};
    struct call got;
    call(state, &answer, &request, &got);
    assert_int_equal(got.rc, 0);
    const char *sent = got.fake.requests[0];
    assert_non_null(strstr(sent, "POST /v1/runs HTTP/1.1\r\n"));
    assert_non_null(strstr(sent, "Idempotency-Key: my-key\r\n"));
    assert_non_null(strstr(sent, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(sent, "\r\n\r\n{\"image\":\"a:1\"}"));
    call_free(&got);
}

static void test_delete_has_no_body(void **state)
{
    struct fake_answer answer = {.status = 202, .body = "{\"job\":\"j-1\"}"};
    struct client_request request = {.method = "DELETE", .path = "/v1/runs/r"};
    struct call got;
    call(state, &answer, &request, &got);
    assert_int_equal(got.rc, 0);
    assert_non_null(strstr(got.fake.requests[0], "DELETE /v1/runs/r HTTP/1.1\r\n"));
    assert_null(strstr(got.fake.requests[0], "Content-"));
    call_free(&got);
}

static void test_key_that_is_no_header_line_is_refused(void **state)
{
    struct fake_answer answer = {.status = 202, .body = "{}"};
    char too_long[CLIENT_KEY_MAX + 2];
    memset(too_long, 'k', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    const char *const keys[] = {"", "a b", "a\r\nX: y", "ü", too_long};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        struct client_request request = {.method = "POST", .path = "/v1/runs", .key = keys[i]};
        struct call got;
        call(state, &answer, &request, &got);
        assert_int_equal(got.rc, -EINVAL);
        assert_int_equal(got.fake.request_count, 0);
        call_free(&got);
    }
    struct client_request request = {.method = "POST", .path = "/v1/runs", .key = too_long + 1};
    struct call got;
    call(state, &answer, &request, &got);
    assert_int_equal(got.rc, 0);
    call_free(&got);
}

static void test_error_document_becomes_the_failure(void **state)
{
    struct fake_answer answer = {
        .status = 404,
        .body =
            "{\"error\":{\"code\":\"not_found\",\"message\":\"no run r\",\"hint\":\"see ls\"}}"};
    struct call got;
    call(state, &answer, &get, &got);
    assert_int_equal(got.rc, -ENOENT);
    assert_int_equal(got.err.code, ERR_NOT_FOUND);
    assert_string_equal(got.err.text, "no run r");
    assert_string_equal(got.err.hint, "see ls");
    assert_false(got.absent);
    call_free(&got);
}

/* Whatever answers there, the client says so and never takes it for a document. */
static void test_answers_that_are_none_of_ours(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 200, .body = "<html>hello</html>"},
        {.status = 200, .body = ""},
        {.status = 200, .body = "[1,2]"},
        {.status = 200, .body = "{\"a\":1,\"a\":2}"},
        {.status = 500, .body = "out of order"},
        {.status = 500, .body = "{\"error\":\"text\"}"},
        {.status = 302, .body = "{}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct call got;
        call(state, &answers[i], &get, &got);
        assert_true(got.rc < 0);
        assert_null(got.reply);
        assert_int_equal(got.err.code, ERR_INTERNAL);
        assert_non_null(strstr(got.err.text, "something else than varved"));
        call_free(&got);
    }
    struct fake_answer odd = {.status = 418, .body = "{\"error\":{\"code\":\"teapot\"}}"};
    struct call got;
    call(state, &odd, &get, &got);
    assert_int_equal(got.err.code, ERR_INTERNAL);
    assert_non_null(strstr(got.err.text, "without saying which"));
    call_free(&got);
}

static void test_connections_that_break(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 0},
        {.raw = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":"},
        {.raw = "not even HTTP\r\n\r\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct call got;
        call(state, &answers[i], &get, &got);
        assert_int_equal(got.rc, -EHOSTUNREACH);
        assert_int_equal(got.err.code, ERR_UNREACHABLE);
        assert_true(got.absent);
        call_free(&got);
    }
}

static void test_a_slow_daemon_is_not_waited_for_for_ever(void **state)
{
    struct fake_answer answer = {.status = 200, .body = "{}", .delay_ms = 3000};
    struct client_request request = {.method = "GET", .path = "/v1/runs", .timeout_s = 1};
    struct call got;
    call(state, &answer, &request, &got);
    assert_int_equal(got.err.code, ERR_UNREACHABLE);
    assert_true(got.absent);
    call_free(&got);
}

static void test_no_daemon(void **state)
{
    char host[200];
    snprintf(host, sizeof host, "unix:%s", scratch_path(*state, "none"));
    cleanup_client struct client client = {0};
    assert_int_equal(client_open(host, &client, NULL), 0);
    json_t *reply = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(client_call(&client, &get, &reply, &err), -EHOSTUNREACH);
    assert_true(client.absent);
    assert_non_null(strstr(err.text, host));
    assert_non_null(strstr(err.text, "No such file or directory"));
    assert_non_null(strstr(err.hint, "start varved"));
}

static void test_socket_without_a_listener(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", scratch_path(*state, "dead"));
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    char host[200];
    snprintf(host, sizeof host, "unix:%s", address.sun_path);
    cleanup_client struct client client = {0};
    assert_int_equal(client_open(host, &client, NULL), 0);
    json_t *reply = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(client_call(&client, &get, &reply, &err), -EHOSTUNREACH);
    assert_true(client.absent);
    assert_non_null(strstr(err.text, "Connection refused"));
}

static void test_addresses(void **state)
{
    (void)state;
    char long_path[200] = "unix:/";
    memset(long_path + 6, 'x', sizeof long_path - 7);
    const char *const wrong[] = {"", "unix:", "/run/varved.sock", "http://localhost", long_path};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct client client = {0};
        struct err err = ERR_INIT;
        assert_int_equal(client_open(wrong[i], &client, &err), -EINVAL);
        assert_null(client.socket);
    }
    cleanup_client struct client client = {0};
    assert_int_equal(client_open(NULL, &client, NULL), 0);
    assert_string_equal(client.socket, "/run/varve/varved.sock");
}

static void test_names_are_encoded(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool slashes;
        const char *path;
    } cases[] = {
        {"host:5000/a/b@sha256:0f", true, "/v1/x/host:5000/a/b@sha256:0f?q"},
        {"a/b", false, "/v1/x/a%2Fb?q"},
        {"../../healthz?x#y", true, "/v1/x/../../healthz%3Fx%23y?q"},
        {"a b%\n\xc3\xbc", false, "/v1/x/a%20b%25%0A%C3%BC?q"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *path = NULL;
        assert_int_equal(client_path("/v1/x/", cases[i].name, "?q", cases[i].slashes, &path, NULL),
                         0);
        assert_string_equal(path, cases[i].path);
    }
    char *path = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(client_path("/v1/x/", "", "", false, &path, &err), -EINVAL);
    assert_null(path);
}

static void test_dots_in_a_name_reach_the_daemon(void **state)
{
    struct fake_answer answer = {.status = 200, .body = "{}"};
    struct client_request request = {.method = "GET", .path = "/v1/images/../../healthz"};
    struct call got;
    call(state, &answer, &request, &got);
    assert_non_null(strstr(got.fake.requests[0], "GET /v1/images/../../healthz HTTP"));
    call_free(&got);
}

static void on_sent(void *arg, int64_t bytes)
{
    *(int64_t *)arg = bytes;
}

static void test_upload_is_streamed(void **state)
{
    static char content[300000];
    memset(content, 'x', sizeof content);
    scratch_write(*state, "file", content, sizeof content);
    cleanup_fd int fd = open(scratch_path(*state, "file"), O_RDONLY | O_CLOEXEC);
    struct fake_answer answer = {.status = 201, .body = "{\"upload\":\"u\",\"size\":300000}"};
    int64_t sent = 0;
    struct client_request request = {.method = "POST",
                                     .path = "/v1/uploads",
                                     .upload = true,
                                     .upload_fd = fd,
                                     .moved = on_sent,
                                     .arg = &sent};
    struct call got;
    call(state, &answer, &request, &got);
    assert_int_equal(got.rc, 0);
    assert_int_equal(sent, sizeof content);
    assert_non_null(strstr(got.fake.requests[0], "Transfer-Encoding: chunked\r\n"));
    size_t count = 0;
    for (const char *p = strstr(got.fake.requests[0], "\r\n\r\n"); *p; p++)
        count += *p == 'x';
    assert_int_equal(count, sizeof content);
    call_free(&got);
}

static void test_upload_that_is_refused_in_the_middle(void **state)
{
    cleanup_fd int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    struct fake_answer answer = {
        .status = 507,
        .body =
            "{\"error\":{\"code\":\"no_space\",\"message\":\"the disk is full\",\"hint\":null}}",
        .early = 1};
    struct client_request request = {
        .method = "POST", .path = "/v1/uploads", .timeout_s = 30, .upload = true, .upload_fd = fd};
    struct call got;
    call(state, &answer, &request, &got);
    assert_int_equal(got.rc, -ENOSPC);
    assert_string_equal(got.err.text, "the disk is full");
    call_free(&got);
}

static void test_upload_of_what_cannot_be_read(void **state)
{
    cleanup_fd int fd = open(scratch_path(*state, "."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct fake_answer answer = {.status = 201, .body = "{}"};
    struct client_request request = {
        .method = "POST", .path = "/v1/uploads", .upload = true, .upload_fd = fd};
    struct call got;
    call(state, &answer, &request, &got);
    assert_true(got.rc < 0);
    assert_non_null(strstr(got.err.text, "cannot read what is to be uploaded"));
    assert_false(got.absent);
    call_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answer_is_the_document, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_post_sends_body_and_key, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_delete_has_no_body, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_key_that_is_no_header_line_is_refused, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_error_document_becomes_the_failure, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_answers_that_are_none_of_ours, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_connections_that_break, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_slow_daemon_is_not_waited_for_for_ever,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_no_daemon, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_socket_without_a_listener, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_names_are_encoded),
        cmocka_unit_test_setup_teardown(test_dots_in_a_name_reach_the_daemon, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_upload_is_streamed, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_upload_that_is_refused_in_the_middle, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_upload_of_what_cannot_be_read, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
