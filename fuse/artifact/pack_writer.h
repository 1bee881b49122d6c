/* pack_writer.h - packs: frames and leaves one after the other, into a remote while they are made.
 *
 * Job: what is added is appended to the current pack, a file without a name in DATA/tmp that is
 * hashed as it grows. A pack that has its size is sealed: it goes to the remote on a thread of its
 * own, while the next one is filled; at most PACK_WRITER_SENDING are on their way, then sealing the
 * next one waits.
 *
 *   new -> add... -> seal -> add... -> send... -> flush -> free
 *
 * Places are known of what lies in sealed packs: chunks are sealed before the leaves that name
 * their packs are made. Other small blobs go the same way (pack_writer_send()). After a flush
 * everything is in the remote, confirmed (remote_confirm_blob()).
 *
 * A pack that is, byte by byte, one of those that the writer is told of is not sent again and no
 * new pack: places name the other one. Two different packs whose digests begin with the same
 * VOLUME_PACK_ID bytes would make places ambiguous: the later one gets a skippable frame of zstd at
 * its end (docs/FORMAT.md), and so does each where none that the remote has is believed (`fresh`).
 * The same input makes the same packs.
 *
 * Limits: PACK_WRITER_SENDING + 1 packs in temporary files, each of at most `pack_bytes` and what
 * was added last; memory for the digests of all packs, and nothing else that grows. No room for a
 * file is ERR_NO_SPACE.
 *
 * Failures: the first one ends the work; add, seal and flush return it from then on, and transfers
 * that are under way end. A pack in the remote that nobody names is the registry's to collect.
 *
 * Threads: one at a time calls; the sending threads are its own.
 */
#pragma once

#include "remote.h"
#include "volume_index.h"

enum {
    PACK_WRITER_SENDING = 3,
    PACK_ADD_MAX = 1 << 20,
};
#define PACK_BYTES       ((uint64_t)16 << 20)
#define PACK_BYTES_LARGE ((uint64_t)64 << 20) /* of volumes from PACK_LARGE_FROM on */
#define PACK_LARGE_FROM  ((uint64_t)256 << 30)
#define PACK_BYTES_MAX   ((uint64_t)UINT32_MAX) /* of any pack, as offsets have 32 bits */

struct pack {
    struct digest digest;
    uint64_t size;
};

/* Where something was added; pack_writer_place() says where that is. */
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
    uint32_t fresh;   /* 0; else no pack is one that a writer with another number has made, byte by
                         byte, so none that the remote has from before is believed */
    unsigned id_bits; /* 0: all; fewer of the first ones are compared where a test wants packs to
                         be alike */
    remote_progress progress; /* NULL: nobody can ask for the end; called by several threads */
    void *arg;
};

struct pack_writer;
int pack_writer_new(const struct pack_writer_options *options, struct pack_writer **ret,
                    struct err *err);
void pack_writer_free(struct pack_writer *writer); /* NULL is fine; waits for the threads */
/* `len`: 1 to PACK_ADD_MAX bytes. Returns after a seal when the pack has its size. */
int pack_writer_add(struct pack_writer *writer, const void *bytes, size_t len,
                    struct pack_spot *ret, struct err *err);
/* Ends the current pack, if anything is in it. */
int pack_writer_seal(struct pack_writer *writer, struct err *err);
/* Sends other bytes as a blob of their own; *ret is its digest. They are copied. */
int pack_writer_send(struct pack_writer *writer, const void *bytes, size_t len, struct digest *ret,
                     struct err *err);
/* Seals, and waits until everything is in the remote. */
int pack_writer_flush(struct pack_writer *writer, struct err *err);
/* After a seal that came after the add. */
struct volume_place pack_writer_place(const struct pack_writer *writer,
                                      const struct pack_spot *spot);
/* The new packs so far, in order; valid until the next seal. */
const struct pack *pack_writer_packs(const struct pack_writer *writer, size_t *ret_count);
/* Bytes that the remote has confirmed so far. */
uint64_t pack_writer_sent(struct pack_writer *writer);
