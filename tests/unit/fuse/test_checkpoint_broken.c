/* Checkpoints whose parts are missing, damaged, mixed up or made by somebody hostile. */
#include "checkpoint_maker.h"

#include "cleanup.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

static bool few(uint64_t chunk)
{
    return chunk < 24 && chunk % 2 == 0;
}

static int setup(void **state)
{
    struct checkpoint_maker *maker = calloc(1, sizeof *maker);
    if (!maker)
        return -1;
    maker->memory = memory_remote_open();
    maker->size = 64 * MIB;
    maker->is_set = few;
    maker->pack_chunks = 4;
    *state = maker;
    return 0;
}

static int teardown(void **state)
{
    struct checkpoint_maker *maker = *state;
    memory_remote_close(maker->memory);
    free(maker);
    return 0;
}

static struct checkpoint *open_it(struct checkpoint_maker *maker)
{
    struct err err = ERR_INIT;
    struct checkpoint *checkpoint;
    if (checkpoint_maker_open(maker, NULL, &checkpoint, &err) < 0)
        fail_msg("%s", err.text);
    return checkpoint;
}

/* --- objects that are not what they should be --- */

/* Opens and reads all, each chunk alone. Returns the code of the first failure; a chunk that is
 * given wrong fails the test. */
static enum err_code try_all(struct checkpoint_maker *maker, size_t *ret_good)
{
    struct checkpoint *checkpoint;
    struct err err = ERR_INIT;
    *ret_good = 0;
    if (checkpoint_maker_open(maker, NULL, &checkpoint, &err) < 0)
        return err.code;
    enum err_code first = ERR_NONE;
    for (uint64_t i = 0; i < maker->size / VOLUME_CHUNK; i++) {
        struct err failure = ERR_INIT;
        if (!maker->is_set(i))
            continue;
        if (checkpoint_maker_read(maker, checkpoint, &i, 1, &failure) == 0)
            ++*ret_good;
        else if (first == ERR_NONE)
            first = failure.code;
    }
    checkpoint_free(checkpoint);
    return first;
}

enum {
    FEW = 12,
};

static bool is_pack(const struct memory_object *object)
{
    return !object->manifest && object->len > 1000; /* neither config nor root */
}

static void check_broken(struct checkpoint_maker *maker, const struct memory_object *object,
                         const char *what, bool may_do)
{
    size_t good;
    enum err_code code = try_all(maker, &good);
    bool fits = code == ERR_NOT_FOUND || code == ERR_DIGEST || code == ERR_DAMAGED;
    if (!fits && !(may_do && code == ERR_NONE))
        fail_msg("object %s of %zu bytes is %s: %s", digest_format(&object->digest).s, object->len,
                 what, err_code_name(code));
    /* The chunks of the other packs are there. */
    if (is_pack(object) && code != ERR_NONE && good > FEW - 1)
        fail_msg("object %s is %s, and %zu chunks are good", digest_format(&object->digest).s, what,
                 good);
}

static void test_each_object_broken(void **state)
{
    struct checkpoint_maker *maker = *state;
    checkpoint_maker_make(maker);
    struct memory_remote *memory = maker->memory;
    for (size_t i = 0; i < memory->count; i++) {
        struct memory_object *object = &memory->objects[i];
        if (object->len == 2) /* the empty config of pack lists is not read */
            continue;
        const struct memory_object kept = *object;
        uint8_t *copy = malloc(kept.len + 1);
        memcpy(copy, kept.bytes, kept.len);
        copy[kept.len] = ' ';
        const bool index = object->tag[0] != '\0'; /* its digest is not known before */
        object->bytes = NULL;
        check_broken(maker, &kept, "missing", false);
        object->bytes = copy;
        for (size_t bit = 0; bit < 8 && !index; bit += 3) {
            size_t at = (kept.len - 1) * bit / 7;
            copy[at] ^= (uint8_t)(1u << bit);
            /* A byte before the leaf, or between frames, is nobody's. */
            check_broken(maker, &kept, "flipped", is_pack(&kept));
            copy[at] ^= (uint8_t)(1u << bit);
        }
        /* What stands behind all frames of a pack is nobody's. */
        const size_t lens[] = {0, 1, kept.len / 2, kept.len - (is_pack(&kept) ? 9 : 1)};
        for (size_t n = 0; n < ARRAY_SIZE(lens) && !index; n++) {
            object->len = lens[n];
            check_broken(maker, &kept, "truncated", false);
        }
        object->len = kept.len + 1;
        check_broken(maker, &kept, "longer", !kept.manifest || index);
        *object = kept;
        free(copy);
    }
    size_t good;
    assert_int_equal(try_all(maker, &good), ERR_NONE);
    assert_int_equal(good, FEW);
}

