/* What a checkpoint costs of its parent, and what it says when that is lost. */
#include "checkpoint_maker.h"
#include "checkpoint_write.h"
#include "remote_oci.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

enum {
    LEAF = VOLUME_LEAF_CHUNKS,
    FRESH = 9 * LEAF + 3, /* of a leaf in which the parent has nothing */
};

/* A volume that is the parent's, all of it zero or here, but for what a test wants. */
struct place {
    struct scratch *scratch;
    struct checkpoint_maker maker;
    struct checkpoint *parent; /* NULL: none */
    struct remote *oci;        /* has all that the parent has */
    struct checkpoint_write write;
    struct checkpoint_written written;
    bool parent_lost;

    bool passes_over; /* zeros, where it may */
    bool knows;       /* that what the parent has is the parent's */
    bool half;        /* of each chunk that is set it has a block alone */
    uint64_t fresh;   /* a chunk with bytes of its own; UINT64_MAX: none */
    uint64_t nexts;
    uint64_t reads;
    uint64_t dones;
};

static bool three_leaves(uint64_t chunk)
{
    return chunk == 5 || chunk == 6 || chunk == 7 * LEAF + 77 || chunk == 15 * LEAF + LEAF - 1;
}

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    assert_non_null(place);
    assert_int_equal(scratch_setup((void **)&place->scratch), 0);
    place->maker = (struct checkpoint_maker){.memory = memory_remote_open(),
                                             .size = 4 * GIB,
                                             .is_set = three_leaves,
                                             .pack_chunks = 100};
    place->fresh = UINT64_MAX;
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    checkpoint_free(place->parent);
    checkpoint_written_free(&place->written);
    memory_remote_close(place->maker.memory);
    remote_close(place->oci);
    int rc = scratch_teardown((void **)&place->scratch);
    free(place);
    return rc;
}

static void make(struct place *place)
{
    struct err err = ERR_INIT;
    char url[96];
    snprintf(url, sizeof url, "oci:%s/r", place->scratch->path);
    checkpoint_maker_make(&place->maker);
    assert_int_equal(checkpoint_maker_open(&place->maker, NULL, &place->parent, &err), 0);
    assert_int_equal(remote_oci_open(url, &place->oci, &err), 0);
    memory_remote_copy(place->maker.memory, place->oci, CHECKPOINT_MAKER_REPOSITORY);
    place->maker.memory->read_count = 0;
    place->write =
        (struct checkpoint_write){.remote = place->oci,
                                  .repository = CHECKPOINT_MAKER_REPOSITORY,
                                  .tag = "0123456789ab-g8-n1",
                                  .parent = place->parent,
                                  .temp_fd = place->scratch->fd,
                                  .config = {.volume = "0123456789ab",
                                             .lineage = "0123456789ab",
                                             .uuid = {1, 2, 3},
                                             .generation = 8,
                                             .created_ns = INT64_C(1800000000) * 1000000000,
                                             .node = "n1"},
                                  .ret_parent_lost = &place->parent_lost};
}

static bool has_bytes(const struct place *place, uint64_t chunk)
{
    return chunk == place->fresh || place->maker.is_set(chunk);
}

static uint64_t next(void *arg, uint64_t from, uint64_t until, bool zeros)
{
    struct place *place = arg;
    place->nexts++;
    for (uint64_t chunk = from; chunk < until; chunk++)
        if (zeros || !place->passes_over || has_bytes(place, chunk))
            return chunk;
    return UINT64_MAX;
}

static int read_chunk(void *arg, uint64_t chunk, void *buffer, uint32_t *ret_mask, struct err *err)
{
    struct place *place = arg;
    (void)err;
    place->reads++;
    memset(buffer, 0xEE, VOLUME_CHUNK); /* what is zero or the parent's may be anything here */
    if (chunk == place->fresh) {
        checkpoint_maker_bytes(chunk, buffer);
        return CHECKPOINT_CHUNK_BYTES;
    }
    if (place->knows || (place->half && place->maker.is_set(chunk))) {
        *ret_mask = place->half ? 1 : 0;
        return CHECKPOINT_CHUNK_PARENT;
    }
    if (!place->maker.is_set(chunk))
        return CHECKPOINT_CHUNK_ZERO;
    checkpoint_maker_bytes(chunk, buffer);
    return CHECKPOINT_CHUNK_BYTES;
}

static void done(void *arg, uint64_t chunk)
{
    struct place *place = arg;
    assert_true(chunk < place->maker.size / VOLUME_CHUNK);
    place->dones++;
}

static int try(struct place *place, struct err *err)
{
    const struct checkpoint_source source = {
        .size = place->maker.size, .next = next, .read = read_chunk, .done = done, .arg = place};
    place->nexts = place->reads = place->dones = 0;
    place->parent_lost = false;
    checkpoint_written_free(&place->written);
    return checkpoint_write(&place->write, &source, &place->written, err);
}

