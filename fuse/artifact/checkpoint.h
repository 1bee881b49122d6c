/* checkpoint.h - a checkpoint that is open for reading.
 *
 * Job: from a reference in a remote to the bytes of any chunk. Opening reads index, root manifest,
 * config, root and pack lists, each checked by its digest and against what the others say of it
 * (I6): size of volume and root, the root's digest in the config, sizes, no two packs that begin
 * with the same VOLUME_PACK_ID bytes. Where there is a key, the config's HMAC is checked before
 * anything else of it is believed. Leaves are fetched when they are needed and kept, up to
 * CHECKPOINT_LEAVES_KEPT. Chunks are read from their packs by ranged reads: those that lie near
 * each other in one pack come in one read. Each chunk is checked by its digest.
 *
 * Failures: ERR_NOT_FOUND: no such checkpoint, or the remote has lost a part of it (the message
 * names it); ERR_DIGEST, ERR_DAMAGED: wrong bytes; ERR_DENIED: HMAC. ERR_UNREACHABLE and what else
 * the remote says are passed on: whoever can wait, tries again. ERR_CANCELLED: the caller's stop.
 *
 * Threads: any number may read at once.
 */
#pragma once

#include "checkpoint_config.h"
#include "checkpoint_manifest.h"
#include "remote.h"
#include "volume_index.h"

enum {
    CHECKPOINT_LEAVES_KEPT = 64,
    CHECKPOINT_GAP = 128 * 1024,   /* bytes between two frames that are read rather than asked for
                                      separately */
    CHECKPOINT_READ_MAX = 4 << 20, /* of a ranged read */
};

struct checkpoint;

struct checkpoint_options {
    struct remote *remote;      /* borrowed */
    const char *repository;     /* whole: remote_repository(remote, "volumes/LINEAGE"); copied */
    const struct hmac_key *key; /* borrowed; NULL: HMACs are not looked at */
};

/* `reference`: a tag, or the digest of the index. `stop` (may be NULL) can ask for the end; so in
 * all calls below. */
int checkpoint_open(const struct checkpoint_options *options, const char *reference,
                    remote_progress stop, void *arg, struct checkpoint **ret, struct err *err);
void checkpoint_free(struct checkpoint *checkpoint); /* NULL is fine; nobody is in a call */

/* All valid as long as the checkpoint. */
const struct digest *checkpoint_digest(const struct checkpoint *checkpoint);
const struct checkpoint_config *checkpoint_config_of(const struct checkpoint *checkpoint);
const struct checkpoint_index *checkpoint_index_of(const struct checkpoint *checkpoint);
const struct volume_root *checkpoint_root_of(const struct checkpoint *checkpoint);
/* All packs, in the order of the lists. */
const struct pack *checkpoint_packs_of(const struct checkpoint *checkpoint, size_t *ret_count);
/* How many of them each list has. */
const uint32_t *checkpoint_list_packs(const struct checkpoint *checkpoint);
/* What each of them is needed for; NULL: nobody has counted. */
const struct pack_use *checkpoint_uses_of(const struct checkpoint *checkpoint);
/* The pack that has these bytes, by its number among them; ERR_DAMAGED when there is none. */
int checkpoint_find_pack(const struct checkpoint *checkpoint, const struct volume_place *place,
                         uint32_t *ret, struct err *err);

/* A copy of a leaf, into memory of the caller (it is large). One of which nothing is set is empty,
 * without asking anybody. */
int checkpoint_leaf(struct checkpoint *checkpoint, uint32_t number, remote_progress stop, void *arg,
                    struct volume_leaf *ret, struct err *err);
/* What a chunk is: 1 and *ret, 0 when it is zero, or -errno. */
int checkpoint_find(struct checkpoint *checkpoint, uint64_t chunk, remote_progress stop, void *arg,
                    struct volume_entry *ret, struct err *err);

/* Takes the bytes of a chunk (VOLUME_CHUNK, valid for the call), or NULL: it is zero. A failure
 * ends the read and is returned. */
typedef int checkpoint_take(void *arg, uint64_t chunk, const void *bytes, struct err *err);
/* Reads chunks, in the order in which they lie in the packs, each once; `chunks` has no number
 * twice. What is damaged or lost (ERR_NOT_FOUND, ERR_DIGEST, ERR_DAMAGED, ERR_TOO_NEW) is left out,
 * and the first such failure is returned when all others have been given; any other failure ends
 * the read. `stop` is asked with a total of 0 before each ranged read, and with another one while
 * that is under way. */
int checkpoint_read(struct checkpoint *checkpoint, const uint64_t *chunks, size_t count,
                    remote_progress stop, void *stop_arg, checkpoint_take *take, void *take_arg,
                    struct err *err);

/* Takes the frame of a chunk as it stands in its pack, whose digest was checked. */
typedef int checkpoint_take_frame(void *arg, uint64_t chunk, const void *frame, size_t len,
                                  struct err *err);
/* What such a read may cost; counted down. */
struct checkpoint_budget {
    size_t reads;   /* ranged ones */
    uint64_t bytes; /* of these, what lies between the frames included */
    uint32_t gap;   /* instead of CHECKPOINT_GAP; stays */
};
/* The same for frames of chunks that are not zero; what would cost more is left out. */
int checkpoint_read_frames(struct checkpoint *checkpoint, const uint64_t *chunks, size_t count,
                           struct checkpoint_budget *budget, remote_progress stop, void *stop_arg,
                           checkpoint_take_frame *take, void *take_arg, struct err *err);
