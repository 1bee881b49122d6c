/* registry_tags.h - one page of a list of tags (OCI distribution-spec 1.1, "Listing Tags"), for
 * registry_tags.c and tests.
 */
#pragma once

#include "json_doc.h"

/* What a page says about itself and the next one. */
struct registry_tags_page {
    size_t count; /* of its tags */
    size_t fresh; /* of those that no page before had */
    char *last;   /* its last tag; NULL without one. Owned */
    char *link;   /* target of its Link header; NULL without one. Owned */
};
void registry_tags_page_free(struct registry_tags_page *page);
#define cleanup_registry_tags_page cleanup_with(registry_tags_page_free)

/* Reads {"name": ..., "tags": [...]}, where null stands for an empty list, and adds the tags as
 * keys to the object `seen`. ERR_DAMAGED for what is no tag; ERR_TOO_LARGE when there are more than
 * REMOTE_TAGS_MAX. */
int registry_tags_page_read(const char *bytes, size_t len, json_t *seen,
                            struct registry_tags_page *page, struct err *err);
