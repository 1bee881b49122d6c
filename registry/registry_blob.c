/* Blobs over the OCI distribution API: HEAD and GET (distribution-spec 1.1, "Pull"). A download is
 * in registry_pieces.h, an upload in registry_upload.h. */

#include "reference.h"
#include "registry_call.h"
#include "registry_error.h"
#include "registry_head.h"
#include "registry_internal.h"
#include "registry_pieces.h"

#include <string.h>

/* The wrappers of remote.h name the blob and the remote; what they leave out is added here. */
static int wrap(int rc, const char *repository, struct err *err)
{
    return rc < 0 ? err_wrap(err, rc, "repository %s", repository) : rc;
}

static int blob_url(const struct registry *registry, const char *repository,
                    const struct digest *digest, char **ret, struct err *err)
{
    struct digest_text text = digest_format(digest);
    return registry_make_url(registry, repository, "blobs", text.s, ret, err);
}

/* Whether an answer to a HEAD leaves open what is there: some registries refuse HEAD, and one that
 * tells no size may be something in between that says 200 to whatever it is asked. */
static bool is_no_answer(const struct registry_http_response *response)
{
    return response->status == 405 || response->status == 501 ||
           (response->status == 200 && response->length == UINT64_MAX);
}

/* A GET without a sink is broken off behind the beginning of its body; where its range is obeyed,
 * the size of the whole is part of that. An empty blob has no first byte: then without a range. */
static int stat_by_get(struct registry *registry, const struct registry_call *head,
                       struct registry_http_response *response, struct err *err)
{
    struct registry_call call = *head;
    call.request.method = REGISTRY_HTTP_GET;
    call.request.range_len = 1;
    registry_http_response_free(response);
    int rc = registry_call_as_pusher(registry, &call, response, err);
    if (rc < 0 || response->status != 416)
        return rc;
    call.request.range_len = 0;
    registry_http_response_free(response);
    return registry_call_as_pusher(registry, &call, response, err);
}

static uint64_t total_of(const struct registry_http_response *response)
{
    struct registry_head_range range = {.total = UINT64_MAX};
    if (response->content_range)
        (void)registry_head_range(response->content_range, &range, NULL);
    return range.total;
}

int registry_blob_look(struct registry *registry, const char *repository,
                       const struct digest *digest, struct registry_retry *retry,
                       remote_progress progress, void *arg, uint64_t *ret_size, struct err *err)
{
    cleanup_free char *url = NULL;
    int rc = blob_url(registry, repository, digest, &url, err);
    if (rc < 0)
        return rc;
    struct registry_call call = {.request = {.method = REGISTRY_HTTP_HEAD,
                                             .url = url,
                                             .progress = progress,
                                             .progress_arg = arg},
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .retry = retry,
                                 .repository = repository};
    cleanup_http_response struct registry_http_response response = {0};
    rc = registry_call_as_pusher(registry, &call, &response, err);
    if (rc == 0 && is_no_answer(&response))
        rc = stat_by_get(registry, &call, &response, err);
    if (rc < 0)
        return rc;
    if (response.status == 404)
        return 0;
    if (response.status != 200 && response.status != 206)
        return registry_error_refusal(&response, err);
    rc = registry_error_if_web_page(&response, err);
    if (rc < 0)
        return rc;
    rc = registry_error_if_other_digest(&response, digest, err);
    if (rc < 0)
        return rc;
    *ret_size = response.status == 206 ? total_of(&response) : response.length;
    return 1;
}

int registry_blob_stat(struct remote *remote, const char *repository, const struct digest *digest,
                       remote_progress progress, void *arg, uint64_t *ret_size, struct err *err)
{
    int rc = reference_check_repository(repository, err);
    if (rc < 0)
        return rc;
    rc = registry_blob_look(registry_of(remote), repository, digest, NULL, progress, arg, ret_size,
                            err);
    return wrap(rc, repository, err);
}

int registry_blob_get(struct remote *remote, const char *repository, const struct digest *digest,
                      uint64_t size, remote_sink sink, void *sink_arg, remote_progress progress,
                      void *progress_arg, struct err *err)
{
    cleanup_registry_source struct registry_source source = {.url = NULL};
    int rc = reference_check_repository(repository, err);
    if (rc == 0)
        rc = registry_source_open(registry_of(remote), repository, digest, size, &source, err);
    if (rc == 0)
        rc = registry_pieces_fetch(&source, sink, sink_arg, progress, progress_arg, err);
    return wrap(rc, repository, err);
}

/* Where the bytes of a part go. */
struct part {
    char *into;
    size_t len;
    size_t done;
};

static int take_part(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct part *part = arg;
    if (len > part->len - part->done)
        return err_fail(err, ERR_DAMAGED, "more bytes come than were asked for");
    memcpy(part->into + part->done, bytes, len);
    part->done += len;
    return 0;
}

int registry_blob_read(struct remote *remote, const char *repository, const struct digest *digest,
                       uint64_t offset, void *into, size_t len, remote_progress progress,
                       void *progress_arg, struct err *err)
{
    cleanup_registry_source struct registry_source source = {.url = NULL};
    struct part part = {.into = into, .len = len};
    const struct registry_range range = {.offset = offset,
                                         .size = len,
                                         .sink = take_part,
                                         .sink_arg = &part,
                                         .progress = progress,
                                         .progress_arg = progress_arg};
    uint64_t done;
    int rc = reference_check_repository(repository, err);
    if (rc == 0 && len == 0)
        return 0;
    if (rc == 0)
        rc =
            registry_source_open(registry_of(remote), repository, digest, UINT64_MAX, &source, err);
    if (rc == 0)
        rc = registry_range_fetch(&source, &range, &done, err);
    return wrap(rc, repository, err);
}
