/* catalog_volume.h - volumes: what this node has of them, and in which state.
 *
 *   creating --> detached <--> attaching --> attached <--> detaching --> detached
 *      |            |              ^            |  |           ^
 *      |            |              +-- (died) --+  +-> fenced -+
 *      +--> removing <- (from detached)
 *
 * creating:  its directory is being made by the job that is named in the row.
 * detached:  DATA/volumes/ID is whole, nothing serves it.
 * attaching: is being attached and mounted, or was and has to be again: its processes have died.
 * attached:  is served.
 * detaching: is on its way to detached; it may still be held by processes elsewhere.
 * fenced:    is served but refuses writes; the way out is detaching (and back, where it is in use).
 * removing:  is on its way out; only removal may touch it.
 *
 * Where it is mounted stands in catalog_mount.h. The row of a volume also says in which life of the
 * host it was attached last, and the last incident: what those who used it will have noticed.
 */
#pragma once

#include "catalog.h"

#include <stddef.h>
#include <stdint.h>

enum catalog_volume_state {
    CATALOG_VOLUME_CREATING,
    CATALOG_VOLUME_DETACHED,
    CATALOG_VOLUME_ATTACHING,
    CATALOG_VOLUME_ATTACHED,
    CATALOG_VOLUME_DETACHING,
    CATALOG_VOLUME_FENCED,
    CATALOG_VOLUME_REMOVING,
};

struct catalog_volume {
    char *id;      /* 12 hex digits */
    char *lineage; /* volume that it descends from; its own ID */
    enum catalog_volume_state state;
    int64_t state_ns; /* since when; not used in add */
    int64_t size;     /* bytes */
    char *job_id;     /* job that made it */
    char *boot;       /* boot ID of the host when it was last attached; NULL: never */
    int64_t incident_ns;
    char *incident;     /* NULL: none */
    int64_t created_ns; /* 0 in add: now */
    char *view_of;      /* ID of the volume of which it shows an open epoch; NULL: of none */
};

const char *catalog_volume_state_name(enum catalog_volume_state state);
void catalog_volume_free(struct catalog_volume *volume);
#define cleanup_catalog_volume cleanup_with(catalog_volume_free)

/* Adds a volume in state creating (uses id, lineage, size, job_id, created_ns,
 * view_of). ERR_EXISTS when the
 * ID is taken. */
int catalog_volume_add(struct catalog *catalog, const struct catalog_volume *volume,
                       struct err *err);
int catalog_volume_get(struct catalog *catalog, const char *id, struct catalog_volume *ret,
                       struct err *err);
/* Oldest first. */
int catalog_volume_list(struct catalog *catalog, struct catalog_volume **ret, size_t *ret_count,
                        struct err *err);
/* Moves a volume along the diagram; any other move is ERR_CONFLICT. Staying where it is is no move
 * and no failure. */
int catalog_volume_set_state(struct catalog *catalog, const char *id,
                             enum catalog_volume_state state, struct err *err);
/* Notes what size it has from now on. A smaller one than before is ERR_CONFLICT. */
int catalog_volume_set_size(struct catalog *catalog, const char *id, int64_t size, struct err *err);
/* Notes in which life of the host it was attached. */
int catalog_volume_set_boot(struct catalog *catalog, const char *id, const char *boot,
                            struct err *err);
/* Notes what happened to it, now; NULL: nothing did. */
int catalog_volume_set_incident(struct catalog *catalog, const char *id, const char *incident,
                                struct err *err);
/* Removes the row of a volume in state removing or creating; others are ERR_CONFLICT. */
int catalog_volume_remove(struct catalog *catalog, const char *id, struct err *err);
