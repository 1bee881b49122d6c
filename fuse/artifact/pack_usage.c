#include "pack_usage.h"

#include "cleanup.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

unsigned pack_usage_shift(uint32_t leaf_count)
{
    unsigned shift = 0;
    while (leaf_count > 0 && (leaf_count - 1) >> shift >= PACK_USAGE_GROUPS)
        shift++;
    return shift;
}

uint64_t pack_usage_regroup(uint64_t groups, unsigned from, unsigned to)
{
    for (; from < to; from++) {
        uint64_t wider = 0;
        for (unsigned i = 0; i < PACK_USAGE_GROUPS; i++)
            wider |= (groups >> i & 1) << (i / 2);
        groups = wider;
    }
    return groups;
}

static void put(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static uint64_t get(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

size_t pack_usage_encode(const struct pack_use *uses, size_t count, uint8_t *ret)
{
    put(ret, count);
    uint8_t *at = ret + PACK_USAGE_HEAD;
    for (size_t i = 0; i < count; i++, at += PACK_USE_BYTES) {
        put(at, uses[i].live);
        put(at + 8, uses[i].groups);
    }
    return (size_t)(at - ret);
}

/* Something is named from somewhere, nothing from nowhere. */
bool pack_use_is_sound(const struct pack_use *use, uint32_t leaf_count)
{
    const unsigned count =
        leaf_count > 0 ? ((leaf_count - 1) >> pack_usage_shift(leaf_count)) + 1 : 0;
    const uint64_t all = count >= PACK_USAGE_GROUPS ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    if (use->live == PACK_USE_UNKNOWN)
        return use->groups == UINT64_MAX;
    return (use->live > 0) == (use->groups != 0) && (use->groups & ~all) == 0;
}

int pack_usage_decode(const uint8_t *bytes, size_t len, uint32_t leaf_count, struct pack_use **ret,
                      size_t *ret_count, struct err *err)
{
    uint64_t count = len < PACK_USAGE_HEAD ? UINT64_MAX : get(bytes);
    if (count > PACK_USAGE_PACKS_MAX || len != PACK_USAGE_HEAD + count * PACK_USE_BYTES)
        return err_fail(err, ERR_DAMAGED, "the packs of a root are damaged");
    cleanup_free struct pack_use *uses = count > 0 ? calloc(count, sizeof *uses) : NULL;
    if (count > 0 && !uses)
        return err_errno(err, ENOMEM, "cannot read the packs of a root");
    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = bytes + PACK_USAGE_HEAD + i * PACK_USE_BYTES;
        uses[i] = (struct pack_use){.live = get(at), .groups = get(at + 8)};
        if (!pack_use_is_sound(&uses[i], leaf_count))
            return err_fail(err, ERR_DAMAGED, "pack %zu of a root has %llu bytes from nowhere", i,
                            (unsigned long long)uses[i].live);
    }
    *ret_count = count;
    *ret = steal_ptr(uses);
    return 0;
}
