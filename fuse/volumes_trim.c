/* Discards in the background. The worker marks each chunk that it writes (LIVE_WORD_TOUCHED); only
 * ranges with such chunks are trimmed, as ext4 reads a block group's bitmap for each range. */
#include "volumes_internal.h"

#include "fault.h"
#include "volume_fs.h"

enum {
    GAP = 256,       /* chunks between two touched ones that are not worth a call of their own */
    RUN_MAX = 16384, /* chunks in a call: 1 GiB, so that somebody who waits does so briefly */
    TRIM_MS = 60 * 1000,
};

static uint32_t load(const struct live_map *live, uint64_t chunk)
{
    return atomic_load_explicit(&live->words[chunk], memory_order_relaxed);
}

static bool is_absent(uint32_t word)
{
    return live_word_state(word) == VOLUME_ABSENT;
}

/* The next run at or after *from: first touched chunk to last one, no gap of more than GAP and no
 * absent chunk in it. Returns its length in chunks, 0 at the end. */
static uint64_t next_run(const struct live_map *live, uint64_t chunks, uint64_t *from)
{
    uint64_t first = *from;
    while (first < chunks &&
           ((load(live, first) & LIVE_WORD_TOUCHED) == 0 || is_absent(load(live, first))))
        first++;
    if (first >= chunks)
        return 0;
    uint64_t last = first;
    for (uint64_t i = first + 1; i < chunks && i - last <= GAP && i - first < RUN_MAX; i++) {
        uint32_t word = load(live, i);
        if (is_absent(word))
            break;
        if (word & LIVE_WORD_TOUCHED)
            last = i;
    }
    *from = first;
    return last - first + 1;
}

static void mark(struct live_map *live, uint64_t from, uint64_t count, bool touched)
{
    for (uint64_t i = from; i < from + count; i++)
        if (touched)
            (void)atomic_fetch_or(&live->words[i], LIVE_WORD_TOUCHED);
        else
            (void)atomic_fetch_and(&live->words[i], ~LIVE_WORD_TOUCHED);
}

/* Whoever waits for `busy`, and a remote that is away: ext4 reads bitmaps for a trim. */
static bool is_in_the_way(struct volumes *volumes, const struct volume *volume)
{
    return volume_is_awaited(volumes, volume) || atomic_load(&volume->live.header->absent) > 0;
}

static int trim(struct volumes *volumes, struct volume *volume, const char *path, struct err *err)
{
    if (!volume_is_held(volume) || volume->dead || volume->device_dev == 0)
        return err_fail(err, ERR_CONFLICT, "it is not mounted");
    struct live_map *live = &volume->live;
    uint64_t chunks = atomic_load(&live->header->size) / VOLUME_CHUNK;
    if (live_map_bytes(chunks * VOLUME_CHUNK) > live->mapped)
        chunks = (live->mapped - LIVE_MAP_HEADER_BYTES) / sizeof *live->words;
    uint64_t from = 0;
    uint64_t count;
    while ((count = next_run(live, chunks, &from)) > 0 && !is_in_the_way(volumes, volume)) {
        uint64_t discarded;
        /* Before, so that what is written meanwhile is marked again. */
        mark(live, from, count, false);
        int rc = FAULT_POINT("volume-trim.cleared", err);
        if (rc == 0)
            rc = volume_fs_trim(path, volume->device_dev, from * VOLUME_CHUNK, count * VOLUME_CHUNK,
                                TRIM_MS, &discarded, err);
        if (rc < 0) {
            mark(live, from, count, true);
            return rc;
        }
        from += count;
    }
    return 0;
}

int volumes_trim(struct volumes *volumes, const char *id, const char *path, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = trim(volumes, volume, path, err);
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot trim volume %s", id) : 0;
}
