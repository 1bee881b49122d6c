#include "registry_retry.h"

#include "clock.h"
#include "registry_url.h"

#include <curl/curl.h>
#include <string.h>
#include <sys/random.h>

enum {
    AFTER_JITTER_MS = 1000,
    AFTER_JITTER_PERCENT = 10,
};

bool registry_retry_is_passing(const struct registry_http_response *response)
{
    switch (response->status) {
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        return true;
    default:
        return false;
    }
}

bool registry_retry_is_put_off(const struct registry_http_response *response)
{
    return response->status == 429 || (response->status == 503 && response->retry_after);
}

bool registry_retry_is_lost(const struct err *failure)
{
    /* A failure of the connection that stays has another number (registry_error.h). */
    return failure->code == ERR_UNREACHABLE && failure->num == EHOSTUNREACH;
}

void registry_retry_progress(struct registry_retry *retry)
{
    retry->attempts = 0;
}

/* 0 to `most`. Chance is a courtesy here: without it the longest is taken. */
static int64_t random_up_to(int64_t most)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return most;
    return (int64_t)(number % ((uint64_t)most + 1));
}

static int64_t back_off(int attempts)
{
    int64_t ms = REGISTRY_RETRY_FIRST_MS;
    for (int i = 1; i < attempts && ms < REGISTRY_RETRY_LAST_MS; i++)
        ms *= 2;
    if (ms > REGISTRY_RETRY_LAST_MS)
        ms = REGISTRY_RETRY_LAST_MS;
    return ms / 2 + random_up_to(ms / 2);
}

int registry_retry_after(const char *value, int64_t now_s, int64_t *ret_s, struct err *err)
{
    size_t digits = strspn(value, "0123456789");
    if (digits > 0 && value[digits] == '\0') {
        int64_t seconds = 0;
        for (size_t i = 0; i < digits; i++)
            if (seconds < INT64_C(1000000000000)) /* more is as much */
                seconds = seconds * 10 + (value[i] - '0');
        *ret_s = seconds;
        return 0;
    }
    /* curl reads the three forms of RFC 9110, 5.6.7, and more; all have the name of a month. */
    time_t date = strchr(value, ' ') || strchr(value, ',') ? curl_getdate(value, NULL) : -1;
    if (date < 0)
        return err_fail(err, ERR_DAMAGED, "Retry-After is neither a number nor a date");
    *ret_s = date > now_s ? date - now_s : 0;
    return 0;
}

static int fail_too_long(const struct registry_http_response *response, int64_t seconds,
                         int64_t now_s, struct err *err)
{
    cleanup_free char *host = registry_url_host(response->url);
    int rc = err_fail(err, ERR_REFUSED,
                      "registry %.300s answered %ld and asks not to come back for %lld s",
                      host ? host : "?", response->status, (long long)seconds);
    struct clock_text when =
        clock_format(seconds < CLOCK_OFFSET_MAX_S ? (now_s + seconds) * CLOCK_NS_PER_S : INT64_MAX);
    err_hint(err, "try again after %s", when.s);
    return rc;
}

int registry_retry_next(struct registry_retry *retry, const struct registry_http_response *response,
                        int64_t now_s, int64_t *ret_ms, bool *ret_all, struct err *err)
{
    int64_t after_s = -1;
    if (response && response->retry_after &&
        registry_retry_after(response->retry_after, now_s, &after_s, NULL) == 0 &&
        after_s > REGISTRY_RETRY_AFTER_MAX_S)
        return fail_too_long(response, after_s, now_s, err);
    retry->attempts++;
    if (retry->attempts >= REGISTRY_RETRY_MAX)
        return 0;
    int64_t ms = back_off(retry->attempts);
    if (after_s >= 0) {
        int64_t told = after_s * 1000 + random_up_to(AFTER_JITTER_MS) +
                       random_up_to(after_s * 1000 * AFTER_JITTER_PERCENT / 100);
        ms = told > ms ? told : ms;
    }
    *ret_ms = ms;
    *ret_all = after_s >= 0 || (response && response->status == 429);
    return 1;
}
