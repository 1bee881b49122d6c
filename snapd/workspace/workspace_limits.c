#include "workspace_limits.h"

#include <stdbool.h>

/* Whether it may want more than it has: it used nine tenths of that. */
static bool is_hungry(const struct workspace_share *share)
{
    return share->limit > 0 && share->rate >= share->limit - share->limit / 10;
}

static uint64_t at_most(uint64_t value, uint64_t cap)
{
    return value < cap ? value : cap;
}

static uint64_t demand_of(const struct workspace_share *share, uint64_t cap)
{
    return is_hungry(share) ? cap : at_most(share->rate, cap);
}

/* The level up to which every demand can be met: those below it get all they want, the others
 * the level. Each round settles those who want less than an equal part of what is left. */
static uint64_t find_level(uint64_t budget, uint64_t cap, const struct workspace_share *shares,
                           size_t count)
{
    uint64_t level = budget / count;
    for (size_t round = 0; round < count; round++) {
        uint64_t left = budget;
        size_t above = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t demand = demand_of(&shares[i], cap);
            if (demand > level)
                above++;
            else
                left -= at_most(demand, left);
        }
        if (above == 0)
            return budget; /* there is enough for all */
        uint64_t next = left / above;
        if (next <= level)
            return level;
        level = next;
    }
    return level;
}

void workspace_limits_share(uint64_t budget, uint64_t each, struct workspace_share *shares,
                            size_t count)
{
    if (budget == 0 || count == 0) {
        for (size_t i = 0; i < count; i++)
            shares[i].limit = each;
        return;
    }
    uint64_t cap = each > 0 ? each : UINT64_MAX;
    uint64_t part = budget / count;
    uint64_t level = find_level(budget, cap, shares, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t start = shares[i].rate > UINT64_MAX / 2 ? UINT64_MAX : shares[i].rate * 2;
        uint64_t quiet = start > part ? start : part;
        uint64_t limit = is_hungry(&shares[i]) ? level : at_most(level, quiet);
        limit = at_most(limit, cap);
        shares[i].limit = limit > 0 ? limit : 1; /* 0 would be none */
    }
}
