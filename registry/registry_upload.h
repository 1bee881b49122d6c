/* registry_upload.h - a blob of the store into a registry, in a way that suits the registry.
 *
 *   1. a session that an earlier attempt left (remote.h, struct remote_sessions) is asked how far
 *      it is and gone on with
 *   2. a mount from the other repositories that the caller names; a session that the registry opens
 *      in place of one is used
 *   3. a blob of at most a chunk: POST and one PUT
 *      a larger one: POST, a PATCH for each chunk, an empty PUT
 *
 * What is learned about the registry (registry_pool.h, traits) holds for later blobs too:
 *   413, or 416 at the offset that the registry has (GHCR)
 *       chunks of half the size, down to REGISTRY_CHUNK_MIN
 *   400, 405, 411, 415 or 501 to a chunk, 404 to the first
 *       one PUT with all, and when that succeeds always so
 *   a PUT with a body is refused
 *       chunks for small blobs too
 * Before an upload in chunks fails because it was begun too often, one PUT with all is tried in a
 * new session, as every registry takes that from other clients.
 *
 * After a body that broke off nothing is supposed: the registry is asked for its offset, and what
 * is behind it is read from the file again. A session that is lost is begun anew, at most
 * REGISTRY_UPLOAD_RESTARTS_MAX times. A closing PUT whose answer does not come may have been done:
 * the blob is asked for before anything is sent again.
 *
 * Sessions of chunked uploads are recorded when they are opened and after each chunk that the
 * registry has confirmed. A failure after which another attempt may go on leaves the record; else
 * the session is given up and forgotten.
 */
#pragma once

#include "registry_internal.h"

enum {
    REGISTRY_UPLOAD_RESTARTS_MAX = 4,
    REGISTRY_UPLOAD_ASKS_MAX = 3, /* times that a registry has another offset, without progress */
};

/* As blob_put of struct remote_ops. */
int registry_upload_blob(struct remote *remote, const char *repository, const struct digest *digest,
                         int fd, uint64_t size, remote_progress progress, void *arg,
                         struct remote_upload *upload, struct err *err);
