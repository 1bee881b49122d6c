#include "server.h"

#include "cleanup.h"
#include "site.h"

#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The daemon answers a new client, and soon. */
static void check_alive(const struct site *site)
{
    int64_t start = now_ms();
    cleanup_json json_t *json = site_expect(site, 200, "GET", "/healthz", NULL);
    assert_string_equal(json_string_value(json_object_get(json, "status")), "ok");
    assert_true(now_ms() - start < 5000);
}

static void test_head_and_get(void **state)
{
    const struct site *site = *state;
    check_alive(site);
    cleanup_site_reply struct site_reply head = site_ask(site, "HEAD", "/healthz", NULL);
    assert_int_equal(head.status, 200);
    assert_non_null(strstr(head.headers, "Content-Length: 15"));
    assert_string_equal(head.body, "");
    cleanup_site_reply struct site_reply missing = site_ask(site, "HEAD", "/v1/jobs/j-none", NULL);
    assert_int_equal(missing.status, 404);
}

static void test_unknown_routes_and_methods(void **state)
{
    const struct site *site = *state;
    static const char *const unknown[] = {
        "/",         "/v1",         "/v1/",         "/V1/runs",    "/v1/runs/",    "//v1/runs",
        "/v1//runs", "/v1/nothing", "/v1/runs/a/b", "/v1/images/", "/v1/jobs/j/x", "*"};
    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
        cleanup_site_reply struct site_reply reply = site_ask(site, "GET", unknown[i], NULL);
        if (reply.status != 404 && !(unknown[i][0] == '*' && reply.status == 400))
            fail_msg("%s: %d", unknown[i], reply.status);
    }
    static const struct {
        const char *method;
        const char *path;
        const char *allow;
    } wrong[] = {
        {"POST", "/healthz", "Allow: GET, HEAD\r\n"},
        {"PUT", "/v1/runs", "Allow: GET, HEAD, POST\r\n"},
        {"DELETE", "/v1/runs", "Allow: GET, HEAD, POST\r\n"},
        {"OPTIONS", "/v1/runs/r", "Allow: GET, HEAD, DELETE\r\n"},
        {"GET", "/v1/uploads", "Allow: POST\r\n"},
        {"PATCH", "/v1/images/a/b", "Allow: GET, HEAD, DELETE\r\n"},
        {"TRACE", "/v1/jobs/j", "Allow: GET, HEAD\r\n"},
        {"NONSENSE", "/v1/jobs", "Allow: GET, HEAD\r\n"},
        {"get", "/v1/jobs", "Allow: GET, HEAD\r\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        cleanup_site_reply struct site_reply reply =
            site_ask(site, wrong[i].method, wrong[i].path, NULL);
        if (reply.status != 405 || !strstr(reply.headers, wrong[i].allow))
            fail_msg("%s %s: %d %s", wrong[i].method, wrong[i].path, reply.status, reply.headers);
        assert_non_null(json_object_get(reply.json, "error"));
    }
}

static void test_keep_alive_and_pipelining(void **state)
{
    const struct site *site = *state;
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send_text(fd, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\n"
                                   "Content-Length: 19\r\n\r\n{\"reference\":\"a:1\"}"
                                   "GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "POST /v1/runs HTTP/1.1\r\nHost: x\r\n"
                                   "Transfer-Encoding: chunked\r\n\r\n"
                                   "3\r\n{\"x\r\n4;ext=1\r\n\":1}\r\n0\r\n\r\n"
                                   "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
    static const int statuses[] = {200, 202, 404, 400, 200};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        cleanup_site_reply struct site_reply reply = site_read(fd, false);
        assert_int_equal(reply.status, statuses[i]);
        if (i == 3)
            assert_non_null(strstr(reply.body, "'x'")); /* the chunks were put together */
    }
    /* One byte at a time is the same to the server. */
    const char *slow = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    for (const char *p = slow; *p; p++)
        assert_true(site_send(fd, p, 1));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_int_equal(reply.status, 200);
}

