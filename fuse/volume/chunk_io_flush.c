/* The flush: data, then the records of what changed, each synced. */
#include "chunk_io.h"
#include "chunk_io_parts.h"
#include "fault.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct scan {
    uint64_t group;  /* next to look at */
    uint64_t groups; /* of the volume */
    size_t count;    /* records collected */
    size_t given;    /* of these, for give_collected() */
};

static struct map_record record_of(uint64_t chunk, uint32_t word)
{
    return (struct map_record){.chunk = (uint32_t)chunk,
                               .mask = (uint16_t)(word & LIVE_WORD_MASK),
                               .state = (uint8_t)live_word_state(word)};
}

static uint64_t chunk_count(const struct chunk_io *io)
{
    return atomic_load(&io->live->header->size) / VOLUME_CHUNK;
}

/* Takes the bit of a group away, then looks at its words (chunk_io.h, "Unlogged words"). */
static void collect_group(struct chunk_io *io, struct scan *scan)
{
    uint64_t bit = UINT64_C(1) << (scan->group % 64);
    if (!(atomic_fetch_and(&io->unlogged[scan->group / 64], ~bit) & bit))
        return;
    uint64_t end = (scan->group + 1) * CHUNK_IO_GROUP;
    if (end > chunk_count(io))
        end = chunk_count(io);
    for (uint64_t chunk = scan->group * CHUNK_IO_GROUP; chunk < end; chunk++) {
        uint32_t word = chunk_io_word(io, chunk);
        if (word & LIVE_WORD_UNLOGGED)
            io->records[scan->count++] = record_of(chunk, word);
    }
}

static void collect(struct chunk_io *io, struct scan *scan)
{
    scan->count = scan->given = 0;
    while (scan->group < scan->groups && scan->count + CHUNK_IO_GROUP <= CHUNK_IO_RECORDS) {
        if (atomic_load(&io->unlogged[scan->group / 64]) == 0) {
            scan->group = (scan->group / 64 + 1) * 64;
            continue;
        }
        collect_group(io, scan);
        scan->group++;
    }
}

/* First for successors: this process may end before its own answer is out. `num` is what the kernel
 * said. */
static int fail_for_good(struct chunk_io *io, int rc, int num)
{
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(&io->live->header->failed_num, &none, (uint32_t)num);
    atomic_fetch_or(&io->live->header->facts, LIVE_FACT_FAILED);
    io->failed = rc;
    return rc;
}

static int sync_data(struct chunk_io *io)
{
    if (!atomic_exchange(&io->dirty, false))
        return 0;
    int rc = FAULT_POINT("volume.sync-data", NULL);
    if (rc == 0)
        rc = fdatasync(io->data_fd) < 0 ? -errno : 0;
    if (rc == 0)
        return 0;
    /* Room that is missing here was missing too late: the pages may be gone. */
    return fail_for_good(io, rc == -ENOSPC || rc == -EDQUOT ? -EIO : rc, -rc);
}

static int give_collected(void *arg, struct map_record *ret)
{
    struct chunk_io *io = ((void **)arg)[0];
    struct scan *scan = ((void **)arg)[1];
    if (scan->given == scan->count)
        return 0;
    *ret = io->records[scan->given++];
    return 1;
}

/* The records are on disk: what still is as they say is logged. */
static void clear_unlogged(struct chunk_io *io, const struct scan *scan)
{
    for (size_t i = 0; i < scan->count; i++) {
        const struct map_record *record = &io->records[i];
        _Atomic uint32_t *at = &io->live->words[record->chunk];
        uint32_t state = live_word((enum volume_state)record->state, record->mask);
        uint32_t word = atomic_load(at);
        while ((word & (LIVE_WORD_STATE | LIVE_WORD_MASK)) == state &&
               !atomic_compare_exchange_weak(at, &word, word & ~LIVE_WORD_UNLOGGED))
            ;
    }
}

static void set_map_blocks(struct chunk_io *io)
{
    atomic_store(&io->live->header->map_blocks, map_log_length(io->log));
}

static int log_collected(struct chunk_io *io, struct scan *scan)
{
    void *arg[] = {io, scan};
    int rc = FAULT_POINT("volume.data-synced", NULL);
    if (rc == 0 && scan->count > 0)
        rc = map_log_append(io->log, give_collected, arg, NULL);
    if (rc == 0)
        rc = FAULT_POINT("volume.map-synced", NULL);
    if (rc < 0 && io->log->broken)
        (void)fail_for_good(io, rc, -rc);
    if (rc == 0)
        clear_unlogged(io, scan);
    set_map_blocks(io);
    return rc;
}