static void test_objects_swapped(void **state)
{
    struct checkpoint_maker *maker = *state;
    checkpoint_maker_make(maker);
    struct memory_remote *memory = maker->memory;
    for (size_t i = 0; i < memory->count; i++)
        for (size_t j = 0; j < memory->count; j++) {
            struct memory_object *object = &memory->objects[i];
            const struct memory_object kept = *object;
            if (i == j || object->len == 2 || object->tag[0] != '\0')
                continue;
            object->bytes = memory->objects[j].bytes;
            object->len = memory->objects[j].len;
            check_broken(maker, &kept, "another one", false);
            *object = kept;
        }
}

/* The tag names a manifest that is sound and no checkpoint. */
static void test_no_checkpoint(void **state)
{
    struct checkpoint_maker *maker = *state;
    static const char *const others[] = {
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\","
        "\"manifests\":[]}",
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\","
        "\"config\":{\"mediaType\":\"application/"
        "vnd.oci.image.config.v1+json\",\"digest\":\"sha256:"
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\",\"size\":2},"
        "\"layers\":[]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct err err = ERR_INIT;
        struct checkpoint *checkpoint;
        (void)memory_remote_add(maker->memory, others[i], strlen(others[i]), true,
                                CHECKPOINT_MAKER_TAG);
        assert_true(checkpoint_maker_open(maker, NULL, &checkpoint, &err) < 0);
        if (err.code != ERR_UNSUPPORTED && err.code != ERR_DAMAGED)
            fail_msg("%s: %s", err_code_name(err.code), err.text);
        maker->memory->objects[i].tag[0] = '\0';
    }
}

/* --- parts that do not fit together --- */

