/* Chunks of a checkpoint, by ranged reads of its packs. */
#include "checkpoint_parts.h"

#include "cleanup.h"

#include <inttypes.h>
#include <string.h>

/* A chunk that is to be read. */
struct wanted {
    uint64_t chunk;
    uint32_t pack;
    struct volume_entry entry;
};

struct reading {
    struct checkpoint *checkpoint;
    remote_progress stop;
    void *stop_arg;
    checkpoint_take *take;             /* or */
    checkpoint_take_frame *take_frame; /* NULL */
    void *take_arg;
    struct checkpoint_budget *budget; /* NULL: none */
    struct pack_frame *codec;
    uint8_t *chunk;  /* VOLUME_CHUNK bytes; owned */
    uint8_t *bytes;  /* of a ranged read; owned */
    size_t capacity; /* of `bytes` */
    int lost;        /* 0, or of the first failure of what is damaged or lost: */
    struct err failure;
};

/* What is damaged or lost does not stop the others (I9). `failure` is about one chunk, leaf or
 * range. Returns 0 when the read goes on. */
static int go_on(struct reading *reading, int rc, const struct err *failure, struct err *err)
{
    switch (failure->code) {
    case ERR_NOT_FOUND:
    case ERR_DIGEST:
    case ERR_DAMAGED:
    case ERR_TOO_NEW:
        if (reading->lost == 0)
            reading->failure = *failure;
        reading->lost = reading->lost ? reading->lost : rc;
        return 0;
    default:
        return err_pass(err, rc, failure);
    }
}

/* --- which --- */

static int compare_numbers(const void *a, const void *b)
{
    const struct wanted *one = a, *other = b;
    return one->chunk < other->chunk ? -1 : one->chunk > other->chunk;
}

static int compare_places(const void *a, const void *b)
{
    const struct wanted *one = a, *other = b;
    if (one->pack != other->pack)
        return one->pack < other->pack ? -1 : 1;
    if (one->entry.place.offset != other->entry.place.offset)
        return one->entry.place.offset < other->entry.place.offset ? -1 : 1;
    return compare_numbers(a, b);
}

static int give_zero(const struct reading *reading, uint64_t chunk, struct err *err)
{
    if (!reading->take)
        return 0;
    return reading->take(reading->take_arg, chunk, NULL, err);
}

/* Looks up those of one leaf, which stand together; those that are zero get the length 0. */
static int find_of_leaf(const struct reading *reading, struct wanted *wanted, size_t here,
                        struct err *err)
{
    struct checkpoint *checkpoint = reading->checkpoint;
    const uint32_t number = (uint32_t)(wanted->chunk / VOLUME_LEAF_CHUNKS);
    const struct checkpoint_leaf *leaf;
    if (!checkpoint->root->set[number])
        return 0;
    int rc =
        checkpoint_leaves_lock(checkpoint, number, reading->stop, reading->stop_arg, &leaf, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < here; i++) {
        const uint16_t at = leaf->at[wanted[i].chunk % VOLUME_LEAF_CHUNKS];
        if (at > 0)
            wanted[i].entry = leaf->entries[at - 1];
    }
    (void)pthread_mutex_unlock(&checkpoint->lock);
    return 0;
}

/* What is known of a chunk now: gives it when it is zero, else finds its pack. 1 when it is to be
 * read. */
static int place_one(struct reading *reading, struct wanted *wanted, struct err *err)
{
    struct err failure = ERR_INIT;
    if (wanted->entry.place.length == 0)
        return give_zero(reading, wanted->chunk, err);
    int rc =
        checkpoint_find_pack(reading->checkpoint, &wanted->entry.place, &wanted->pack, &failure);
    if (rc == 0)
        return 1;
    (void)err_wrap(&failure, rc, "chunk %" PRIu64, wanted->chunk);
    return go_on(reading, rc, &failure, err);
}

