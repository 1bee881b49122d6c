#include "registry_http.h"

#include "http_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static void requests_say_who_asks(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = HTTP_FIXTURE_OK});
    static const char *const headers[] = {"Accept: a/b", "Accept: c/d", NULL};
    char url[128];
    snprintf(url, sizeof url, "%s/v2/?q=1", fixture->base);
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_GET, .url = url, .headers = headers};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL), 0);
    assert_int_equal(response.status, 200);
    assert_int_equal(response.length, 0);
    const struct fake_http_request *seen = fake_http_at(fixture->fake, 0);
    assert_string_equal(seen->method, "GET");
    assert_string_equal(seen->target, "/v2/?q=1");
    assert_string_equal(fake_http_header(seen, "User-Agent"), "varve/" VARVE_VERSION);
    assert_string_equal(fake_http_header(seen, "Accept"), "a/b");
    assert_non_null(strstr(seen->headers, "Accept: c/d"));
    assert_null(fake_http_header(seen, "Authorization"));
    assert_null(fake_http_header(seen, "Accept-Encoding"));
}

static void headers_of_interest_are_kept(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 103 Early Hints\r\nLocation: /early\r\n\r\n"
                                            "HTTP/1.1 202 Accepted\r\nlocation:   /up/1?a=b  \r\n"
                                            "CONTENT-TYPE:text/plain\r\nRetry-After: 7\r\n"
                                            "Docker-Content-Digest: sha256:x\r\nX-Location: /no\r\n"
                                            "Content-Length: 5\r\n\r\nhello"});
    char url[128];
    snprintf(url, sizeof url, "%s/x", fixture->base);
    struct registry_http_request request = {.method = REGISTRY_HTTP_POST, .url = url};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL), 0);
    assert_int_equal(response.status, 202);
    assert_string_equal(response.location, "/up/1?a=b");
    assert_string_equal(response.content_type, "text/plain");
    assert_string_equal(response.content_digest, "sha256:x");
    assert_string_equal(response.retry_after, "7");
    assert_string_equal(response.url, url);
    assert_string_equal(buf_str(&response.refusal), "hello");
    const struct fake_http_request *seen = fake_http_at(fixture->fake, 0);
    assert_string_equal(seen->method, "POST");
    assert_string_equal(fake_http_header(seen, "Content-Length"), "0");
}

static void bodies_reach_the_sink(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
                                .repeat = 100000});
    cleanup_buf struct buf body = BUF_INIT(1 << 20);
    assert_int_equal(http_fixture_get(fixture, &body, NULL), 200);
    assert_int_equal(body.len, 100000);
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                            "5\r\nhello\r\n6\r\n world\r\n0\r\n"
                                            "Location: /trailer\r\n\r\n"});
    buf_free(&body);
    assert_int_equal(http_fixture_get(fixture, &body, NULL), 200);
    assert_string_equal(buf_str(&body), "hello world");
}

static void connections_are_used_again(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = HTTP_FIXTURE_OK});
    cleanup_buf struct buf body = BUF_INIT(16);
    for (int i = 0; i < 5; i++)
        assert_int_equal(http_fixture_get(fixture, &body, NULL), 200);
    assert_int_equal(fake_http_count(fixture->fake), 5);
    assert_int_equal(fake_http_connections(fixture->fake), 1);
}

/* A kept connection that the server has closed meanwhile is no failure, with a body neither. */
static void closed_connections_are_replaced(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture,
                        (struct fake_http_rule){.response = HTTP_FIXTURE_OK, .end = FAKE_CLOSE});
    cleanup_buf struct buf body = BUF_INIT(16);
    struct err err = ERR_INIT;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(http_fixture_get(fixture, &body, &err), 200);
        assert_int_equal(http_fixture_put(fixture, "hello", 5, &err), 200);
    }
    for (size_t i = 1; i < 6; i += 2)
        assert_string_equal(fake_http_at(fixture->fake, i)->body, "hello");
}

/* The same while the body is on its way: it comes whole or the failure is told at once; curl may
 * have read from it by then. */
