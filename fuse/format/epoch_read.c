#include "epoch_read.h"

#include "cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MOVES_MAX = 1000, /* times that a chunk is elsewhere when it has been read */
    ASIDE_NONE = -1,
    ASIDE_MOVES = -2,
};

/* A file of the volume, of whatever its owner made of it. */
static int open_file(const struct epoch_reader *reader, const char *name, struct err *err)
{
    bool direct = atomic_load(&reader->live.header->data_mode) == LIVE_DATA_DIRECT;
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (direct ? O_DIRECT : 0);
    cleanup_fd int fd = openat(reader->dir_fd, name, flags);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot open %s of the volume", name);
    if (!S_ISREG(st.st_mode))
        return err_fail(err, ERR_DAMAGED, "%s of the volume is no regular file", name);
    return steal_fd(&fd);
}

int epoch_reader_open(int dir_fd, int live_fd, uint64_t epoch, struct epoch_reader *ret,
                      struct err *err)
{
    struct epoch_reader reader = {.dir_fd = dir_fd, .epoch = epoch, .data_fd = -1};
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        reader.asides[i].fd = -1;
    int rc = live_map_open(live_fd, false, &reader.live, err);
    if (rc < 0)
        return rc;
    reader.slot = epoch_slot_find(reader.live.header, epoch);
    if (reader.slot < 0)
        rc = err_fail(err, ERR_NOT_FOUND, "epoch %llu of the volume is not open",
                      (unsigned long long)epoch);
    else
        reader.chunks = atomic_load(&reader.live.header->slots[reader.slot].size) / VOLUME_CHUNK;
    if (rc == 0 && live_map_bytes(reader.chunks * VOLUME_CHUNK) > reader.live.mapped)
        rc = err_fail(err, ERR_DAMAGED, "the live map has a size that cannot be");
    if (rc == 0)
        rc = epoch_planes_map(live_fd, &reader.planes, err);
    if (rc == 0)
        rc = reader.data_fd = open_file(&reader, "data", err);
    if (rc < 0) {
        epoch_reader_close(&reader);
        return rc;
    }
    *ret = reader;
    return 0;
}

void epoch_reader_close(struct epoch_reader *reader)
{
    if (!reader->live.header)
        return;
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        cleanup_fdp(&reader->asides[i].fd);
    cleanup_fdp(&reader->data_fd);
    epoch_planes_unmap(&reader->planes);
    live_map_close(&reader->live);
}

static uint64_t plane_word(const struct epoch_reader *reader, unsigned slot, uint64_t chunk)
{
    return atomic_load(&reader->planes.words[slot][chunk]);
}

static bool are_same(const struct epoch_slots *a, const struct epoch_slots *b)
{
    bool same = a->count == b->count;
    for (unsigned i = 0; same && i < a->count; i++)
        same = a->at[i].slot == b->at[i].slot && a->at[i].number == b->at[i].number;
    return same;
}

/* The slot of `slots` that has the chunk set aside for the epoch; -1: none. */
static int look_aside(const struct epoch_reader *reader, const struct epoch_slots *slots,
                      uint64_t chunk, uint64_t *ret_word, uint64_t *ret_number)
{
    for (unsigned i = 0; i < slots->count; i++) {
        if (slots->at[i].number < reader->epoch)
            continue;
        uint64_t word = plane_word(reader, slots->at[i].slot, chunk);
        if (!(word & PLANE_PRESENT))
            continue;
        *ret_word = word;
        *ret_number = slots->at[i].number;
        return (int)slots->at[i].slot;
    }
    return -1;
}

/* The slot that has the chunk set aside for the epoch, and its word. ASIDE_NONE: none has it.
 * ASIDE_MOVES: slots come and go all the time, so nothing is known; a worker may make it so.
 *
 * What was found or not counts if all slots still are those that were looked at: one that was
 * released meanwhile may be another epoch's, or have handed down the chunk after it was looked for
 * there, and have been emptied before it was looked for here. */
