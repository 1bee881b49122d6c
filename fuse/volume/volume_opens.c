#include "volume_opens.h"

#include "fault.h"

static bool is_counted(const struct live_map_header *header, uint64_t unique)
{
    if (atomic_load(&header->open_unique) == unique)
        return true;
    for (size_t i = 0; i < LIVE_MAP_OPENS_KEPT; i++)
        if (atomic_load(&header->open_before[i]) == unique)
            return true;
    return false;
}

/* The newest number becomes the first of those before. A kill in between keeps some twice. */
static void keep_newest(struct live_map_header *header)
{
    for (size_t i = LIVE_MAP_OPENS_KEPT - 1; i > 0; i--)
        atomic_store(&header->open_before[i], atomic_load(&header->open_before[i - 1]));
    atomic_store(&header->open_before[0], atomic_load(&header->open_unique));
    atomic_store(&header->open_unique, 0);
}

static void show_open(struct live_map_header *header)
{
    if (atomic_load(&header->opens) > 0)
        atomic_fetch_or(&header->facts, LIVE_FACT_OPEN);
    else
        atomic_fetch_and(&header->facts, ~(uint32_t)LIVE_FACT_OPEN);
}

void volume_opens_count(struct live_map_header *header, uint64_t unique, int by)
{
    if (is_counted(header, unique))
        return; /* by one who died */
    uint64_t opens = atomic_load(&header->opens);
    uint64_t target = by < 0 && opens == 0 ? 0 : opens + (uint64_t)(int64_t)by;
    if (atomic_load(&header->open_unique) != 0)
        keep_newest(header);
    atomic_store(&header->open_target, target);
    atomic_store(&header->open_unique, unique);
    (void)FAULT_POINT("volume.open-noted", NULL);
    atomic_store(&header->opens, target);
    show_open(header);
    (void)FAULT_POINT("volume.open-counted", NULL);
}

void volume_opens_settle(struct live_map_header *header)
{
    if (atomic_load(&header->open_unique) != 0)
        atomic_store(&header->opens, atomic_load(&header->open_target));
    show_open(header);
}
