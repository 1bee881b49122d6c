/* live_map.h - the live map: what state each chunk of an attached volume has, in memory that
 * survives the death of the program that changes it.
 *
 * A memfd that varved makes at attach and worker, keeper and varved hold. The worker changes chunk
 * words; keeper maps the header alone and reads the heartbeat; varved reads counters and writes
 * limits and orders, and the bit TOUCHED of words. Layout: one page of header, then one 32-bit word
 * a chunk (docs/FORMAT.md, "Live map"). A kill between any two instructions leaves a map that is
 * true: a state is one word, which is lock-free and atomic, and where fields belong together (INIT
 * and its state, an OPEN and the count after it) the one that makes the others count is written
 * last.
 *
 * The bit "unlogged" of a word says that the disk map does not know the state yet. A summary of
 * which words are unlogged is the worker's own and made again at its start.
 *
 * What it does not do: it has no locks (a dead holder would keep them), and it knows no files.
 */
#pragma once

#include "err.h"
#include "volume_format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LIVE_MAP_HEADER_BYTES = 4096,
    LIVE_MAP_VERSION = 2,
    LIVE_MAP_INIT_MAX = 256, /* bytes of a FUSE_INIT message; 7.45 has 104 and 80 */
    LIVE_MAP_TEXT_MAX = 512,
    LIVE_MAP_OPENS_KEPT = 8,
    LIVE_MAP_SLOTS = 16, /* of open epochs and what is kept for them (epochs.h) */
    EPOCH_FIRST = 1,
};
#define LIVE_MAP_MAGIC "VRVLIVE1"

/* Orders, in `orders`; written by varved alone. */
enum {
    LIVE_ORDER_FENCED = 1, /* writes, held ones too, are answered with EIO; reads go on */
    LIVE_ORDER_DOUBT = 2,  /* what is clean counts as dirty: it is so of another checkpoint */
};
/* Facts, in `facts`; written by the worker alone. */
enum {
    LIVE_FACT_READY = 1,      /* INIT is answered, requests are served */
    LIVE_FACT_OPEN = 2,       /* `device` is open: OPEN seen and no RELEASE for it yet */
    LIVE_FACT_CLOSED = 4,     /* after the final cut: the map on disk is closed, writes are EIO */
    LIVE_FACT_RESENDS = 8,    /* the kernel sends unanswered requests again (Linux 6.9) */
    LIVE_FACT_DESTROYED = 16, /* FUSE_DESTROY was seen, or the connection is gone */
    LIVE_FACT_FAILED = 32,    /* a sync of data or map has failed: every flush is an error */
    LIVE_FACT_REFUSED = 64,   /* the last worker refused, for the reason in `text`; no other one is
                                 started */
};

/* How `data` is written. */
enum live_data_mode {
    LIVE_DATA_DIRECT = 1,
    LIVE_DATA_BUFFERED = 2,
};

/* An open epoch, or what is left of one (epochs.h). By the worker. */
struct live_slot {
    _Atomic uint32_t state; /* enum live_slot_state */
    _Atomic uint32_t uses;  /* LIVE_USE_...: what it is open for */
    _Atomic uint64_t number;
    _Atomic uint64_t token;  /* of whoever asked for the cut, so that he can ask again */
    _Atomic uint32_t shared; /* 1: asides in it are for older epochs too */
    _Atomic uint32_t broken; /* errno of an aside that could not be written; 0: all are there */
    _Atomic uint64_t size;   /* of the volume at the cut, in bytes */
    _Atomic uint64_t asides; /* chunks that were copied */
};

