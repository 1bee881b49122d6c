/* pack_usage.h - which packs of a checkpoint are needed, and by how much of them (docs/FORMAT.md,
 * "Packs of a root").
 *
 * Job: for each pack of the lists the bytes that entries of leaves and of the root name in it, and
 * where these entries are, between memory and the bytes behind a root; no I/O. Leaves are counted
 * in at most 64 groups: all leaves of a group may name the pack when its bit is set, none does when
 * it is not. A place that several chunks have counts for each of them, so a pack may seem to be
 * needed by more than it is, never by less. 0 bytes: nothing names it.
 *
 * A pack that nobody has counted is *unknown*: it stays for good.
 *
 * Limits: what is decoded comes from a registry, and is checked; what is accepted is encoded again
 * to the same bytes.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PACK_USAGE_GROUPS = 64,
    PACK_USAGE_HEAD = 8,
    PACK_USE_BYTES = 16,
    PACK_USAGE_PACKS_MAX = 256 * 1000, /* as many as lists name */
    PACK_USAGE_BYTES_MAX = PACK_USAGE_HEAD + PACK_USAGE_PACKS_MAX * PACK_USE_BYTES,
};
#define PACK_USE_UNKNOWN UINT64_MAX

struct pack_use {
    uint64_t live;   /* bytes, or PACK_USE_UNKNOWN */
    uint64_t groups; /* bit n: group n; of unknown ones all */
};

/* A group has 2^shift leaves. */
unsigned pack_usage_shift(uint32_t leaf_count);
static inline uint64_t pack_usage_group(uint32_t leaf, unsigned shift)
{
    return UINT64_C(1) << (leaf >> shift);
}
/* The same groups of a volume that has grown: `to` is not smaller than `from`. Not for what is
 * unknown. */
uint64_t pack_usage_regroup(uint64_t groups, unsigned from, unsigned to);

/* Whether it can stand in a root of so many leaves. */
bool pack_use_is_sound(const struct pack_use *use, uint32_t leaf_count);

/* Writes PACK_USAGE_HEAD + count * PACK_USE_BYTES bytes; returns how many. */
size_t pack_usage_encode(const struct pack_use *uses, size_t count, uint8_t *ret);
/* `leaf_count`: of the root. ERR_DAMAGED. Caller frees *ret, which is NULL when there are none. */
int pack_usage_decode(const uint8_t *bytes, size_t len, uint32_t leaf_count, struct pack_use **ret,
                      size_t *ret_count, struct err *err);