/* Where they are, in the order of the packs. What is zero is given, what is lost left out. */
static int find_all(struct reading *reading, struct wanted *wanted, size_t *count, struct err *err)
{
    size_t kept = 0;
    int rc = 0;
    qsort(wanted, *count, sizeof *wanted, compare_numbers);
    for (size_t done = 0, here; done < *count && rc >= 0; done += here) {
        struct err failure = ERR_INIT;
        const uint64_t leaf = wanted[done].chunk / VOLUME_LEAF_CHUNKS;
        for (here = 1; done + here < *count; here++)
            if (wanted[done + here].chunk / VOLUME_LEAF_CHUNKS != leaf)
                break;
        rc = find_of_leaf(reading, wanted + done, here, &failure);
        if (rc < 0) {
            rc = go_on(reading, rc, &failure, err);
            continue;
        }
        for (size_t i = done; i < done + here && rc >= 0; i++) {
            rc = place_one(reading, &wanted[i], err);
            if (rc > 0)
                wanted[kept++] = wanted[i];
        }
    }
    *count = kept;
    qsort(wanted, kept, sizeof *wanted, compare_places);
    return rc < 0 ? rc : 0;
}

/* --- reading --- */

/* The remote's question whether to go on: not the one before a read, as this one is under way. */
static int ask_within(void *arg, uint64_t done, uint64_t total)
{
    const struct reading *reading = arg;
    return reading->stop ? reading->stop(reading->stop_arg, done, total > 0 ? total : 1) : 0;
}

/* How many of the first ones are read at once, and from where to where. */
static size_t plan_range(const struct wanted *wanted, size_t count, uint32_t gap,
                         uint64_t *ret_from, uint64_t *ret_to)
{
    const uint64_t from = wanted->entry.place.offset;
    uint64_t to = from + wanted->entry.place.length;
    size_t here = 1;
    for (; here < count && wanted[here].pack == wanted->pack; here++) {
        const uint64_t begin = wanted[here].entry.place.offset;
        const uint64_t end = begin + wanted[here].entry.place.length;
        if (begin > to + gap || end > from + CHECKPOINT_READ_MAX)
            break;
        to = end > to ? end : to;
    }
    *ret_from = from;
    *ret_to = to;
    return here;
}

static int make_room(struct reading *reading, size_t len, struct err *err)
{
    if (len <= reading->capacity)
        return 0;
    free(reading->bytes);
    reading->capacity = 0;
    reading->bytes = malloc(len);
    if (!reading->bytes)
        return err_errno(err, ENOMEM, "cannot read chunks");
    reading->capacity = len;
    return 0;
}

static int give_chunk(struct reading *reading, const struct wanted *wanted, const uint8_t *bytes,
                      struct err *err)
{
    const struct checkpoint *checkpoint = reading->checkpoint;
    struct err failure = ERR_INIT;
    int rc = pack_frame_decode(reading->codec, bytes, wanted->entry.place.length,
                               &wanted->entry.digest, reading->chunk, &failure);
    if (rc == 0 && reading->take_frame)
        return reading->take_frame(reading->take_arg, wanted->chunk, bytes,
                                   wanted->entry.place.length, err);
    if (rc == 0)
        return reading->take(reading->take_arg, wanted->chunk, reading->chunk, err);
    (void)err_wrap(&failure, rc, "chunk %" PRIu64 ", at %u of pack %s", wanted->chunk,
                   wanted->entry.place.offset,
                   digest_format(&checkpoint->packs[wanted->pack].digest).s);
    return go_on(reading, rc, &failure, err);
}

