#include "registry_range.h"

#include "registry_call.h"
#include "registry_error.h"
#include "registry_retry.h"
#include "registry_url.h"

#include <inttypes.h>
#include <string.h>

int registry_source_open(struct registry *registry, const char *repository,
                         const struct digest *digest, uint64_t size, struct registry_source *ret,
                         struct err *err)
{
    struct registry_source source = {
        .registry = registry, .repository = repository, .digest = digest, .size = size};
    int rc =
        registry_make_url(registry, repository, "blobs", digest_format(digest).s, &source.url, err);
    if (rc < 0)
        return rc;
    *ret = source;
    pthread_mutex_init(&ret->lock, NULL);
    return 0;
}

void registry_source_close(struct registry_source *source)
{
    if (!source->url)
        return;
    pthread_mutex_destroy(&source->lock);
    free(source->url);
    free(source->elsewhere);
    source->url = NULL;
}

bool registry_source_is_whole(struct registry_source *source)
{
    pthread_mutex_lock(&source->lock);
    bool whole = source->whole;
    pthread_mutex_unlock(&source->lock);
    return whole;
}

static void set_whole(struct registry_source *source)
{
    pthread_mutex_lock(&source->lock);
    source->whole = true;
    pthread_mutex_unlock(&source->lock);
}

/* The address that parts come from now, owned by the caller; *ret_elsewhere says whether a redirect
 * led there. NULL without memory. */
static char *address_of(struct registry_source *source, bool *ret_elsewhere)
{
    pthread_mutex_lock(&source->lock);
    *ret_elsewhere = source->elsewhere != NULL;
    char *copy = strdup(source->elsewhere ? source->elsewhere : source->url);
    pthread_mutex_unlock(&source->lock);
    return copy;
}

/* Remembers where a redirect led to; NULL: nowhere. Not remembering costs a request, no more. */
static void set_elsewhere(struct registry_source *source, const char *url)
{
    char *copy = url ? strdup(url) : NULL;
    pthread_mutex_lock(&source->lock);
    free(source->elsewhere);
    source->elsewhere = copy;
    pthread_mutex_unlock(&source->lock);
}

/* One call of registry_range_fetch(). */
struct fetch {
    struct registry_source *source;
    const struct registry_range *range;
    uint64_t wanted; /* bytes; UINT64_MAX: to the end */
    uint64_t done;   /* that the sink has had */
    uint64_t total;  /* size of the blob; UINT64_MAX while no answer has told it */
    bool no_range;   /* a range was of no use */
    bool whole;      /* of the current attempt: asks without a range */
    bool elsewhere;  /* of the current attempt: asks where a redirect led to */
    uint64_t skip;   /* bytes of the current answer to be read past */
    bool enough;     /* the transfer was ended as there is no more to take */
    bool final;      /* a failure that another attempt does not change */
    int scanty;      /* answers in a row that gave less than REGISTRY_RANGE_PROGRESS bytes */
    struct registry_retry retry;
};

/* The size that an answer tells is the one that is known, or now known. */
static int check_total(struct fetch *fetch, uint64_t total, struct err *err)
{
    if (total == UINT64_MAX || total == fetch->total)
        return 0;
    if (fetch->total == UINT64_MAX) {
        fetch->total = total;
        return 0;
    }
    fetch->final = true;
    return err_fail(err, ERR_DIGEST,
                    "the registry has it with %" PRIu64 " instead of %" PRIu64 " bytes", total,
                    fetch->total);
}

/* A body is about to come: where does it begin? */
static int on_head(void *arg, const struct registry_http_response *head, struct err *err)
{
    struct fetch *fetch = arg;
    struct registry_source *source = fetch->source;
    const struct registry_range *range = fetch->range;
    if (!registry_url_same_origin(head->url, source->url) && !fetch->elsewhere)
        set_elsewhere(source, head->url);
    fetch->skip = 0;
    if (head->status == 206)
        return registry_error_of_encoded(head, check_total(fetch, head->range_total, err), err);
    fetch->skip = range->offset + fetch->done;
    if (!fetch->whole)
        set_whole(source);
    if (range->or_rest)
        fetch->wanted = UINT64_MAX;
    return registry_error_of_encoded(head, check_total(fetch, head->length, err), err);
}

