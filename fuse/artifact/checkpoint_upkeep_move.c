/* Frames out of packs that are to be emptied. */
#include "checkpoint_upkeep.h"

#include "cleanup.h"
#include "log.h"

#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    SLICE = 256, /* frames that are read before they are put into a pack, in order */
};

/* A frame that is to be moved. */
struct frame {
    uint32_t chunk;
    uint32_t pack; /* of the parent's */
    struct digest digest;
};

struct moving {
    struct checkpoint_making *making;
    struct checkpoint_upkeep *upkeep;
    struct volume_leaf *leaf;
    struct frame *frames;
    size_t count;
    size_t room;
    size_t changed; /* changes that there were before */
};

/* A slice of frames, and what came of them. */
struct slice {
    const struct frame *frames;
    size_t count;
    uint8_t *bytes;
    uint32_t lens[SLICE];
};

static void free_moving(struct moving *moving)
{
    free(moving->leaf);
    free(moving->frames);
}
#define cleanup_moving cleanup_with(free_moving)

static int stop(void *arg, uint64_t done, uint64_t total)
{
    const struct checkpoint_write *write = arg;
    return write->stop ? write->stop(write->stop_arg, done, total) : 0;
}

/* Of what could not be read: 0 when the checkpoint goes on without. */
static int go_on(struct moving *moving, int rc, const struct err *failure, struct err *err)
{
    if (failure->code == ERR_CANCELLED)
        return err_pass(err, rc, failure);
    log_event(LOG_WARN, "pack-not-emptied", "repository", moving->making->write->repository,
              "error", failure->text, NULL);
    if (failure->code != ERR_NOT_FOUND && failure->code != ERR_DIGEST &&
        failure->code != ERR_DAMAGED && failure->code != ERR_TOO_NEW)
        moving->upkeep->is_over = true;
    return 0;
}

/* --- which --- */

/* What is moved lies in a temporary file for a while, which the checkpoint could do without. */
static bool has_room(int temp_fd)
{
    struct statvfs room;
    return fstatvfs(temp_fd, &room) < 0 || (uint64_t)room.f_bavail * room.f_frsize >= UPKEEP_ROOM;
}

static int plan(struct checkpoint_making *making, struct err *err)
{
    struct checkpoint_upkeep *upkeep = making->upkeep;
    const struct checkpoint *parent = making->write->parent;
    struct upkeep_packs packs = {.uses = upkeep->uses,
                                 .root = checkpoint_root_of(parent),
                                 .full = making->pack_bytes,
                                 .shift = upkeep->shift};
    packs.packs = checkpoint_packs_of(parent, &packs.count);
    upkeep->planned = true;
    if (!has_room(making->write->temp_fd)) {
        upkeep->is_over = true;
        return 0;
    }
    upkeep->bytes_left = UPKEEP_BYTES + making->stored_bytes / 2;
    upkeep->budget = (struct checkpoint_budget){
        .reads = UPKEEP_READS, .bytes = 2 * upkeep->bytes_left, .gap = UPKEEP_GAP};
    upkeep->frames_left = UPKEEP_FRAMES;
    int rc = upkeep_plan_make(&packs, upkeep->bytes_left, &upkeep->plan, err);
    if (rc == 0 && !upkeep->plan.emptied)
        upkeep->is_over = true;
    return rc;
}

/* Which of the parent's packs is to be emptied of this; false: it may stay. */
static bool find_emptied(const struct moving *moving, const struct volume_place *place,
                         uint32_t *ret)
{
    struct err none = ERR_INIT;
    return checkpoint_find_pack(moving->making->write->parent, place, ret, &none) == 0 &&
           moving->upkeep->plan.emptied[*ret];
}

static int add_frame(struct moving *moving, uint32_t chunk, uint32_t pack,
                     const struct volume_entry *entry, struct err *err)
{
    struct checkpoint_upkeep *upkeep = moving->upkeep;
    if (entry->place.length > upkeep->bytes_left || upkeep->frames_left == 0) {
        upkeep->stuck[pack] = true;
        return 0;
    }
    if (moving->count == moving->room) {
        size_t room = moving->room ? 2 * moving->room : 256;
        struct frame *frames = realloc(moving->frames, room * sizeof *frames);
        if (!frames)
            return err_errno(err, ENOMEM, "cannot move chunks");
        moving->frames = frames;
        moving->room = room;
    }
    moving->frames[moving->count++] =
        (struct frame){.chunk = chunk, .pack = pack, .digest = entry->digest};
    upkeep->bytes_left -= entry->place.length;
    upkeep->frames_left--;
    return 0;
}

