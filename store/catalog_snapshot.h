/* catalog_snapshot.h - snapshots: images that this node committed, with where they came from.
 *
 * Durability grows, local < pushed < verified (docs/DESIGN.md, "Words"), until the remote is seen
 * to have lost something, or another remote has the snapshot.
 */
#pragma once

#include "catalog.h"

#include <stddef.h>
#include <stdint.h>

enum catalog_durability {
    CATALOG_LOCAL,
    CATALOG_PUSHED,
    CATALOG_VERIFIED,
};

struct catalog_snapshot {
    char *id;
    char *run_id;     /* source run; stays after the run is gone */
    char *image;      /* digest of the image manifest */
    char *repository; /* repository in the remote, "images/NAME" */
    char *tag;
    char *base;    /* digest of the image it stands on */
    char *comment; /* NULL when none */
    char *labels;  /* JSON object; NULL in add: "{}" */
    char *skipped; /* JSON array of {"path","reason"}; NULL in add: "[]" */
    enum catalog_durability durability;
    char *remote;      /* URL of the remote that has it, or may have something of it; NULL: none */
    int64_t bytes_new; /* bytes of the new layer blob */
    int64_t bytes_total; /* bytes of all layer blobs */
    int64_t entries;     /* entries in the new layer */
    int64_t created_ns;  /* 0 in add: now */
    int64_t expires_ns;  /* 0: never */
    int64_t lost_ns;     /* when its remote was last seen not to have all of it; 0: it has */
};

const char *catalog_durability_name(enum catalog_durability durability);

void catalog_snapshot_free(struct catalog_snapshot *snapshot);
#define cleanup_catalog_snapshot cleanup_with(catalog_snapshot_free)
/* ERR_EXISTS when the ID is taken; ERR_NOT_FOUND when durability is local and the image is not in
 * the catalog. From pushed on `remote` is needed. */
int catalog_snapshot_add(struct catalog *catalog, const struct catalog_snapshot *snapshot,
                         struct err *err);
int catalog_snapshot_get(struct catalog *catalog, const char *id, struct catalog_snapshot *ret,
                         struct err *err);
/* Newest first. */
int catalog_snapshot_list(struct catalog *catalog, struct catalog_snapshot **ret, size_t *ret_count,
                          struct err *err);
/* The remote that had it has lost some of it: it is local again, so that the image here stays (I4);
 * one whose image is not here is no more than pushed, and marked as lost. The remote stays
 * recorded, for what is left there. 1 when that is news, 0 when it was known, or another remote has
 * it. */
int catalog_snapshot_set_lost(struct catalog *catalog, const char *id, const char *remote,
                              struct err *err);
/* Where something of a local snapshot may be soon, so that it is found again whatever happens to
 * the push. One that is in a remote keeps that until it is in the other one. */
int catalog_snapshot_set_remote(struct catalog *catalog, const char *id, const char *remote,
                                struct err *err);
/* Its remote is about to be asked to delete it. 1: its image is here, and it is local now; 0: it is
 * not, and nothing was changed. */
int catalog_snapshot_set_local(struct catalog *catalog, const char *id, struct err *err);
/* Raises the durability and records the remote (NULL keeps the recorded one). When the recorded
 * level in that remote is higher nothing changes; what another remote has does not count. */
int catalog_snapshot_set_durability(struct catalog *catalog, const char *id,
                                    enum catalog_durability durability, const char *remote,
                                    struct err *err);
int catalog_snapshot_remove(struct catalog *catalog, const char *id, struct err *err);
