#include "live_map_load.h"

#include "cleanup.h"
#include "map_log.h"

#include <string.h>

_Static_assert(sizeof((struct live_map_header){0}.clean_of) == MAP_LOG_DIGEST, "the same");

static int take_record(void *arg, const struct map_record *record, struct err *err)
{
    struct live_map *live = arg;
    (void)err;
    atomic_store_explicit(&live->words[record->chunk],
                          live_word((enum volume_state)record->state, record->mask),
                          memory_order_relaxed);
    return 0;
}

/* The first write into a clean chunk is answered before its record is on the disk. And what is
 * clean of a checkpoint that nobody knows is of no use to any. */
static bool is_clean_believed(const struct map_log *log)
{
    static const uint8_t unknown[MAP_LOG_DIGEST];
    return log->closed && memcmp(log->clean_of, unknown, sizeof unknown) != 0;
}

static void doubt_clean(struct live_map *live)
{
    uint64_t chunks = atomic_load(&live->header->size) / VOLUME_CHUNK;
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        uint32_t word = atomic_load_explicit(&live->words[chunk], memory_order_relaxed);
        if (live_word_state(word) == VOLUME_CLEAN)
            atomic_store_explicit(&live->words[chunk], live_word(VOLUME_CHANGED, VOLUME_MASK_ALL),
                                  memory_order_relaxed);
    }
}

static void count_states(const struct live_map *live, struct live_map_loaded *ret)
{
    uint64_t chunks = atomic_load(&live->header->size) / VOLUME_CHUNK;
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        uint32_t word = atomic_load_explicit(&live->words[chunk], memory_order_relaxed);
        enum volume_state state = live_word_state(word);
        if (state == VOLUME_ABSENT)
            ret->absent++;
        else if (state != VOLUME_ZERO)
            ret->local++;
    }
    atomic_store(&live->header->local_chunks, ret->local);
    atomic_store(&live->header->absent_chunks, ret->absent);
}

static int load_words(struct live_map *live, int dir_fd, struct live_map_loaded *ret,
                      struct err *err)
{
    struct map_log log;
    const struct live_map_header *header = live->header;
    int rc = map_log_open(dir_fd, header->uuid, atomic_load(&header->size), take_record, live, &log,
                          err);
    if (rc < 0)
        return rc;
    ret->closed = log.closed;
    ret->torn = log.torn;
    if (!is_clean_believed(&log))
        doubt_clean(live);
    memcpy(live->header->clean_of, log.clean_of, sizeof live->header->clean_of);
    count_states(live, ret);
    map_log_close(&log);
    return 0;
}

int live_map_load(int dir_fd, const char *id, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                  struct live_map_loaded *ret, struct err *err)
{
    cleanup_fd int fd = live_map_make(id, uuid, size, err);
    if (fd < 0)
        return fd;
    struct live_map live;
    int rc = live_map_open(fd, false, &live, err);
    if (rc < 0)
        return rc;
    struct live_map_loaded loaded = {.fd = -1};
    rc = load_words(&live, dir_fd, &loaded, err);
    live_map_close(&live);
    if (rc < 0)
        return rc;
    loaded.fd = steal_fd(&fd);
    *ret = loaded;
    return 0;
}
