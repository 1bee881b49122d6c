/* checkpoint_verify.h - reads a checkpoint back from its remote.
 *
 * Job: everything that a checkpoint stands on, byte by byte, against its digest: index, root
 * manifest, config, root and pack lists (by opening it anew), and its packs, chunks and leaves in
 * them. Packs that another checkpoint names, which was verified as a whole before, are not read
 * again.
 *
 * ERR_NOT_FOUND, ERR_DIGEST, ERR_DAMAGED: the remote has lost or damaged something, which the
 * message names. What it says it has counts for nothing here.
 */
#pragma once

#include "checkpoint.h"

struct checkpoint_verified {
    uint64_t packs; /* that were read */
    uint64_t bytes; /* of them */
};

/* `digest` of the index. `known` (may be NULL): the one whose packs were verified before. */
int checkpoint_verify(const struct checkpoint_options *options, const struct digest *digest,
                      const struct checkpoint *known, remote_progress stop, void *stop_arg,
                      struct checkpoint_verified *ret, struct err *err);
