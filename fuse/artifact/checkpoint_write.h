/* checkpoint_write.h - makes a checkpoint of the chunks of a volume that may have changed.
 *
 * Job: chunks -> frames -> packs -> leaves -> root -> config, pack lists, root manifest, index, all
 * in the remote, in this order, each confirmed before what names it is sent (I1). The tag of the
 * index is chosen directly before that is stored, in the same step where the remote can (I8); one
 * that names this very index already is a success too, of an attempt that did not hear of it.
 * Nothing here knows catalogs, jobs, epochs or files: the chunks come from a source.
 *
 * A chunk is stored unless it is zero, is what the parent has, or has been stored already by this
 * call (remembered up to CHECKPOINT_SEEN_MAX digests). When nothing differs from the parent,
 * nothing is written and `unchanged` says so. The same parent, chunks and config make the same
 * bytes.
 *
 * What is zero and zero in the parent costs next to nothing, as volumes are mostly that: it is not
 * hashed, and where the parent's root says that nothing of a leaf is set, the source may pass over
 * it. A leaf of the parent is fetched when something is set there and the source has more to say of
 * its chunks than that they are the parent's.
 *
 * Packs that nothing names any more leave the lists; those that are hardly needed, and small ones,
 * are emptied (checkpoint_upkeep.h), within bounds. Pack lists of the parent that lose no pack are
 * named again, but for the last one, which gets the new ones. Lists and root manifests have tags
 * ("p-", "r-" and the first 12 digits of their digest) before the index is sent. A tag that names
 * another manifest already is ERR_EXISTS.
 *
 * A failure leaves blobs and manifests that nothing tagged names (or the tags "r-" and "p-" alone);
 * what the tag of the index named before, it names then, unless the very last request failed and
 * nobody knows.
 *
 * Memory: 8 MiB for chunks on their way, 16 MiB for those that are moved, 7 MiB for what is known
 * of up to CHECKPOINT_LEAVES_PENDING leaves that wait for their packs, 35 MiB for digests
 * (chunk_seen.h), the packs of the index (40 bytes each), and what the parent keeps (checkpoint.h).
 * Temporary files: pack_writer.h.
 *
 * Threads: one for a call; compression and sending have threads of their own.
 */
#pragma once

#include "checkpoint.h"
#include "pack_writer.h"

enum {
    CHECKPOINT_SEEN_MAX = 1 << 18,
    CHECKPOINT_WRITE_THREADS = 2, /* that compress and hash */
    CHECKPOINT_LEAVES_PENDING = 32,
};

/* What a chunk of the source is. */
enum checkpoint_chunk {
    CHECKPOINT_CHUNK_BYTES, /* `buffer` has its bytes; they may all be zero */
    CHECKPOINT_CHUNK_ZERO,
    CHECKPOINT_CHUNK_PARENT, /* it is what the parent has, but for the blocks in *ret_mask, which
                                `buffer` has; 0: all of it */
};

struct checkpoint_source {
    uint64_t size; /* of the volume in bytes; not smaller than the parent's */
    /* The next chunk from `from` on and before `until` that may differ from the parent; UINT64_MAX:
     * none. `zeros` false: the parent has only zeros there, or there is none, so that chunks which
     * are zero may be left out. */
    uint64_t (*next)(void *arg, uint64_t from, uint64_t until, bool zeros);
    /* Returns enum checkpoint_chunk or -errno. `buffer`: VOLUME_CHUNK bytes, aligned to blocks. */
    int (*read)(void *arg, uint64_t chunk, void *buffer, uint32_t *ret_mask, struct err *err);
    /* The chunk's bytes are in a pack, or needed no more. May be NULL. After a failure they may be
     * gone, so the next attempt needs a source of its own. */
    void (*done)(void *arg, uint64_t chunk);
    void *arg;
};

struct checkpoint_write {
    struct remote *remote; /* borrowed, as all here */
    const char *repository;
    const char *tag; /* with `choose` NULL: the index is stored under it, whatever it names */
    /* Gives the tag of the index; a live one may name another index, any other one is claimed. */
    int (*choose)(void *arg, const struct digest *index, const char **ret_tag, struct err *err);
    void *choose_arg;
    struct checkpoint *parent;  /* in the same repository; NULL: none */
    const struct digest *after; /* the checkpoint before, when that is not `parent`; NULL: it is */
    bool fresh; /* no pack of one of the volume's checkpoints before is believed: each is another
                   one for the config's generation */
    int temp_fd;
    const struct hmac_key *key;      /* NULL: not signed */
    struct checkpoint_config config; /* as it will be, without size, root, parent; borrowed */
    bool always;                     /* also when nothing has changed */
    remote_progress stop;            /* NULL; called by several threads */
    void *stop_arg;
    /* Told how much of the source has been dealt with; one thread. A failure ends the work. It is
     * called after the last read of the source and before anything that names chunks is sent, also
     * when nothing has changed. NULL. */
    int (*progress)(void *arg, uint64_t chunks, uint64_t bytes_sent, struct err *err);
    void *progress_arg;
    /* NULL; set to true with a failure that is the parent's: the remote has lost or damaged a part
     * of it (ERR_NOT_FOUND, ERR_DIGEST, ERR_DAMAGED), which a repeat does not mend. A checkpoint
     * without parent does, when all bytes are here; else that is ERR_NOT_FOUND. */
    bool *ret_parent_lost;
    /* For tests; 0 otherwise. */
    uint64_t pack_bytes; /* of a pack, instead of what the volume's size says */
    unsigned id_bits;    /* pack_writer.h */
};

struct checkpoint_written {
    bool unchanged;       /* `digest` is the parent's */
    struct digest digest; /* of the index */
    uint64_t chunks_read;
    uint64_t chunks_new;
    uint64_t bytes_new;   /* sent: packs, root, manifests */
    uint64_t bytes_moved; /* of them, out of packs of the parent's */
    uint64_t bytes_total; /* of all packs that the index names */
    uint64_t chunks;      /* that are not zero */
    struct pack *packs;   /* new ones; owned; NULL */
    size_t pack_count;
};
void checkpoint_written_free(struct checkpoint_written *written);
#define cleanup_checkpoint_written cleanup_with(checkpoint_written_free)

int checkpoint_write(const struct checkpoint_write *write, const struct checkpoint_source *source,
                     struct checkpoint_written *ret, struct err *err);
