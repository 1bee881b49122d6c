/* Manifests over the OCI distribution API (distribution-spec 1.1, "Pulling manifests", "Pushing
 * manifests", "Deleting manifests"). Always GET, never HEAD: some registries answer a HEAD for a
 * manifest wrongly or not at all, and the digest is computed from the bytes anyway. */

#include "json_doc.h"
#include "oci_image.h"
#include "reference.h"
#include "registry_call.h"
#include "registry_error.h"
#include "registry_internal.h"

#include <string.h>

static const char *const manifest_types[] = {OCI_MEDIA_MANIFEST, OCI_MEDIA_INDEX,
                                             DOCKER_MEDIA_MANIFEST, DOCKER_MEDIA_LIST};

const char *const registry_manifest_accept[] = {
    "Accept: " OCI_MEDIA_MANIFEST, "Accept: " OCI_MEDIA_INDEX, "Accept: " DOCKER_MEDIA_MANIFEST,
    "Accept: " DOCKER_MEDIA_LIST, NULL};

/* A reference within a repository is a tag or a digest. */
static int check_reference(const char *reference, struct err *err)
{
    struct digest digest;
    if (reference_tag_is_valid(reference) || digest_parse(reference, &digest, NULL) == 0)
        return 0;
    return err_fail(err, ERR_INVALID,
                    "what names a manifest in a registry must be a tag or a sha256 digest");
}

int registry_manifest_check_names(const char *repository, const char *reference, struct err *err)
{
    int rc = reference_check_repository(repository, err);
    return rc < 0 ? rc : check_reference(reference, err);
}

const char *registry_manifest_type(const char *content_type)
{
    size_t len = strcspn(content_type, "; \t,");
    for (size_t i = 0; i < ARRAY_SIZE(manifest_types); i++)
        if (strlen(manifest_types[i]) == len &&
            strncasecmp(manifest_types[i], content_type, len) == 0)
            return manifest_types[i];
    return NULL;
}

/* Whether a Content-Type says nothing about the kind of the document. */
static bool type_is_generic(const char *content_type)
{
    static const char *const generic[] = {"application/json", "application/octet-stream",
                                          "text/plain"};
    size_t len = strcspn(content_type, "; \t,");
    for (size_t i = 0; i < ARRAY_SIZE(generic); i++)
        if (strlen(generic[i]) == len && strncasecmp(generic[i], content_type, len) == 0)
            return true;
    return false;
}

/* The media type of a fetched document: what the registry says, else what the document shows. */
static int take_type(const struct registry_http_response *response, const struct buf *body,
                     const char **ret, struct err *err)
{
    const char *said = response->content_type;
    if (!said || type_is_generic(said)) {
        cleanup_json json_t *document = NULL;
        return oci_document_load(buf_str(body), body->len, NULL, &document, ret, err);
    }
    const char *type = registry_manifest_type(said);
    if (type) {
        *ret = type;
        return 0;
    }
    int rc = registry_error_if_web_page(response, err);
    if (rc < 0)
        return rc;
    struct registry_error_text clean = registry_error_clean(said, strlen(said));
    return err_fail(err, ERR_UNSUPPORTED, "manifests of type '%s' are not supported", clean.s);
}

static int add_to_buf(void *arg, const void *bytes, size_t len, struct err *err)
{
    return buf_add(arg, bytes, len, "the manifest", err);
}

/* How a request is made: with the right to pull, or as one who pushes. */
typedef int call_perform(struct registry *registry, const struct registry_call *call,
                         struct registry_http_response *ret, struct err *err);

static int fetch(struct registry *registry, call_perform *perform, const char *repository,
                 const char *reference, remote_progress progress, void *progress_arg,
                 struct buf *body, struct registry_http_response *ret, struct err *err)
{
    cleanup_free char *url = NULL;
    int rc = registry_make_url(registry, repository, "manifests", reference, &url, err);
    if (rc < 0)
        return rc;
    struct registry_call call = {.request = {.method = REGISTRY_HTTP_GET,
                                             .url = url,
                                             .headers = registry_manifest_accept,
                                             .sink = add_to_buf,
                                             .sink_arg = body,
                                             .sink_max = REMOTE_MANIFEST_MAX,
                                             .progress = progress,
                                             .progress_arg = progress_arg},
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .repository = repository,
                                 .actions = "pull"};
    cleanup_http_response struct registry_http_response response = {0};
    rc = perform(registry, &call, &response, err);
    if (rc < 0)
        return rc;
    if (response.status != 200)
        return registry_error_refusal(&response, err);
    *ret = response;
    response = (struct registry_http_response){0};
    return 0;
}