static int on_bytes(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct fetch *fetch = arg;
    const char *at = bytes;
    size_t skipped = fetch->skip < len ? (size_t)fetch->skip : len;
    fetch->skip -= skipped;
    at += skipped;
    len -= skipped;
    uint64_t left = fetch->wanted - fetch->done;
    size_t taken = left < len ? (size_t)left : len;
    if (taken > 0) {
        int rc = fetch->range->sink(fetch->range->sink_arg, at, taken, err);
        if (rc < 0) {
            fetch->final = true;
            return rc;
        }
        fetch->done += taken;
    }
    if (taken == len)
        return 0;
    fetch->enough = true;
    return -ECANCELED;
}

/* Bytes to ask for. At the end of what is known to be there something is still asked for, so that
 * the registry decides. */
static uint64_t length_of(const struct fetch *fetch)
{
    uint64_t offset = fetch->range->offset + fetch->done;
    if (fetch->wanted != UINT64_MAX)
        return fetch->wanted - fetch->done;
    return fetch->total == UINT64_MAX || fetch->total <= offset ? (uint64_t)OCI_BLOB_BYTES_MAX
                                                                : fetch->total - offset;
}

static int perform(struct fetch *fetch, const char *url, struct registry_http_response *ret,
                   struct err *err)
{
    const struct registry_range *range = fetch->range;
    struct registry *registry = fetch->source->registry;
    struct registry_call call = {.request = {.method = REGISTRY_HTTP_GET,
                                             .url = url,
                                             .sink = on_bytes,
                                             .sink_arg = fetch,
                                             .sink_max = UINT64_MAX,
                                             .head = on_head,
                                             .progress = range->progress,
                                             .progress_arg = range->progress_arg},
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .retry = &fetch->retry,
                                 .repository = fetch->source->repository,
                                 .actions = "pull"};
    if (!fetch->whole) {
        call.request.range_offset = range->offset + fetch->done;
        call.request.range_len = length_of(fetch);
    }
    if (fetch->elsewhere) /* tried once: when it fails the registry is asked again */
        call.repeat = REGISTRY_REPEAT_ASKED;
    return registry_call_perform(registry, &call, ret, err);
}

/* The N of "bytes * /N", of a 416 (RFC 9110, 15.5.17); UINT64_MAX when it is not given. */
static uint64_t size_of_unsatisfied(const struct registry_http_response *response)
{
    static const char prefix[] = "bytes */";
    const char *text = response->content_range;
    if (!text || strncmp(text, prefix, sizeof prefix - 1) != 0)
        return UINT64_MAX;
    const char *digits = text + sizeof prefix - 1;
    size_t len = strspn(digits, "0123456789");
    return len > 0 && len < 19 && digits[len] == '\0' ? strtoull(digits, NULL, 10) : UINT64_MAX;
}

static int too_short(struct fetch *fetch, struct err *err)
{
    fetch->final = true;
    return err_fail(err, ERR_DIGEST, "it has %" PRIu64 " bytes only",
                    fetch->range->offset + fetch->done);
}

/* There is nothing at this offset: the end, or a server that is wrong about it. */
static int on_unsatisfied(struct fetch *fetch, const struct registry_http_response *response,
                          struct err *err)
{
    uint64_t offset = fetch->range->offset + fetch->done;
    uint64_t total = size_of_unsatisfied(response);
    if (total != UINT64_MAX && total <= offset) {
        /* What a body was to be long is not what the blob is, so only a known size counts. */
        fetch->total = fetch->source->size;
        int rc = check_total(fetch, total, err);
        if (rc < 0 || (fetch->wanted == UINT64_MAX && total == offset))
            return rc < 0 ? rc : 1;
        return too_short(fetch, err);
    }
    if (fetch->whole) {
        fetch->final = true;
        return registry_error_refusal(response, err);
    }
    fetch->no_range = true;
    return 0;
}

