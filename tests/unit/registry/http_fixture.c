#include "http_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

int http_fixture_setup(void **state)
{
    struct http_fixture *fixture = calloc(1, sizeof *fixture);
    struct err err = ERR_INIT;
    if (fake_http_start(NULL, NULL, NULL, &fixture->fake, &err) < 0 ||
        fake_http_start(NULL, NULL, NULL, &fixture->other, &err) < 0)
        return -1;
    snprintf(fixture->base, sizeof fixture->base, "http://127.0.0.1:%d",
             fake_http_port(fixture->fake));
    snprintf(fixture->other_base, sizeof fixture->other_base, "http://localhost:%d",
             fake_http_port(fixture->other));
    struct registry_http_options options = {.base = fixture->base};
    if (registry_http_open(&options, &fixture->http, &err) < 0)
        return -1;
    *state = fixture;
    return 0;
}

int http_fixture_teardown(void **state)
{
    struct http_fixture *fixture = *state;
    registry_http_close(fixture->http);
    fake_http_stop(fixture->fake);
    fake_http_stop(fixture->other);
    free(fixture);
    return 0;
}

void http_fixture_answer(struct http_fixture *fixture, struct fake_http_rule rule)
{
    if (!rule.path)
        rule.path = "";
    fake_http_set(fixture->fake, &rule, 1);
}

int http_fixture_add(void *arg, const void *bytes, size_t len, struct err *err)
{
    return buf_add(arg, bytes, len, "body", err);
}

int http_fixture_get(struct http_fixture *fixture, struct buf *body, struct err *err)
{
    char url[128];
    snprintf(url, sizeof url, "%s/x", fixture->base);
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET,
                                            .url = url,
                                            .sink = http_fixture_add,
                                            .sink_arg = body,
                                            .sink_max = 1 << 20};
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_http_perform(fixture->http, &request, &response, err);
    return rc < 0 ? rc : (int)response.status;
}

int http_fixture_put(struct http_fixture *fixture, const char *body, size_t len, struct err *err)
{
    char url[128];
    snprintf(url, sizeof url, "%s/x", fixture->base);
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_PUT, .url = url, .body = body, .body_fd = -1, .body_size = len};
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_http_perform(fixture->http, &request, &response, err);
    return rc < 0 ? rc : (int)response.status;
}

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct http_fixture_progress *progress = arg;
    assert_true(done <= total);
    assert_true(done >= progress->last);
    progress->last = done;
    progress->total = total;
    progress->calls++;
    return done >= progress->cancel_at;
}

int http_fixture_put_file(struct http_fixture *fixture, uint64_t size, uint64_t claimed,
                          struct http_fixture_progress *progress, struct err *err)
{
    cleanup_fd int fd = memfd_create("body", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    struct registry_http_request request = {.method = REGISTRY_HTTP_PUT,
                                            .url = fixture->base,
                                            .body_fd = fd,
                                            .body_size = claimed,
                                            .progress = progress ? on_progress : NULL,
                                            .progress_arg = progress};
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_http_perform(fixture->http, &request, &response, err);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0); /* the position is not used */
    return rc < 0 ? rc : (int)response.status;
}
