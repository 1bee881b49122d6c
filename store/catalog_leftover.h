/* catalog_leftover.h - manifests in a remote that nobody here needs any more, and of which nobody
 * has looked yet whether something there does: their tags are gone, and they are removed together
 * with others (remote_delete_some()).
 *
 * A row is added when its owner's record goes, in the same transaction, and goes when the manifest
 * is gone or is found to be needed. Rows of remotes that are not configured any more stay.
 */
#pragma once

#include "catalog.h"

#include <stddef.h>
#include <stdint.h>

struct catalog_leftover {
    char *digest;
    int64_t age_ns; /* how long it has waited; below 0 when the clock was put back */
};
void catalog_leftover_free_list(struct catalog_leftover *list, size_t count);

/* One that is there keeps its age. */
int catalog_leftover_add(struct catalog *catalog, const char *remote, const char *repository,
                         const char *digest, struct err *err);
/* Those of a repository that no snapshot here stands for (one that is pushed again has its row
 * before its manifest goes out), oldest first, at most `max`. Caller frees. */
int catalog_leftover_list(struct catalog *catalog, const char *remote, const char *repository,
                          size_t max, struct catalog_leftover **ret, size_t *ret_count,
                          struct err *err);
/* It waits from now on: a look for it told nothing. Nothing may be there. */
int catalog_leftover_renew(struct catalog *catalog, const char *remote, const char *repository,
                           const char *digest, struct err *err);
/* Nothing may be there. */
int catalog_leftover_remove(struct catalog *catalog, const char *remote, const char *repository,
                            const char *digest, struct err *err);