static void closed_connections_lose_nothing_of_a_body(void **state)
{
    struct http_fixture *fixture = *state;
    const struct fake_http_rule rules[] = {
        {.method = "GET", .path = "", .response = HTTP_FIXTURE_OK, .end = FAKE_CLOSE},
        {.path = "", .response = HTTP_FIXTURE_OK},
    };
    registry_http_set_timeouts(fixture->http, 5, 5, 5);
    cleanup_buf struct buf body = BUF_INIT(16);
    for (int i = 0; i < 30; i++) {
        fake_http_set(fixture->fake, rules, 2);
        assert_int_equal(http_fixture_get(fixture, &body, NULL), 200);
        struct err err = ERR_INIT;
        int rc = http_fixture_put_file(fixture, 1 << 20, 1 << 20, NULL, &err);
        if (rc != 200) {
            assert_int_equal(rc, -EHOSTUNREACH);
            assert_null(strstr(err.text, "stood still"));
            continue;
        }
        const struct fake_http_request *seen =
            fake_http_at(fixture->fake, fake_http_count(fixture->fake) - 1);
        assert_int_equal(seen->body_len, 1 << 20);
    }
}

static void *get_many(void *arg)
{
    struct http_fixture *fixture = arg;
    for (int i = 0; i < 10; i++) {
        cleanup_buf struct buf body = BUF_INIT(1 << 20);
        if (http_fixture_get(fixture, &body, NULL) != 200 || body.len != 5000)
            return arg;
    }
    return NULL;
}

static void threads_share_the_pool(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){
                                     .response = "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
                                     .repeat = 5000});
    pthread_t threads[12]; /* more than are kept idle */
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_many, fixture), 0);
    for (size_t i = 0; i < 12; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(fake_http_count(fixture->fake), 120);
    assert_in_range(fake_http_connections(fixture->fake), 1, 40);
}

/* A redirect as a server gives it, with the other origin as the target. Caller frees. */
static char *redirect(int status, const char *base, const char *path)
{
    char *text;
    assert_true(asprintf(&text,
                         "HTTP/1.1 %d Moved\r\nLocation: %s%s\r\nContent-Length: 5\r\n\r\nmoved",
                         status, base, path) > 0);
    return text;
}

static void downloads_follow_redirects(void **state)
{
    struct http_fixture *fixture = *state;
    static const int statuses[] = {301, 302, 303, 307, 308};
    struct fake_http_rule stored = {
        .path = "/stored", .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        cleanup_free char *answer = redirect(statuses[i], fixture->other_base, "/stored?sig=1");
        http_fixture_answer(fixture, (struct fake_http_rule){.response = answer});
        fake_http_set(fixture->other, &stored, 1);
        cleanup_buf struct buf body = BUF_INIT(1 << 20);
        struct err err = ERR_INIT;
        assert_int_equal(http_fixture_get(fixture, &body, &err), 200);
        assert_string_equal(buf_str(&body), "hello");
        const struct fake_http_request *seen = fake_http_at(fixture->other, 0);
        assert_string_equal(seen->method, "GET");
        assert_string_equal(seen->target, "/stored?sig=1");
        assert_null(fake_http_header(seen, "Authorization"));
        assert_null(fake_http_header(seen, "Cookie"));
        assert_null(fake_http_header(seen, "Referer"));
    }
}

static void head_follows_redirects(void **state)
{
    struct http_fixture *fixture = *state;
    cleanup_free char *answer = redirect(307, fixture->other_base, "/stored");
    http_fixture_answer(fixture, (struct fake_http_rule){.method = "HEAD", .response = answer});
    struct fake_http_rule stored = {.method = "HEAD",
                                    .path = "/stored",
                                    .response = "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"};
    fake_http_set(fixture->other, &stored, 1);
    struct registry_http_request request = {.method = REGISTRY_HTTP_HEAD, .url = fixture->base};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL), 0);
    assert_int_equal(response.status, 200);
    assert_int_equal(response.length, 77);
    assert_non_null(strstr(response.url, "/stored"));
}

/* One with a body of four kinds of methods; the status or a failure. */
static int send_body(struct http_fixture *fixture, enum registry_http_method method, int fd,
                     bool keep_origin, struct err *err)
{
    struct registry_http_request request = {.method = method,
                                            .url = fixture->base,
                                            .body_fd = fd,
                                            .body_offset = 3,
                                            .body_size = 5,
                                            .keep_origin = keep_origin,
                                            .authorization = "Basic czNjcmV0"};
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_http_perform(fixture->http, &request, &response, err);
    return rc < 0 ? rc : (int)response.status;
}