static void config_size(struct checkpoint_config *config)
{
    config->size += MIB;
}
static void config_root(struct checkpoint_config *config)
{
    config->root.bytes[3] ^= 1;
}
static void config_volume(struct checkpoint_config *config)
{
    config->volume[3] = 'f';
}
static void config_generation(struct checkpoint_config *config)
{
    config->generation++;
}
static void config_token(struct checkpoint_config *config)
{
    config->token++;
}
static void config_node(struct checkpoint_config *config)
{
    config->node[0] = 'x';
}
static void config_parent(struct checkpoint_config *config)
{
    config->has_parent = true;
}
static void manifest_config_huge(struct checkpoint_root_manifest *manifest)
{
    manifest->config.size = UINT64_C(1) << 40;
}
static void manifest_config_short(struct checkpoint_root_manifest *manifest)
{
    manifest->config.size--;
}
static void manifest_root_huge(struct checkpoint_root_manifest *manifest)
{
    manifest->root.size = UINT64_C(1) << 40;
}
static void manifest_root_none(struct checkpoint_root_manifest *manifest)
{
    manifest->root.size = 0;
}
static void manifest_root_other(struct checkpoint_root_manifest *manifest)
{
    manifest->root = manifest->config;
}
static void index_list_size(struct checkpoint_index *index)
{
    index->lists[0].size++;
}
static void index_root_size(struct checkpoint_index *index)
{
    index->root_manifest.size--;
}
static void index_swapped(struct checkpoint_index *index)
{
    const struct checkpoint_blob root_manifest = index->root_manifest;
    index->root_manifest = index->lists[0];
    index->lists[0] = root_manifest;
}
/* In two lists; within one they are refused by whoever reads that. */
static void packs_same_digits(struct pack *packs, size_t *count, size_t *list_packs)
{
    for (; *count < *list_packs; ++*count)
        packs[*count] = (struct pack){
            .digest = {.bytes = {0xFE, (uint8_t)(*count >> 8), (uint8_t)*count}}, .size = 1000};
    packs[*count] = packs[0];
    packs[(*count)++].digest.bytes[VOLUME_PACK_ID] ^= 1;
}
static void packs_lists_not_full(struct pack *packs, size_t *count, size_t *list_packs)
{
    (void)packs, (void)count;
    *list_packs = 2;
}
static void packs_one_missing(struct pack *packs, size_t *count, size_t *list_packs)
{
    (void)list_packs;
    memmove(packs, packs + 1, --*count * sizeof *packs);
}
static void packs_one_short(struct pack *packs, size_t *count, size_t *list_packs)
{
    (void)count, (void)list_packs;
    packs[0].size -= 10;
}
static void root_place_outside(struct volume_root *root)
{
    root->leaves[0].place.offset += 1000000;
}
/* Version 2, with nothing behind. */
static void root_has_usage(struct volume_root *root)
{
    root->has_usage = true;
}
static void root_place_short(struct volume_root *root)
{
    root->leaves[0].place.length = 100;
}
static void root_place_huge(struct volume_root *root)
{
    root->leaves[0].place.length = UINT32_MAX;
    root->leaves[0].place.offset = UINT32_MAX;
}
static void root_place_elsewhere(struct volume_root *root)
{
    root->leaves[0].place.pack[0] ^= 1;
}
static void leaf_number(struct volume_leaf *leaf)
{
    leaf->number++;
}
static void leaf_place_outside(struct volume_leaf *leaf)
{
    leaf->entries[4].place.offset = UINT32_MAX - 5;
}
static void leaf_place_elsewhere(struct volume_leaf *leaf)
{
    leaf->entries[4].place.pack[7] ^= 1;
}
static void leaf_place_other_chunk(struct volume_leaf *leaf)
{
    leaf->entries[4].place = leaf->entries[6].place;
}
static void leaf_place_longer(struct volume_leaf *leaf)
{
    leaf->entries[4].place.length++;
}
static void leaf_other_digest(struct volume_leaf *leaf)
{
    leaf->entries[4].digest = leaf->entries[6].digest;
}

static void test_parts_that_do_not_fit(void **state)
{
    static const struct {
        const char *what;
        struct checkpoint_twist twist;
        enum err_code code;
        size_t good;
    } cases[] = {
        {"config: size", {.config = config_size}, ERR_DAMAGED, 0},
        {"config: root", {.config = config_root}, ERR_DAMAGED, 0},
        {"config: volume", {.config = config_volume}, ERR_DAMAGED, 0},
        {"config: generation", {.config = config_generation}, ERR_DAMAGED, 0},
        {"config: token", {.config = config_token}, ERR_DAMAGED, 0},
        {"config: node", {.config = config_node}, ERR_DAMAGED, 0},
        {"config: parent", {.config = config_parent}, ERR_DAMAGED, 0},
        {"manifest: huge config", {.root_manifest = manifest_config_huge}, ERR_TOO_LARGE, 0},
        {"manifest: short config", {.root_manifest = manifest_config_short}, ERR_DIGEST, 0},
        {"manifest: huge root", {.root_manifest = manifest_root_huge}, ERR_TOO_LARGE, 0},
        {"manifest: no root", {.root_manifest = manifest_root_none}, ERR_DAMAGED, 0},
        {"manifest: other root", {.root_manifest = manifest_root_other}, ERR_DAMAGED, 0},
        {"index: size of list", {.index = index_list_size}, ERR_DIGEST, 0},
        {"index: size of root", {.index = index_root_size}, ERR_DIGEST, 0},
        {"index: swapped", {.index = index_swapped}, ERR_UNSUPPORTED, 0},
        {"packs: same digits", {.packs = packs_same_digits}, ERR_DAMAGED, 0},
        {"packs: lists not full", {.packs = packs_lists_not_full}, ERR_NONE, FEW},
        {"packs: of the root", {.root = root_has_usage}, ERR_DAMAGED, 0},
        {"packs: one missing", {.packs = packs_one_missing}, ERR_DAMAGED, FEW - 4},
        {"packs: one short", {.packs = packs_one_short}, ERR_DAMAGED, FEW - 1},
        {"root: place outside", {.root = root_place_outside}, ERR_DAMAGED, 0},
        {"root: short place", {.root = root_place_short}, ERR_DAMAGED, 0},
        {"root: huge place", {.root = root_place_huge}, ERR_DAMAGED, 0},
        {"root: no such pack", {.root = root_place_elsewhere}, ERR_DAMAGED, 0},
        {"leaf: number", {.leaf = leaf_number}, ERR_DAMAGED, 0},
        {"leaf: place outside", {.leaf = leaf_place_outside}, ERR_DAMAGED, FEW - 1},
        {"leaf: no such pack", {.leaf = leaf_place_elsewhere}, ERR_DAMAGED, FEW - 1},
        {"leaf: other place", {.leaf = leaf_place_other_chunk}, ERR_DAMAGED, FEW - 1},
        {"leaf: longer place", {.leaf = leaf_place_longer}, ERR_DAMAGED, FEW - 1},
        {"leaf: other digest", {.leaf = leaf_other_digest}, ERR_DAMAGED, FEW - 1},
    };
    struct checkpoint_maker *maker = *state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t good;
        memory_remote_close(maker->memory);
        maker->memory = memory_remote_open();
        maker->twist = cases[i].twist;
        checkpoint_maker_make(maker);
        enum err_code code = try_all(maker, &good);
        if (code != cases[i].code || good != cases[i].good)
            fail_msg("%s: %s, and %zu chunks", cases[i].what, err_code_name(code), good);
    }
}

