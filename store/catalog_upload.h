/* catalog_upload.h - uploads that were begun and not finished, so that another attempt, after a
 * lost connection, a restart or in a new job, goes on where one ended.
 *
 * A record says no more than where to ask: the remote is asked how far it is before anything is
 * sent. So records survive a kill, but not always a power cut, and a record that is too old is
 * harmless.
 *
 * An address is a secret of a kind: registries and object stores sign it, and who has it may write
 * into this one upload for a while. It cannot be done without, so it is kept no longer than it is
 * of use: a record goes with the end of its upload, with the last image here that has the layer,
 * and after CATALOG_UPLOAD_AGE_S, as remotes forget uploads, too, at the next call that changes the
 * table and at each start. Copies of the catalog do without this table.
 */
#pragma once

#include "catalog.h"

#include <stdint.h>

enum {
    CATALOG_UPLOAD_AGE_S = 24 * 3600,
};

/* What an upload is of: a remote by its URL, a repository in it, the blob's digest as text. All
 * borrowed. */
struct catalog_upload_key {
    const char *remote;
    const char *repository;
    const char *digest;
};

struct catalog_upload {
    char *location; /* where the session goes on */
    int64_t offset; /* bytes that the remote has confirmed */
    int64_t size;   /* of the blob */
};

void catalog_upload_free(struct catalog_upload *upload);
#define cleanup_catalog_upload cleanup_with(catalog_upload_free)

/* 1 when there is a record that is not too old, 0 when there is none, or -errno. */
int catalog_upload_get(struct catalog *catalog, const struct catalog_upload_key *key,
                       struct catalog_upload *ret, struct err *err);
/* Records, or replaces the record. */
int catalog_upload_put(struct catalog *catalog, const struct catalog_upload_key *key,
                       const struct catalog_upload *upload, struct err *err);
/* Forgets those that are too old. */
int catalog_upload_sweep(struct catalog *catalog, struct err *err);
/* Forgets it. Nothing may be there. */
int catalog_upload_remove(struct catalog *catalog, const struct catalog_upload_key *key,
                          struct err *err);