/* Method and body are kept, also on the way to another origin, which sees no credentials. */
static void bodies_follow_redirects_that_keep_them(void **state)
{
    struct http_fixture *fixture = *state;
    static const struct {
        enum registry_http_method method;
        const char *name;
    } methods[] = {
        {REGISTRY_HTTP_PUT, "PUT"}, {REGISTRY_HTTP_PATCH, "PATCH"}, {REGISTRY_HTTP_POST, "POST"}};
    cleanup_fd int fd = memfd_create("body", MFD_CLOEXEC);
    assert_int_equal(write(fd, "...hello...", 11), 11);
    struct fake_http_rule stored = {.path = "", .response = HTTP_FIXTURE_OK};
    for (size_t i = 0; i < ARRAY_SIZE(methods) * 2; i++) {
        cleanup_free char *answer = redirect(i % 2 ? 307 : 308, fixture->other_base, "/stored?s=1");
        http_fixture_answer(fixture, (struct fake_http_rule){.response = answer});
        fake_http_set(fixture->other, &stored, 1);
        assert_int_equal(send_body(fixture, methods[i / 2].method, fd, false, NULL), 200);
        const struct fake_http_request *first = fake_http_at(fixture->fake, 0);
        assert_string_equal(first->method, methods[i / 2].name);
        assert_string_equal(first->body, "hello");
        assert_non_null(fake_http_header(first, "Authorization"));
        const struct fake_http_request *seen = fake_http_at(fixture->other, 0);
        assert_string_equal(seen->method, methods[i / 2].name);
        assert_string_equal(seen->target, "/stored?s=1");
        assert_string_equal(seen->body, "hello");
        assert_null(fake_http_header(seen, "Authorization"));
        assert_int_equal(send_body(fixture, methods[i / 2].method, fd, true, NULL),
                         i % 2 ? 307 : 308);
        assert_int_equal(fake_http_count(fixture->other), 1);
    }
}

static void other_redirects_of_bodies_are_answers(void **state)
{
    struct http_fixture *fixture = *state;
    static const int statuses[] = {300, 301, 302, 303, 304, 305};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        cleanup_free char *answer = redirect(statuses[i], fixture->other_base, "/stored");
        http_fixture_answer(fixture, (struct fake_http_rule){.response = answer});
        assert_int_equal(http_fixture_put(fixture, "hello", 5, NULL), statuses[i]);
        assert_int_equal(fake_http_count(fixture->fake), 1);
        assert_int_equal(fake_http_count(fixture->other), 0);
    }
}

static void redirects_are_counted(void **state)
{
    struct http_fixture *fixture = *state;
    cleanup_free char *again = redirect(302, "", "/x");
    http_fixture_answer(fixture, (struct fake_http_rule){.response = again});
    cleanup_buf struct buf body = BUF_INIT(16);
    struct err err = ERR_INIT;
    assert_true(http_fixture_get(fixture, &body, &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_int_equal(fake_http_count(fixture->fake), REGISTRY_HTTP_REDIRECTS_MAX + 1);
    const struct fake_http_rule rules[] = {
        {.path = "", .nth = REGISTRY_HTTP_REDIRECTS_MAX + 1, .response = HTTP_FIXTURE_OK},
        {.path = "", .response = again},
    };
    fake_http_set(fixture->fake, rules, 2);
    assert_int_equal(http_fixture_get(fixture, &body, NULL), 200);
}

static void bad_redirects_are_refused(void **state)
{
    struct http_fixture *fixture = *state;
    static const struct {
        const char *answer;
        enum err_code code;
    } cases[] = {
        {"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", ERR_DAMAGED},
        {"HTTP/1.1 302 Found\r\nLocation:\r\nContent-Length: 0\r\n\r\n", ERR_DAMAGED},
        {"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
         ERR_REFUSED},
        {"HTTP/1.1 302 Found\r\nLocation: http://other.example/\r\nContent-Length: 0\r\n\r\n",
         ERR_REFUSED},
        {"HTTP/1.1 302 Found\r\nLocation: http://u:p@localhost/\r\nContent-Length: 0\r\n\r\n",
         ERR_REFUSED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        http_fixture_answer(fixture, (struct fake_http_rule){.response = cases[i].answer});
        cleanup_buf struct buf body = BUF_INIT(16);
        struct err err = ERR_INIT;
        assert_true(http_fixture_get(fixture, &body, &err) < 0);
        assert_int_equal(err.code, cases[i].code);
    }
}

static void bodies_are_sent(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = HTTP_FIXTURE_OK});
    assert_int_equal(http_fixture_put(fixture, "hello", 5, NULL), 200);
    const struct fake_http_request *seen = fake_http_at(fixture->fake, 0);
    assert_string_equal(seen->method, "PUT");
    assert_string_equal(seen->body, "hello");
    assert_null(fake_http_header(seen, "Transfer-Encoding"));
    assert_int_equal(http_fixture_put(fixture, "", 0, NULL), 200);
    assert_string_equal(fake_http_header(fake_http_at(fixture->fake, 1), "Content-Length"), "0");
}

static void files_are_sent_with_progress(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = HTTP_FIXTURE_OK});
    struct http_fixture_progress progress = {.cancel_at = UINT64_MAX};
    assert_int_equal(http_fixture_put_file(fixture, 8 << 20, 8 << 20, &progress, NULL), 200);
    assert_int_equal(fake_http_at(fixture->fake, 0)->body_len, 8 << 20);
    assert_int_equal(progress.last, 8 << 20);
    assert_int_equal(progress.total, 8 << 20);
    assert_true(progress.calls > 1);
}

