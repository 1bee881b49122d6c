/* Deleting manifests and tags (OCI distribution-spec 1.1, "Deleting Manifests", "Deleting tags").
 *
 * Many registries delete nothing, or by digest only. That is found out once and remembered by the
 * pool for a while.
 *
 * A registry that deletes by digest only takes all tags of a manifest along. To take one tag away
 * there, it is first given to a manifest of its own, an empty index that nothing else names, and
 * that one is deleted. The index is the same whenever the same tag is taken from the same manifest,
 * so what a crash leaves in between is recognised. */

#include "json_doc.h"
#include "oci_image.h"
#include "reference.h"
#include "registry_call.h"
#include "registry_error.h"
#include "registry_internal.h"

#include <string.h>

static void set_no_delete(void *arg, struct registry_traits *traits)
{
    (void)arg;
    traits->no_delete = true;
}

static void set_no_tag_delete(void *arg, struct registry_traits *traits)
{
    (void)arg;
    traits->no_tag_delete = true;
}

static int refuse(int rc, struct err *err)
{
    err_hint(err, "the registry was asked and does not delete; docker-registry does with "
                  "REGISTRY_STORAGE_DELETE_ENABLED=true");
    return rc;
}

static int check_known(const struct registry *registry, struct err *err)
{
    struct registry_traits traits = registry_pool_traits(registry->pool, registry->base);
    if (!traits.no_delete)
        return 0;
    return refuse(err_fail(err, ERR_REFUSED, "the registry does not delete"), err);
}

/* Whether an answer says that the registry cannot do it, ever. */
static bool is_unsupported(const struct registry_http_response *response)
{
    return response->status == 405 || response->status == 501 ||
           registry_error_has_code(response, "UNSUPPORTED");
}

/* Taking one thing away, and who may ask for the end of it. */
struct removal {
    struct remote *remote;
    const char *repository;
    remote_progress progress;
    void *arg;
};

static int perform(const struct removal *removal, const char *reference,
                   struct registry_http_response *ret, struct err *err)
{
    struct registry *registry = registry_of(removal->remote);
    cleanup_free char *url = NULL;
    int rc = registry_make_url(registry, removal->repository, "manifests", reference, &url, err);
    if (rc < 0)
        return rc;
    const struct registry_call call = {.request = {.method = REGISTRY_HTTP_DELETE,
                                                   .url = url,
                                                   .progress = removal->progress,
                                                   .progress_arg = removal->arg},
                                       .repeat = REGISTRY_REPEAT_SAFE,
                                       .repository = removal->repository,
                                       .actions = "delete,pull,push"};
    return registry_call_perform(registry, &call, ret, err);
}

static bool is_done(const struct registry_http_response *response)
{
    return response->status == 202 || response->status == 200 || response->status == 204;
}

static int delete_manifest(const struct removal *removal, const struct digest *digest,
                           struct err *err)
{
    struct registry *registry = registry_of(removal->remote);
    struct digest_text text = digest_format(digest);
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_manifest_check_names(removal->repository, text.s, err);
    if (rc == 0)
        rc = check_known(registry, err);
    if (rc == 0)
        rc = perform(removal, text.s, &response, err);
    if (rc < 0)
        return rc;
    if (is_done(&response))
        return registry_error_if_web_page(&response, err);
    rc = registry_error_refusal(&response, err);
    if (!is_unsupported(&response))
        return rc;
    registry_pool_learn(registry->pool, registry->base, set_no_delete, NULL);
    return refuse(rc, err);
}

int registry_manifest_delete(struct remote *remote, const char *repository,
                             const struct digest *digest, const char *only,
                             remote_progress progress, void *arg, struct err *err)
{
    (void)only; /* a registry cannot look and delete in one step */
    const struct removal removal = {
        .remote = remote, .repository = repository, .progress = progress, .arg = arg};
    return delete_manifest(&removal, digest, err);
}

/* 1 when the registry took the tag away, 0 when it deletes no tags. */
static int delete_by_tag(const struct removal *removal, const char *tag, struct err *err)
{
    struct registry *registry = registry_of(removal->remote);
    cleanup_http_response struct registry_http_response response = {0};
    if (registry_pool_traits(registry->pool, registry->base).no_tag_delete)
        return 0;
    int rc = perform(removal, tag, &response, err);
    if (rc < 0)
        return rc;
    if (is_done(&response)) {
        rc = registry_error_if_web_page(&response, err);
        return rc < 0 ? rc : 1;
    }
    /* 400 and 404: what is no digest is malformed, or unknown, to some. The tag was there before.
     */
    if (!is_unsupported(&response) && response.status != 400 && response.status != 404)
        return registry_error_refusal(&response, err);
    registry_pool_learn(registry->pool, registry->base, set_no_tag_delete, NULL);
    return 0;
}

/* The index that stands for a tag on its way out. */
struct placeholder {
    char *bytes; /* owned */
    struct digest digest;
};

