/* What refers to a manifest (OCI distribution-spec 1.1, "Listing Referrers"). A registry without
 * the referrers API is served by the tag "sha256-<hex>" instead, which names an index that clients
 * keep up to date ("Unavailable Referrers API", "Referrers Tag Schema"). */

#include "remote_referrers.h"

#include "oci_image.h"
#include "reference.h"
#include "registry_error.h"
#include "registry_internal.h"
#include "registry_link.h"
#include "registry_page.h"
#include "registry_url.h"

#include <string.h>

enum {
    PAGES_MAX = 1000,
    ATTEMPTS_MAX = 5, /* when others write the list at the same time */
};

static void set_no_referrers(void *arg, struct registry_traits *traits)
{
    (void)arg;
    traits->no_referrers = true;
}

struct listing {
    struct registry *registry;
    const char *repository;
    remote_progress progress;
    void *progress_arg;
    int pages;                     /* that came by the API */
    struct remote_referrers found; /* owned */
};

/* Whether an answer says that there is no such API, for no repository. */
static bool is_unsupported(const struct registry_http_response *response)
{
    return response->status == 405 || response->status == 501 ||
           (response->status == 400 && registry_error_has_code(response, "UNSUPPORTED"));
}

/* Nothing came by the API. A 404 may mean that there is none, and as well that there is no such
 * repository, or something in between that lost its way, so nothing is learned from it: to ask each
 * time costs a request, and to be wrong hides what others have attached. Nor from what is answered
 * elsewhere. */
static int do_without(const struct listing *listing, const struct registry_http_response *response,
                      struct err *err)
{
    const struct registry *registry = listing->registry;
    bool unsupported = is_unsupported(response);
    if (!unsupported && response->status != 404)
        return registry_error_refusal(response, err);
    if (listing->pages > 0)
        return err_fail(err, ERR_DAMAGED, "the registry's list of referrers ends in the middle");
    if (unsupported && registry_url_same_origin(response->url, registry->base))
        registry_pool_learn(registry->pool, registry->base, set_no_referrers, NULL);
    return 0;
}

/* 1 with the target of the next page (NULL: none), 0 when there is no API. */
static int fetch_page(struct listing *listing, const char *url, char **ret_link, struct err *err)
{
    static const char *const headers[] = {"Accept: " OCI_MEDIA_INDEX, NULL};
    cleanup_registry_page struct registry_page page = {.registry = listing->registry,
                                                       .repository = listing->repository,
                                                       .headers = headers,
                                                       .bytes_max = REMOTE_MANIFEST_MAX,
                                                       .progress = listing->progress,
                                                       .progress_arg = listing->progress_arg};
    int rc = registry_page_get(&page, url, "the list of referrers", err);
    if (rc == 0)
        return do_without(listing, &page.response, err);
    if (rc > 0)
        rc = remote_referrers_add_index(&listing->found, buf_str(&page.body), page.body.len, err);
    if (rc < 0)
        return rc;
    *ret_link = steal_ptr(page.link);
    return 1;
}

/* 1 when the API gave the list, 0 when there is none. */
static int list_by_api(struct listing *listing, const struct digest *subject, struct err *err)
{
    struct registry *registry = listing->registry;
    cleanup_free char *url = NULL;
    if (registry_pool_traits(registry->pool, registry->base).no_referrers)
        return 0;
    int rc = registry_make_url(registry, listing->repository, "referrers", digest_format(subject).s,
                               &url, err);
    if (rc < 0)
        return rc;
    for (; listing->pages < PAGES_MAX; listing->pages++) {
        cleanup_free char *link = NULL;
        char *next = NULL;
        size_t before = listing->found.count;
        rc = fetch_page(listing, url, &link, err);
        if (rc <= 0 || !link)
            return rc;
        if (listing->found.count == before)
            return err_fail(err, ERR_DAMAGED, "the registry's list of referrers goes in circles");
        rc = registry_link_follow(url, link, &next, err);
        if (rc < 0)
            return rc;
        free(url);
        url = next;
    }
    return err_fail(err, ERR_TOO_LARGE, "the list of referrers has more than %d pages", PAGES_MAX);
}