static void test_bodies_that_are_no_requests(void **state)
{
    const struct site *site = *state;
    static const struct {
        const char *body;
        const char *word;
    } cases[] = {
        {"", "body"},
        {"{", "JSON"},
        {"reference", "JSON"},
        {"[]", "object"},
        {"[{\"reference\":\"a:1\"}]", "object"},
        {"{\"reference\":\"a:1\"} {}", "JSON"},
        {"{\"reference\":\"a:1\",\"reference\":\"b:1\"}", "duplicate"},
        {"{\"reference\":\"a\xff:1\"}", "JSON"},
        {"{\"reference\":\"a\xc0\xaf\"}", "JSON"},
        {"{\"reference\":\"a\\u0000b\"}", "JSON"},
        {"{\"reference\":\"\\ud800\"}", "JSON"},
        {"{\"reference\":1}", "'reference'"},
        {"{\"reference\":null}", "'reference'"},
        {"{\"reference\":[\"a:1\"]}", "'reference'"},
        {"{}", "'reference'"},
        {"{\"reference\":\"a:1\",\"refernce\":\"b\"}", "'refernce'"},
        {"{\"reference\":\"Not A Reference\"}", "Not A Reference"},
        {"{\"reference\":1e999}", "JSON"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_site_reply struct site_reply reply =
            site_ask(site, "POST", "/v1/images/pull", cases[i].body);
        const json_t *error = json_object_get(reply.json, "error");
        if (reply.status != 400 || !strstr(reply.body, cases[i].word) ||
            strcmp(json_string_value(json_object_get(error, "code")), "invalid") != 0)
            fail_msg("%s: %d %s", cases[i].body, reply.status, reply.body);
    }
    assert_int_equal(atomic_load(&site_shared.runs), 0);
    cleanup_json json_t *jobs = site_expect(site, 200, "GET", "/v1/jobs", NULL);
    assert_int_equal(json_array_size(json_object_get(jobs, "jobs")), 0);
    site_refused(site, 400, "invalid", "no body", "DELETE", "/v1/runs/r", "{}");
    site_refused(site, 400, "invalid", "no body", "GET", "/healthz", "{}");
}

static void test_deep_nesting(void **state)
{
    const struct site *site = *state;
    enum {
        DEEP = 1000000
    };
    cleanup_free char *body = malloc(DEEP + 1);
    memset(body, '[', DEEP);
    body[DEEP] = '\0';
    int64_t start = now_ms();
    cleanup_site_reply struct site_reply reply = site_ask(site, "POST", "/v1/runs", body);
    assert_int_equal(reply.status, 400);
    assert_true(now_ms() - start < 10000);
    check_alive(site);
}

/* A pull of "a:1" whose body is filled up with blanks to `len` bytes; caller frees. */
static char *padded(size_t len)
{
    static const char json[] = "{\"reference\":\"a:1\"}";
    char *body = malloc(len + 1);
    assert_non_null(body);
    memset(body, ' ', len);
    memcpy(body, json, sizeof json - 1);
    body[len] = '\0';
    return body;
}

static void test_the_limit_of_bodies(void **state)
{
    const struct site *site = *state;
    cleanup_free char *just = padded(SERVER_BODY_MAX);
    cleanup_site_reply struct site_reply good = site_ask(site, "POST", "/v1/images/pull", just);
    assert_int_equal(good.status, 202);
    cleanup_free char *over = padded(SERVER_BODY_MAX + 1);
    cleanup_site_reply struct site_reply bad = site_ask(site, "POST", "/v1/images/pull", over);
    assert_int_equal(bad.status, 413);
    assert_non_null(strstr(bad.body, "too_large"));
}

static long max_rss_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* 100 MB, announced or in chunks: read and thrown away, the answer comes, the connection goes on.
 */
static void test_huge_bodies(void **state)
{
    const struct site *site = *state;
    enum {
        PIECE = 1 << 20,
        PIECES = 100
    };
    cleanup_free char *piece = malloc(PIECE);
    memset(piece, ' ', PIECE);
    long before = max_rss_kib();
    for (int chunked = 0; chunked < 2; chunked++) {
        cleanup_fd int fd = site_connect(site);
        assert_true(site_send_text(fd, "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\n"));
        assert_true(site_send_text(fd, chunked ? "Transfer-Encoding: chunked\r\n\r\n"
                                               : "Content-Length: 104857600\r\n\r\n"));
        for (int i = 0; i < PIECES; i++) {
            assert_true(!chunked || site_send_text(fd, "100000\r\n"));
            assert_true(site_send(fd, piece, PIECE));
            assert_true(!chunked || site_send_text(fd, "\r\n"));
        }
        assert_true(!chunked || site_send_text(fd, "0\r\n\r\n"));
        cleanup_site_reply struct site_reply reply = site_read(fd, false);
        assert_int_equal(reply.status, 413);
        assert_true(site_send_text(fd, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
        cleanup_site_reply struct site_reply next = site_read(fd, false);
        assert_int_equal(next.status, 200);
    }
    assert_true(max_rss_kib() - before < 32 << 10);
}

/* A body that has no end is given up with an answer. */
static void test_endless_body(void **state)
{
    const struct site *site = *state;
    enum {
        PIECE = 1 << 20
    };
    cleanup_free char *piece = malloc(PIECE);
    memset(piece, ' ', PIECE);
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send_text(fd, "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\n"
                                   "Transfer-Encoding: chunked\r\n\r\n"));
    int sent = 0;
    while (sent < 2000 && site_send_text(fd, "100000\r\n") && site_send(fd, piece, PIECE) &&
           site_send_text(fd, "\r\n"))
        sent++;
    assert_true(sent >= 200 && sent < 400);
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_int_equal(reply.status, 413);
    assert_non_null(strstr(reply.headers, "Connection: close"));
    assert_non_null(json_object_get(reply.json, "error"));
    check_alive(site);
}

static void test_announced_beyond_all_measure(void **state)
{
    const struct site *site = *state;
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send_text(fd, "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\n"
                                   "Content-Length: 9223372036854775807\r\n\r\n"));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_int_equal(reply.status, 413); /* without a byte of the body */
    check_alive(site);
}

static void test_expect_100_continue(void **state)
{
    const struct site *site = *state;
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send_text(fd, "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\n"
                                   "Expect: 100-continue\r\nContent-Length: 19\r\n\r\n"));
    cleanup_site_reply struct site_reply interim = site_read(fd, true);
    assert_int_equal(interim.status, 100);
    assert_true(site_send_text(fd, "{\"reference\":\"a:1\"}"));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_int_equal(reply.status, 202);
    static const char *const refused[] = {
        "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        "Content-Length: 1048577\r\n\r\n",
        "POST /v1/nothing HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        "Content-Length: 10\r\n\r\n"};
    static const int statuses[] = {413, 404};
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        cleanup_fd int other = site_connect(site);
        assert_true(site_send_text(other, refused[i]));
        cleanup_site_reply struct site_reply final = site_read(other, false);
        assert_int_equal(final.status, statuses[i]);
    }
    check_alive(site);
}