static bool is_changed(const struct moving *moving, uint32_t chunk)
{
    const struct checkpoint_change *changes = moving->making->changes;
    size_t low = 0, high = moving->changed;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (changes[middle].chunk == chunk)
            return true;
        if (changes[middle].chunk < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* What is to be moved of a leaf that the parent has. */
static int look_at_leaf(struct moving *moving, uint32_t number, struct err *err)
{
    struct checkpoint_upkeep *upkeep = moving->upkeep;
    const struct checkpoint_write *write = moving->making->write;
    struct err failure = ERR_INIT;
    upkeep->looks[number] = UPKEEP_LOOKED;
    int rc = checkpoint_leaf(write->parent, number, stop, (void *)write, moving->leaf, &failure);
    if (rc < 0) {
        checkpoint_upkeep_miss(moving->making, number);
        return go_on(moving, rc, &failure, err);
    }
    for (uint32_t i = 0; rc == 0 && i < VOLUME_LEAF_CHUNKS; i++) {
        const uint32_t chunk = number * VOLUME_LEAF_CHUNKS + i;
        uint32_t pack;
        if (moving->leaf->set[i] && find_emptied(moving, &moving->leaf->entries[i].place, &pack) &&
            !is_changed(moving, chunk))
            rc = add_frame(moving, chunk, pack, &moving->leaf->entries[i], err);
    }
    return rc;
}

/* The leaves of what has changed, and with `all` those of the plan. */
static int look_at_leaves(struct moving *moving, bool all, struct err *err)
{
    const struct checkpoint_making *making = moving->making;
    struct checkpoint_upkeep *upkeep = moving->upkeep;
    const struct volume_root *root = checkpoint_root_of(making->write->parent);
    size_t at = 0;
    int rc = 0;
    for (uint32_t number = 0; rc == 0 && number < root->leaf_count; number++) {
        bool wanted = all && (upkeep->plan.groups & pack_usage_group(number, upkeep->shift));
        while (at < moving->changed && making->changes[at].chunk / VOLUME_LEAF_CHUNKS < number)
            at++;
        if (at < moving->changed && making->changes[at].chunk / VOLUME_LEAF_CHUNKS == number)
            wanted = true;
        if (wanted && root->set[number] && upkeep->looks[number] == UPKEEP_NOT_LOOKED &&
            !upkeep->is_over)
            rc = look_at_leaf(moving, number, err);
    }
    return rc;
}

/* --- moving --- */

static int compare_chunks(const void *a, const void *b)
{
    const struct frame *one = a, *other = b;
    return one->chunk < other->chunk ? -1 : one->chunk > other->chunk;
}

static int take_frame(void *arg, uint64_t chunk, const void *bytes, size_t len, struct err *err)
{
    struct slice *slice = arg;
    const struct frame key = {.chunk = (uint32_t)chunk};
    const struct frame *frame =
        bsearch(&key, slice->frames, slice->count, sizeof key, compare_chunks);
    if (!frame || len > VOLUME_CHUNK)
        return err_fail(err, ERR_INTERNAL, "chunk %" PRIu64 " was not asked for", chunk);
    size_t at = (size_t)(frame - slice->frames);
    memcpy(slice->bytes + at * VOLUME_CHUNK, bytes, len);
    slice->lens[at] = (uint32_t)len;
    return 0;
}

static int read_slice(struct moving *moving, struct slice *slice, struct err *err)
{
    const struct checkpoint_write *write = moving->making->write;
    uint64_t chunks[SLICE];
    struct err failure = ERR_INIT;
    for (size_t i = 0; i < slice->count; i++) {
        chunks[i] = slice->frames[i].chunk;
        slice->lens[i] = 0;
    }
    int rc = checkpoint_read_frames(write->parent, chunks, slice->count, &moving->upkeep->budget,
                                    stop, (void *)write, take_frame, slice, &failure);
    return rc < 0 ? go_on(moving, rc, &failure, err) : 0;
}

static int put_frame(struct checkpoint_making *making, const struct frame *frame,
                     const uint8_t *bytes, uint32_t len, struct err *err)
{
    struct checkpoint_change change = {
        .chunk = frame->chunk, .is_set = true, .is_moved = true, .digest = frame->digest};
    int rc = 0;
    if (!chunk_seen_find(making->seen, &frame->digest, &change.spot)) {
        rc = pack_writer_add(making->packs, bytes, len, &change.spot, err);
        if (rc == 0)
            rc = chunk_seen_add(making->seen, &frame->digest, &change.spot, err);
        making->written.bytes_moved += rc == 0 ? len : 0;
    }
    return rc == 0 ? checkpoint_write_add_change(making, &change, err) : rc;
}

static int move_slice(struct moving *moving, struct slice *slice, struct err *err)
{
    int rc = moving->upkeep->is_over ? 0 : checkpoint_write_stopped(moving->making, err);
    for (size_t i = 0; i < slice->count; i++)
        slice->lens[i] = 0;
    if (rc == 0 && !moving->upkeep->is_over)
        rc = read_slice(moving, slice, err);
    for (size_t i = 0; rc == 0 && i < slice->count; i++) {
        if (slice->lens[i] == 0)
            moving->upkeep->stuck[slice->frames[i].pack] = true;
        else
            rc = put_frame(moving->making, &slice->frames[i], slice->bytes + i * VOLUME_CHUNK,
                           slice->lens[i], err);
    }
    return rc;
}

static int move_frames(struct moving *moving, struct err *err)
{
    int rc = 0;
    if (moving->count == 0)
        return 0;
    cleanup_free uint8_t *bytes = malloc((size_t)SLICE * VOLUME_CHUNK);
    if (!bytes)
        return err_errno(err, ENOMEM, "cannot move chunks");
    for (size_t done = 0; rc == 0 && done < moving->count; done += SLICE) {
        struct slice slice = {
            .frames = moving->frames + done, .count = moving->count - done, .bytes = bytes};
        if (slice.count > SLICE)
            slice.count = SLICE;
        rc = move_slice(moving, &slice, err);
    }
    return rc;
}

/* A leaf that lies in a pack which is to be emptied is stored anew as it is. */
static int move_leaves(struct moving *moving, struct err *err)
{
    struct checkpoint_making *making = moving->making;
    const struct volume_root *root = checkpoint_root_of(making->write->parent);
    int rc = 0;
    for (uint32_t number = 0; rc == 0 && number < root->leaf_count; number++) {
        const struct checkpoint_change change = {
            .chunk = number * VOLUME_LEAF_CHUNKS, .is_moved = true, .is_nothing = true};
        uint32_t pack;
        if (moving->upkeep->looks[number] == UPKEEP_LOOKED && !making->is_made[number] &&
            find_emptied(moving, &root->leaves[number].place, &pack))
            rc = checkpoint_write_add_change(making, &change, err);
    }
    return rc;
}

static int compare_changes(const void *a, const void *b)
{
    const struct checkpoint_change *one = a, *other = b;
    if (one->chunk != other->chunk)
        return one->chunk < other->chunk ? -1 : 1;
    return (int)other->is_nothing - (int)one->is_nothing;
}

static int move(struct checkpoint_making *making, bool all, struct err *err)
{
    cleanup_moving struct moving moving = {.making = making,
                                           .upkeep = making->upkeep,
                                           .leaf = malloc(sizeof *moving.leaf),
                                           .changed = making->change_count};
    if (!moving.leaf)
        return err_errno(err, ENOMEM, "cannot move chunks");
    int rc = look_at_leaves(&moving, all, err);
    if (rc == 0)
        rc = move_frames(&moving, err);
    if (rc == 0 && all && !moving.upkeep->is_over)
        rc = move_leaves(&moving, err);
    qsort(making->changes, making->change_count, sizeof *making->changes, compare_changes);
    return rc;
}

int checkpoint_upkeep_move(struct checkpoint_making *making, bool all, struct err *err)
{
    struct checkpoint_upkeep *upkeep = making->upkeep;
    int rc = 0;
    if (upkeep->is_over || (making->change_count == 0 && making->leaf_count == 0))
        return 0;
    if (!upkeep->planned)
        rc = plan(making, err);
    return rc < 0 || upkeep->is_over ? rc : move(making, all, err);
}
