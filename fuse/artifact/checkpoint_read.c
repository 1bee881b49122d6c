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
    checkpoint_take *take;
    void *take_arg;
    struct pack_frame *codec;
    uint8_t *chunk;  /* VOLUME_CHUNK bytes; owned */
    uint8_t *bytes;  /* of a ranged read; owned */
    size_t capacity; /* of `bytes` */
};

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
    return reading->take(reading->take_arg, chunk, NULL, err);
}

/* Looks up those of one leaf, which stand together. Returns how many these are; those that are zero
 * get the length 0. */
static int find_of_leaf(const struct reading *reading, struct wanted *wanted, size_t count,
                        size_t *ret_here, struct err *err)
{
    struct checkpoint *checkpoint = reading->checkpoint;
    const uint32_t number = (uint32_t)(wanted->chunk / VOLUME_LEAF_CHUNKS);
    const struct checkpoint_leaf *leaf;
    size_t here = 0;
    while (here < count && wanted[here].chunk / VOLUME_LEAF_CHUNKS == number)
        here++;
    *ret_here = here;
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

/* Gives those that are zero, and leaves the others. */
static int drop_zeros(const struct reading *reading, struct wanted *wanted, size_t *count,
                      struct err *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        struct wanted *one = &wanted[i];
        int rc =
            one->entry.place.length == 0
                ? give_zero(reading, one->chunk, err)
                : checkpoint_packs_find(reading->checkpoint, &one->entry.place, &one->pack, err);
        if (rc < 0)
            return err_wrap(err, rc, "chunk %" PRIu64, one->chunk);
        if (one->entry.place.length != 0)
            wanted[kept++] = *one;
    }
    *count = kept;
    return 0;
}

/* Where they are, in the order of the packs. */
static int find_all(const struct reading *reading, struct wanted *wanted, size_t *count,
                    struct err *err)
{
    qsort(wanted, *count, sizeof *wanted, compare_numbers);
    for (size_t done = 0, here; done < *count; done += here) {
        int rc = find_of_leaf(reading, wanted + done, *count - done, &here, err);
        if (rc < 0)
            return rc;
    }
    int rc = drop_zeros(reading, wanted, count, err);
    qsort(wanted, *count, sizeof *wanted, compare_places);
    return rc;
}

/* --- reading --- */

/* The remote's question whether to go on: not the one before a read, as this one is under way. */
static int ask_within(void *arg, uint64_t done, uint64_t total)
{
    const struct reading *reading = arg;
    return reading->stop ? reading->stop(reading->stop_arg, done, total > 0 ? total : 1) : 0;
}

/* How many of the first ones are read at once, and from where to where. */
static size_t plan_range(const struct wanted *wanted, size_t count, uint64_t *ret_from,
                         uint64_t *ret_to)
{
    const uint64_t from = wanted->entry.place.offset;
    uint64_t to = from + wanted->entry.place.length;
    size_t here = 1;
    for (; here < count && wanted[here].pack == wanted->pack; here++) {
        const uint64_t begin = wanted[here].entry.place.offset;
        const uint64_t end = begin + wanted[here].entry.place.length;
        if (begin > to + CHECKPOINT_GAP || end > from + CHECKPOINT_READ_MAX)
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
    int rc = pack_frame_decode(reading->codec, bytes, wanted->entry.place.length,
                               &wanted->entry.digest, reading->chunk, err);
    if (rc < 0)
        return err_wrap(err, rc, "chunk %" PRIu64 ", at %u of pack %s", wanted->chunk,
                        wanted->entry.place.offset,
                        digest_format(&checkpoint->packs[wanted->pack].digest).s);
    return reading->take(reading->take_arg, wanted->chunk, reading->chunk, err);
}

static int read_range(struct reading *reading, const struct wanted *wanted, size_t count,
                      uint64_t from, uint64_t to, struct err *err)
{
    struct checkpoint *checkpoint = reading->checkpoint;
    int rc = checkpoint_ask_stop(reading->stop, reading->stop_arg, err);
    if (rc == 0)
        rc = make_room(reading, to - from, err);
    if (rc == 0)
        rc = remote_blob_read(checkpoint->remote, checkpoint->repository,
                              &checkpoint->packs[wanted->pack].digest, from, reading->bytes,
                              to - from, ask_within, reading, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = give_chunk(reading, &wanted[i], reading->bytes + (wanted[i].entry.place.offset - from),
                        err);
    return rc;
}

static int read_all(struct reading *reading, const struct wanted *wanted, size_t count,
                    struct err *err)
{
    int rc = 0;
    for (size_t done = 0; rc == 0 && done < count;) {
        uint64_t from, to;
        size_t here = plan_range(wanted + done, count - done, &from, &to);
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

int checkpoint_read(struct checkpoint *checkpoint, const uint64_t *chunks, size_t count,
                    remote_progress stop, void *stop_arg, checkpoint_take *take, void *take_arg,
                    struct err *err)
{
    struct reading reading = {.checkpoint = checkpoint,
                              .stop = stop,
                              .stop_arg = stop_arg,
                              .take = take,
                              .take_arg = take_arg};
    cleanup_free struct wanted *wanted = NULL;
    if (count == 0)
        return 0;
    int rc = list_wanted(checkpoint, chunks, count, &wanted, err);
    if (rc == 0)
        rc = find_all(&reading, wanted, &count, err);
    if (rc < 0 || count == 0)
        return rc;
    cleanup_free uint8_t *chunk = reading.chunk = malloc(VOLUME_CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot read chunks");
    rc = borrow_codec(checkpoint, &reading.codec, err);
    if (rc == 0)
        rc = read_all(&reading, wanted, count, err);
    return_codec(checkpoint, reading.codec);
    free(reading.bytes);
    return rc;
}
