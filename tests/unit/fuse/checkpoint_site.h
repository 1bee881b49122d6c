/* checkpoint_site.h - a volume in memory that is changed, written as checkpoints and compared, for
 * the tests of checkpoint_write.
 *
 * A block of the volume is a number: 0 for zeros, else what its bytes are made of.
 */
#pragma once

#include "checkpoint_write.h"
#include "hook_remote.h"
#include "scratch.h"

#define SITE_REPOSITORY "volumes/abcdef012345"
#define SITE_TAG        "0123456789ab-live-node-a"

struct checkpoint_site {
    struct scratch *scratch;
    struct remote *oci;      /* owned */
    struct hook_remote hook; /* in front of it, or of another remote */
    uint64_t random;

    uint64_t size;
    uint32_t *now;    /* each block */
    uint32_t *parent; /* as it was at the last checkpoint that succeeded */
    bool *dirty;      /* each chunk: it may differ */
    uint64_t generation;

    bool plain;          /* the source gives bytes alone */
    bool passes_over;    /* it leaves zeros out where it may */
    uint64_t read_fails; /* the chunk that cannot be read; UINT64_MAX: none */
    bool hooked;         /* the parent is read through the hook, too */
    uint64_t done;       /* chunks of which the source was told that they are done */

    struct checkpoint *head;       /* the last checkpoint; owned; NULL: none */
    struct checkpoint_write write; /* what the next one is made with; parent and config are set by
                                      site_write() */
    struct checkpoint_written written; /* the last one */

    /* Of the last one that was compared: its packs, those below a quarter of write.pack_bytes,
     * those that nobody has counted, and the bytes that are named in all of them. */
    size_t packs;
    size_t small;
    unsigned uncounted;
    uint64_t live;
};

int checkpoint_site_setup(void **state); /* 64 MiB of zeros, nothing dirty */
int checkpoint_site_teardown(void **state);
uint64_t checkpoint_site_below(struct checkpoint_site *site, uint64_t end);
/* Grows the volume, before its first checkpoint or later. */
void checkpoint_site_grow(struct checkpoint_site *site, uint64_t size);
void checkpoint_site_set(struct checkpoint_site *site, uint64_t block, uint32_t value);
/* All blocks of a chunk alike in kind: each has another number that begins with `value`. */
void checkpoint_site_fill(struct checkpoint_site *site, uint64_t chunk, uint32_t value);
/* The bytes of a chunk whose blocks are these numbers; whether it is not zero. */
bool checkpoint_site_bytes(const uint32_t *blocks, uint64_t chunk, uint8_t *ret);
/* Writes a checkpoint. A success makes it the head, with nothing dirty. */
int checkpoint_site_try(struct checkpoint_site *site, struct err *err);
void checkpoint_site_write(struct checkpoint_site *site);
/* The head is what the volume was at the last checkpoint, by the test's own reader. */
void checkpoint_site_compare(struct checkpoint_site *site);
/* The same by checkpoint_read(). */
void checkpoint_site_compare_read(struct checkpoint_site *site);
/* The digest that the tag names; false: none. */
bool checkpoint_site_tag(struct checkpoint_site *site, struct digest *ret);