/* An encoded document is said to be one before it is said to be no JSON. */
static int check_plain(const struct registry_http_response *response, const struct buf *body,
                       struct err *err)
{
    const char *text = buf_str(body);
    if (!response->content_encoding || text[strspn(text, " \t\r\n")] == '{')
        return 0;
    return err_fail(err, ERR_DAMAGED, "the answer is no JSON, but encoded");
}

static int get(struct remote *remote, call_perform *perform, const char *repository,
               const char *reference, remote_progress progress, void *progress_arg,
               struct remote_manifest *ret, struct err *err)
{
    int rc = registry_manifest_check_names(repository, reference, err);
    if (rc < 0)
        return rc;
    cleanup_buf struct buf body = BUF_INIT(REMOTE_MANIFEST_MAX);
    cleanup_http_response struct registry_http_response response = {0};
    rc = fetch(registry_of(remote), perform, repository, reference, progress, progress_arg, &body,
               &response, err);
    if (rc < 0)
        return rc;
    const char *type;
    rc = take_type(&response, &body, &type, err);
    if (rc == 0)
        rc = check_plain(&response, &body, err);
    if (rc < 0)
        return registry_error_of_encoded(&response, rc, err);
    struct remote_manifest manifest = {.len = body.len};
    rc = digest_bytes(buf_str(&body), body.len, &manifest.digest, err);
    if (rc < 0)
        return rc;
    cleanup_free char *type_copy = strdup(type);
    manifest.bytes = buf_steal(&body);
    if (!type_copy || !manifest.bytes) {
        free(manifest.bytes);
        return err_errno(err, ENOMEM, "cannot keep a manifest");
    }
    manifest.media_type = steal_ptr(type_copy);
    *ret = manifest;
    return 0;
}

int registry_manifest_get(struct remote *remote, const char *repository, const char *reference,
                          remote_progress progress, void *progress_arg, struct remote_manifest *ret,
                          struct err *err)
{
    return get(remote, registry_call_perform, repository, reference, progress, progress_arg, ret,
               err);
}

int registry_manifest_get_as_pusher(struct remote *remote, const char *repository,
                                    const char *reference, remote_progress progress,
                                    void *progress_arg, struct remote_manifest *ret,
                                    struct err *err)
{
    return get(remote, registry_call_as_pusher, repository, reference, progress, progress_arg, ret,
               err);
}

/* A media type goes into a header line, so nothing may end it early. */
static int check_media_type(const char *media_type, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "!#$&^_.+-/";
    size_t len = strnlen(media_type, REGISTRY_HTTP_VALUE_MAX);
    if (len == 0 || len == REGISTRY_HTTP_VALUE_MAX || strspn(media_type, allowed) != len)
        return err_fail(err, ERR_INVALID, "the media type of the manifest is malformed");
    return 0;
}

/* How registries refuse to give a tag to another manifest. */
static bool may_be_taken(const struct registry_http_response *response)
{
    return response->status == 403 || response->status == 409 || response->status == 412 ||
           (response->status == 400 && registry_error_has_code(response, "TAG_INVALID"));
}

/* A tag that cannot be given again may be ours already, by an attempt whose reply was lost. Another
 * manifest under it is a conflict; a tag that is not there was refused for another reason. */
static int compare_tag(struct registry *registry, const char *repository, const char *reference,
                       const struct digest *digest, const struct registry_http_response *response,
                       const struct registry_http_request *body, struct err *err)
{
    cleanup_buf struct buf have = BUF_INIT(REMOTE_MANIFEST_MAX);
    cleanup_http_response struct registry_http_response answer = {0};
    struct digest found;
    if (fetch(registry, registry_call_as_pusher, repository, reference, body->progress,
              body->progress_arg, &have, &answer, NULL) < 0 ||
        digest_bytes(buf_str(&have), have.len, &found, NULL) < 0)
        return registry_error_refusal(response, err);
    if (digest_equal(&found, digest))
        return 0;
    if (response->status == 403)
        return registry_error_refusal(response, err);
    struct err said = ERR_INIT;
    (void)registry_error_refusal(response, &said);
    struct digest_text text = digest_format(&found);
    int rc = err_fail(err, ERR_CONFLICT, "%s is taken by %s: %s", reference, text.s, said.text);
    err_hint(err, "choose another tag, or delete this one if it may go");
    return rc;
}

/* Whether the answer to a PUT says that the manifest is there. */
static int check_stored(const struct registry_http_response *response, const struct digest *digest,
                        struct remote_missing *missing, struct err *err)
{
    if (response->status != 201 && response->status != 200) {
        if (missing)
            registry_error_missing(response, missing);
        return registry_error_refusal(response, err);
    }
    int rc = registry_error_if_web_page(response, err);
    return rc < 0 ? rc : registry_error_if_other_digest(response, digest, err);
}

