/* The tags of a repository (OCI distribution-spec 1.1, "Listing Tags"), all pages of them.
 *
 * A registry says by a Link header that there are more. Some cut the list at what was asked for and
 * say nothing; so after a full page without a Link the list is asked for from its last tag on, and
 * goes on as long as that brings something new. Every page has to: a list that goes in circles or
 * does not end is damage. */

#include "registry_tags.h"

#include "reference.h"
#include "registry_error.h"
#include "registry_internal.h"
#include "registry_link.h"
#include "registry_page.h"

#include <string.h>

enum {
    PAGE_TAGS = 1000, /* asked for at once */
    PAGES_MAX = 10000,
    IDLE_PAGES_MAX = 8, /* pages without a tag in a row, which filters of a registry may leave */
};

static const char list_name[] = "the list of tags";

struct listing {
    struct registry *registry;
    const char *repository;
    remote_progress progress;
    void *progress_arg;
    json_t *seen; /* an object whose keys are the tags; owned */
    int pages;
    int idle_pages;
};

void registry_tags_page_free(struct registry_tags_page *page)
{
    free(page->last);
    free(page->link);
    *page = (struct registry_tags_page){.count = 0};
}

static int add_tag(json_t *seen, const json_t *value, struct registry_tags_page *page,
                   struct err *err)
{
    const char *tag = json_string_value(value);
    if (!tag || !reference_tag_is_valid(tag))
        return err_fail(err, ERR_DAMAGED, "the list of tags holds something that is not a tag");
    page->count++;
    if (json_object_get(seen, tag))
        return 0;
    page->fresh++;
    if (json_object_size(seen) == REMOTE_TAGS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "there are more than %d tags", REMOTE_TAGS_MAX);
    if (json_object_set_new(seen, tag, json_true()) < 0)
        return err_errno(err, ENOMEM, "cannot list tags");
    return 0;
}

int registry_tags_page_read(const char *bytes, size_t len, json_t *seen,
                            struct registry_tags_page *page, struct err *err)
{
    cleanup_json json_t *document = NULL;
    json_t *tags = NULL;
    int rc = json_doc_parse(bytes, len, list_name, &document, err);
    if (rc == 0 && !json_is_null(json_object_get(document, "tags")))
        rc = json_doc_get_array(document, "tags", list_name, &tags, err);
    size_t count = json_array_size(tags);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add_tag(seen, json_array_get(tags, i), page, err);
    if (rc < 0 || count == 0)
        return rc;
    page->last = strdup(json_string_value(json_array_get(tags, count - 1)));
    return page->last ? 0 : err_errno(err, ENOMEM, "cannot list tags");
}

/* 1 with the page, 0 when there is no such repository. */
static int fetch_page(struct listing *listing, const char *url, struct registry_tags_page *page,
                      struct err *err)
{
    cleanup_registry_page struct registry_page got = {.registry = listing->registry,
                                                      .repository = listing->repository,
                                                      .bytes_max = JSON_DOC_BYTES_MAX,
                                                      .progress = listing->progress,
                                                      .progress_arg = listing->progress_arg};
    int rc = registry_page_get(&got, url, list_name, err);
    if (rc == 0 && got.response.status == 404 && listing->pages == 0)
        return 0;
    if (rc == 0)
        return registry_error_refusal(&got.response, err);
    if (rc > 0)
        rc = registry_tags_page_read(buf_str(&got.body), got.body.len, listing->seen, page, err);
    if (rc < 0)
        return rc;
    page->link = steal_ptr(got.link);
    return 1;
}

/* The address of the next page; *ret is NULL when there is none. */
static int next_page(struct listing *listing, const char *url,
                     const struct registry_tags_page *page, char **ret, struct err *err)
{
    *ret = NULL;
    if (page->link) {
        listing->idle_pages = page->fresh > 0 ? 0 : listing->idle_pages + 1;
        if ((page->fresh == 0 && page->count > 0) || listing->idle_pages > IDLE_PAGES_MAX)
            return err_fail(err, ERR_DAMAGED, "the registry's list of tags goes in circles");
        return registry_link_follow(url, page->link, ret, err);
    }
    if (page->count < PAGE_TAGS || page->fresh == 0)
        return 0;
    const struct registry *registry = listing->registry;
    if (asprintf(ret, "%s/v2/%s/tags/list?n=%d&last=%s", registry->base, listing->repository,
                 PAGE_TAGS, page->last) < 0) {
        *ret = NULL;
        return err_errno(err, ENOMEM, "cannot list tags");
    }
    return 0;
}

static int fetch_all(struct listing *listing, struct err *err)
{
    cleanup_free char *url = NULL;
    if (asprintf(&url, "%s/v2/%s/tags/list?n=%d", listing->registry->base, listing->repository,
                 PAGE_TAGS) < 0) {
        url = NULL;
        return err_errno(err, ENOMEM, "cannot list tags");
    }
    for (; url && listing->pages < PAGES_MAX; listing->pages++) {
        cleanup_registry_tags_page struct registry_tags_page page = {.count = 0};
        char *next = NULL;
        int rc = fetch_page(listing, url, &page, err);
        if (rc == 1)
            rc = next_page(listing, url, &page, &next, err);
        if (rc < 0)
            return rc;
        free(url);
        url = next;
    }
    if (url)
        return err_fail(err, ERR_TOO_LARGE, "the list of tags has more than %d pages", PAGES_MAX);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int take_seen(json_t *seen, struct remote_tags *ret, struct err *err)
{
    cleanup_remote_tags struct remote_tags tags = {
        .names = calloc(json_object_size(seen) + 1, sizeof *tags.names)};
    const char *tag;
    json_t *value;
    if (!tags.names)
        return err_errno(err, ENOMEM, "cannot list tags");
    json_object_foreach (seen, tag, value) {
        tags.names[tags.count] = strdup(tag);
        if (!tags.names[tags.count])
            return err_errno(err, ENOMEM, "cannot list tags");
        tags.count++;
    }
    if (tags.count > 1)
        qsort(tags.names, tags.count, sizeof *tags.names, compare_names);
    *ret = tags;
    tags = (struct remote_tags){.names = NULL};
    return 0;
}

int registry_tags_list(struct remote *remote, const char *repository, remote_progress progress,
                       void *progress_arg, struct remote_tags *ret, struct err *err)
{
    int rc = reference_check_repository(repository, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *seen = json_object();
    struct listing listing = {.registry = registry_of(remote),
                              .repository = repository,
                              .progress = progress,
                              .progress_arg = progress_arg,
                              .seen = seen};
    if (!seen)
        return err_errno(err, ENOMEM, "cannot list tags");
    rc = fetch_all(&listing, err);
    return rc < 0 ? rc : take_seen(seen, ret, err);
}
