/* snapshot.h - jobs "snapshot.create", "snapshot.push" and "snapshot.rm".
 *
 * snapshot.create  {"run", "id" (derived from the job's ID by the engine, so that a repeated
 *                  job makes the same snapshot), "name"?: "repo[:tag]", "comment"?, "labels"?: {},
 *                  "durability"?: "local" (default), "pushed" or "verified"}
 *   steps: check (no live process uses the run: mount_users.h, and its exec lock is free) -> sync
 *   (syncfs of the upper) -> capture -> check again -> config and manifest -> record.
 *   and for a higher durability those of snapshot.push. When these fail the snapshot stays, local.
 * snapshot.push    {"snapshot": id, "durability"?: "pushed" (default) or "verified"}
 *   steps: check -> blobs -> manifest -> confirm or verify (push_image.h) -> record
 * snapshot.rm      {"snapshot": id}
 *   removes the record, the manifest that this node pushed, and the local image.
 *
 * Result of create and push: the snapshot document of docs/openapi.yaml (snapshot_json()); its
 * "layers" is null when the image is not on this node any more. After a push it has what came of
 * that, too (push_image_json()). Result of rm: {"id", "digest",
 * "remote": {"state", "message"}, "image": {"state", "message"}}, with what became of the manifest
 * in the remote (not_pushed, removed, absent, refused, waits for others as its tag alone is gone,
 * or kept because another remote is configured now) and of the local image (removed, absent, or
 * kept because something needs it); {"id"} alone when an attempt before a kill had done it.
 *
 * A push never replaces another image under its tag (ERR_EXISTS). A push or removal while the
 * remote does not answer fails and changes nothing here; so does the removal of an image that a run
 * uses.
 */
#pragma once

#include "catalog_snapshot.h"
#include "engine.h"

extern const struct job_kind snapshot_create_job;
extern const struct job_kind snapshot_push_job;
extern const struct job_kind snapshot_rm_job;

/* A snapshot that another job takes on its way. All borrowed. */
struct snapshot_wanted {
    const char *id;
    const char *run;
    const char *name;     /* "repo[:tag]"; NULL: made of the IDs */
    const char *comment;  /* NULL: none */
    const json_t *labels; /* object of strings; NULL: none */
    int64_t expires_ns;   /* wall clock; 0: never */
};
/* Commits the run's changes as a part of `job`, which holds the run's lock (run.h). One with this
 * ID that is there already is the result of an earlier attempt. Ends the leases of the job. */
int snapshot_take_locked(struct job *job, const struct snapshot_wanted *wanted, struct err *err);

/* Takes such a one back, with its name and its image, when nothing else needs them. */
int snapshot_drop(struct node *node, const char *id, struct err *err);

/* The document for the API; caller owns it. NULL without memory. */
json_t *snapshot_json(struct node *node, const struct catalog_snapshot *snapshot);
