/* http_fixture.h - two scripted servers and a client for them, for the tests of registry_http.
 *
 * http_fixture_setup()/http_fixture_teardown() fit cmocka; *state is a struct http_fixture.
 */
#pragma once

#include "fake_http.h"
#include "registry_http.h"

#define HTTP_FIXTURE_OK "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

struct http_fixture {
    struct fake_http *fake;
    struct fake_http *other; /* another origin */
    struct registry_http *http;
    char base[64];
    char other_base[64];
};

int http_fixture_setup(void **state);
int http_fixture_teardown(void **state);

/* Makes `fake` answer every request by this rule. */
void http_fixture_answer(struct http_fixture *fixture, struct fake_http_rule rule);

/* A GET from `fake` into `body`, at most 1 MiB; the status or a failure. */
int http_fixture_get(struct http_fixture *fixture, struct buf *body, struct err *err);
/* A PUT of bytes in memory; the status or a failure. */
int http_fixture_put(struct http_fixture *fixture, const char *body, size_t len, struct err *err);

/* What a transfer reported; asks for its end at `cancel_at` bytes. */
struct http_fixture_progress {
    uint64_t last;
    uint64_t total;
    int calls;
    uint64_t cancel_at;
};
/* A PUT of a file of `size` zero bytes that is said to have `claimed`; `progress` may be NULL. */
int http_fixture_put_file(struct http_fixture *fixture, uint64_t size, uint64_t claimed,
                          struct http_fixture_progress *progress, struct err *err);

/* A remote_sink that adds to a struct buf. */
int http_fixture_add(void *arg, const void *bytes, size_t len, struct err *err);
