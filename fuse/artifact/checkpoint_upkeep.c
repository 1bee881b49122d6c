/* What packs are needed for. */
#include "checkpoint_upkeep.h"

#include "cleanup.h"

#include <string.h>

void checkpoint_upkeep_free(struct checkpoint_upkeep *upkeep)
{
    if (!upkeep)
        return;
    upkeep_plan_free(&upkeep->plan);
    free(upkeep->uses);
    free(upkeep->sealed);
    free(upkeep->stuck);
    free(upkeep);
}

static void free_upkeepp(struct checkpoint_upkeep **upkeep)
{
    checkpoint_upkeep_free(*upkeep);
}

/* The parent's, in groups of the volume as it is now. */
static void copy_uses(const struct checkpoint *parent, struct checkpoint_upkeep *upkeep)
{
    const struct pack_use *uses = checkpoint_uses_of(parent);
    const unsigned shift = pack_usage_shift(checkpoint_root_of(parent)->leaf_count);
    for (size_t i = 0; i < upkeep->old_count; i++) {
        struct pack_use use = {.live = PACK_USE_UNKNOWN, .groups = UINT64_MAX};
        if (uses && uses[i].live != PACK_USE_UNKNOWN)
            use = (struct pack_use){.live = uses[i].live,
                                    .groups =
                                        pack_usage_regroup(uses[i].groups, shift, upkeep->shift)};
        upkeep->uses[i] = use;
    }
}

int checkpoint_upkeep_new(const struct checkpoint_making *making, struct checkpoint_upkeep **ret,
                          struct err *err)
{
    const struct checkpoint *parent = making->write->parent;
    cleanup_with(free_upkeepp) struct checkpoint_upkeep *upkeep = calloc(1, sizeof *upkeep);
    if (!upkeep)
        return err_errno(err, ENOMEM, "cannot count packs");
    upkeep->shift = pack_usage_shift(volume_leaves_of(making->source->size));
    upkeep->is_over = !parent || !checkpoint_uses_of(parent);
    if (parent)
        (void)checkpoint_packs_of(parent, &upkeep->old_count);
    upkeep->use_count = upkeep->old_count;
    upkeep->use_room = upkeep->old_count + 16;
    upkeep->uses = calloc(upkeep->use_room, sizeof *upkeep->uses);
    upkeep->stuck = calloc(upkeep->old_count + 1, sizeof *upkeep->stuck);
    if (!upkeep->uses || !upkeep->stuck)
        return err_errno(err, ENOMEM, "cannot count packs");
    if (parent)
        copy_uses(parent, upkeep);
    *ret = steal_ptr(upkeep);
    return 0;
}

/* --- which pack is which --- */

static int add_use(struct checkpoint_upkeep *upkeep, struct err *err)
{
    if (upkeep->use_count == upkeep->use_room) {
        size_t room = 2 * upkeep->use_room;
        struct pack_use *uses = realloc(upkeep->uses, room * sizeof *uses);
        if (!uses)
            return err_errno(err, ENOMEM, "cannot count packs");
        upkeep->uses = uses;
        upkeep->use_room = room;
    }
    upkeep->uses[upkeep->use_count++] = (struct pack_use){.live = 0};
    return 0;
}

static int add_sealed(struct checkpoint_upkeep *upkeep, uint32_t number, struct err *err)
{
    if (upkeep->sealed_count == upkeep->sealed_room) {
        size_t room = upkeep->sealed_room ? 2 * upkeep->sealed_room : 16;
        uint32_t *sealed = realloc(upkeep->sealed, room * sizeof *sealed);
        if (!sealed)
            return err_errno(err, ENOMEM, "cannot count packs");
        upkeep->sealed = sealed;
        upkeep->sealed_room = room;
    }
    upkeep->sealed[upkeep->sealed_count++] = number;
    return 0;
}

/* The next pack that was sealed: it is the parent's, a new one, or one of the new ones once more.
 */