static int read_range(struct reading *reading, const struct wanted *wanted, size_t count,
                      uint64_t from, uint64_t to, struct err *err)
{
    struct checkpoint *checkpoint = reading->checkpoint;
    struct err failure = ERR_INIT;
    int rc = checkpoint_ask_stop(reading->stop, reading->stop_arg, err);
    if (rc == 0)
        rc = make_room(reading, to - from, err);
    if (rc < 0)
        return rc;
    rc = remote_blob_read(checkpoint->remote, checkpoint->repository,
                          &checkpoint->packs[wanted->pack].digest, from, reading->bytes, to - from,
                          ask_within, reading, &failure);
    if (rc < 0)
        return go_on(reading, rc, &failure, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = give_chunk(reading, &wanted[i], reading->bytes + (wanted[i].entry.place.offset - from),
                        err);
    return rc;
}

static int read_all(struct reading *reading, const struct wanted *wanted, size_t count,
                    struct err *err)
{
    struct checkpoint_budget *budget = reading->budget;
    int rc = 0;
    for (size_t done = 0; rc == 0 && done < count;) {
        uint64_t from, to;
        size_t here = plan_range(wanted + done, count - done, budget ? budget->gap : CHECKPOINT_GAP,
                                 &from, &to);
        if (budget && (budget->reads == 0 || budget->bytes < to - from))
            break;
        if (budget) {
            budget->reads--;
            budget->bytes -= to - from;
        }
        rc = read_range(reading, wanted + done, here, from, to, err);
        done += here;
    }
    return rc;
}

static int borrow_codec(struct checkpoint *checkpoint, struct pack_frame **ret, struct err *err)
{
    struct pack_frame *codec = NULL;
    (void)pthread_mutex_lock(&checkpoint->lock);
    if (checkpoint->codec_count > 0)
        codec = checkpoint->codecs[--checkpoint->codec_count];
    (void)pthread_mutex_unlock(&checkpoint->lock);
    if (!codec)
        return pack_frame_new(ret, err);
    *ret = codec;
    return 0;
}

static void return_codec(struct checkpoint *checkpoint, struct pack_frame *codec)
{
    (void)pthread_mutex_lock(&checkpoint->lock);
    if (codec && checkpoint->codec_count < CHECKPOINT_CODECS_KEPT)
        checkpoint->codecs[checkpoint->codec_count++] = steal_ptr(codec);
    (void)pthread_mutex_unlock(&checkpoint->lock);
    pack_frame_free(codec);
}

static int list_wanted(const struct checkpoint *checkpoint, const uint64_t *chunks, size_t count,
                       struct wanted **ret, struct err *err)
{
    cleanup_free struct wanted *wanted = calloc(count, sizeof *wanted);
    if (!wanted)
        return err_errno(err, ENOMEM, "cannot read chunks");
    for (size_t i = 0; i < count; i++) {
        wanted[i].chunk = chunks[i];
        if (chunks[i] >= checkpoint->root->size / VOLUME_CHUNK)
            return err_fail(err, ERR_INVALID, "the checkpoint has no chunk %" PRIu64, chunks[i]);
    }
    *ret = steal_ptr(wanted);
    return 0;
}

static int read_found(struct reading *reading, const struct wanted *wanted, size_t count,
                      struct err *err)
{
    cleanup_free uint8_t *chunk = reading->chunk = malloc(VOLUME_CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot read chunks");
    int rc = borrow_codec(reading->checkpoint, &reading->codec, err);
    if (rc == 0)
        rc = read_all(reading, wanted, count, err);
    return_codec(reading->checkpoint, reading->codec);
    free(reading->bytes);
    return rc;
}

static int read_wanted(struct reading *reading, const uint64_t *chunks, size_t count,
                       struct err *err)
{
    cleanup_free struct wanted *wanted = NULL;
    if (count == 0)
        return 0;
    int rc = list_wanted(reading->checkpoint, chunks, count, &wanted, err);
    if (rc == 0)
        rc = find_all(reading, wanted, &count, err);
    if (rc == 0 && count > 0)
        rc = read_found(reading, wanted, count, err);
    return rc == 0 && reading->lost ? err_pass(err, reading->lost, &reading->failure) : rc;
}

int checkpoint_read(struct checkpoint *checkpoint, const uint64_t *chunks, size_t count,
                    remote_progress stop, void *stop_arg, checkpoint_take *take, void *take_arg,
                    struct err *err)
{
    struct reading reading = {.checkpoint = checkpoint,
                              .stop = stop,
                              .stop_arg = stop_arg,
                              .take = take,
                              .take_arg = take_arg};
    return read_wanted(&reading, chunks, count, err);
}

int checkpoint_read_frames(struct checkpoint *checkpoint, const uint64_t *chunks, size_t count,
                           struct checkpoint_budget *budget, remote_progress stop, void *stop_arg,
                           checkpoint_take_frame *take, void *take_arg, struct err *err)
{
    struct reading reading = {.checkpoint = checkpoint,
                              .stop = stop,
                              .stop_arg = stop_arg,
                              .take_frame = take,
                              .take_arg = take_arg,
                              .budget = budget};
    return read_wanted(&reading, chunks, count, err);
}
