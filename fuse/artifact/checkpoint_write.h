/* checkpoint_write.h - makes a checkpoint of the chunks of a volume that may have changed.
 *
 * Job: chunks -> frames -> packs -> leaves -> root -> config, pack lists, root manifest, index, all
 * in the remote, in this order, each confirmed before what names it is sent (I1). The index is
 * stored under `tag`; with `swap` it is compared and swapped where the remote can (I8). Nothing
 * here knows catalogs, jobs, epochs or files: the chunks come from a source.
 *
 * A chunk is stored unless it is zero, is what the parent has, or has been stored already by this
 * call (remembered up to CHECKPOINT_SEEN_MAX digests). When nothing differs from the parent,
 * nothing is written and `unchanged` says so.
 *
 * A failure leaves blobs and manifests that nothing tagged names (or the tags "r-" and "p-" alone).
 *
 * Threads: one for a call; compression and sending have threads of their own.
 */
#pragma once

#include "checkpoint.h"
#include "pack_writer.h"

enum {
    CHECKPOINT_SEEN_MAX = 1 << 18,
    CHECKPOINT_WRITE_THREADS = 2, /* that compress and hash */
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
    /* The next chunk from `from` on that may differ from the parent; UINT64_MAX: none. */
    uint64_t (*next)(void *arg, uint64_t from);
    /* Returns enum checkpoint_chunk or -errno. `buffer`: VOLUME_CHUNK bytes, aligned to blocks. */
    int (*read)(void *arg, uint64_t chunk, void *buffer, uint32_t *ret_mask, struct err *err);
    /* The chunk's bytes are in a pack, or needed no more. May be NULL. */
    void (*done)(void *arg, uint64_t chunk);
    void *arg;
};

struct checkpoint_write {
    struct remote *remote; /* borrowed, as all here */
    const char *repository;
    const char *tag;
    struct checkpoint *parent; /* NULL: none */
    int temp_fd;
    const struct hmac_key *key;      /* NULL: not signed */
    struct checkpoint_config config; /* as it will be, without size, root, parent; borrowed */
    bool swap;                       /* where the remote can: only if the tag names `expected` */
    const struct digest *expected;   /* NULL: nothing */
    bool always;                     /* also when nothing has changed */
    remote_progress stop;            /* NULL; called by several threads */
    void *stop_arg;
    /* Told how much of the source has been dealt with; one thread. NULL. */
    int (*progress)(void *arg, uint64_t chunks, uint64_t bytes_sent, struct err *err);
    void *progress_arg;
};

struct checkpoint_written {
    bool unchanged;       /* `digest` is the parent's */
    struct digest digest; /* of the index */
    uint64_t chunks_read;
    uint64_t chunks_new;
    uint64_t bytes_new;   /* sent: packs, root, manifests */
    uint64_t bytes_total; /* of all packs that the index names */
    uint64_t chunks;      /* that are not zero */
};

int checkpoint_write(const struct checkpoint_write *write, const struct checkpoint_source *source,
                     struct checkpoint_written *ret, struct err *err);
