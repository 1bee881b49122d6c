/* pack_writer.h - packs: frames and leaves one after the other, into a remote while they are made.
 *
 * Job: what is added is appended to the current pack, a file without a name in DATA/tmp that is
 * hashed as it grows. A pack that has its size goes to the remote on a thread of its own, while the
 * next one is filled; at most PACK_WRITER_SENDING are on their way, then adding waits.
 *
 *   new -> add... -> flush -> add... -> flush -> free
 *
 * After a flush every pack that was begun before is in the remote, confirmed with its size
 * (remote_confirm_blob()), and the places of what lies in it are known. Chunks are flushed before
 * the first leaf is made, as leaves name the packs of chunks.
 *
 * Two packs whose digests begin with the same VOLUME_PACK_ID bytes, of this writer or among those
 * that it is told of, would make places ambiguous: the later one is written again with a skippable
 * frame of zstd at its end (docs/FORMAT.md).
 *
 * Failures: the first one ends the work; add and flush return it from then on. A pack in the remote
 * that nobody names is the registry's to collect.
 *
 * Threads: one at a time calls; the sending threads are its own.
 */
#pragma once

#include "remote.h"
#include "volume_index.h"

enum {
    PACK_WRITER_SENDING = 3,
};
#define PACK_BYTES       ((uint64_t)16 << 20)
#define PACK_BYTES_LARGE ((uint64_t)64 << 20) /* of volumes from PACK_LARGE_FROM on */
#define PACK_LARGE_FROM  ((uint64_t)256 << 30)
#define PACK_BYTES_MAX   ((uint64_t)UINT32_MAX) /* of any pack, as offsets have 32 bits */

struct pack {
    struct digest digest;
    uint64_t size;
};

/* Where something was added: final only in pack_writer_place(). */
struct pack_spot {
    uint32_t pack; /* running number in this writer */
    uint32_t offset;
    uint32_t length;
};

struct pack_writer_options {
    struct remote *remote; /* borrowed, as all here */
    const char *repository;
    int temp_fd;               /* a directory for files without names */
    uint64_t pack_bytes;       /* a pack is full when it has as many */
    const struct pack *others; /* packs whose first digits are taken */
    size_t other_count;
    remote_progress progress; /* NULL: nobody can ask for the end; called by several threads */
    void *arg;
};

struct pack_writer;
int pack_writer_new(const struct pack_writer_options *options, struct pack_writer **ret,
                    struct err *err);
void pack_writer_free(struct pack_writer *writer); /* NULL is fine; waits for the threads */
int pack_writer_add(struct pack_writer *writer, const void *bytes, size_t len,
                    struct pack_spot *ret, struct err *err);
int pack_writer_flush(struct pack_writer *writer, struct err *err);
/* After a flush that came after the add. */
struct volume_place pack_writer_place(const struct pack_writer *writer,
                                      const struct pack_spot *spot);
/* The packs so far, in order; valid until the next call of add. After a flush. */
const struct pack *pack_writer_packs(const struct pack_writer *writer, size_t *ret_count);