static void write_it(struct place *place)
{
    struct err err = ERR_INIT;
    if (try(place, &err) < 0)
        fail_msg("%s", err.text);
    assert_false(place->parent_lost);
    assert_int_equal(place->dones, place->reads);
    assert_int_equal(place->written.chunks_read, place->reads);
}

/* Costs */

/* Leaves of which something is set are fetched, each once, and their chunks alone are looked at. */
static void a_tebibyte_of_almost_nothing(void **state)
{
    struct place *place = *state;
    place->maker.size = 1024 * GIB;
    place->passes_over = true;
    make(place);
    write_it(place);
    assert_true(place->written.unchanged);
    assert_true(digest_equal(&place->written.digest, &place->maker.digest));
    assert_int_equal(place->maker.memory->read_count, 3);
    assert_int_equal(place->reads, 3 * LEAF);
    assert_true(place->nexts <= 3 * LEAF + 8);
}

/* Without a parent nothing that is zero is looked at. */
static void a_first_one_of_almost_nothing(void **state)
{
    struct place *place = *state;
    place->maker.size = 1024 * GIB;
    place->passes_over = true;
    make(place);
    place->write.parent = NULL;
    write_it(place);
    assert_int_equal(place->reads, 4);
    assert_true(place->nexts <= 5);
    assert_int_equal(place->written.chunks, 4);
}

/* Nobody has counted the packs of a parent of before: they stay, and are marked. */
static void a_root_of_version_1(void **state)
{
    struct place *place = *state;
    struct err err = ERR_INIT;
    struct checkpoint *child = NULL;
    size_t old_count, count;
    make(place);
    assert_null(checkpoint_uses_of(place->parent));
    place->fresh = FRESH;
    write_it(place);
    const struct checkpoint_options options = {.remote = place->oci,
                                               .repository = CHECKPOINT_MAKER_REPOSITORY};
    assert_int_equal(checkpoint_open(&options, place->write.tag, NULL, NULL, &child, &err), 0);
    (void)checkpoint_packs_of(place->parent, &old_count);
    const struct pack_use *uses = checkpoint_uses_of(child);
    (void)checkpoint_packs_of(child, &count);
    assert_non_null(uses);
    assert_int_equal(count, old_count + place->written.pack_count);
    for (size_t i = 0; i < count; i++)
        assert_true((uses[i].live == PACK_USE_UNKNOWN) == (i < old_count));
    checkpoint_free(child);
}

/* Zeros that a source gives all the same cost no look at the parent either. */
static void zeros_that_are_given(void **state)
{
    struct place *place = *state;
    make(place);
    write_it(place);
    assert_true(place->written.unchanged);
    assert_int_equal(place->reads, place->maker.size / VOLUME_CHUNK);
    assert_int_equal(place->maker.memory->read_count, 3);
}

static void what_is_known_to_be_the_parents(void **state)
{
    struct place *place = *state;
    place->knows = true;
    make(place);
    write_it(place);
    assert_true(place->written.unchanged);
    assert_int_equal(place->maker.memory->read_count, 0);
    place->fresh = FRESH; /* where the parent has nothing to be compared with */
    write_it(place);
    assert_false(place->written.unchanged);
    assert_int_equal(place->written.chunks_new, 1);
    assert_int_equal(place->written.chunks, 5);
    assert_int_equal(place->maker.memory->read_count, 0);
}

/* The same bytes, whatever the source says of zeros. */
static void it_makes_no_difference(void **state)
{
    struct place *place = *state;
    place->fresh = FRESH;
    make(place);
    write_it(place);
    const struct digest first = place->written.digest;
    place->passes_over = true;
    write_it(place);
    assert_true(digest_equal(&place->written.digest, &first));
    place->passes_over = false;
    place->knows = true;
    write_it(place);
    assert_true(digest_equal(&place->written.digest, &first));
}

static bool nothing(uint64_t chunk)
{
    (void)chunk;
    return false;
}

/* What was set and is zero now, without a look at its bytes. */
static void it_became_zero(void **state)
{
    struct place *place = *state;
    make(place);
    place->maker.is_set = nothing;
    for (int i = 0; i < 2; i++) {
        place->passes_over = i == 1;
        write_it(place);
        assert_false(place->written.unchanged);
        assert_int_equal(place->written.chunks, 0);
        assert_int_equal(place->written.pack_count, 0);
    }
    assert_int_equal(place->maker.memory->read_count, 3); /* they are kept */
}

/* A parent that is lost */

static struct memory_object *object_of(struct place *place, const uint8_t pack[VOLUME_PACK_ID])
{
    struct memory_remote *memory = place->maker.memory;
    for (size_t i = 0; i < memory->count; i++)
        if (memcmp(memory->objects[i].digest.bytes, pack, VOLUME_PACK_ID) == 0)
            return &memory->objects[i];
    fail_msg("there is no such pack");
    return NULL;
}

static const struct volume_place *leaf_place(const struct place *place)
{
    return &checkpoint_root_of(place->parent)->leaves[7].place;
}