struct live_map_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    char id[16]; /* NUL-terminated */
    uint8_t uuid[VOLUME_UUID_LEN];
    _Atomic uint64_t size; /* logical bytes; grows, written by the worker when it resizes */

    /* Of the first worker. init_state: 0 nothing, 1 the request is recorded, 2 the reply too, 3 the
     * kernel has taken the reply. */
    _Atomic uint32_t init_state;
    uint32_t init_request_len;
    uint32_t init_reply_len;
    _Atomic uint32_t
        failed_num; /* by the worker: errno of the sync of LIVE_FACT_FAILED; 0: unknown */
    uint8_t init_request[LIVE_MAP_INIT_MAX];
    uint8_t init_reply[LIVE_MAP_INIT_MAX]; /* fuse_out_header with unique 0, and fuse_init_out */

    /* By the worker. Times are CLOCK_MONOTONIC (CLOCK_BOOTTIME would count a sleep as silence). */
    _Atomic uint64_t heartbeat_ns;
    _Atomic uint32_t facts;
    _Atomic uint32_t pid;
    _Atomic uint64_t starts;        /* workers that began to serve */
    _Atomic uint64_t opens;         /* OPEN minus RELEASE of `device` */
    _Atomic uint64_t held;          /* requests that wait for space on the host's disk */
    _Atomic uint64_t held_since_ns; /* 0: none waits */
    _Atomic uint64_t absent;        /* requests that wait for the remote */
    _Atomic uint64_t in_flight;     /* requests taken and not answered */
    _Atomic uint64_t local_chunks;  /* not zero and not absent; exact after a start, kept up */
    _Atomic uint64_t reads, writes, flushes, discards, errors;
    _Atomic uint64_t read_bytes, write_bytes, discard_bytes;
    _Atomic uint64_t map_blocks;   /* of the disk map's log */
    _Atomic uint64_t locked_bytes; /* memory that is locked (VmLck) after the start */
    _Atomic uint32_t data_mode;    /* enum live_data_mode; 0: no worker was there yet */
    _Atomic uint32_t residency;    /* 1 locked; 0 locking was refused */
    char text[LIVE_MAP_TEXT_MAX];  /* why the last worker refused; "" */
    /* The OPEN or RELEASE that is being counted, so that one that is sent again is not counted
     * twice: its unique number (0: none) and what `opens` is after it. */
    _Atomic uint64_t open_unique;
    _Atomic uint64_t open_target;

    /* By varved. */
    _Atomic uint32_t orders;
    _Atomic uint32_t reserved2;
    _Atomic uint64_t limit_bytes; /* bytes per second, reads and writes together; 0 none */
    _Atomic uint64_t limit_ops;   /* the same in requests */

    /* By the worker: those that were counted before `open_unique`, the newest first. */
    _Atomic uint64_t open_before[LIVE_MAP_OPENS_KEPT];

    /* By varved: since when requests have waited for space, over the deaths of workers, each of
     * which counts anew; 0: none waits. */
    _Atomic uint64_t waits_since_ns;
    _Atomic uint64_t clean_epoch; /* the last one whose checkpoint succeeded; 0: none, or the next
                                     one builds on another */

    /* By the worker (epochs.h). */
    _Atomic uint64_t epoch; /* the current one, from 1 on */
    _Atomic uint64_t old_before;
    struct live_slot slots[LIVE_MAP_SLOTS];
    _Atomic uint64_t absent_chunks; /* as local_chunks */

    /* By varved, before `clean_epoch`: digest of the checkpoint that has what is clean, first as
     * the disk map says; zeros: unknown. */
    uint8_t clean_of[32];
};
_Static_assert(sizeof(struct live_map_header) <= LIVE_MAP_HEADER_BYTES, "one page");

/* A word. */
#define LIVE_WORD_MASK     0x0000FFFFu
#define LIVE_WORD_STATE    0x00030000u
#define LIVE_WORD_SHIFT    16
#define LIVE_WORD_UNLOGGED 0x00040000u
#define LIVE_WORD_TOUCHED  0x00080000u /* written since the last trim; for varved's fstrim */
#define LIVE_WORD_TAG      0xFFF00000u /* when it was last written (epochs.h) */
#define LIVE_TAG_SHIFT     20

struct live_map {
    int fd; /* borrowed */
    struct live_map_header *header;
    _Atomic uint32_t *words; /* NULL when the header alone is mapped */
    size_t mapped;           /* bytes */
    uint64_t capacity;       /* bytes that the volume can grow to as long as it is attached */
};

static inline enum volume_state live_word_state(uint32_t word)
{
    return (enum volume_state)((word & LIVE_WORD_STATE) >> LIVE_WORD_SHIFT);
}
static inline uint32_t live_word(enum volume_state state, uint32_t mask)
{
    return ((uint32_t)state << LIVE_WORD_SHIFT) | (mask & LIVE_WORD_MASK);
}
/* Bytes of header and words. */
static inline uint64_t live_map_bytes(uint64_t size)
{
    return LIVE_MAP_HEADER_BYTES + size / VOLUME_CHUNK * sizeof(uint32_t);
}
/* The file has room for a volume of this many bytes, as it cannot grow: behind the words are the
 * planes of the slots (epochs.h). Only pages that are used take memory. */
#define LIVE_CAPACITY_MIN ((uint64_t)64 << 30)
static inline uint64_t live_plane_at(uint64_t capacity, unsigned slot)
{
    return live_map_bytes(capacity) + capacity / VOLUME_CHUNK * sizeof(uint64_t) * slot;
}
static inline uint64_t live_file_bytes(uint64_t capacity)
{
    return live_plane_at(capacity, LIVE_MAP_SLOTS);
}
/* The capacity of a live map that is made for such a volume. */
uint64_t live_map_capacity(uint64_t size);
/* Reads it off the file. ERR_DAMAGED: no live map has such a size. */
int live_map_read_capacity(int fd, uint64_t *ret, struct err *err);

/* The inode number, which tells one live map from all others of the host, for whoever has the
 * descriptor. Not 0. */
int live_map_number(int fd, uint64_t *ret, struct err *err);

/* Makes a memfd (sealed: it keeps its size) for a volume, all chunks zero, nothing recorded.
 * Returns a descriptor that the caller owns, or -errno. */
int live_map_make(const char *id, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                  struct err *err);
/* Maps a live map shared and checks its header against its own size. `header_only` for those who
 * don't look at chunks. ERR_DAMAGED, ERR_TOO_NEW. The descriptor must stay open as long. */
int live_map_open(int fd, bool header_only, struct live_map *ret, struct err *err);
void live_map_close(struct live_map *map); /* harmless on a zeroed one */
/* The text, as one line of printable ASCII: a worker may write anything there, at any time. */
void live_map_text(const struct live_map_header *header, char ret[LIVE_MAP_TEXT_MAX]);
/* Maps the words of a volume that has become larger. For whoever has it mapped, with nobody in it.
 */
int live_map_remap(struct live_map *map, uint64_t size, struct err *err);