/* Requests that are not HTTP as it should be: an error or the end of the connection, never a 2xx,
 * and the daemon goes on. */
static void test_wrong_lengths_and_requests(void **state)
{
    const struct site *site = *state;
    static const char *const requests[] = {
        "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n{}",
        "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n{}",
        "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\nContent-Length: 0x10\r\n\r\n{}",
        "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "ffffffffffffffffff\r\n{}",
        "GET\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        "GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
        "GET /healthz SMTP/1.1\r\nHost: x\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        cleanup_fd int fd = site_connect(site);
        assert_true(site_send_text(fd, requests[i]));
        (void)shutdown(fd, SHUT_WR);
        cleanup_site_reply struct site_reply reply = site_read(fd, false);
        if (reply.status != 0 && reply.status < 400)
            fail_msg("%s: %d", requests[i], reply.status);
    }
    cleanup_json json_t *jobs = site_expect(site, 200, "GET", "/v1/jobs", NULL);
    assert_int_equal(json_array_size(json_object_get(jobs, "jobs")), 0);
}

static void test_length_that_is_too_short(void **state)
{
    const struct site *site = *state;
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send_text(fd, "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\n"
                                   "Content-Length: 10\r\n\r\n{\"reference\":\"a:1\"}\r\n\r\n"));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_int_equal(reply.status, 400);
    /* The rest is taken for a request, which it is not. */
    cleanup_site_reply struct site_reply rest = site_read(fd, false);
    assert_true(rest.status == 0 || rest.status >= 400);
    check_alive(site);
}

