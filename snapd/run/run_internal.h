/* run_internal.h - the steps of making and removing runs, for run*.c and their tests only.
 *
 * Everything can be repeated: what is there already is left as it is. The catalog's row is written
 * first and removed last, so whatever a kill leaves behind has a row that says what to do with it.
 * Nobody else works on the same run: jobs of one run exclude each other (engine.h), and
 * run_recover() is over before they start.
 */
#pragma once

#include "catalog_image.h"
#include "catalog_run.h"
#include "cleanup.h"
#include "convert.h"
#include "node.h"
#include "oci_image.h"
#include "run_place.h"

#include <stdbool.h>

/* Where a run is; absolute paths. */
struct run_paths {
    char *rootfs; /* RUN/runs/ID/rootfs, the mount point */
    char *lock;   /* RUN/runs/ID/lock */
    char *volume; /* RUN/runs/ID/volume, where the ext4 is mounted that its upper is on */
};
int run_paths_make(const struct node *node, const char *id, struct run_paths *ret, struct err *err);
void run_paths_free(struct run_paths *paths);
#define cleanup_run_paths cleanup_with(run_paths_free)

/* 1 and the row, 0 when there is none, or -errno. */
int run_find(struct node *node, const char *id, struct catalog_run *ret, struct err *err);

/* Whether a job works on the run now, or will: 1, 0, or -errno. */
int run_has_job(struct node *node, const char *id, struct err *err);

/* Reads the config of an image that is here. */
int run_config_read(struct node *node, const char *image_digest, struct oci_config *ret,
                    struct err *err);
/* Opens the mounted root filesystem (O_PATH). ERR_CONFLICT when the run is not ready or not
 * mounted. */
int run_rootfs_open(struct node *node, const struct catalog_run *run, struct err *err);

/* Fails when something of a run with this ID is there although the catalog does not know it:
 * nothing may show it to a new run, and nothing may remove it (I4). */
int run_dirs_check_unused(const struct node *node, const char *id, struct err *err);

/* Makes the directory of the writable layer (run_place.h) durably: an empty upper directory with
 * the attributes of the topmost layer's root, as it shows as the root of the merged tree, and a
 * work directory. */
int run_dirs_make(struct node *node, const char *id, const struct catalog_image *image,
                  struct err *err);
/* The same inside a directory that is there. The layers are there. */
int run_dirs_fill(struct node *node, int dir_fd, const struct catalog_image *image,
                  struct err *err);
/* Makes RUN/runs/ID and mounts. The layers are there, and the volume is mounted. */
int run_dirs_mount(struct node *node, const char *id, const struct catalog_image *image,
                   struct err *err);
/* `lazily`: of one on a volume of which nothing is to be expected any more. */
int run_dirs_unmount(struct node *node, const struct catalog_run *run, bool lazily,
                     struct err *err);
/* Removes both directories of a run that is not mounted; what is on a volume goes with that. */
int run_dirs_remove(struct node *node, const char *id, struct err *err);

/* Opens RUN/runs/ID/lock, making what is missing. Returns a descriptor. */
int run_lock_open(struct node *node, const char *id, struct err *err);

/* Brings the mounts of a run that is ready back: its volume, what an exchange (run_switch.h) has
 * left to do, layers, overlay. Of one that is mounted only the references on its layers are taken,
 * as after a restart. Nobody else works on the run. `stop` (may be NULL) as for layers_ensure(). */
int run_mount_again(struct node *node, const struct catalog_run *run, convert_stop *stop,
                    void *stop_arg, struct err *err);
/* The same for who has the claim of its volume (run_volume.h). */
int run_mount_claimed(struct node *node, const struct catalog_run *run, convert_stop *stop,
                      void *stop_arg, struct err *err);
/* The same where the volume is mounted. */
int run_mount_held(struct node *node, const struct catalog_run *run, convert_stop *stop,
                   void *stop_arg, struct err *err);
/* Whether all is mounted that is to be: 1, 0, or -errno. */
int run_is_up(struct node *node, const struct catalog_run *run, struct err *err);

/* The same for one who is not alone: does nothing when it is mounted, else holds the run's lock
 * meanwhile. ERR_CONFLICT when somebody else does. One whose volume was fenced is mounted anew, so
 * that it takes writes again. */
int run_mount_idle(struct node *node, const char *id, convert_stop *stop, void *stop_arg,
                   struct err *err);

/* Takes a run away whatever its state: unmounts, removes directories and row. A failure to unmount
 * leaves everything as it was. The caller made sure that nobody uses it. `event` is recorded with
 * the end of the row; NULL for none. */
int run_discard(struct node *node, const char *id, const char *event, struct err *err);
