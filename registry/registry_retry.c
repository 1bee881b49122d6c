#include "registry_retry.h"

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
    case 421:
    case 425:
    case 429:
        return true;
    case 501: /* these say that the same request fails again */
    case 505:
    case 506:
    case 507:
    case 508:
    case 510:
    case 511:
        return false;
    default:
        return response->status >= 500;
    }
}

bool registry_retry_is_open(const struct registry_http_response *response)
{
    return registry_retry_is_passing(response) ||
           (response->status >= 500 && response->status != 501);
}

bool registry_retry_is_cut_off(const struct registry_http_response *response)
{
    const long status = response->status;
    return status == 408 || status == 502 || status == 504 || (status >= 520 && status <= 524);
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

void registry_retry_moved(struct registry_retry *retry, int64_t ms)
{
    retry->since_ms += ms; /* before the first failure it has no meaning yet */
}

void registry_retry_differently(struct registry_retry *retry)
{
    retry->put_off += retry->attempts;
    retry->attempts = 0;
}

void registry_retry_progress(struct registry_retry *retry)
{
    *retry = (struct registry_retry){.attempts = 0};
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

/* How long until the next attempt; `after_s` is what the registry asks for, -1: nothing. */
static int64_t pause_of(const struct registry_retry *retry, int64_t after_s)
{
    int64_t ms = back_off(retry->attempts + retry->put_off);
    if (after_s < 0)
        return ms;
    int64_t told = after_s * 1000 + random_up_to(AFTER_JITTER_MS) +
                   random_up_to(after_s * 1000 * AFTER_JITTER_PERCENT / 100);
    return told > ms ? told : ms;
}

int registry_retry_next(struct registry_retry *retry, const struct registry_http_response *response,
                        int64_t now_s, int64_t mono_ms, int64_t *ret_ms, bool *ret_all)
{
    int64_t after_s = -1;
    if (response && response->retry_after)
        (void)registry_retry_after(response->retry_after, now_s, &after_s, NULL);
    if (retry->attempts + retry->put_off == 0)
        retry->since_ms = mono_ms;
    if (after_s >= 0)
        retry->put_off++;
    else
        retry->attempts++;
    if (retry->attempts >= REGISTRY_RETRY_MAX || after_s > REGISTRY_RETRY_AFTER_MAX_S)
        return 0;
    int64_t ms = pause_of(retry, after_s);
    if (mono_ms - retry->since_ms + ms > REGISTRY_RETRY_TIME_MAX_S * INT64_C(1000))
        return 0;
    *ret_ms = ms;
    *ret_all = after_s >= 0 || (response && response->status == 429);
    return 1;
}