static int make_placeholder(const char *tag, const struct digest *digest, struct placeholder *ret,
                            struct err *err)
{
    char was[REFERENCE_TAG_MAX + DIGEST_TEXT_LEN + 2];
    snprintf(was, sizeof was, "%s@%s", tag, digest_format(digest).s);
    cleanup_json json_t *index =
        json_pack("{s:i, s:s, s:[], s:{s:s}}", "schemaVersion", 2, "mediaType", OCI_MEDIA_INDEX,
                  "manifests", "annotations", "io.varve.removed", was);
    char *bytes = index ? json_doc_dump(index) : NULL;
    if (!bytes)
        return err_errno(err, ENOMEM, "cannot remove a tag");
    int rc = digest_bytes(bytes, strlen(bytes), &ret->digest, err);
    if (rc < 0)
        free(bytes);
    else
        ret->bytes = bytes;
    return rc;
}

static int put(const struct removal *removal, const char *tag, const char *media_type,
               const char *bytes, size_t len, struct err *err)
{
    return registry_manifest_put(removal->remote, removal->repository, tag, media_type, bytes, len,
                                 false, removal->progress, removal->arg, NULL, err);
}

static int stat_tag(const struct removal *removal, const char *tag,
                    struct remote_manifest_stat *ret, struct err *err)
{
    return registry_manifest_stat(removal->remote, removal->repository, tag, removal->progress,
                                  removal->arg, ret, err);
}

/* Fails unless the tag names the manifest. */
static int check_tag(const struct removal *removal, const char *tag, const struct digest *digest,
                     struct err *err)
{
    struct remote_manifest_stat stat;
    int rc = stat_tag(removal, tag, &stat, err);
    if (rc < 0 || digest_equal(&stat.digest, digest))
        return rc;
    return err_fail(err, ERR_NOT_FOUND, "the tag '%s' names another manifest now", tag);
}

/* Deletes what the tag was given to. Where that cannot be done the tag gets back what it had; who
 * was told to stop leaves that to the next attempt, which recognises the placeholder. */
static int delete_placeholder(const struct removal *removal, const char *tag,
                              const struct placeholder *placeholder,
                              const struct remote_manifest *before, struct err *err)
{
    struct err cause = ERR_INIT;
    int rc = delete_manifest(removal, &placeholder->digest, &cause);
    if (rc == 0 || cause.code == ERR_NOT_FOUND) /* an answer was lost, and it was asked again */
        return 0;
    rc = err_pass(err, rc, &cause);
    if (cause.code == ERR_CANCELLED)
        return rc;
    struct err failure = ERR_INIT;
    int back =
        check_tag(removal, tag, &placeholder->digest, &failure); /* else it has a new owner */
    if (back == 0)
        back = put(removal, tag, before->media_type, before->bytes, before->len, &failure);
    if (back < 0 && failure.code != ERR_NOT_FOUND)
        err_wrap(err, rc, "the tag is lost (%s)", failure.text);
    return rc;
}

/* Gives the tag to the placeholder and deletes that. A registry has no compare and swap, so the tag
 * is looked at once more right before: what is left is the time of one PUT, in which somebody else
 * may move the tag and lose it. */
static int replace_and_delete(const struct removal *removal, const char *tag,
                              const struct digest *digest, const struct placeholder *placeholder,
                              struct err *err)
{
    cleanup_remote_manifest struct remote_manifest before = {.bytes = NULL};
    int rc = registry_manifest_get(removal->remote, removal->repository, digest_format(digest).s,
                                   removal->progress, removal->arg, &before, err);
    if (rc == 0)
        rc = check_known(registry_of(removal->remote), err);
    if (rc == 0)
        rc = check_tag(removal, tag, digest, err);
    if (rc == 0)
        rc =
            put(removal, tag, OCI_MEDIA_INDEX, placeholder->bytes, strlen(placeholder->bytes), err);
    return rc == 0 ? delete_placeholder(removal, tag, placeholder, &before, err) : rc;
}

int registry_tag_delete(struct remote *remote, const char *repository, const char *tag,
                        const struct digest *expected, remote_progress progress, void *arg,
                        struct err *err)
{
    const struct removal removal = {
        .remote = remote, .repository = repository, .progress = progress, .arg = arg};
    struct remote_manifest_stat stat;
    struct placeholder placeholder = {.bytes = NULL};
    int rc = stat_tag(&removal, tag, &stat, err);
    if (rc == 0)
        rc = make_placeholder(tag, expected ? expected : &stat.digest, &placeholder, err);
    if (rc < 0)
        return rc;
    if (digest_equal(&stat.digest, &placeholder.digest)) { /* an earlier attempt came so far */
        rc = delete_manifest(&removal, &placeholder.digest, err);
    } else if (expected && !digest_equal(&stat.digest, expected)) {
        rc = err_fail(err, ERR_NOT_FOUND, "the tag '%s' names another manifest now", tag);
    } else {
        rc = delete_by_tag(&removal, tag, err);
        if (rc == 0)
            rc = replace_and_delete(&removal, tag, &stat.digest, &placeholder, err);
    }
    free(placeholder.bytes);
    return rc < 0 ? rc : 0;
}
