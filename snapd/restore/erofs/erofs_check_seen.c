#include "erofs_check_seen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

int erofs_seen_init(struct erofs_seen *seen, uint64_t max, struct err *err)
{
    struct erofs_seen made = {.max = max, .slots = max + max / 4 + 8};
    if (max > UINT32_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%" PRIu64 " inodes are too many to check", max);
    made.keys = calloc(made.slots, sizeof *made.keys);
    made.missing = calloc(made.slots, sizeof *made.missing);
    if (!made.keys || !made.missing) {
        erofs_seen_free(&made);
        return err_errno(err, ENOMEM, "cannot check %" PRIu64 " inodes", max);
    }
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random)
        memcpy(&made.seed, random, sizeof made.seed);
    *seen = made;
    return 0;
}

void erofs_seen_free(struct erofs_seen *seen)
{
    free(seen->keys);
    free(seen->missing);
    *seen = (struct erofs_seen){.slots = 0};
}

static uint64_t hash(uint64_t value)
{
    value = (value ^ value >> 32) * UINT64_C(0xd6e8feb86659fd93);
    value = (value ^ value >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return value ^ value >> 32;
}

int erofs_seen_find(const struct erofs_seen *seen, uint64_t nid, uint64_t *ret_slot)
{
    /* The upper half of the hash, scaled to the table: slots < 2^33. */
    uint64_t slot = (hash(nid ^ seen->seed) >> 33) * seen->slots >> 31;
    while (seen->keys[slot] != 0 && erofs_seen_nid(seen, slot) != nid)
        slot = slot + 1 == seen->slots ? 0 : slot + 1;
    *ret_slot = slot;
    return seen->keys[slot] != 0;
}

void erofs_seen_add(struct erofs_seen *seen, uint64_t slot, uint64_t nid, uint8_t type,
                    uint32_t missing)
{
    seen->keys[slot] = nid << 3 | type;
    seen->missing[slot] = missing;
    seen->count++;
}