static int find_aside(const struct epoch_reader *reader, uint64_t chunk, uint64_t *ret_word,
                      uint64_t *ret_number)
{
    struct epoch_slots slots;
    struct epoch_slots after;
    epoch_slots_look(reader->live.header, &slots);
    for (int i = 0; i < MOVES_MAX; i++) {
        int slot = look_aside(reader, &slots, chunk, ret_word, ret_number);
        epoch_slots_look(reader->live.header, &after);
        if (are_same(&slots, &after))
            return slot;
        slots = after;
    }
    return ASIDE_MOVES;
}

static int read_fully(int fd, void *buffer, uint64_t offset)
{
    size_t done = 0;
    while (done < VOLUME_CHUNK) {
        ssize_t n = pread(fd, (char *)buffer + done, VOLUME_CHUNK - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0) { /* the end of an aside whose last bytes are a hole */
            memset((char *)buffer + done, 0, VOLUME_CHUNK - done);
            return 0;
        }
        done += (size_t)n;
    }
    return 0;
}

static struct epoch_chunk chunk_of(uint32_t word, uint64_t last)
{
    return (struct epoch_chunk){
        .state = live_word_state(word), .mask = word & LIVE_WORD_MASK, .last = last};
}

/* Whether a chunk in such a state has bytes here. */
static bool has_bytes(const struct epoch_chunk *chunk)
{
    return chunk->state != VOLUME_ZERO && (chunk->state != VOLUME_ABSENT || chunk->mask != 0);
}

static int open_aside(struct epoch_reader *reader, unsigned slot, uint64_t number, struct err *err)
{
    char name[EPOCH_NAME_BYTES];
    if (reader->asides[slot].fd >= 0 && reader->asides[slot].number == number)
        return reader->asides[slot].fd;
    cleanup_fdp(&reader->asides[slot].fd);
    epoch_aside_name(slot, name);
    reader->asides[slot].fd = open_file(reader, name, err);
    reader->asides[slot].number = number;
    return reader->asides[slot].fd;
}

static int read_aside(struct epoch_reader *reader, int slot, uint64_t number, uint64_t word,
                      uint64_t chunk, void *buffer, struct epoch_chunk *ret, struct err *err)
{
    *ret = chunk_of((uint32_t)(word & PLANE_WORD), (word & PLANE_EPOCH) >> PLANE_EPOCH_SHIFT);
    if (!has_bytes(ret)) {
        memset(buffer, 0, VOLUME_CHUNK);
        return 0;
    }
    int fd = open_aside(reader, (unsigned)slot, number, err);
    int rc = fd < 0 ? fd : read_fully(fd, buffer, chunk * VOLUME_CHUNK);
    if (fd >= 0 && rc < 0)
        return err_errno(err, rc, "cannot read what was set aside of chunk %llu",
                         (unsigned long long)chunk);
    return rc;
}

static int read_data(struct epoch_reader *reader, uint64_t chunk, void *buffer,
                     struct epoch_chunk *ret, struct err *err)
{
    const struct live_map *live = &reader->live;
    uint32_t word = atomic_load(&live->words[chunk]);
    *ret = chunk_of(word, epoch_of_word(live->header, word));
    if (!has_bytes(ret)) {
        memset(buffer, 0, VOLUME_CHUNK);
        return 0;
    }
    int rc = read_fully(reader->data_fd, buffer, chunk * VOLUME_CHUNK);
    return rc < 0 ? err_errno(err, rc, "cannot read chunk %llu of the volume",
                              (unsigned long long)chunk)
                  : 0;
}

int epoch_reader_check(const struct epoch_reader *reader, struct err *err)
{
    const struct live_slot *at = &reader->live.header->slots[reader->slot];
    uint32_t num = atomic_load(&at->broken); /* before it is looked whose this is */
    if (atomic_load(&at->state) != LIVE_SLOT_OPEN || atomic_load(&at->number) != reader->epoch)
        return err_fail(err, ERR_CONFLICT, "another checkpoint of the volume has ended the cut");
    if (num == 0)
        return 0;
    int rc = err_fail(err, ERR_CONFLICT,
                      "what the volume was at the cut is lost, as it could not be set aside: %s",
                      strerror((int)num));
    err_hint(err, "make room on the host's disk, and begin again");
    return rc;
}

/* Whether the slot still is what it was when the chunk was found there: what is in it may have been
 * handed to another one, and the slot given to another epoch. */