/* The body is sent again from its start where the server wants it without Expect. */
static void refused_expectations_are_repeated(void **state)
{
    struct http_fixture *fixture = *state;
    const struct fake_http_rule rules[] = {
        {.path = "",
         .nth = 1,
         .response = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n",
         .skip_body = true},
        {.path = "", .response = HTTP_FIXTURE_OK},
    };
    fake_http_set(fixture->fake, rules, 2);
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_put_file(fixture, 4 << 20, 4 << 20, NULL, &err), 200);
    assert_int_equal(fake_http_count(fixture->fake), 2);
    assert_null(fake_http_header(fake_http_at(fixture->fake, 1), "Expect"));
    assert_int_equal(fake_http_at(fixture->fake, 1)->body_len, 4 << 20);
}

/* The credentials of a registry are seen by its own origin alone; another path there is home. */
static void credentials_stay_at_home(void **state)
{
    struct http_fixture *fixture = *state;
    cleanup_free char *away = redirect(307, fixture->other_base, "/stored");
    cleanup_free char *home = redirect(307, fixture->base, "/moved");
    const struct fake_http_rule rules[] = {{.path = "/moved", .response = away},
                                           {.path = "", .response = home}};
    struct fake_http_rule stored = {.path = "", .response = HTTP_FIXTURE_OK};
    fake_http_set(fixture->fake, rules, 2);
    fake_http_set(fixture->other, &stored, 1);
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_GET, .url = fixture->base, .authorization = "Bearer s3cret"};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL), 0);
    assert_int_equal(response.status, 200);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(fake_http_header(fake_http_at(fixture->fake, i), "Authorization"),
                            "Bearer s3cret");
    assert_null(fake_http_header(fake_http_at(fixture->other, 0), "Authorization"));
}

/* The second server stands in as a proxy. */
static void proxies_are_for_other_machines(void **state)
{
    struct http_fixture *fixture = *state;
    static const char *const variables[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                            "ALL_PROXY"};
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        setenv(variables[i], fixture->other_base, 1);
    http_fixture_answer(fixture, (struct fake_http_rule){.response = HTTP_FIXTURE_OK});
    struct fake_http_rule proxy = {.path = "",
                                   .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy"};
    fake_http_set(fixture->other, &proxy, 1);
    cleanup_buf struct buf body = BUF_INIT(1 << 20);
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_get(fixture, &body, &err), 200);
    assert_int_equal(fake_http_count(fixture->other), 0);
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET,
                                            .url = "http://registry.invalid:5000/v2/",
                                            .sink = http_fixture_add,
                                            .sink_arg = &body,
                                            .sink_max = 100};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, &err), 0);
    assert_string_equal(buf_str(&body), "proxy");
    assert_string_equal(fake_http_at(fixture->other, 0)->target,
                        "http://registry.invalid:5000/v2/");
    setenv("no_proxy", "registry.invalid", 1);
    registry_http_response_free(&response);
    assert_true(registry_http_perform(fixture->http, &request, &response, &err) < 0);
    assert_int_equal(fake_http_count(fixture->other), 1);
    unsetenv("no_proxy");
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        unsetenv(variables[i]);
}