static void test_length_that_is_too_long(void **state)
{
    const struct site *site = *state;
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send_text(fd, "POST /v1/images/pull HTTP/1.1\r\nHost: x\r\n"
                                   "Content-Length: 100\r\n\r\n{\"reference\":\"a:1\"}"));
    check_alive(site); /* nobody waits for the rest but this connection */
    (void)shutdown(fd, SHUT_WR);
    assert_true(site_closes(fd));
    cleanup_json json_t *jobs = site_expect(site, 200, "GET", "/v1/jobs", NULL);
    assert_int_equal(json_array_size(json_object_get(jobs, "jobs")), 0);
}

/* Clients that stop in the middle of a head, a body, a chunk: others do not notice. */
static void test_stalled_clients_block_nobody(void **state)
{
    const struct site *site = *state;
    static const char *const starts[] = {
        "",
        "GET",
        "GET /healthz HTTP/1.1\r\nHost: x\r\n",
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"};
    int fds[30];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = site_connect(site);
        assert_true(site_send_text(fds[i], starts[i % ARRAY_SIZE(starts)]));
    }
    for (int i = 0; i < 20; i++)
        check_alive(site);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    check_alive(site);
}

static void test_huge_headers(void **state)
{
    const struct site *site = *state;
    enum {
        LINE = 4096
    };
    char line[LINE];
    memset(line, 'a', sizeof line);
    memcpy(line + LINE - 4, ": b\n", 4);
    for (int variant = 0; variant < 3; variant++) {
        cleanup_fd int fd = site_connect(site);
        assert_true(site_send_text(fd, "GET /"));
        bool sent = variant == 2 || site_send_text(fd, "healthz HTTP/1.1\r\nHost: x\r\n");
        for (int i = 0; sent && variant == 0 && i < 2560; i++)
            sent = site_send(fd, line, sizeof line); /* 10 MB */
        for (int i = 0; sent && variant == 1 && i < 100000; i++)
            sent = site_send_text(fd, "a: b\r\n");
        for (int i = 0; sent && variant == 2 && i < 2560; i++)
            sent = site_send(fd, line, sizeof line - 4); /* one endless path */
        if (sent)
            (void)site_send_text(fd, "\r\n\r\n");
        cleanup_site_reply struct site_reply reply = site_read(fd, false);
        if (reply.status != 0 && reply.status != 431 && reply.status != 414 && reply.status != 400)
            fail_msg("variant %d: %d", variant, reply.status);
        check_alive(site);
    }
}

/* The library ends the path there. What matters is that nothing breaks. */
static void test_a_nul_byte_in_the_path(void **state)
{
    const struct site *site = *state;
    static const char request[] = "GET /v1/nothing\0/x HTTP/1.1\r\nHost: x\r\n\r\n";
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send(fd, request, sizeof request - 1));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_true(reply.status == 404 || reply.status == 400);
    check_alive(site);
}

static void test_idempotency_keys(void **state)
{
    const struct site *site = *state;
    static const char body[] = "{\"reference\":\"a:1\"}";
    cleanup_free char *longest = NULL;
    char key[129];
    memset(key, 'k', 128);
    key[128] = '\0';
    static const char *const wrong[] = {"Idempotency-Key: a b\r\n",
                                        "Idempotency-Key: a\xc3\xa4\r\n", "Idempotency-Key: \r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        cleanup_site_reply struct site_reply reply =
            site_ask_with(site, "POST", "/v1/images/pull", wrong[i], body);
        assert_int_equal(reply.status, 400);
    }
    assert_true(asprintf(&longest, "Idempotency-Key: %s\r\n", key) > 0);
    cleanup_site_reply struct site_reply good =
        site_ask_with(site, "POST", "/v1/images/pull", longest, body);
    assert_int_equal(good.status, 202);
    cleanup_site_reply struct site_reply again =
        site_ask_with(site, "POST", "/v1/images/pull", longest, "{ \"reference\" : \"a:1\" }");
    assert_string_equal(good.body, again.body);
    cleanup_site_reply struct site_reply other =
        site_ask_with(site, "POST", "/v1/images/pull", longest, "{\"reference\":\"b:1\"}");
    assert_int_equal(other.status, 409);
    assert_non_null(strstr(other.body, "conflict"));
    free(longest);
    assert_true(asprintf(&longest, "Idempotency-Key: %sk\r\n", key) > 0);
    cleanup_site_reply struct site_reply over =
        site_ask_with(site, "POST", "/v1/images/pull", longest, body);
    assert_int_equal(over.status, 400);
}