/* The answer to an attempt: 1 when all is done, 0 when there is more to ask for. */
static int on_answer(struct fetch *fetch, uint64_t before,
                     const struct registry_http_response *response, struct err *err)
{
    if (response->status == 416)
        return on_unsatisfied(fetch, response, err);
    if (response->status != 200 && (response->status != 206 || fetch->whole)) {
        fetch->final = !fetch->elsewhere;
        return registry_error_refusal(response, err);
    }
    if (fetch->done == fetch->wanted)
        return 1;
    /* A part of what was asked for is fine as long as it is not nothing. */
    if (response->status == 206 && fetch->done == before)
        return err_fail(err, ERR_DAMAGED, "the registry answered 206 without a byte");
    uint64_t total =
        response->status == 206 ? response->range_total : fetch->range->offset + fetch->done;
    bool progress = fetch->done - before >= REGISTRY_RANGE_PROGRESS;
    if (progress)
        registry_retry_progress(&fetch->retry);
    fetch->scanty = progress ? 0 : fetch->scanty + 1;
    if (fetch->scanty > REGISTRY_RETRY_MAX && response->status == 206) {
        fetch->final = true;
        return err_fail(err, ERR_DAMAGED, "the registry gives its bytes one by one");
    }
    if (fetch->wanted != UINT64_MAX)
        return response->status == 200 ? too_short(fetch, err) : 0;
    return total == UINT64_MAX || fetch->range->offset + fetch->done >= total;
}

/* After an attempt that failed: 0 to make another one, or the failure. */
static int prepare_next(struct fetch *fetch, uint64_t before, int rc, struct err *failure,
                        struct err *err)
{
    uint64_t came = fetch->done - before;
    if (fetch->final)
        return err_pass(err, rc, failure);
    if (fetch->elsewhere && came == 0) { /* its time may be over: the registry knows */
        set_elsewhere(fetch->source, NULL);
        return 0;
    }
    /* What failed before its first byte was tried often enough below. */
    if (came == 0 || !registry_retry_is_lost(failure))
        return err_pass(err, rc, failure);
    if (came >= REGISTRY_RANGE_PROGRESS)
        registry_retry_progress(&fetch->retry);
    const struct registry_waiter waiter = {.progress = fetch->range->progress,
                                           .arg = fetch->range->progress_arg};
    int again = registry_call_wait(fetch->source->registry, &fetch->retry, NULL, &waiter, err);
    return again > 0 ? 0 : (again < 0 ? again : err_pass(err, rc, failure));
}

/* One attempt: 1 when all is done, 0 when there is more to ask for. */
static int attempt(struct fetch *fetch, struct err *err)
{
    uint64_t before = fetch->done;
    struct err failure = ERR_INIT;
    cleanup_http_response struct registry_http_response response = {0};
    cleanup_free char *url = address_of(fetch->source, &fetch->elsewhere);
    if (!url)
        return err_errno(err, ENOMEM, "cannot fetch a blob");
    fetch->enough = false;
    fetch->whole = fetch->no_range || registry_source_is_whole(fetch->source) ||
                   (fetch->range->offset + fetch->done == 0 && fetch->wanted == UINT64_MAX);
    int rc = perform(fetch, url, &response, &failure);
    if (fetch->enough)
        return fetch->done == fetch->wanted;
    if (rc == 0)
        rc = on_answer(fetch, before, &response, &failure);
    return rc < 0 ? prepare_next(fetch, before, rc, &failure, err) : rc;
}

int registry_range_fetch(struct registry_source *source, const struct registry_range *range,
                         uint64_t *ret_done, struct err *err)
{
    struct fetch fetch = {
        .source = source, .range = range, .wanted = range->size, .total = source->size};
    int rc = 0;
    while (rc == 0)
        rc = attempt(&fetch, err);
    if (rc < 0)
        return rc;
    *ret_done = fetch.done;
    return 0;
}
