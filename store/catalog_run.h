/* catalog_run.h - runs.
 *
 *   creating --> ready --> removing --> (no row)
 *       \___________________/
 *
 * creating: its directories and mount are being made by the job that is named in the row.
 * ready:    the root filesystem is mounted, or can be mounted again from what is on disk.
 * removing: is on its way out; only removal may touch it.
 */
#pragma once

#include "catalog.h"

#include <stddef.h>
#include <stdint.h>

enum catalog_run_state {
    CATALOG_RUN_CREATING,
    CATALOG_RUN_READY,
    CATALOG_RUN_REMOVING,
};

struct catalog_run {
    char *id;
    enum catalog_run_state state;
    char *image;        /* digest of the image it was made from */
    char *image_name;   /* what the user said, for people */
    char *upper;        /* kind of writable layer: "plain", "volume" */
    char *volume;       /* that it lies on; NULL: none */
    int64_t token;      /* fencing token; 0 when none was given */
    char *job_id;       /* job that made it */
    int64_t created_ns; /* 0 in add: now */
};

const char *catalog_run_state_name(enum catalog_run_state state);

void catalog_run_free(struct catalog_run *run);
#define cleanup_catalog_run cleanup_with(catalog_run_free)
/* Adds a run in state creating. Its volume has its row already. ERR_EXISTS when the ID is taken;
 * ERR_NOT_FOUND when the image is not there. */
int catalog_run_add(struct catalog *catalog, const struct catalog_run *run, struct err *err);
int catalog_run_get(struct catalog *catalog, const char *id, struct catalog_run *ret,
                    struct err *err);
/* Newest first. */
int catalog_run_list(struct catalog *catalog, struct catalog_run **ret, size_t *ret_count,
                     struct err *err);
/* Moves a run along the diagram; any other move is ERR_CONFLICT. Staying where it is is no move and
 * no failure, so that a removal can be repeated. */
int catalog_run_set_state(struct catalog *catalog, const char *id, enum catalog_run_state state,
                          struct err *err);
/* Lets a run that is ready stand on another image from now on (a run that is rolled back);
 * `image_name` is what people see. The same image again is no failure. ERR_NOT_FOUND when run or
 * image is not there, ERR_CONFLICT in another state. */
int catalog_run_set_image(struct catalog *catalog, const char *id, const char *image,
                          const char *image_name, struct err *err);
/* Removes the row of a run in state removing or creating; ready is ERR_CONFLICT. That of its volume
 * stays. */
int catalog_run_remove(struct catalog *catalog, const char *id, struct err *err);