/* Whether a tag may be given to a manifest: ERR_EXISTS when it names another one. */
static int check_claim(struct registry *registry, const char *tag, const struct digest *digest,
                       const struct registry_call *put, struct err *err)
{
    struct remote_manifest_stat there;
    struct err missing = ERR_INIT;
    int rc = registry_manifest_stat(&registry->remote, put->repository, tag, put->request.progress,
                                    put->request.progress_arg, &there, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0 || digest_equal(&there.digest, digest))
        return rc < 0 ? rc : 0;
    return remote_fail_taken(put->repository, tag, &there.digest, err);
}

/* A PUT that takes its tag from nobody. A registry has no compare and swap, so the tag is looked at
 * before each attempt: between two of them are pauses, in which others may have come. */
static int perform_claim(struct registry *registry, const char *tag, const struct digest *digest,
                         const struct registry_call *put, struct registry_http_response *ret,
                         struct err *err)
{
    struct registry_retry retry = {.attempts = 0};
    const struct registry_waiter waiter = {.progress = put->request.progress,
                                           .arg = put->request.progress_arg};
    for (;;) {
        cleanup_http_response struct registry_http_response response = {0};
        struct err failure = ERR_INIT;
        int rc = check_claim(registry, tag, digest, put, err);
        if (rc < 0)
            return rc;
        rc = registry_call_perform(registry, put, &response, &failure);
        if (rc < 0 && !registry_retry_is_lost(&failure))
            return err_pass(err, rc, &failure);
        bool again = rc < 0 || registry_retry_is_passing(&response);
        if (again) {
            int go_on =
                registry_call_wait(registry, &retry, rc < 0 ? NULL : &response, &waiter, err);
            if (go_on < 0)
                return go_on;
            if (go_on == 1)
                continue;
        }
        if (rc < 0) {
            err_wrap(&failure, rc, "%d attempts failed", retry.attempts);
            return err_pass(err, rc, &failure);
        }
        *ret = response;
        response = (struct registry_http_response){0};
        return 0;
    }
}

static int put_manifest(struct registry *registry, const char *repository, const char *reference,
                        const char *media_type, const struct digest *digest, bool claim,
                        const struct registry_http_request *body, struct remote_missing *missing,
                        struct err *err)
{
    int rc = check_media_type(media_type, err);
    if (rc < 0)
        return rc;
    cleanup_free char *url = NULL;
    rc = registry_make_url(registry, repository, "manifests", reference, &url, err);
    if (rc < 0)
        return rc;
    char content_type[REGISTRY_HTTP_VALUE_MAX + sizeof "Content-Type: "];
    snprintf(content_type, sizeof content_type, "Content-Type: %s", media_type);
    const char *headers[] = {content_type, NULL};
    struct registry_call call = {.request = *body,
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .repository = repository,
                                 .actions = "pull,push"};
    call.request.method = REGISTRY_HTTP_PUT;
    call.request.url = url;
    call.request.headers = headers;
    cleanup_http_response struct registry_http_response response = {0};
    call.repeat = claim ? REGISTRY_REPEAT_ASKED : REGISTRY_REPEAT_SAFE;
    rc = claim ? perform_claim(registry, reference, digest, &call, &response, err)
               : registry_call_perform(registry, &call, &response, err);
    if (rc < 0)
        return rc;
    rc = may_be_taken(&response)
             ? compare_tag(registry, repository, reference, digest, &response, body, err)
             : check_stored(&response, digest, missing, err);
    if (rc < 0)
        return rc;
    const struct remote_manifest manifest = {.bytes = (char *)body->body,
                                             .len = (size_t)body->body_size,
                                             .media_type = (char *)media_type,
                                             .digest = *digest};
    return registry_referrers_note(&registry->remote, repository, &manifest, &response,
                                   body->progress, body->progress_arg, err);
}

int registry_manifest_put(struct remote *remote, const char *repository, const char *tag,
                          const char *media_type, const void *bytes, size_t len, bool claim,
                          remote_progress progress, void *arg, struct remote_missing *missing,
                          struct err *err)
{
    struct digest digest;
    int rc = digest_bytes(bytes, len, &digest, err);
    if (rc < 0)
        return rc;
    struct digest_text text = digest_format(&digest);
    const char *reference = tag ? tag : text.s;
    rc = registry_manifest_check_names(repository, reference, err);
    if (rc < 0)
        return rc;
    if (len > REMOTE_MANIFEST_MAX)
        return err_fail(err, ERR_TOO_LARGE,
                        "the manifest has %zu bytes, more than the %d that registries take", len,
                        REMOTE_MANIFEST_MAX);
    struct registry_http_request body = {
        .body = bytes, .body_fd = -1, .body_size = len, .progress = progress, .progress_arg = arg};
    return put_manifest(registry_of(remote), repository, reference, media_type, &digest,
                        claim && tag, &body, missing, err);
}