static int take_nothing(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    (void)chunk, (void)bytes, (void)err;
    ++*(int *)arg;
    return 0;
}

/* What is wrong with one chunk is no reason for another one's loss, also in one read. */
static void test_others_are_given(void **state)
{
    struct checkpoint_maker *maker = *state;
    struct err err = ERR_INIT;
    int taken = 0;
    maker->twist.leaf = leaf_other_digest;
    checkpoint_maker_make(maker);
    struct checkpoint *checkpoint = open_it(maker);
    /* 4 is damaged, the pack of 8 to 14 is lost. */
    maker->memory->objects[1].len = 0;
    assert_true(checkpoint_read(checkpoint, (const uint64_t[]){8, 4, 1, 2, 0, 10, 22, 6}, 8, NULL,
                                NULL, take_nothing, &taken, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "chunk 4"));
    assert_int_equal(taken, 5);
    err_clear(&err);
    assert_true(checkpoint_read(checkpoint, (const uint64_t[]){8, 22}, 2, NULL, NULL, take_nothing,
                                &taken, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_int_equal(taken, 6);
    checkpoint_free(checkpoint);
}

/* --- who made it --- */

static void test_hmac(void **state)
{
    struct checkpoint_maker *maker = *state;
    static const struct hmac_key key = {.bytes = "0123456789abcdef", .len = 16};
    static const struct hmac_key other = {.bytes = "0123456789abcdeg", .len = 16};
    struct checkpoint *checkpoint;
    struct err err = ERR_INIT;
    checkpoint_maker_make(maker);
    assert_true(checkpoint_maker_open(maker, &key, &checkpoint, &err) < 0);
    assert_int_equal(err.code, ERR_DENIED);
    memory_remote_close(maker->memory);
    maker->memory = memory_remote_open();
    maker->key = &key;
    checkpoint_maker_make(maker);
    err_clear(&err);
    assert_true(checkpoint_maker_open(maker, &other, &checkpoint, &err) < 0);
    assert_int_equal(err.code, ERR_DENIED);
    /* Of root and packs nothing was read before. */
    assert_int_equal(maker->memory->read_count, 1);
    err_clear(&err);
    assert_int_equal(checkpoint_maker_open(maker, &key, &checkpoint, &err), 0);
    checkpoint_free(checkpoint);
    assert_int_equal(checkpoint_maker_open(maker, NULL, &checkpoint, &err), 0);
    checkpoint_free(checkpoint);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_object_broken),    TEST(test_objects_swapped),  TEST(test_no_checkpoint),
        TEST(test_parts_that_do_not_fit), TEST(test_others_are_given), TEST(test_hmac),
    };
    return cmocka_run_group_tests_name("checkpoint_broken", tests, NULL, NULL);
}
