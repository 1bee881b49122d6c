#include "checkpoint_maker.h"

#include "pack_frame.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    PACKS_MAX = 2048,
    PACK_ROOM = 8 << 20,
};

void checkpoint_maker_bytes(uint64_t chunk, uint8_t *ret)
{
    uint64_t seed = chunk % 11 == 5 ? 4242 : chunk + 1; /* one of eleven is the same as others */
    for (size_t i = 0; i < VOLUME_CHUNK / sizeof seed; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t word = chunk % 3 == 0 ? seed ^ seed >> 29 : (seed >> 60) + i / 512;
        memcpy(ret + i * sizeof word, &word, sizeof word);
    }
}

/* What is being put together. */
struct work {
    struct checkpoint_maker *maker;
    struct pack_frame *codec;
    struct pack packs[PACKS_MAX];
    size_t pack_count;
    struct volume_leaf leaf;
    struct volume_root root;
    struct volume_entry *entries; /* of the chunks of the pack that is being filled */
    uint8_t bytes[PACK_ROOM];
    size_t len;
};

static void end_pack(struct work *work)
{
    struct pack *pack = &work->packs[work->pack_count++];
    assert_true(work->pack_count < PACKS_MAX - 1);
    /* No two of them are the same. */
    memcpy(work->bytes + work->len, &work->pack_count, sizeof work->pack_count);
    work->len += sizeof work->pack_count;
    pack->size = work->len;
    pack->digest = memory_remote_add(work->maker->memory, work->bytes, work->len, false, NULL);
    work->len = 0;
}

/* Adds the frames of chunks of the leaf from `from` on, as many as go into a pack. */
static uint32_t fill_pack(struct work *work, uint32_t from)
{
    static uint8_t chunk[VOLUME_CHUNK];
    struct checkpoint_maker *maker = work->maker;
    struct err err = ERR_INIT;
    unsigned added = 0;
    uint32_t first = from;
    for (; from < VOLUME_LEAF_CHUNKS && added < maker->pack_chunks; from++) {
        const uint64_t number = (uint64_t)work->leaf.number * VOLUME_LEAF_CHUNKS + from;
        if (number >= maker->size / VOLUME_CHUNK || !maker->is_set(number))
            continue;
        struct volume_entry entry = {.place = {.length = 0}};
        checkpoint_maker_bytes(number, chunk);
        assert_int_equal(digest_bytes(chunk, VOLUME_CHUNK, &entry.digest, &err), 0);
        assert_true(work->len + maker->gap + VOLUME_CHUNK <= PACK_ROOM);
        memset(work->bytes + work->len, 0xAA, maker->gap);
        work->len += maker->gap;
        entry.place.offset = (uint32_t)work->len;
        entry.place.length =
            (uint32_t)pack_frame_encode(work->codec, chunk, work->bytes + work->len);
        work->len += entry.place.length;
        volume_leaf_set(&work->leaf, from, &entry);
        added++;
    }
    if (added > 0)
        end_pack(work);
    for (; first < from && added > 0; first++)
        if (work->leaf.set[first])
            memcpy(work->leaf.entries[first].place.pack,
                   work->packs[work->pack_count - 1].digest.bytes, VOLUME_PACK_ID);
    return from;
}

static void make_leaf(struct work *work, uint32_t number)
{
    struct checkpoint_maker *maker = work->maker;
    struct err err = ERR_INIT;
    volume_leaf_init(&work->leaf, number);
    for (uint32_t from = 0; from < VOLUME_LEAF_CHUNKS;)
        from = fill_pack(work, from);
    const uint32_t count = work->leaf.count;
    if (count == 0)
        return;
    if (maker->twist.leaf)
        maker->twist.leaf(&work->leaf);
    struct volume_entry entry = {.place = {.offset = 100}};
    memset(work->bytes, 0x55, 100);
    entry.place.length = (uint32_t)volume_leaf_encode(&work->leaf, work->bytes + 100);
    work->len = 100 + entry.place.length;
    assert_int_equal(digest_bytes(work->bytes + 100, entry.place.length, &entry.digest, &err), 0);
    end_pack(work);
    memcpy(entry.place.pack, work->packs[work->pack_count - 1].digest.bytes, VOLUME_PACK_ID);
    volume_root_set(&work->root, number, &entry, count, 0);
}

static struct checkpoint_blob add_blob(struct work *work, const void *bytes, size_t len)
{
    return (struct checkpoint_blob){
        .digest = memory_remote_add(work->maker->memory, bytes, len, false, NULL), .size = len};
}

static struct checkpoint_blob add_manifest(struct work *work, char *bytes, size_t len,
                                           const char *tag)
{
    const struct checkpoint_blob blob = {
        .digest = memory_remote_add(work->maker->memory, bytes, len, true, tag), .size = len};
    free(bytes);
    return blob;
}

static struct checkpoint_config config_of(const struct work *work, const struct digest *root)
{
    struct checkpoint_config config = {.volume = "0123456789ab",
                                       .lineage = "0123456789ab",
                                       .uuid = {1, 2, 3},
                                       .size = work->maker->size,
                                       .generation = 7,
                                       .token = 3,
                                       .node = "n1",
                                       .root = *root,
                                       .created_ns = INT64_C(1700000000) * 1000000000};
    return config;
}

