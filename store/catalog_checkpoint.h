/* catalog_checkpoint.h - checkpoints of volumes that this node made or stands on, and which of them
 * is a volume's head.
 *
 * A row outlives its volume, as forks may stand on it. The head of a volume is the newest
 * checkpoint that this node knows of it; what the remote says is compared before a new one is made
 * (I8).
 */
#pragma once

#include "catalog_snapshot.h"

#include <stdbool.h>

enum catalog_checkpoint_reason {
    CATALOG_CHECKPOINT_MANUAL,
    CATALOG_CHECKPOINT_INTERVAL,
    CATALOG_CHECKPOINT_PAUSE,
    CATALOG_CHECKPOINT_DETACH,
    CATALOG_CHECKPOINT_FORK,
    CATALOG_CHECKPOINT_PRE_ROLLBACK,
};

struct catalog_checkpoint {
    char *digest; /* of the index */
    char *volume; /* its ID */
    char *lineage;
    int64_t generation; /* from 1 on */
    char *node;         /* that made it */
    int64_t token;
    char *parent;  /* digest; NULL: none */
    bool diverged; /* its parent was not the head */
    enum catalog_checkpoint_reason reason;
    char *tag; /* in the remote */
    enum catalog_durability durability;
    char *remote; /* URL */
    int64_t bytes_new;
    int64_t bytes_total;
    int64_t verified_ns; /* when it was read back last; 0: never. Not used in add */
    int64_t created_ns;  /* 0 in add: now */
};

const char *catalog_checkpoint_reason_name(enum catalog_checkpoint_reason reason);
void catalog_checkpoint_free(struct catalog_checkpoint *checkpoint);
#define cleanup_catalog_checkpoint cleanup_with(catalog_checkpoint_free)

/* What the catalog knows of a volume's line. */
struct catalog_line {
    char *lineage;
    char *head;         /* digest of its newest checkpoint; NULL: none of its own */
    char *parent;       /* of the one that it was made of; NULL: none */
    int64_t generation; /* of its newest one; 0 */
    int64_t token;      /* fencing token of who writes it here; 0: none was given */
    char *storing; /* digest of one that may be in the remote and is not recorded; NULL: none */
};
void catalog_line_free(struct catalog_line *line);
#define cleanup_catalog_line cleanup_with(catalog_line_free)
/* ERR_NOT_FOUND: no such volume. */
int catalog_line_get(struct catalog *catalog, const char *volume, struct catalog_line *ret,
                     struct err *err);

/* Notes of which checkpoint a volume is made, when it has been added. */
int catalog_line_set_parent(struct catalog *catalog, const char *volume, const char *digest,
                            struct err *err);

/* A volume is about to be put back: what it is made of is not known until it has been, or for good
 * when that fails. */
int catalog_line_put_back_begin(struct catalog *catalog, const char *volume, struct err *err);
/* Whether it was begun and has not ended. */
bool catalog_line_is_open(const struct catalog_line *line);
/* Notes that a volume has been put back to a checkpoint: it is made of that, stands on it, and has
 * this size. Its generation stays, as the next one comes after all that there are. */
int catalog_line_put_back(struct catalog *catalog, const char *volume, const char *digest,
                          int64_t size, struct err *err);

/* Gives the volume's writer a fencing token. ERR_CONFLICT when it has a higher one. */
int catalog_line_set_token(struct catalog *catalog, const char *volume, int64_t token,
                           struct err *err);
/* Notes that the index of a checkpoint is about to be stored in the remote, which makes it the
 * volume's, whether somebody hears of it or not. The next one that is recorded as the head ends
 * that. */
int catalog_line_set_storing(struct catalog *catalog, const char *volume, const char *digest,
                             struct err *err);

/* Adds a checkpoint; one that is there already stays as it is. With `line` it is its volume's head
 * from now on, in the same transaction, if the volume's line is as that says: ERR_CONFLICT when
 * somebody has changed it. NULL: it becomes nobody's head. */
int catalog_checkpoint_add(struct catalog *catalog, const struct catalog_checkpoint *checkpoint,
                           const struct catalog_line *line, struct err *err);
/* Of a volume, newest first. */
int catalog_checkpoint_list(struct catalog *catalog, const char *volume,
                            struct catalog_checkpoint **ret, size_t *ret_count, struct err *err);
/* By its digest ("sha256:..."). */
int catalog_checkpoint_get(struct catalog *catalog, const char *digest,
                           struct catalog_checkpoint *ret, struct err *err);
/* The newest of a volume with this generation that this node knows. ERR_NOT_FOUND. */
int catalog_checkpoint_find(struct catalog *catalog, const char *volume, int64_t generation,
                            struct catalog_checkpoint *ret, struct err *err);
/* Notes that a checkpoint was read back as a whole, now, from the remote at this URL. */
int catalog_checkpoint_set_verified(struct catalog *catalog, const char *digest, const char *remote,
                                    struct err *err);
/* Notes that a remote has not got all of a checkpoint any more: it is not pushed (I3), until it is
 * verified. */
int catalog_checkpoint_set_lost(struct catalog *catalog, const char *digest, struct err *err);
/* Forgets one; it is no volume's head (ERR_CONFLICT). */
int catalog_checkpoint_remove(struct catalog *catalog, const char *digest, struct err *err);
