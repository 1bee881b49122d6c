/* epochs.h - what a volume was at a cut: tags, slots and planes of the live map (docs/FORMAT.md,
 * "Epochs").
 *
 * A cut ends the current epoch. Who wants its bytes has it *open*: they are read from `data` as
 * long as nobody changed them, and from an aside afterwards. The worker cuts, sets aside and
 * releases (chunk_io_epoch.c); whoever reads an open epoch, in any process, uses epoch_read.h. Here
 * is what both agree on.
 *
 *   tag     of a chunk's word: the epoch in which it was last written. Equal to the current one:
 *           whatever an open epoch needs of it is set aside already
 *   slot    of the header: an open epoch. Its number in the header is that of its plane and aside
 *           file
 *   plane   one word a chunk: what the chunk was when it was set aside here
 *
 * Slots: free -> opening -> open -> (kept ->) freeing -> released -> free. A kept one is released,
 * but an older open epoch still needs some of its asides.
 *
 * Limits: LIVE_EPOCHS_VIEWS_MAX epochs that are open for views, LIVE_EPOCHS_OPEN_MAX in all; tags
 * mean one epoch as long as renewals happen (epoch_tag_renew()), so no epoch stays open for a
 * checkpoint for more than EPOCH_BEHIND_MAX cuts.
 */
#pragma once

#include "live_map.h"

enum {
    LIVE_EPOCHS_VIEWS_MAX = 8, /* open epochs of views, */
    LIVE_EPOCHS_OPEN_MAX =
        9,             /* and one more for a checkpoint, which no view can keep from its cut */
    EPOCH_TAG_OLD = 1, /* the epoch before `old_before` */
    EPOCH_TAG_FIRST = 2,
    EPOCH_TAGS = 4094,        /* that mean an epoch of their own */
    EPOCH_RENEW_EVERY = 1024, /* cuts; tags older than that are renewed then */
    EPOCH_BEHIND_MAX = 2048,  /* cuts for which a checkpoint may keep its epoch open */
    EPOCH_NAME_BYTES = 16,    /* of an aside's file */
};

enum live_slot_state {
    LIVE_SLOT_FREE = 0,
    LIVE_SLOT_OPENING, /* the cut is not finished: it counts when `epoch` says so */
    LIVE_SLOT_OPEN,
    LIVE_SLOT_KEPT,
    LIVE_SLOT_FREEING,  /* its aside is to be removed, by the worker */
    LIVE_SLOT_RELEASED, /* its plane is to be emptied, by varved (epoch_slots_empty()) */
};
/* What an epoch is open for. */
enum {
    LIVE_USE_CHECKPOINT = 1, /* its dirty chunks are read, once */
    LIVE_USE_VIEW = 2,       /* any chunk is, at any time */
};

/* A checkpoint may need all chunks, too: it stays one. */
static inline bool epoch_is_of_view(uint32_t uses)
{
    return (uses & (LIVE_USE_VIEW | LIVE_USE_CHECKPOINT)) == LIVE_USE_VIEW;
}

/* A word of a plane. */
#define PLANE_PRESENT     ((uint64_t)1 << 63) /* the chunk was set aside, completely */
#define PLANE_DONE        ((uint64_t)1 << 62) /* the checkpoint has read it and needs it no more */
#define PLANE_EPOCH_SHIFT 32
#define PLANE_EPOCH       ((((uint64_t)1 << 30) - 1) << PLANE_EPOCH_SHIFT) /* of its last write */
#define PLANE_WORD        ((uint64_t)(LIVE_WORD_MASK | LIVE_WORD_STATE))   /* as the chunk's word */

static inline uint32_t epoch_tag(uint64_t epoch)
{
    return (uint32_t)(EPOCH_TAG_FIRST + epoch % EPOCH_TAGS) << LIVE_TAG_SHIFT;
}
/* The epoch of the last write, of a word. 0: at or before `clean_epoch`. */
uint64_t epoch_of_word(const struct live_map_header *header, uint32_t word);
/* Whether a chunk is dirty in an open epoch, when it was last written in `last` and `word` says
 * what it was then. Before the first checkpoint of a live map, and when one is to build on another
 * than the last one was, nobody knows what that has (`clean_epoch` is 0): then every chunk is, but
 * those that are clean (unless that is in doubt), and those of which nothing is here. */
static inline bool epoch_is_dirty(const struct live_map_header *header, uint32_t word,
                                  uint64_t last, uint64_t epoch)
{
    uint64_t clean = atomic_load(&header->clean_epoch);
    if (last > epoch)
        return false;
    if (clean > 0)
        return last > clean;
    enum volume_state state = live_word_state(word);
    if (state == VOLUME_CLEAN)
        return (atomic_load(&header->orders) & LIVE_ORDER_DOUBT) != 0;
    return state != VOLUME_ABSENT || (word & LIVE_WORD_MASK) != 0;
}

/* The planes of a live map, each mapped on its own. */
struct epoch_planes {
    _Atomic uint64_t *words[LIVE_MAP_SLOTS];
    size_t mapped; /* bytes, all together; 0: none */
};
/* Maps them for all that the volume can grow to. Their memory comes when it is used, and is not
 * locked where a process has locked all it has; so this comes after that. */
int epoch_planes_map(int live_fd, struct epoch_planes *ret, struct err *err);
void epoch_planes_unmap(struct epoch_planes *planes);

/* "aside-3" */
void epoch_aside_name(unsigned slot, char ret[EPOCH_NAME_BYTES]);

/* Slots that hold asides, ordered by epoch, as the header says now. */
struct epoch_slots {
    unsigned count;
    struct {
        unsigned slot;
        enum live_slot_state state;
        uint32_t uses;
        uint64_t number;
    } at[LIVE_MAP_SLOTS];
};
void epoch_slots_look(const struct live_map_header *header, struct epoch_slots *ret);
/* Gives the memory of released slots back, and the slots. For varved: a worker may change what is
 * in the live map, but not how much memory it has. One thread at a time: the slot that one gives
 * back may be another epoch's before the second has emptied it, too. */
int epoch_slots_empty(struct live_map *live, struct err *err);
/* The slot of an open epoch, or -1. */
int epoch_slot_find(const struct live_map_header *header, uint64_t epoch);