static void make_index(struct work *work, const struct checkpoint_blob *root_manifest,
                       const struct checkpoint_config *config)
{
    struct checkpoint_maker *maker = work->maker;
    struct err err = ERR_INIT;
    struct checkpoint_blob lists[CHECKPOINT_LISTS_MAX];
    struct checkpoint_index index = {.root_manifest = *root_manifest,
                                     .lists = lists,
                                     .generation = config->generation,
                                     .token = config->token};
    size_t len, list_packs = CHECKPOINT_LIST_PACKS;
    char *bytes;
    (void)snprintf(index.volume, sizeof index.volume, "%s", config->volume);
    (void)snprintf(index.node, sizeof index.node, "%s", config->node);
    if (maker->twist.packs)
        maker->twist.packs(work->packs, &work->pack_count, &list_packs);
    (void)memory_remote_add(maker->memory, CHECKPOINT_EMPTY, strlen(CHECKPOINT_EMPTY), false, NULL);
    for (size_t done = 0; done < work->pack_count; done += list_packs) {
        size_t here = work->pack_count - done < list_packs ? work->pack_count - done : list_packs;
        assert_int_equal(checkpoint_packs_encode(work->packs + done, here, &bytes, &len, &err), 0);
        lists[index.list_count++] = add_manifest(work, bytes, len, NULL);
    }
    if (maker->twist.index)
        maker->twist.index(&index);
    assert_int_equal(checkpoint_index_encode(&index, &bytes, &len, &err), 0);
    maker->digest = add_manifest(work, bytes, len, CHECKPOINT_MAKER_TAG).digest;
}

static void make_tree(struct work *work)
{
    struct checkpoint_maker *maker = work->maker;
    struct err err = ERR_INIT;
    static uint8_t root[VOLUME_ROOT_BYTES_MAX];
    size_t len;
    char *bytes;
    for (uint32_t i = 0; i < work->root.leaf_count; i++)
        make_leaf(work, i);
    if (maker->twist.root)
        maker->twist.root(&work->root);
    struct checkpoint_root_manifest manifest = {
        .root = add_blob(work, root, volume_root_encode(&work->root, root))};
    struct checkpoint_config config = config_of(work, &manifest.root.digest);
    const struct checkpoint_config right = config;
    if (maker->twist.config)
        maker->twist.config(&config);
    if (checkpoint_config_encode(&config, maker->key, &bytes, &len, &err) < 0)
        fail_msg("%s", err.text);
    manifest.config = add_blob(work, bytes, len);
    free(bytes);
    if (maker->twist.root_manifest)
        maker->twist.root_manifest(&manifest);
    assert_int_equal(checkpoint_root_encode(&manifest, &bytes, &len, &err), 0);
    const struct checkpoint_blob root_manifest = add_manifest(work, bytes, len, NULL);
    make_index(work, &root_manifest, &right);
}

void checkpoint_maker_make(struct checkpoint_maker *maker)
{
    struct err err = ERR_INIT;
    struct work *work = calloc(1, sizeof *work);
    assert_non_null(work);
    work->maker = maker;
    assert_int_equal(pack_frame_new(&work->codec, &err), 0);
    volume_root_init(&work->root, maker->size);
    make_tree(work);
    pack_frame_free(work->codec);
    free(work);
}

int checkpoint_maker_open(struct checkpoint_maker *maker, const struct hmac_key *key,
                          struct checkpoint **ret, struct err *err)
{
    const struct checkpoint_options options = {
        .remote = &maker->memory->remote, .repository = CHECKPOINT_MAKER_REPOSITORY, .key = key};
    return checkpoint_open(&options, CHECKPOINT_MAKER_TAG, NULL, NULL, ret, err);
}

struct check {
    const struct checkpoint_maker *maker;
    uint8_t *given; /* for each chunk, how often */
};

static int compare_chunk(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    static _Thread_local uint8_t right[VOLUME_CHUNK];
    struct check *check = arg;
    if (check->given[chunk]++ > 0 || (bytes != NULL) != check->maker->is_set(chunk))
        return err_fail(err, ERR_INTERNAL, "chunk %llu is given %d times, or not as what it is",
                        (unsigned long long)chunk, check->given[chunk]);
    if (!bytes)
        return 0;
    checkpoint_maker_bytes(chunk, right);
    if (memcmp(right, bytes, VOLUME_CHUNK) != 0)
        return err_fail(err, ERR_INTERNAL, "WRONG BYTES of chunk %llu", (unsigned long long)chunk);
    return 0;
}

int checkpoint_maker_read(struct checkpoint_maker *maker, struct checkpoint *checkpoint,
                          const uint64_t *chunks, size_t count, struct err *err)
{
    const size_t all = maker->size / VOLUME_CHUNK;
    struct check check = {.maker = maker, .given = calloc(all, 1)};
    uint64_t *numbers = chunks ? NULL : calloc(all, sizeof *numbers);
    for (size_t i = 0; numbers && i < all; i++)
        numbers[i] = all - 1 - i;
    if (!chunks)
        count = all;
    int rc = checkpoint_read(checkpoint, chunks ? chunks : numbers, count, NULL, NULL,
                             compare_chunk, &check, err);
    size_t given = 0;
    for (size_t i = 0; i < all; i++)
        given += check.given[i];
    free(check.given);
    free(numbers);
    if (rc == 0 && given != count)
        rc = err_fail(err, ERR_INTERNAL, "%zu chunks of %zu came", given, count);
    return rc;
}
