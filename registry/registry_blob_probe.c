/* The proof that a registry gives the bytes of a blob, and not only says that it has them (OCI
 * distribution-spec 1.1, "Pulling blobs"; RFC 9110, 14.2). Some answer a HEAD, and send the headers
 * of a GET, from what they remember of a file that is gone; so the last byte itself has to come. */

#include "reference.h"
#include "registry_call.h"
#include "registry_error.h"
#include "registry_head.h"
#include "registry_internal.h"

#include <errno.h>

enum {
    BREAKS_MAX = 3, /* GETs without a byte, of what a HEAD says is there, until it counts as lost */
};

struct probe {
    struct registry *registry;
    struct registry_call call;
    struct registry_retry retry;
    bool came;      /* a byte of the body */
    uint64_t total; /* size of the blob, as told by the answer with that byte */
};

/* Before the first byte of a body. */
static int on_head(void *arg, const struct registry_http_response *head, struct err *err)
{
    struct probe *probe = arg;
    probe->total = head->status == 206 ? head->range_total : head->length;
    return registry_error_if_web_page(head, err);
}

/* One byte is enough; where the range was not obeyed there are many more. */
static int on_bytes(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)bytes, (void)len, (void)err;
    ((struct probe *)arg)->came = true;
    return -ECANCELED;
}

/* "bytes * /N" of a 416 (RFC 9110, 15.5.17): the blob ends before the byte that was asked for. */
static bool is_shorter(const struct registry_http_response *response, uint64_t *ret_size)
{
    unsigned long long size;
    if (response->status != 416 || !response->content_range ||
        sscanf(response->content_range, "bytes */%18llu", &size) != 1)
        return false;
    *ret_size = size;
    return true;
}

/* What a GET came to. */
enum answer {
    GIVEN,  /* the byte came */
    ABSENT, /* there is no such blob */
    SIZED,  /* it has another size */
    BROKEN, /* no byte came */
    LATER,  /* a failure that passes */
};

static int judge(const struct registry_http_response *response, uint64_t *ret_size, struct err *err)
{
    if (is_shorter(response, ret_size))
        return SIZED;
    if (registry_retry_is_passing(response))
        return LATER;
    if (response->status == 404)
        return ABSENT;
    if (response->status != 200 && response->status != 206)
        return registry_error_refusal(response, err);
    int rc = registry_error_if_web_page(response, err);
    return rc < 0 ? rc : BROKEN;
}

/* One GET. An enum answer, or a failure that stays; *failure is of one that may pass. */
static int ask(struct probe *probe, struct registry_http_response *response, uint64_t *ret_size,
               struct err *failure, struct err *err)
{
    probe->came = false;
    int rc = registry_call_as_pusher(probe->registry, &probe->call, response, failure);
    if (probe->came) {
        *ret_size = probe->total;
        return GIVEN;
    }
    if (rc < 0)
        return registry_retry_is_lost(failure) ? BROKEN : err_pass(err, rc, failure);
    return judge(response, ret_size, err);
}

/* After a GET without a byte: 1 to ask again, 0 when the blob is taken for lost. */
static int after_break(struct probe *probe, const struct digest *digest, int breaks,
                       struct err *err)
{
    uint64_t size;
    const struct registry_http_request *request = &probe->call.request;
    int rc = registry_blob_look(probe->registry, probe->call.repository, digest, NULL,
                                request->progress, request->progress_arg, &size, err);
    if (rc <= 0) /* it does not answer at all, or says itself that it has no such blob */
        return rc;
    return breaks < BREAKS_MAX;
}

/* Waits; 1 to ask again, 0 when there was enough of that. */
static int wait_turn(struct probe *probe, const struct registry_http_response *response,
                     struct err *err)
{
    const struct registry_waiter waiter = {.progress = probe->call.request.progress,
                                           .arg = probe->call.request.progress_arg};
    return registry_call_wait(probe->registry, &probe->retry, response, &waiter, err);
}

static int probe_all(struct probe *probe, const struct digest *digest, uint64_t *ret_size,
                     struct err *err)
{
    for (int breaks = 0;;) {
        cleanup_http_response struct registry_http_response response = {0};
        struct err failure = ERR_INIT;
        int answer = ask(probe, &response, ret_size, &failure, err);
        if (answer < 0 || answer == ABSENT)
            return answer < 0 ? answer : 0;
        if (answer == GIVEN || answer == SIZED)
            return 1;
        int again = 1;
        if (answer == BROKEN)
            again = after_break(probe, digest, ++breaks, err);
        if (again <= 0)
            return again;
        again = wait_turn(probe, answer == LATER ? &response : NULL, err);
        if (again < 0)
            return again;
        if (again == 0)
            return answer == LATER ? registry_error_refusal(&response, err) : 0;
    }
}

int registry_blob_probe(struct remote *remote, const char *repository, const struct digest *digest,
                        uint64_t size, remote_progress progress, void *arg, uint64_t *ret_size,
                        struct err *err)
{
    struct probe probe = {.registry = registry_of(remote)};
    cleanup_free char *url = NULL;
    int rc = reference_check_repository(repository, err);
    if (rc == 0)
        rc = registry_make_url(probe.registry, repository, "blobs", digest_format(digest).s, &url,
                               err);
    if (rc < 0)
        return rc;
    probe.call = (struct registry_call){.request = {.method = REGISTRY_HTTP_GET,
                                                    .url = url,
                                                    .sink = on_bytes,
                                                    .head = on_head,
                                                    .sink_arg = &probe,
                                                    .sink_max = UINT64_MAX,
                                                    .range_offset = size - 1,
                                                    .range_len = 1,
                                                    .progress = progress,
                                                    .progress_arg = arg},
                                        .repeat = REGISTRY_REPEAT_ASKED,
                                        .repository = repository};
    rc = probe_all(&probe, digest, ret_size, err);
    return rc < 0 ? err_wrap(err, rc, "repository %s", repository) : rc;
}
