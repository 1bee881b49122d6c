/* registry_upload.h - a blob of the store into a registry.
 *
 *   1. a session that an earlier attempt left (remote.h, struct remote_sessions) is asked how far
 *      it is and gone on with
 *   2. a mount from the other repositories that the caller names; a session that the registry opens
 *      in place of one is used. One that fails, for whatever reason, is no mount and costs nothing
 *      of the upload's patience; whether the other repository has the blob is looked at then. A
 *      registry that fails at mounts (5xx) is not asked for any for a while
 *   3. the blob's bytes, as registry_sender.h sends them
 *
 * Sessions of chunked uploads are recorded when they are opened and after each chunk that the
 * registry has confirmed. A failure after which another attempt may go on leaves the record; else
 * the session is given up and forgotten.
 */
#pragma once

#include "registry_internal.h"

/* As blob_put of struct remote_ops. */
int registry_upload_blob(struct remote *remote, const char *repository, const struct digest *digest,
                         int fd, uint64_t size, remote_progress progress, void *arg,
                         struct remote_upload *upload, struct err *err);

/* As session_abandon of struct remote_ops. An address that is not the registry's to give is told to
 * nobody. */
void registry_upload_abandon(struct remote *remote, const char *repository, const char *location);