static int look_at_sealed(struct checkpoint_making *making, struct err *err)
{
    struct checkpoint_upkeep *upkeep = making->upkeep;
    const struct checkpoint *parent = making->write->parent;
    const struct pack_spot spot = {.pack = (uint32_t)upkeep->sealed_count};
    const struct volume_place place = pack_writer_place(making->packs, &spot);
    struct err none = ERR_INIT;
    uint32_t number;
    if (parent && checkpoint_find_pack(parent, &place, &number, &none) == 0)
        return add_sealed(upkeep, number, err);
    size_t count;
    const struct pack *packs = pack_writer_packs(making->packs, &count);
    size_t at = upkeep->use_count - upkeep->old_count;
    if (at < count && memcmp(packs[at].digest.bytes, place.pack, VOLUME_PACK_ID) == 0) {
        int rc = add_use(upkeep, err);
        return rc < 0 ? rc : add_sealed(upkeep, (uint32_t)upkeep->use_count - 1, err);
    }
    for (size_t i = 0; i < at; i++)
        if (memcmp(packs[i].digest.bytes, place.pack, VOLUME_PACK_ID) == 0)
            return add_sealed(upkeep, (uint32_t)(upkeep->old_count + i), err);
    return err_fail(err, ERR_INTERNAL, "pack %u of a checkpoint is not among its packs", spot.pack);
}

/* --- counting --- */

int checkpoint_upkeep_count(struct checkpoint_making *making, uint32_t leaf,
                            const struct pack_spot *spot, struct err *err)
{
    struct checkpoint_upkeep *upkeep = making->upkeep;
    while (upkeep->sealed_count <= spot->pack) {
        int rc = look_at_sealed(making, err);
        if (rc < 0)
            return rc;
    }
    uint32_t number = upkeep->sealed[spot->pack];
    struct pack_use *use = &upkeep->uses[number];
    if (number < upkeep->old_count) /* it was made once more, of all things */
        upkeep->stuck[number] = true;
    if (use->live == PACK_USE_UNKNOWN)
        return 0;
    if (__builtin_add_overflow(use->live, spot->length, &use->live) ||
        use->live == PACK_USE_UNKNOWN) { /* nobody has so many */
        *use = (struct pack_use){.live = PACK_USE_UNKNOWN, .groups = UINT64_MAX};
        return 0;
    }
    use->groups |= pack_usage_group(leaf, upkeep->shift);
    return 0;
}

void checkpoint_upkeep_uncount(struct checkpoint_making *making, const struct volume_place *place)
{
    uint32_t number;
    struct err none = ERR_INIT;
    const struct checkpoint *parent = making->write->parent;
    if (!parent || checkpoint_find_pack(parent, place, &number, &none) < 0)
        return;
    struct pack_use *use = &making->upkeep->uses[number];
    if (use->live == PACK_USE_UNKNOWN)
        return;
    if (use->live < place->length) /* somebody has counted wrong: it is not to be trusted */
        *use = (struct pack_use){.live = PACK_USE_UNKNOWN, .groups = UINT64_MAX};
    else
        use->live -= place->length;
}

void checkpoint_upkeep_miss(struct checkpoint_making *making, uint32_t leaf)
{
    making->upkeep->looks[leaf] = UPKEEP_LOST;
    making->upkeep->missed |= pack_usage_group(leaf, making->upkeep->shift);
}

int checkpoint_upkeep_end(struct checkpoint_making *making, struct err *err)
{
    struct checkpoint_upkeep *upkeep = making->upkeep;
    const struct upkeep_plan *plan = &upkeep->plan;
    const uint32_t leaf_count = volume_leaves_of(making->source->size);
    size_t new_count;
    (void)pack_writer_packs(making->packs, &new_count);
    while (upkeep->use_count < upkeep->old_count + new_count) {
        int rc = look_at_sealed(making, err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < upkeep->use_count; i++) {
        struct pack_use *use = &upkeep->uses[i];
        if (i < upkeep->old_count && plan->emptied && plan->emptied[i] && !upkeep->stuck[i] &&
            !upkeep->is_over && use->live != PACK_USE_UNKNOWN)
            use->groups &= ~(plan->groups & ~upkeep->missed);
        if (use->live == 0)
            use->groups = 0;
        else if (!pack_use_is_sound(use, leaf_count)) /* as a reader would refuse it */
            *use = (struct pack_use){.live = PACK_USE_UNKNOWN, .groups = UINT64_MAX};
    }
    return 0;
}
