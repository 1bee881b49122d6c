/* run.h - runs: a root filesystem made from an image, mounted for a runtime to use.
 *
 *   RUN/runs/ID/volume          the volume that the writable layer is on (run_volume.h)
 *   DATA/runs/ID/upper, work    the writable layer of one with a plain upper
 *   RUN/runs/ID/rootfs          the overlay mount
 *   RUN/runs/ID/lock            flock: shared while a sandbox of `run exec` lives, exclusive
 *                               (without waiting) for snapshot and removal. Whoever took it checks
 *                               that the name still means the file he locked.
 *
 * Jobs: "run.create" {"id", "image", "token"?, "plain_upper"?, "size"?} pulls the image when it is
 * not here, converts missing layers, makes the volume (bytes, default [volume] size), mounts.
 * Repeating it with the same ID and image gives the same run, mounted again if it is not; with
 * another image, token, kind of layer or size it is ERR_EXISTS. "run.rm" {"id"}
 * refuses with ERR_CONFLICT while a process uses the run, then unmounts and removes. The API checks
 * the request before the job is recorded, so a taken ID or a malformed reference is known at once.
 *
 *   run.create:  resolve, pull -> row "creating" -> layers -> volume -> directories -> mount
 *                -> row "ready"
 *   run.rm:      lock, no process -> unmount -> row "removing" -> volume, directories -> no row
 *
 * The row is written before the first effect and goes after the last one (I2), so whatever a kill
 * leaves behind has a row; each step leaves alone what is there. Unmounting comes before
 * "removing", as it is the step that others can make fail, and a run that is "ready" stays usable.
 * A directory in DATA/runs that the catalog does not know is never used and never removed (I4).
 *
 * Result of create: the run document of docs/openapi.yaml (run_json()); of rm: {"id"}.
 */
#pragma once

#include "catalog_run.h"
#include "convert.h"
#include "engine.h"

extern const struct job_kind run_create_job;
extern const struct job_kind run_rm_job;
/* "run.reset" {"id"}: throws away what the run has written, as before its first change; nothing is
 * fetched. ERR_CONFLICT while it is used. See run_switch.h. Result: the run document. */
extern const struct job_kind run_reset_job;
/* "run.mount" {"id"}: mounts a run that is ready but not mounted, as after a reboot under a daemon
 * that could not, or whose volume was fenced. Result: the run document. */
extern const struct job_kind run_mount_job;

/* The document for the API: id, state (of one on a volume that takes no writes any more: that
 * one's, "dead" or "fenced"), image, image_name, rootfs, lock, upper, volume (null of a plain
 * upper; else what workspace.h says of a workspace, without a name), mounted, token (null when none
 * was given), created, env, cwd ("/" when the image says nothing), user (as the image says it, or
 * null). Caller owns it. NULL with err set, for one when the image's config cannot be read. */
json_t *run_json(struct node *node, const struct catalog_run *run, struct err *err);
/* The same of many, which costs little more than that of one: ret[i] of runs[i], or NULL with the
 * reason in ret_errs[i] (both have `count` places; the latter are empty before). Without a reason:
 * it was removed since it was read. -errno: of none. */
int run_json_each(struct node *node, const struct catalog_run *runs, size_t count, json_t **ret,
                  struct err *ret_errs, struct err *err);

/* Who a process in the run would be, for the API: {"uid", "gid", "groups", "home"} of `word`, or of
 * the image's user when it is NULL (run_user.h). The run is mounted, else ERR_CONFLICT. Caller owns
 * it. NULL with err set. */
json_t *run_user_json(struct node *node, const struct catalog_run *run, const char *word,
                      struct err *err);

/* Takes the run's lock exclusively without waiting and checks that no process uses its mount.
 * ERR_CONFLICT names a process where one is known. Returns a descriptor that holds the lock until
 * it is closed. */
int run_lock_idle(struct node *node, const char *id, struct err *err);

/* Checks again that no process uses the run's mount, for the holder of the lock: a process that
 * takes no lock (another runtime, a shell of the host) may have come meanwhile. */
int run_lock_check(struct node *node, const char *id, struct err *err);

/* Finishes an exchange of the run's writable layer that was published and has no place yet
 * (run_switch.h), so that row and writable layer are what the run is; of a run on a volume that is
 * mounted first when it isn't. For the holder of the lock, before he looks at either. `renew`: one
 * whose volume was fenced is mounted anew, as it is to be written to. `stop` (may be NULL) ends a
 * wait for who mends the volume. */
int run_settle(struct node *node, const char *id, bool renew, convert_stop *stop, void *stop_arg,
               struct err *err);

/* Opens the upper directory, wherever it is (run_place.h). Returns a descriptor or -errno. */
int run_open_upper(struct node *node, const char *id, struct err *err);

/* Calls `take` with the place of everything that is mounted inside the run's root filesystem: a
 * path from there, without a first slash. Ends with the first failure of it. */
typedef int run_mounts_take(void *arg, const char *path, struct err *err);
int run_mounts_each(struct node *node, const char *id, run_mounts_take *take, void *arg,
                    struct err *err);

/* After a restart, before the engine starts: mounts again what is ready but not mounted (a reboot
 * empties RUN), finishes removals and undoes creations that failed, unless an unfinished job will.
 * Failures are logged and do not stop the others (I9). Layers that are missing are converted first,
 * which may take long; `stop` (may be NULL) as for layers_ensure(): what it leaves unmounted is for
 * the next start. */
void run_recover(struct node *node, convert_stop *stop, void *stop_arg);
