/* registry_retry.h - what may be asked again, when, and how often. Pure but for chance: the caller
 * says what time it is, and waits (registry_repeat.h).
 *
 * Passing failures are a lost or refused connection, 408, 429, 500, 502, 503 and 504. The pause
 * doubles from REGISTRY_RETRY_FIRST_MS to REGISTRY_RETRY_LAST_MS, each time a random part of it
 * (half to whole), so that many do not come back at once. A Retry-After, in seconds or as an HTTP
 * date (RFC 9110, 10.2.3), is obeyed with a jitter on top, for all requests to the origin, as is a
 * 429 without one; one longer than REGISTRY_RETRY_AFTER_MAX_S is a failure that names the time. One
 * that cannot be read is as none.
 */
#pragma once

#include "registry_http.h"

enum {
    REGISTRY_RETRY_MAX = 6, /* attempts without progress */
    REGISTRY_RETRY_FIRST_MS = 500,
    REGISTRY_RETRY_LAST_MS = 20000,
    REGISTRY_RETRY_AFTER_MAX_S = 600,
};

/* Attempts at one thing. Zeroed before the first. */
struct registry_retry {
    int attempts; /* failed ones since the last progress */
};

/* Whether an answer means that the same request may succeed later. */
bool registry_retry_is_passing(const struct registry_http_response *response);
/* Whether an answer says that nothing was done and when to come back: 429, or 503 with
 * Retry-After. */
bool registry_retry_is_put_off(const struct registry_http_response *response);
/* Whether a failure without an answer may pass: the connection (registry_error_transfer()), never
 * a certificate that is not trusted or a caller's own failure. */
bool registry_retry_is_lost(const struct err *failure);

/* Progress was made: the count begins anew. */
void registry_retry_progress(struct registry_retry *retry);

/* Counts a failed attempt and tells how long to wait before the next one: 1 and *ret_ms, with
 * *ret_all when every request to this origin should wait; 0 when there were enough attempts. A
 * Retry-After that is too long fails (ERR_REFUSED). `response` is NULL when there was no answer;
 * `now_s` is the wall clock, for HTTP dates. */
int registry_retry_next(struct registry_retry *retry, const struct registry_http_response *response,
                        int64_t now_s, int64_t *ret_ms, bool *ret_all, struct err *err);

/* Seconds of a Retry-After value: 0 and *ret_s, or ERR_DAMAGED when it is neither form. A date in
 * the past is 0. */
int registry_retry_after(const char *value, int64_t now_s, int64_t *ret_s, struct err *err);
