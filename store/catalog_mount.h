/* catalog_mount.h - where volumes are mounted on the host.
 *
 * A mount is the wish that a volume be mounted at a path, and how far that has come: mounting,
 * mounted, or unmounting. A volume has one at most, a path on the host belongs to one volume. After
 * a restart of the daemon or the host the wishes are what is brought back.
 */
#pragma once

#include "catalog.h"

#include <stdbool.h>
#include <stdint.h>

enum catalog_mount_state {
    CATALOG_MOUNT_MOUNTING,
    CATALOG_MOUNT_MOUNTED,
    CATALOG_MOUNT_UNMOUNTING,
};

struct catalog_mount {
    char *volume;
    char *path; /* on the host, absolute */
    bool read_only;
    enum catalog_mount_state state;
    int64_t created_ns; /* not used in add */
};

const char *catalog_mount_state_name(enum catalog_mount_state state);
void catalog_mount_free(struct catalog_mount *mount);

/* Adds a mount in state mounting (uses volume, path, read_only). ERR_CONFLICT when the path belongs
 * to another volume, naming its workspace, or lies below or above such a path, as one of the two
 * would hang on the other or be hidden by it; or when the volume has a mount. */
int catalog_mount_add(struct catalog *catalog, const struct catalog_mount *mount, struct err *err);
/* The mount of a volume: 1, 0 when it has none, or -errno. */
int catalog_mount_find(struct catalog *catalog, const char *volume, struct catalog_mount *ret,
                       struct err *err);
/* Any move but to where it is; that is no failure. ERR_NOT_FOUND when the volume has no mount. */
int catalog_mount_set_state(struct catalog *catalog, const char *volume,
                            enum catalog_mount_state state, struct err *err);
/* Forgets a volume's mount; none is no failure. */
int catalog_mount_remove(struct catalog *catalog, const char *volume, struct err *err);
