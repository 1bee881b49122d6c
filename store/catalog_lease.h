/* catalog_lease.h - leases, and the deletions that respect them (I5).
 *
 * A job leases an object before it looks whether its bytes are there, and keeps the lease until
 * what it makes of them is recorded. Removal first makes the record go, in a transaction that
 * queues the bytes; then catalog_deletion_next() hands out queued objects one by one.
 *
 *   key                 the bytes                                   referenced while an image
 *   "blob:sha256:..."   a blob                                      names it
 *   "layer:sha256:..."  a layer image that is keyed by chain ID     has a layer with this chain ID
 *   "diff:sha256:..."   a layer image that is keyed by diff ID      has a layer with this diff ID
 *
 * Which of the two keys a layer's image will have is not known before it was made, so whoever needs
 * a layer leases both.
 *
 * The deleter calls next, removes the bytes *while the transaction is open*, and calls done. A
 * reference that came meanwhile takes the object off the queue; one that is leased waits in the
 * queue for the end of the lease, as its job may end without a reference. A crash in between
 * repeats the removal.
 *
 * Keys of another form are ERR_INVALID.
 */
#pragma once

#include "catalog.h"

/* Leases an object for a job; repeating it is fine. ERR_NOT_FOUND when there is no unfinished job
 * with this ID. */
int catalog_lease_add(struct catalog *catalog, const char *job_id, const char *key,
                      struct err *err);
/* Ends all leases of a job; catalog_job_finish() does the same. */
int catalog_lease_drop(struct catalog *catalog, const char *job_id, struct err *err);

/* Queues an object for deletion; repeating it is fine. */
int catalog_deletion_queue(struct catalog *catalog, const char *key, struct err *err);

/* Begins a transaction and returns the next queued object that is neither leased nor referenced
 * by an image (taking those that are referenced off the queue). *ret_key is NULL, and no
 * transaction is open, when there is none. Else the caller removes the bytes and calls
 * catalog_deletion_done(), or catalog_rollback() when that failed. Caller frees the key. */
int catalog_deletion_next(struct catalog *catalog, char **ret_key, struct err *err);
/* Takes the object off the queue and commits. On failure the transaction has ended. */
int catalog_deletion_done(struct catalog *catalog, const char *key, struct err *err);
/* Puts an object whose bytes could not be removed behind the others and commits. On failure the
 * transaction has ended, and the object is where it was. */
int catalog_deletion_postpone(struct catalog *catalog, const char *key, struct err *err);
