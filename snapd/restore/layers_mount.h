/* layers_mount.h - layer images, mounted: RUN/layers/<key>.
 *
 * An image is mounted on first use and shared by all runs that stand on it, so that they share its
 * page cache too; it is unmounted when the last of them has let go. An overlay holds what it stands
 * on by itself, so unmounting here never takes anything away from a run.
 *
 * How an image is mounted says erofs_mount.h: always read-only, nodev, nosuid. A mount of a former
 * life of the daemon is taken over when it is one of exactly this image; anything else that is
 * mounted there is taken away. Each taker looks whether the mount is still there.
 *
 * References are counted in memory, per node, and belong to a holder: the ID of a run, or a name
 * that begins with ':' for shorter work. After a restart run_recover() takes those of runs again.
 *
 * Threads: all calls may be made from any thread, those for one holder by one at a time. Nobody
 * waits while another layer is being mounted.
 */
#pragma once

#include "catalog_image.h"
#include "erofs_mount.h"
#include "node.h"

/* Mounts every layer of an image and holds a reference on each. All or none. Repeating it for the
 * same image changes nothing; for another image the references move to it. The images are there
 * (layers_ensure()). */
int layers_mount_take(struct node *node, const char *holder, const struct catalog_image *image,
                      struct err *err);
/* Gives the holder's references back and unmounts what nobody uses any more; harmless when it has
 * none. Failures are logged: a mount that stays is found by the next taker, the next release or
 * the next start. */
void layers_mount_release(struct node *node, const char *holder);
/* Opens the root directory of a mounted layer. Returns a descriptor or -errno. */
int layers_mount_open(struct node *node, const char *key, struct err *err);
/* Unmounts what nobody has a reference on. For recovery, after all references were taken. */
int layers_mount_sweep(struct node *node, struct err *err);
/* The two halves of it: calls `take` with the name of every entry of RUN/layers that nobody has a
 * reference on, and ends with its first failure; unmounts and removes one, unless somebody has
 * taken a reference meanwhile. */
typedef int layers_mount_take_unused(void *arg, const char *name, struct err *err);
int layers_mount_each_unused(struct node *node, layers_mount_take_unused *take, void *arg,
                             struct err *err);
int layers_mount_clear_unused(struct node *node, const char *name, struct err *err);

/* Mounts an image file where nobody sees it: the descriptor is the mount's root directory, and the
 * mount goes with it. For archives that are only read once. */
static inline int layers_mount_detached(int image_fd, struct err *err)
{
    return erofs_mount_detached(image_fd, err);
}

/* For node.c: a node's table of references. NULL without memory. */
struct layers_mounts *layers_mounts_new(void);
void layers_mounts_free(struct layers_mounts *mounts); /* NULL is fine; mounts stay */
