/* commit_blobs.h - the blobs that a job brings into the store, until a record refers to them.
 *
 * A blob is leased for the job before anything relies on its being there (I5), and queued for
 * deletion at the same time: the queue gives up what a record refers to and removes the rest once
 * no lease holds it. So whatever the job's end is - a record, a failure, or a kill after which the
 * job fails - no blob is left that nobody speaks of.
 */
#pragma once

#include "catalog_image.h"
#include "digest.h"
#include "engine.h"

#include <stddef.h>

/* Leases a blob; repeating it is fine. */
int commit_blobs_lease(struct job *job, const struct digest *digest, struct err *err);
/* What the layers of an image are here: their blobs, and their layer images under both of the keys
 * that they may have (catalog_lease.h). */
int commit_blobs_lease_layers(struct job *job, const struct catalog_image *image, struct err *err);
/* Leases and stores a small blob (config, manifest). */
int commit_blobs_put(struct job *job, const char *bytes, size_t len, struct digest *ret,
                     struct err *err);

/* Ends the work, which returned `rc`: drops the leases and removes what nothing refers to. A job
 * that the daemon's stop interrupts keeps both and goes on at the next start. Failures are logged;
 * `rc` and `err` stay what they are. Returns rc. */
int commit_blobs_end(struct job *job, int rc, const struct err *err);