/* What NO_PROXY says is taken as curl takes it. The second server stands in as a proxy. */
static void proxies_are_left_out_as_curl_does(void **state)
{
    struct http_fixture *fixture = *state;
    static const struct {
        const char *no_proxy;
        const char *url;
        bool through; /* the proxy */
    } cases[] = {
        {"", "http://reg.invalid:5000/", true},
        {"other.invalid", "http://reg.invalid:5000/", true},
        {"reg.invalid", "http://reg.invalid:5000/", false},
        {"other.invalid, reg.invalid", "http://reg.invalid/", false},
        {".invalid", "http://reg.invalid:5000/", false},
        {"invalid", "http://reg.invalid:5000/", false},
        {"eg.invalid", "http://reg.invalid:5000/", true},
        {"reg.invalid:5000", "http://reg.invalid:5000/", true}, /* curl takes no ports */
        {"*", "http://reg.invalid:5000/", false},
        {"192.0.2.0/24", "http://192.0.2.7:5000/", false},
        {"192.0.2.0/24", "http://198.51.100.7:5000/", true},
    };
    struct registry_http_options options = {.base = fixture->base,
                                            .insecure_hosts = "reg.invalid,192.0.2.7,198.51.100.7"};
    struct registry_http *http = NULL;
    assert_int_equal(registry_http_open(&options, &http, NULL), 0);
    registry_http_set_timeouts(http, 1, 1, 1);
    setenv("http_proxy", fixture->other_base, 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_http_rule rule = {.path = "", .response = HTTP_FIXTURE_OK};
        fake_http_set(fixture->other, &rule, 1);
        setenv("NO_PROXY", cases[i].no_proxy, 1);
        struct registry_http_request request = {.method = REGISTRY_HTTP_HEAD, .url = cases[i].url};
        cleanup_http_response struct registry_http_response response = {0};
        int rc = registry_http_perform(http, &request, &response, NULL);
        if ((rc == 0) != cases[i].through || fake_http_count(fixture->other) != cases[i].through)
            fail_msg("'%s' for %s: %d", cases[i].no_proxy, cases[i].url, rc);
    }
    unsetenv("http_proxy");
    unsetenv("NO_PROXY");
    registry_http_close(http);
}

/* To https a proxy makes a way, and sees no credentials. */
static void proxies_see_no_credentials_of_https(void **state)
{
    struct http_fixture *fixture = *state;
    setenv("https_proxy", fixture->other_base, 1);
    static const struct fake_http_rule rule = {
        .path = "",
        .response = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        .end = FAKE_CLOSE};
    fake_http_set(fixture->other, &rule, 1);
    struct registry_http_request request = {.method = REGISTRY_HTTP_HEAD,
                                            .url = "https://reg.invalid:5000/v2/secret-path",
                                            .authorization = "Basic czNjcmV0"};
    cleanup_http_response struct registry_http_response response = {0};
    struct err err = ERR_INIT;
    int rc = registry_http_perform(fixture->http, &request, &response, &err);
    unsetenv("https_proxy");
    assert_int_equal(rc, -EPROTO); /* asking again would not help */
    assert_non_null(strstr(err.text, "the proxy to registry reg.invalid:5000 answered 403"));
    const struct fake_http_request *seen = fake_http_at(fixture->other, 0);
    assert_string_equal(seen->method, "CONNECT");
    assert_string_equal(seen->target, "reg.invalid:5000");
    assert_null(fake_http_header(seen, "Authorization"));
}

#define test(name) cmocka_unit_test_setup_teardown(name, http_fixture_setup, http_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(requests_say_who_asks),
        test(headers_of_interest_are_kept),
        test(bodies_reach_the_sink),
        test(connections_are_used_again),
        test(closed_connections_are_replaced),
        test(closed_connections_lose_nothing_of_a_body),
        test(threads_share_the_pool),
        test(downloads_follow_redirects),
        test(head_follows_redirects),
        test(bodies_follow_redirects_that_keep_them),
        test(other_redirects_of_bodies_are_answers),
        test(redirects_are_counted),
        test(bad_redirects_are_refused),
        test(bodies_are_sent),
        test(files_are_sent_with_progress),
        test(refused_expectations_are_repeated),
        test(credentials_stay_at_home),
        test(proxies_are_for_other_machines),
        test(proxies_are_left_out_as_curl_does),
        test(proxies_see_no_credentials_of_https),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
