/* What a registry tells of a manifest without sending it (OCI distribution-spec 1.1, "Checking if
 * content exists in the registry"). Some answer a HEAD without a digest, wrongly or not at all;
 * then the manifest is fetched, and what it is decides. */

#include "reference.h"
#include "registry_call.h"
#include "registry_error.h"
#include "registry_internal.h"

/* 1 with the digest that a HEAD tells, 0 when only the manifest itself can tell. */
static int ask_head(struct registry *registry, const char *repository, const char *reference,
                    remote_progress progress, void *progress_arg, struct remote_manifest_stat *ret,
                    struct err *err)
{
    cleanup_free char *url = NULL;
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_make_url(registry, repository, "manifests", reference, &url, err);
    if (rc < 0)
        return rc;
    const struct registry_call call = {.request = {.method = REGISTRY_HTTP_HEAD,
                                                   .url = url,
                                                   .headers = registry_manifest_accept,
                                                   .progress = progress,
                                                   .progress_arg = progress_arg},
                                       .repeat = REGISTRY_REPEAT_SAFE,
                                       .repository = repository};
    rc = registry_call_as_pusher(registry, &call, &response, err);
    if (rc < 0)
        return rc;
    struct digest digest;
    struct digest wanted;
    if (response.status != 200 || registry_error_if_web_page(&response, NULL) < 0 ||
        !response.content_digest || digest_parse(response.content_digest, &digest, NULL) < 0)
        return 0;
    if (digest_parse(reference, &wanted, NULL) == 0 && !digest_equal(&wanted, &digest))
        return 0; /* the header lies, or the registry does */
    *ret = (struct remote_manifest_stat){
        .digest = digest,
        .size = response.length,
        .media_type = response.content_type ? registry_manifest_type(response.content_type) : NULL};
    return 1;
}

int registry_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                           remote_progress progress, void *progress_arg,
                           struct remote_manifest_stat *ret, struct err *err)
{
    int rc = registry_manifest_check_names(repository, reference, err);
    if (rc == 0)
        rc = ask_head(registry_of(remote), repository, reference, progress, progress_arg, ret, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    rc = registry_manifest_get_as_pusher(remote, repository, reference, progress, progress_arg,
                                         &manifest, err);
    if (rc < 0)
        return rc;
    *ret = (struct remote_manifest_stat){.digest = manifest.digest,
                                         .size = manifest.len,
                                         .media_type = oci_media_known(manifest.media_type)};
    return 0;
}
