#include "registry_offset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIGITS_MAX = 18, /* of an offset; no blob has so many bytes */
};

enum neighbour {
    NEIGHBOUR_UNTRIED,
    NEIGHBOUR_TRIED,
    NEIGHBOUR_NO_BETTER,
};

static int damaged(const char *value, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "the registry says that it has the bytes '%.40s'", value);
}

int registry_offset_parse(const char *value, bool sole, uint64_t *ret, struct err *err)
{
    const char *at = value;
    if (strncasecmp(at, "bytes", 5) == 0 && (at[5] == '=' || at[5] == ' '))
        at += 6;
    if (at[0] != '0' || at[1] != '-' || at[2] < '0' || at[2] > '9' || strlen(at + 2) > DIGITS_MAX)
        return damaged(value, err);
    char *end;
    unsigned long long last = strtoull(at + 2, &end, 10);
    if (*end != '\0')
        return damaged(value, err);
    *ret = last == 0 && !sole ? 0 : last + 1;
    return 0;
}

void registry_offset_begin(struct registry_offset *offset)
{
    *offset = (struct registry_offset){.habits = offset->habits};
}

void registry_offset_take_up(struct registry_offset *offset, uint64_t at, uint64_t reach)
{
    *offset = (struct registry_offset){
        .habits = offset->habits, .at = at, .best = at, .reach = at > reach ? at : reach};
}

void registry_offset_send(struct registry_offset *offset, uint64_t end)
{
    if (end > offset->reach)
        offset->reach = end;
}

void registry_offset_break(struct registry_offset *offset)
{
    offset->counted = false;
}

static void go_on_at(struct registry_offset *offset, uint64_t at)
{
    offset->at = at;
    if (at > offset->best)
        offset->best = at;
}

int registry_offset_took(struct registry_offset *offset, uint64_t end, const char *range,
                         struct err *why)
{
    uint64_t told = end;
    registry_offset_send(offset, end);
    offset->taken = end;
    offset->counted = true;
    if (offset->neighbour == NEIGHBOUR_TRIED)
        offset->neighbour = NEIGHBOUR_UNTRIED; /* it was right */
    if (range && !offset->habits.no_patch && registry_offset_parse(range, end == 1, &told, why) < 0)
        return 0;
    if (told != end) {
        (void)err_fail(why, ERR_REFUSED,
                       "the registry took a chunk up to byte %" PRIu64 " and says that it has "
                       "%" PRIu64 " bytes",
                       end, told);
        return 0;
    }
    go_on_at(offset, end);
    return 1;
}

bool registry_offset_count(struct registry_offset *offset, uint64_t first)
{
    if (!offset->counted || offset->taken < first)
        return false;
    offset->habits.no_patch = true;
    offset->habits.no_get = true;
    go_on_at(offset, offset->taken);
    return true;
}

/* GET says nothing that can be used. */
static int without_get(struct registry_offset *offset)
{
    if (offset->reach == 0) { /* nothing was sent, so nothing is there */
        go_on_at(offset, 0);
        return 1;
    }
    if (!offset->counted)
        return 0;
    if (offset->at < offset->taken)
        offset->habits.no_patch = true; /* its answer to the chunk is of no use */
    go_on_at(offset, offset->taken);
    return 1;
}

/* What GET means, where it counts as is known of this registry. */
static uint64_t without_one_more(struct registry_offset *offset, uint64_t told)
{
    if (offset->reach > 0 && told == offset->reach + 1)
        offset->habits.one_more = true;
    return offset->habits.one_more && told > 0 ? told - 1 : told;
}

int registry_offset_told(struct registry_offset *offset, const char *range, struct err *why)
{
    uint64_t told = 0;
    if (!range) {
        if (without_get(offset))
            return 1;
        (void)err_fail(why, ERR_REFUSED, "the registry does not say how much of the upload it has");
        return 0;
    }
    if (registry_offset_parse(range, offset->reach == 1, &told, why) < 0)
        return 0;
    told = without_one_more(offset, told);
    if (told > offset->reach) {
        (void)err_fail(why, ERR_REFUSED,
                       "the registry says that it has %" PRIu64 " bytes, but only %" PRIu64
                       " were sent",
                       told, offset->reach);
        return 0;
    }
    if (offset->habits.no_get) {
        if (without_get(offset))
            return 1;
        (void)err_fail(why, ERR_REFUSED, "what the registry says that it has is not so");
        return 0;
    }
    if (offset->counted && told == offset->taken && offset->at < told)
        offset->habits.no_patch = true; /* its answer to the chunk said something else */
    go_on_at(offset, told);
    return 1;
}

bool registry_offset_deny(struct registry_offset *offset, uint64_t first)
{
    if (offset->counted && offset->at == offset->taken)
        return false;
    if (offset->neighbour == NEIGHBOUR_NO_BETTER)
        return false;
    bool tried = offset->neighbour == NEIGHBOUR_TRIED;
    bool one_more = !offset->habits.one_more;
    if (one_more ? offset->at <= first : offset->at >= offset->reach)
        return false;
    offset->habits.one_more = one_more;
    offset->at = one_more ? offset->at - 1 : offset->at + 1;
    offset->neighbour = tried ? NEIGHBOUR_NO_BETTER : NEIGHBOUR_TRIED;
    return !tried;
}