/* One round: collect, sync data, log. What could not be logged is found by the next flush. */
static int flush_round(struct chunk_io *io, struct scan *scan)
{
    collect(io, scan);
    int rc = FAULT_POINT("volume.collected", NULL);
    if (rc == 0)
        rc = sync_data(io);
    if (rc == 0)
        rc = log_collected(io, scan);
    for (size_t i = 0; rc < 0 && i < scan->count; i++)
        chunk_io_mark_group(io, io->records[i].chunk);
    return rc;
}

/* The log's length is a matter of comfort: a failure is tried again when it is as long again. */
static void shorten_log(struct chunk_io *io)
{
    if (!map_log_is_long(io->log) || map_log_length(io->log) <= io->rewrite_at)
        return;
    int rc = chunk_io_rewrite(io, false, NULL);
    if (rc < 0 && io->log->broken)
        (void)fail_for_good(io, rc, -rc);
    io->rewrite_at = rc < 0 ? map_log_length(io->log) + MAP_LOG_LONG : 0;
}

int chunk_io_flush_alone(struct chunk_io *io)
{
    struct scan scan = {.groups = (chunk_count(io) + CHUNK_IO_GROUP - 1) / CHUNK_IO_GROUP};
    do {
        int rc = io->failed < 0 ? io->failed : flush_round(io, &scan);
        if (rc < 0)
            return rc;
    } while (scan.group < scan.groups);
    shorten_log(io);
    return io->failed;
}

struct whole {
    struct chunk_io *io;
    uint64_t clean; /* of a map that is closed: `clean_epoch`; else 0 */
    uint64_t next;
    uint64_t end;
};

/* The same chunk in a map that is closed: what the last checkpoint has, and nobody has written to
 * since, is clean (live_map_load.h). */
static struct map_record last_record_of(const struct whole *whole, uint64_t chunk, uint32_t word)
{
    struct map_record record = record_of(chunk, word);
    if (whole->clean > 0 && live_word_state(word) == VOLUME_CHANGED &&
        epoch_of_word(whole->io->live->header, word) <= whole->clean)
        record.state = VOLUME_CLEAN;
    return record;
}

/* Every chunk as it is now, logged or not; therefore `data` is synced when all were given, before
 * the new file gets its name. Words that change meanwhile stay unlogged, and the next flush says
 * more. */
static int give_whole(void *arg, struct map_record *ret)
{
    struct whole *whole = arg;
    while (whole->next < whole->end) {
        uint64_t chunk = whole->next++;
        uint32_t word = chunk_io_word(whole->io, chunk);
        if (live_word_state(word) == VOLUME_ZERO)
            continue;
        *ret = last_record_of(whole, chunk, word);
        return 1;
    }
    return sync_data(whole->io);
}

int chunk_io_rewrite(struct chunk_io *io, bool closed, struct err *err)
{
    uint64_t end = chunk_count(io);
    const struct live_map_header *header = io->live->header;
    struct whole whole = {.io = io, .end = end};
    /* How much is clean, then of what: varved, which may be at it, writes them in the other order.
     */
    if (closed) {
        whole.clean = atomic_load(&header->clean_epoch);
        memcpy(io->log->clean_of, header->clean_of, sizeof io->log->clean_of);
    }
    int rc = map_log_rewrite(io->log, end * VOLUME_CHUNK, closed, give_whole, &whole, err);
    set_map_blocks(io);
    return rc;
}

/* Waits for a flush that begins after the call, or is it. Under flush_lock. */
static int flush_joined(struct chunk_io *io)
{
    uint64_t wanted = io->flushes_begun + 1;
    while (io->flushes_ended < wanted) {
        if (io->flushes_ended < io->flushes_begun) {
            (void)pthread_cond_wait(&io->flush_ended, &io->flush_lock);
            continue;
        }
        io->flushes_begun++;
        (void)pthread_mutex_unlock(&io->flush_lock);
        int rc = chunk_io_flush_alone(io);
        (void)pthread_mutex_lock(&io->flush_lock);
        io->flush_result = rc;
        io->flushes_ended = io->flushes_begun;
        (void)pthread_cond_broadcast(&io->flush_ended);
    }
    return io->flush_result;
}

int chunk_io_flush(struct chunk_io *io)
{
    int rc = 0;
    (void)pthread_rwlock_rdlock(&io->gate);
    if (!io->finished) {
        (void)pthread_mutex_lock(&io->flush_lock);
        rc = flush_joined(io);
        (void)pthread_mutex_unlock(&io->flush_lock);
    }
    (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}