static struct volume_place chunk_place(struct place *place)
{
    struct volume_entry entry;
    struct err err = ERR_INIT;
    assert_int_equal(checkpoint_find(place->parent, 7 * LEAF + 77, NULL, NULL, &entry, &err), 1);
    return entry.place;
}

static void assert_lost(struct place *place, enum err_code code)
{
    struct err err = ERR_INIT;
    assert_true(try(place, &err) < 0);
    assert_int_equal(err.code, code);
    assert_true(place->parent_lost);
    assert_non_null(strstr(err.hint, "copy of the remote"));
    assert_non_null(strstr(err.text, digest_format(&place->maker.digest).s));
}

static void lose(struct memory_object *object)
{
    free(object->bytes);
    object->bytes = NULL;
}

static void a_leaf_is_lost(void **state)
{
    struct place *place = *state;
    make(place);
    struct memory_object *object = object_of(place, leaf_place(place)->pack);
    object->bytes[leaf_place(place)->offset + 40] ^= 1;
    assert_lost(place, ERR_DIGEST);
    lose(object);
    assert_lost(place, ERR_NOT_FOUND);
    place->knows = true; /* nothing of it is needed */
    write_it(place);
    place->knows = false;
    place->write.ret_parent_lost = NULL;
    struct err err = ERR_INIT;
    assert_true(try(place, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void wrong_number(struct volume_leaf *leaf)
{
    leaf->number += leaf->number == 7;
}

static void a_leaf_is_damaged(void **state)
{
    struct place *place = *state;
    place->maker.twist.leaf = wrong_number;
    make(place);
    assert_lost(place, ERR_DAMAGED);
}

/* The rest of a chunk of which a block is here. */
static void a_pack_is_lost(void **state)
{
    struct place *place = *state;
    place->half = true;
    make(place);
    const struct volume_place at = chunk_place(place);
    struct memory_object *object = object_of(place, at.pack);
    object->bytes[at.offset + at.length / 2] ^= 1;
    struct err err = ERR_INIT;
    assert_true(try(place, &err) < 0);
    assert_true(err.code == ERR_DIGEST || err.code == ERR_DAMAGED);
    assert_true(place->parent_lost);
    lose(object);
    assert_lost(place, ERR_NOT_FOUND);
}

static void remove_blob(struct place *place, const struct digest *digest)
{
    char path[192];
    snprintf(path, sizeof path, "%s/r/blobs/sha256/%s", place->scratch->path, digest_hex(digest).s);
    assert_int_equal(unlink(path), 0);
}

/* It is not read, but named. */
static void a_pack_is_not_there_to_be_named(void **state)
{
    struct place *place = *state;
    size_t count;
    place->fresh = FRESH;
    make(place);
    remove_blob(place, &checkpoint_packs_of(place->parent, &count)[0].digest);
    assert_lost(place, ERR_NOT_FOUND);
}

static void a_list_is_not_there_to_be_named(void **state)
{
    struct place *place = *state;
    make(place);
    place->write.always = true;
    remove_blob(place, &checkpoint_index_of(place->parent)->lists[0].digest);
    assert_lost(place, ERR_NOT_FOUND);
}

static int say_stop(void *arg, uint64_t done_bytes, uint64_t total)
{
    const struct place *place = arg;
    (void)done_bytes, (void)total;
    return place->reads > 10;
}

/* What a repeat mends, and what is not the parent's. */
static void it_is_not_lost(void **state)
{
    struct place *place = *state;
    make(place);
    struct err err = ERR_INIT;
    place->maker.memory->fail = ERR_UNREACHABLE;
    place->maker.memory->fail_times = 1;
    assert_true(try(place, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_false(place->parent_lost);
    err_clear(&err);
    place->write.stop = say_stop;
    place->write.stop_arg = place;
    assert_true(try(place, &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_false(place->parent_lost);
    place->write.stop = NULL;
    write_it(place);
}

/* Without a parent, what is not here is nowhere. */
static void there_is_no_parent(void **state)
{
    struct place *place = *state;
    struct err err = ERR_INIT;
    place->half = true;
    make(place);
    place->write.parent = NULL;
    assert_true(try(place, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "chunk 5 "));
    assert_non_null(strstr(err.hint, "the remote has lost the checkpoint"));
    assert_false(place->parent_lost);
    place->half = false;
    write_it(place);
    assert_int_equal(place->written.chunks, 4);
}

#define with_place(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_place(a_tebibyte_of_almost_nothing),
        with_place(a_first_one_of_almost_nothing),
        with_place(a_root_of_version_1),
        with_place(zeros_that_are_given),
        with_place(what_is_known_to_be_the_parents),
        with_place(it_makes_no_difference),
        with_place(it_became_zero),
        with_place(a_leaf_is_lost),
        with_place(a_leaf_is_damaged),
        with_place(a_pack_is_lost),
        with_place(a_pack_is_not_there_to_be_named),
        with_place(a_list_is_not_there_to_be_named),
        with_place(it_is_not_lost),
        with_place(there_is_no_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
