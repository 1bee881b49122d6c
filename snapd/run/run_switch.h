/* run_switch.h - gives a run a fresh writable layer, perhaps on another image, in one durable step.
 *
 *   DATA/tmp/.tmp-X       the new state is made: upper, work, switch.json {"image", "image_name",
 *                         "job"}
 *   DATA/runs/.next-ID    it is published (I1): from here on this is what the run is
 *   DATA/runs/ID          it has its place, the old one lies in DATA/tmp; the catalog's row names
 *                         the image
 *
 * Of a run on a volume these are tmp/.tmp-X, .next and run in the ext4 of the volume (run_place.h),
 * and what follows is the same.
 *
 *   run_switch_make -> (unmount) -> run_switch_publish -> run_switch_finish -> (mount)
 *
 * A kill before the publish leaves the run as it was. After it run_mount_again() finishes before it
 * mounts, so nobody ever sees one half of each. finish can be repeated: what is published lies
 * under its own name until it has its place, so its presence alone says that something is left to
 * do.
 *
 * The order of the finish: row, then the old directory goes, then the new one comes. When the new
 * image was removed meanwhile, the row still names the old one; then what was published is dropped,
 * and the run stays what it was.
 *
 * switch.json stays beside upper and tells a job that goes on after a kill that it has done its
 * work (run_switch_is_done()).
 *
 * Nobody else works on the run, and it is not mounted during publish, finish and drop.
 */
#pragma once

#include "run_internal.h"

struct run_switch {
    const char *id;
    const struct catalog_image *image; /* layers as for run_dirs_fill() */
    const char *image_name;            /* for people; NULL: none */
    const char *job;                   /* ID of the job that does it */
};

/* Makes the new state; `temp` gets its name, for the next step or run_switch_forget(). */
int run_switch_make(struct node *node, const struct run_switch *wanted, char temp[32],
                    struct err *err);
/* Removes one that was made and not published. */
void run_switch_forget(struct node *node, const char *id, const char *temp);
int run_switch_publish(struct node *node, const char *id, const char *temp, struct err *err);
/* 1 when something was published and has now its place, 0 when there was nothing, or -errno;
 * ERR_NOT_FOUND also when it was dropped, as its image is gone. */
int run_switch_finish(struct node *node, const char *id, struct err *err);
/* Whether the run's writable layer is what this job made: 1, 0, or -errno. */
int run_switch_is_done(struct node *node, const char *id, const char *job, struct err *err);
/* Takes back what was published and has no place yet; also the rest of a run that is removed. */
int run_switch_drop(struct node *node, const char *id, struct err *err);