/* As another user, in a process of its own: every request is refused, in JSON. Returns through the
 * exit status which step failed. */
static int stranger(const struct site *site)
{
    static const char *const requests[] = {
        "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc",
        "GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n"};
    if (setgroups(0, NULL) < 0 || setgid(65534) < 0 || setuid(65534) < 0)
        return 2;
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        int fd = site_connect(site);
        if (!site_send_text(fd, requests[i]))
            return 3;
        struct site_reply reply = site_read(fd, false);
        const json_t *error = json_object_get(reply.json, "error");
        const char *code = json_string_value(json_object_get(error, "code"));
        if (reply.status != 403 || !code || strcmp(code, "denied") != 0)
            return 4;
        site_reply_free(&reply);
        close(fd);
    }
    return 0;
}

static void test_other_users_are_refused(void **state)
{
    const struct site *site = *state;
    const struct scratch *scratch = site->scratch;
    struct stat st;
    assert_int_equal(stat(site->socket, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(chmod(scratch->path, 0711), 0);
    assert_int_equal(chmod(site->socket, 0666), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(stranger(site));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    check_alive(site);
}

static void *ask_often(void *arg)
{
    const struct site *site = arg;
    for (int i = 0; i < 50; i++) {
        cleanup_site_reply struct site_reply reply = site_ask(site, "GET", "/v1/jobs", NULL);
        if (reply.status != 200)
            return (void *)"failed";
    }
    return NULL;
}

static void test_many_clients(void **state)
{
    struct site *site = *state;
    pthread_t threads[20];
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, site), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
}

/* More connections than are served at once: the rest waits its turn and is served then. */
static void test_more_connections_than_places(void **state)
{
    const struct site *site = *state;
    static int fds[SERVER_CONNECTIONS_MAX + 20];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = site_connect(site);
    assert_true(
        site_send_text(fds[ARRAY_SIZE(fds) - 1], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
    for (size_t i = 0; i < ARRAY_SIZE(fds) - 1; i++)
        close(fds[i]);
    cleanup_site_reply struct site_reply reply = site_read(fds[ARRAY_SIZE(fds) - 1], false);
    assert_int_equal(reply.status, 200);
    close(fds[ARRAY_SIZE(fds) - 1]);
    check_alive(site);
}

static void test_stop_waits_for_nobody(void **state)
{
    struct site *site = *state;
    atomic_store(&site_shared.hold, true);
    cleanup_json json_t *made =
        site_expect(site, 202, "POST", "/v1/images/pull", "{'reference':'a:1'}");
    const char *job = json_string_value(json_object_get(made, "job"));
    cleanup_fd int idle = site_connect(site);
    cleanup_fd int half = site_connect(site);
    cleanup_fd int waiting = site_connect(site);
    char request[128];
    snprintf(request, sizeof request, "GET /v1/jobs/%s?wait=30 HTTP/1.1\r\nHost: x\r\n\r\n", job);
    assert_true(site_send_text(half, "POST /v1/uploads HTTP/1.1\r\nHost: x\r\n"
                                     "Content-Length: 100\r\n\r\nabc"));
    assert_true(site_send_text(waiting, request));
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    int64_t start = now_ms();
    server_stop(site->server);
    site->server = NULL;
    assert_true(now_ms() - start < 5000);
    assert_true(site_closes(idle) && site_closes(half) && site_closes(waiting));
    struct stat st;
    assert_int_equal(stat(site->socket, &st), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_head_and_get),
        TEST(test_unknown_routes_and_methods),
        TEST(test_keep_alive_and_pipelining),
        TEST(test_bodies_that_are_no_requests),
        TEST(test_deep_nesting),
        TEST(test_the_limit_of_bodies),
        TEST(test_huge_bodies),
        TEST(test_endless_body),
        TEST(test_announced_beyond_all_measure),
        TEST(test_expect_100_continue),
        TEST(test_wrong_lengths_and_requests),
        TEST(test_length_that_is_too_short),
        TEST(test_length_that_is_too_long),
        TEST(test_stalled_clients_block_nobody),
        TEST(test_huge_headers),
        TEST(test_a_nul_byte_in_the_path),
        TEST(test_idempotency_keys),
        TEST(test_other_users_are_refused),
        TEST(test_many_clients),
        TEST(test_more_connections_than_places),
        TEST(test_stop_waits_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
