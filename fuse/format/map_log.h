/* map_log.h - the disk map of a volume: which chunks are in `data` after a power cut
 * (docs/FORMAT.md, "Disk map").
 *
 * Life: map_log_create() at creation; map_log_open() reads and checks the whole file and tells
 * every record; map_log_append() at each flush that has records; map_log_rewrite() when the log has
 * grown (map_log_is_long()) or the volume is closed.
 *
 * The caller syncs `data` before he appends: records may speak only of bytes that are on disk. One
 * caller at a time. What was told by open, appended or rewritten is on disk when the call returns
 * 0. After a failed append the state on disk is unknown, and the next append writes the same place
 * again; a failure of fdatasync is for good (the kernel may have dropped the pages): every later
 * append fails until the file is written anew.
 *
 * A successor of a killed worker opens the file like any other: a block whose records were not yet
 * cleared in the live map is written once more. Blocks that an incomplete flush left behind the end
 * are overwritten with zeros, durably, before the next flush.
 *
 * No call but open and create allocates; rewrite goes through publish.h.
 */
#pragma once

#include "err.h"
#include "volume_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAP_LOG_RECORDS = 507, /* in a block */
    MAP_LOG_LONG = 1024,   /* blocks of log after which it is written anew */
    MAP_LOG_AHEAD = 64,    /* blocks that are written as zeros ahead */
    MAP_LOG_BLOCKS_MAX = 1 << 20,
};
#define MAP_LOG_NAME "map"
enum {
    MAP_LOG_DIGEST = 32, /* bytes of a checkpoint's digest */
};

struct map_record {
    uint32_t chunk;
    uint16_t mask; /* of an absent chunk; else VOLUME_MASK_ALL, 0 for zero */
    uint8_t state; /* enum volume_state */
    uint8_t reserved;
};
_Static_assert(sizeof(struct map_record) == 8, "as on disk");

struct map_log {
    int dir_fd; /* borrowed: the volume's directory */
    int fd;     /* owned */
    uint8_t uuid[VOLUME_UUID_LEN];
    uint8_t clean_of[MAP_LOG_DIGEST]; /* the checkpoint that has what is clean; zeros: unknown. As
                                         read, and as the next rewrite writes it */
    uint64_t generation;
    uint64_t size; /* of the volume, as in the header */
    uint64_t base_blocks;
    uint64_t next_block; /* where the next record block goes */
    uint64_t stale_end;  /* blocks from next_block up to here may hold an incomplete flush */
    uint64_t ahead;      /* blocks from 0 on that are allocated and written */
    bool closed;         /* closed in an orderly way, and nothing was appended since */
    bool torn;           /* as read: the last flush was incomplete; its rest was dropped */
    bool broken;         /* see above */
    void *block;         /* page-aligned staging buffer; owned */
};

/* Told of every record in order. A failure ends the reading and is returned. */
typedef int map_log_take(void *arg, const struct map_record *record, struct err *err);
/* Gives the next record of what is to be written: 1, 0 at the end, or -errno, which is returned.
 * Called no more after the end; what it does before it says so, happens before the name or the sync
 * that makes the records count. */
typedef int map_log_give(void *arg, struct map_record *ret);

/* Writes the file `map` of a new volume into `dir_fd`, durably. `give` may be NULL. */
int map_log_create(int dir_fd, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size, bool closed,
                   map_log_give *give, void *arg, struct err *err);
/* Opens and reads it. `size` is the volume's; the header may have a smaller one after a resize.
 * ERR_DAMAGED: a broken header, base or middle of the log, a record of a chunk that the volume has
 * not, the map of another volume. ERR_TOO_NEW: another version. `take` may be NULL. Changes
 * nothing, but syncs what it has read, and its name. */
int map_log_open(int dir_fd, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size, map_log_take *take,
                 void *arg, struct map_log *ret, struct err *err);
void map_log_close(struct map_log *log);

/* Appends records as one flush and syncs. ERR_NO_SPACE: nothing is lost, try again. */
int map_log_append(struct map_log *log, map_log_give *give, void *arg, struct err *err);
/* Blocks of log behind the base. */
uint64_t map_log_length(const struct map_log *log);
bool map_log_is_long(const struct map_log *log);
/* Writes the file anew with these records (none for zero chunks) as its base. On failure the old
 * file goes on, unless `broken` says that it is not known which of the two has the name. */
int map_log_rewrite(struct map_log *log, uint64_t size, bool closed, map_log_give *give, void *arg,
                    struct err *err);
