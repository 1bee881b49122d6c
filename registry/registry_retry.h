/* registry_retry.h - what may be asked again, when, and how often. Pure but for chance: the caller
 * says what time it is, and waits (registry_repeat.h).
 *
 * A piece of work - a question, an upload of a blob, a part of a download - has one struct
 * registry_retry, however many requests it takes and whoever of them repeats: none multiplies the
 * patience of another one. Since its last progress there may be
 *   - REGISTRY_RETRY_MAX failed attempts, those not counted after which the registry itself said
 *     when to come back, nor those with larger bodies than are tried now (registry_sender.h);
 *   - REGISTRY_RETRY_TIME_MAX_S from the first failure to the beginning of another attempt, without
 *     the time in which a body was on its way that broke off. So work in which nothing moves ends
 *     after that time and two attempts, each of which standing still ends (registry_http.h).
 * Tokens that it needs on the way are another piece of work.
 *
 * Passing failures are a lost or refused connection, 408, 421 and 425 (RFC 9110, 15.5.20, and
 * RFC 8470: nothing was done, ask again), 429, and each 5xx but those whose registered meaning is
 * that the same request fails again (501, 505 to 508, 510, 511). An unknown one counts as 500, and
 * one that is no status at all (600 and more) as an unknown one (RFC 9110, 15): proxies in front of
 * registries have their own for what 502 and 504 mean (520 to 524). The pause doubles from
 * REGISTRY_RETRY_FIRST_MS to REGISTRY_RETRY_LAST_MS, each time a random part of it (half to whole),
 * so that many do not come back at once. A Retry-After, in seconds or as an HTTP date (RFC
 * 9110, 10.2.3), is obeyed with a jitter on top, for all requests to the origin, as is a 429
 * without one; one longer than REGISTRY_RETRY_AFTER_MAX_S, or than what is left of the time above,
 * ends the work, and the answer's sentence names it (registry_error.h). One that cannot be read is
 * as none.
 */
#pragma once

#include "registry_http.h"

enum {
    REGISTRY_RETRY_MAX = 6, /* attempts without progress */
    REGISTRY_RETRY_FIRST_MS = 500,
    REGISTRY_RETRY_LAST_MS = 20000,
    REGISTRY_RETRY_AFTER_MAX_S = 600,
    REGISTRY_RETRY_TIME_MAX_S = 900, /* without progress */
};

/* Failed attempts at one piece of work since its last progress. Zeroed before the first. */
struct registry_retry {
    int attempts; /* whose next one was ours to choose */
    int put_off;  /* not counted: the registry said when to come back, or another way is tried */
    int64_t since_ms; /* when the first of both failed, by the monotonic clock */
};

/* Whether an answer means that the same request may succeed later. */
bool registry_retry_is_passing(const struct registry_http_response *response);
/* Whether an answer leaves open what came of the request, or whether it is refused for good: one
 * that may succeed later, and each other failure of a server but 501, which says that there is no
 * such thing. Nobody may forget, for such an answer, what is in the registry. */
bool registry_retry_is_open(const struct registry_http_response *response);
/* Whether an answer is of something in between that has lost the registry, or its patience, on the
 * way of a body: 408, 502, 504, and 520 to 524, by which widespread proxies mean the same. */
bool registry_retry_is_cut_off(const struct registry_http_response *response);
/* Whether an answer says that nothing was done and when to come back: 429, or 503 with
 * Retry-After. */
bool registry_retry_is_put_off(const struct registry_http_response *response);
/* Whether a failure without an answer may pass: the connection (registry_error_transfer()), never
 * a certificate that is not trusted or a caller's own failure. */
bool registry_retry_is_lost(const struct err *failure);

/* For so long a body moved, which broke off or was refused for now: nothing of it counts as
 * progress, nor this time as time without. */
void registry_retry_moved(struct registry_retry *retry, int64_t ms);

/* What is tried next was not tried before, such as a smaller body: the attempts until now no longer
 * count, while time and pauses go on. */
void registry_retry_differently(struct registry_retry *retry);

/* Progress was made: count and time begin anew. */
void registry_retry_progress(struct registry_retry *retry);

/* Counts a failed attempt and tells how long to wait before the next one: 1 and *ret_ms, with
 * *ret_all when every request to this origin should wait; 0 when there is no further attempt.
 * `response` is NULL when there was no answer; `now_s` is the wall clock, for HTTP dates, and
 * `mono_ms` the monotonic one. */
int registry_retry_next(struct registry_retry *retry, const struct registry_http_response *response,
                        int64_t now_s, int64_t mono_ms, int64_t *ret_ms, bool *ret_all);

/* Seconds of a Retry-After value: 0 and *ret_s, or ERR_DAMAGED when it is neither form. A date in
 * the past is 0. */
int registry_retry_after(const char *value, int64_t now_s, int64_t *ret_s, struct err *err);