/* The tag of the list of a manifest without the API. */
struct list_tag {
    char s[sizeof "sha256-" + DIGEST_HEX_LEN];
};
static struct list_tag list_tag(const struct digest *subject)
{
    struct list_tag tag;
    snprintf(tag.s, sizeof tag.s, "sha256-%.64s", digest_hex(subject).s);
    return tag;
}

/* The index under the tag: 1, or 0 when there is none. */
static int get_list(struct remote *remote, const char *repository, const char *tag,
                    remote_progress progress, void *arg, struct remote_manifest *ret,
                    struct err *err)
{
    struct err missing = ERR_INIT;
    int rc = registry_manifest_get(remote, repository, tag, progress, arg, ret, &missing);
    return err_found(err, rc, &missing);
}

int registry_referrers_list(struct remote *remote, const char *repository,
                            const struct digest *subject, remote_progress progress,
                            void *progress_arg, struct remote_referrers *ret, struct err *err)
{
    struct listing listing = {.registry = registry_of(remote),
                              .repository = repository,
                              .progress = progress,
                              .progress_arg = progress_arg};
    cleanup_remote_manifest struct remote_manifest index = {.bytes = NULL};
    int rc = reference_check_repository(repository, err);
    if (rc == 0)
        rc = list_by_api(&listing, subject, err);
    if (rc == 0) {
        rc = get_list(remote, repository, list_tag(subject).s, progress, progress_arg, &index, err);
        if (rc == 1)
            rc = remote_referrers_add_index(&listing.found, index.bytes, index.len, err);
    }
    if (rc < 0) {
        remote_referrers_free(&listing.found);
        return rc;
    }
    *ret = listing.found;
    return 0;
}

/* One round of read, add, write. 1 when the manifest is in the list. */
static int add_once(struct remote *remote, const char *repository, const char *tag,
                    const struct remote_manifest *manifest, remote_progress progress, void *arg,
                    struct err *err)
{
    cleanup_remote_manifest struct remote_manifest index = {.bytes = NULL};
    cleanup_free char *text = NULL;
    int rc = get_list(remote, repository, tag, progress, arg, &index, err);
    if (rc >= 0)
        rc = remote_referrers_extend(rc == 1 ? &index : NULL, manifest, &text, err);
    if (rc < 0 || !text)
        return rc < 0 ? rc : 1;
    return registry_manifest_put(remote, repository, tag, OCI_MEDIA_INDEX, text, strlen(text),
                                 false, progress, arg, NULL, err);
}

/* Writers of the list know nothing of each other, so it is read again after each change, until what
 * was added is seen in it. */
static int add_to_list(struct remote *remote, const char *repository, const struct digest *subject,
                       const struct remote_manifest *manifest, remote_progress progress, void *arg,
                       struct err *err)
{
    struct list_tag tag = list_tag(subject);
    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        int rc = add_once(remote, repository, tag.s, manifest, progress, arg, err);
        if (rc != 0)
            return rc < 0 ? err_wrap(err, rc, "the list of referrers under the tag %s", tag.s) : 0;
    }
    return err_fail(err, ERR_CONFLICT,
                    "the list of referrers under the tag %s does not keep what "
                    "is added to it",
                    tag.s);
}

int registry_referrers_note(struct remote *remote, const char *repository,
                            const struct remote_manifest *manifest,
                            const struct registry_http_response *response, remote_progress progress,
                            void *arg, struct err *err)
{
    static const char word[] = "subject";
    struct digest subject;
    if (!memmem(manifest->bytes, manifest->len, word, sizeof word - 1))
        return 0;
    int rc = remote_referrers_subject(manifest->bytes, manifest->len, &subject, err);
    if (rc <= 0)
        return rc;
    if (response->oci_subject && strcmp(response->oci_subject, digest_format(&subject).s) == 0)
        return 0;
    return add_to_list(remote, repository, &subject, manifest, progress, arg, err);
}
