/* registry_page.h - one page of a list that a registry gives as JSON (OCI distribution-spec 1.1,
 * "Listing Tags", "Listing Referrers").
 *
 * Job: gets the page into memory, refuses what is no list, and says where the next page is. What
 * stands in it, and how many pages there may be, is the caller's.
 */
#pragma once

#include "registry_internal.h"

struct registry_page {
    /* Set by the caller; borrowed. */
    struct registry *registry;
    const char *repository;
    const char *const *headers; /* besides those of every request; NULL: none */
    uint64_t bytes_max;
    remote_progress progress;
    void *progress_arg;

    /* What there is then, for the caller to release. */
    struct buf body;
    struct registry_http_response response;
    char *link; /* target of the next page (registry_link_follow()); NULL: this is the last one */
};
void registry_page_free(struct registry_page *page);
#define cleanup_registry_page cleanup_with(registry_page_free)

/* Gets the page at `url`. 1 with the body; 0 when the answer has another status than 200, which is
 * left to the caller (registry_error_refusal()); or -errno. `what` is for messages: "the list of
 * tags". */
int registry_page_get(struct registry_page *page, const char *url, const char *what,
                      struct err *err);