static bool is_still(const struct epoch_reader *reader, int slot, uint64_t number, uint64_t chunk)
{
    const struct live_slot *at = &reader->live.header->slots[slot];
    uint32_t state = atomic_load(&at->state);
    return (state == LIVE_SLOT_OPEN || state == LIVE_SLOT_KEPT) &&
           atomic_load(&at->number) == number &&
           (plane_word(reader, (unsigned)slot, chunk) & PLANE_PRESENT);
}

static int fail_moves(uint64_t chunk, struct err *err)
{
    return err_fail(err, ERR_CONFLICT, "chunk %llu of the volume cannot be found",
                    (unsigned long long)chunk);
}

static int read_once(struct epoch_reader *reader, uint64_t chunk, void *buffer, bool *ret_moved,
                     struct epoch_chunk *ret, struct err *err)
{
    uint64_t word;
    uint64_t number;
    *ret_moved = false;
    int slot = find_aside(reader, chunk, &word, &number);
    if (slot == ASIDE_NONE) {
        int rc = read_data(reader, chunk, buffer, ret, err);
        if (rc < 0)
            return rc;
        slot = find_aside(reader, chunk, &word, &number);
    }
    if (slot == ASIDE_NONE)
        return 0;
    if (slot == ASIDE_MOVES)
        return fail_moves(chunk, err);
    int rc = read_aside(reader, slot, number, word, chunk, buffer, ret, err);
    *ret_moved = !is_still(reader, slot, number, chunk);
    return rc;
}

int epoch_reader_read(struct epoch_reader *reader, uint64_t chunk, void *buffer,
                      struct epoch_chunk *ret, struct err *err)
{
    if (chunk >= reader->chunks)
        return err_fail(err, ERR_INVALID, "the volume has no chunk %llu",
                        (unsigned long long)chunk);
    for (int i = 0; i < MOVES_MAX; i++) {
        bool moved;
        struct err why = ERR_INIT;
        int rc = read_once(reader, chunk, buffer, &moved, ret, &why);
        if (!moved)
            return rc < 0 ? err_pass(err, rc, &why) : epoch_reader_check(reader, err);
        err_clear(&why);
    }
    return fail_moves(chunk, err);
}

/* Whether a word's tag says rightly whether its chunk was written since the epoch: so long after it
 * no tag was renewed that could. After the word was read, as a renewal comes after the cut. */
static bool has_tags(const struct epoch_reader *reader)
{
    return atomic_load(&reader->live.header->epoch) - reader->epoch < EPOCH_RENEW_EVERY;
}

int epoch_reader_look(const struct epoch_reader *reader, uint64_t chunk, struct epoch_chunk *ret,
                      struct err *err)
{
    uint64_t plane;
    uint64_t number;
    uint32_t word = atomic_load(&reader->live.words[chunk]);
    uint64_t last = epoch_of_word(reader->live.header, word);
    int slot = ASIDE_NONE;
    if (last > reader->epoch || !has_tags(reader))
        slot = find_aside(reader, chunk, &plane, &number);
    if (slot == ASIDE_MOVES)
        return fail_moves(chunk, err);
    *ret = slot == ASIDE_NONE ? chunk_of(word, last)
                              : chunk_of((uint32_t)(plane & PLANE_WORD),
                                         (plane & PLANE_EPOCH) >> PLANE_EPOCH_SHIFT);
    return 0;
}

bool epoch_reader_is_dirty(const struct epoch_reader *reader, uint64_t chunk)
{
    const struct live_map_header *header = reader->live.header;
    uint64_t plane;
    uint64_t number;
    uint32_t word = atomic_load(&reader->live.words[chunk]);
    uint64_t last = epoch_of_word(header, word);
    if (find_aside(reader, chunk, &plane, &number) >= 0) {
        last = (plane & PLANE_EPOCH) >> PLANE_EPOCH_SHIFT;
        word = (uint32_t)(plane & PLANE_WORD);
    }
    return epoch_is_dirty(header, word, last, reader->epoch);
}

void epoch_reader_done(struct epoch_reader *reader, uint64_t chunk)
{
    atomic_fetch_or(&reader->planes.words[reader->slot][chunk], PLANE_DONE);
}
