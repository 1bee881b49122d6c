/* workspace.h - workspaces: named volumes that are mounted at a path of the host and outlive the
 * daemon, the host's reboots and each of their own processes.
 *
 * Jobs, with the object "workspace:NAME" unless it is said otherwise:
 *
 *   "workspace.create"  {"name", "size"?, "token"?}     a new, detached volume; size in bytes,
 *                                                       rounded up to 1 MiB; default [volume] size
 *   "workspace.mount"   {"name", "path", "read_only"?, "token"?}
 *                                                       attach, mount. Mounted there already:
 *                                                       nothing to do; elsewhere: ERR_CONFLICT.
 *                                                       "token": workspace_token.h
 *   "workspace.unmount" {"name", "abandon"?}            unmount, detach. ERR_CONFLICT names the
 *                                                       processes that use it. ERR_NO_SPACE,
 *                                                       ERR_IO: the host's disk did not take what
 *                                                       was not synced
 *   "workspace.abandon" {"name", "abandon": true}       the same with "abandon", for the object
 *                                                       "workspace-abandon:NAME", as it is beside
 *                                                       a job that hangs: the connection is ended,
 *                                                       whoever waits for the volume gets an error
 *   "workspace.resize"  {"name", "size"}                only larger; mounted or not
 *                                                       A view goes with its unmount
 *   "workspace.rm"      {"name"}                        the volume's bytes too. Refused while it is
 *                                                       mounted or held; needs nothing of the disk
 *
 * Result: the workspace document (workspace_json()); of rm {"name"}; of resize with
 * "filesystem_grown": false when the file system grows at the next mount only, as the workspace is
 * not mounted, or varved lacks CAP_SYS_RESOURCE.
 *
 * The rows (catalog_workspace.h) are written before the first effect and go after the last one
 * (I2). A row that speaks of a mount is the wish to have it: a failed mount takes the wish back,
 * a restart of the daemon or the host fulfils it again. The ID of a volume is the hex digits of its
 * job's, so a job that runs again makes the same one. What a volume is at this moment is found by
 * looking (volumes.h), never believed from a row.
 *
 * Only "workspace.rm" removes a volume's bytes (I4): a directory in DATA/volumes that no row speaks
 * of is left alone and reported.
 *
 * A path must exist, be a directory without symbolic links on the way, lie neither in nor above the
 * data and the run directory, and belong to no other workspace. What somebody else mounts over it,
 * or unmounts, is his business; `varve recover`, a restart and a repeated mount mount what was
 * unmounted again, also while another mount namespace still has it. Only what is dead is abandoned
 * unasked.
 *
 * An unmount that succeeds here while another mount namespace still holds the file system leaves
 * the workspace "detaching": repeating the unmount goes on, "abandon" gives up what was not
 * written.
 *
 * Space and rates that the workspaces of a node share are in workspace_admission.h and
 * workspace_limits.h; what happens to them while nobody asks, in workspace_monitor.h.
 */
#pragma once

#include "catalog_workspace.h"
#include "engine.h"

#define WORKSPACE_ABANDON_OBJECT "workspace-abandon:"

extern const struct job_kind workspace_create_job;
extern const struct job_kind workspace_mount_job;
extern const struct job_kind workspace_unmount_job;
extern const struct job_kind workspace_abandon_job;
extern const struct job_kind workspace_resize_job;
extern const struct job_kind workspace_rm_job;

/* The document for the API: name, view_of (the workspace that a view shows, else null), id,
 * state (creating, detached, attached, mounted, detaching, fenced, dead, removing), size, stored
 * (bytes on the host's disk), filesystem {size, used, free, inodes, inodes_used} (null when not
 * mounted), path (where it is or is to be mounted, else null), read_only, device (null when there
 * is none), worker {pid, starts, locked, direct, resends, locked_bytes} (null when not attached),
 * waiting {requests, seconds}, lazy (some of it is in the remote alone), fetch {absent, fetched
 * (bytes), waiting (reads), seconds (for how long nothing comes although reads wait), why} (null
 * when not lazy), token (fencing token; null: none was given), signed (made of a checkpoint:
 * whether this node has the cluster's key, without which nobody has checked who made that; else
 * null), incident {when, what} (null: none), created. Caller owns it. NULL with err set. */
json_t *workspace_json(struct node *node, const struct catalog_workspace *workspace,
                       struct err *err);
/* The same of many, which costs little more than that of one: ret[i] of workspaces[i], or NULL with
 * the reason in ret_errs[i] (both have `count` places; the latter are empty before). -errno: of
 * none. */
int workspace_json_each(struct node *node, const struct catalog_workspace *workspaces, size_t count,
                        json_t **ret, struct err *ret_errs, struct err *err);
