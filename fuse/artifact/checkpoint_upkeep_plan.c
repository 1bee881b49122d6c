#include "checkpoint_upkeep_plan.h"

#include "cleanup.h"

#include <string.h>

enum {
    OWN_PACKS = 2, /* that a checkpoint adds: of chunks, of leaves */
};

void upkeep_plan_free(struct upkeep_plan *plan)
{
    free(steal_ptr(plan->emptied));
    plan->groups = 0;
}

/* What all packs come to. */
struct sums {
    uint64_t live;
    uint64_t dead;
    size_t small;
};

static uint64_t dead_bytes(const struct upkeep_packs *packs, size_t i)
{
    uint64_t size = packs->packs[i].size;
    return packs->uses[i].live < size ? size - packs->uses[i].live : 0;
}

static bool is_counted(const struct upkeep_packs *packs, size_t i)
{
    return packs->uses[i].live != PACK_USE_UNKNOWN && packs->uses[i].live > 0;
}

static bool is_small(const struct upkeep_packs *packs, size_t i)
{
    return packs->packs[i].size < packs->full / UPKEEP_PART;
}

static struct sums sum_up(const struct upkeep_packs *packs)
{
    struct sums sums = {.small = OWN_PACKS};
    for (size_t i = 0; i < packs->count; i++) {
        if (!is_counted(packs, i))
            continue;
        sums.live += packs->uses[i].live;
        sums.dead += dead_bytes(packs, i);
        sums.small += is_small(packs, i);
    }
    return sums;
}

static bool is_wanted(const struct upkeep_packs *packs, const struct sums *sums, size_t i)
{
    if (!is_counted(packs, i))
        return false;
    uint64_t size = packs->packs[i].size;
    uint64_t live = packs->uses[i].live;
    if (is_small(packs, i) ? sums->small >= UPKEEP_SMALL_PACKS : live < size / UPKEEP_PART)
        return true;
    return sums->dead > sums->live && sums->dead > packs->full && live < size / 2;
}

static int compare_live(const void *a, const void *b, void *arg)
{
    const struct pack_use *uses = arg;
    size_t one = *(const size_t *)a, other = *(const size_t *)b;
    if (uses[one].live != uses[other].live)
        return uses[one].live < uses[other].live ? -1 : 1;
    return one < other ? -1 : one > other;
}

/* Those that there is room for. */
static size_t choose_packs(const struct upkeep_packs *packs, size_t *wanted, uint64_t bytes)
{
    const struct sums sums = sum_up(packs);
    size_t count = 0;
    size_t chosen = 0;
    uint64_t moved = 0;
    for (size_t i = 0; i < packs->count; i++)
        if (is_wanted(packs, &sums, i))
            wanted[count++] = i;
    qsort_r(wanted, count, sizeof *wanted, compare_live, (void *)packs->uses);
    while (chosen < count && chosen < UPKEEP_PACKS_MAX && moved < bytes)
        moved += packs->uses[wanted[chosen++]].live;
    return chosen;
}

/* How many leaves of each group have to be looked at, and how many packs want it. */
struct group {
    uint32_t leaves;
    uint32_t packs;
};

static void weigh_groups(const struct upkeep_packs *packs, const size_t *chosen, size_t count,
                         struct group *ret)
{
    const struct volume_root *root = packs->root;
    for (uint32_t leaf = 0; leaf < root->leaf_count; leaf++)
        ret[leaf >> packs->shift].leaves += root->set[leaf];
    for (size_t i = 0; i < count; i++)
        for (unsigned n = 0; n < PACK_USAGE_GROUPS; n++)
            ret[n].packs += packs->uses[chosen[i]].groups >> n & 1;
}

/* The groups that most packs want, as far as there is room; one at least. */
static uint64_t choose_groups(const struct group *groups)
{
    uint64_t chosen = 0;
    uint32_t leaves = 0;
    for (;;) {
        unsigned best = PACK_USAGE_GROUPS;
        for (unsigned n = 0; n < PACK_USAGE_GROUPS; n++) {
            if (groups[n].packs == 0 || (chosen >> n & 1) ||
                (chosen != 0 && leaves + groups[n].leaves > UPKEEP_LEAVES_MAX))
                continue;
            if (best == PACK_USAGE_GROUPS || groups[n].packs > groups[best].packs)
                best = n;
        }
        if (best == PACK_USAGE_GROUPS)
            return chosen;
        chosen |= UINT64_C(1) << best;
        leaves += groups[best].leaves;
    }
}

int upkeep_plan_make(const struct upkeep_packs *packs, uint64_t bytes, struct upkeep_plan *ret,
                     struct err *err)
{
    struct group groups[PACK_USAGE_GROUPS] = {{0}};
    cleanup_free size_t *chosen = calloc(packs->count + 1, sizeof *chosen);
    cleanup_free bool *emptied = calloc(packs->count + 1, sizeof *emptied);
    if (!chosen || !emptied)
        return err_errno(err, ENOMEM, "cannot look at the packs of a checkpoint");
    *ret = (struct upkeep_plan){.emptied = NULL};
    size_t count = choose_packs(packs, chosen, bytes);
    if (count == 0)
        return 0;
    weigh_groups(packs, chosen, count, groups);
    ret->groups = choose_groups(groups);
    for (size_t i = 0; i < count; i++)
        emptied[chosen[i]] = true;
    ret->emptied = steal_ptr(emptied);
    return 0;
}
