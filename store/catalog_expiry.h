/* catalog_expiry.h - checkpoints that are to go from the remote.
 *
 * A row of checkpoints says when its checkpoint has *expired*: from then on nobody here needs it,
 * and the row stays until it has gone from the remote, so a remote that is away and a kill lose
 * nothing of the wish. Rows of other remotes than the one that is asked for stay as they are.
 */
#pragma once

#include "catalog.h"

#include <stddef.h>

/* All of a volume expire now. Returns how many there are. */
int catalog_expiry_set(struct catalog *catalog, const char *volume, struct err *err);

/* Takes that back, for who wants to keep them after all. */
int catalog_expiry_clear(struct catalog *catalog, const char *volume, struct err *err);

/* A volume that is gone and has expired checkpoints. */
struct catalog_expired {
    char *volume;
    char *lineage;
};
void catalog_expired_free_list(struct catalog_expired *list, size_t count);
/* Caller frees. */
int catalog_expiry_list(struct catalog *catalog, const char *remote, struct catalog_expired **ret,
                        size_t *ret_count, struct err *err);

/* Forgets those of a volume, as they are gone, or nothing can be done about them. */
int catalog_expiry_done(struct catalog *catalog, const char *volume, const char *remote,
                        struct err *err);
