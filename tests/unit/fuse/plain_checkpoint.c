#include "plain_checkpoint.h"

#include <string.h>
#include <zstd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    CHUNK = 65536,
    LEAF_CHUNKS = 4096,
    ENTRY = 48,
};

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        fail_msg("no text '%s'", key);
    return text;
}

static json_t *get_manifest(const struct plain_checkpoint *checkpoint, const char *reference,
                            struct digest *ret)
{
    struct err err = ERR_INIT;
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    if (remote_manifest_get(checkpoint->remote, checkpoint->repository, reference, &manifest,
                            &err) < 0)
        fail_msg("%s: %s", reference, err.text);
    if (ret)
        *ret = manifest.digest;
    json_t *json = json_loadb(manifest.bytes, manifest.len, 0, NULL);
    assert_non_null(json);
    return json;
}

static struct digest digest_of(const json_t *descriptor)
{
    struct digest digest;
    assert_int_equal(digest_parse(text_of(descriptor, "digest"), &digest, NULL), 0);
    return digest;
}

/* The bytes of a small blob, all of them, and their digest checked. Caller frees. */
static uint8_t *get_blob(const struct plain_checkpoint *checkpoint, const json_t *descriptor,
                         const char *media_type, size_t *ret_len)
{
    struct err err = ERR_INIT;
    struct digest got;
    const struct digest wanted = digest_of(descriptor);
    size_t len = (size_t)json_integer_value(json_object_get(descriptor, "size"));
    assert_string_equal(text_of(descriptor, "mediaType"), media_type);
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    if (remote_verify_blob(checkpoint->remote, checkpoint->repository, &wanted, len, NULL, NULL,
                           &err) < 0 ||
        remote_blob_read(checkpoint->remote, checkpoint->repository, &wanted, 0, bytes, len, NULL,
                         NULL, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(digest_bytes(bytes, len, &got, NULL), 0);
    assert_true(digest_equal(&got, &wanted));
    bytes[len] = '\0';
    *ret_len = len;
    return bytes;
}

/* A manifest that the index names has a tag of its own. */
static void check_tag(const struct plain_checkpoint *checkpoint, char prefix,
                      const struct digest *digest)
{
    char tag[16];
    struct remote_manifest_stat stat;
    struct err err = ERR_INIT;
    snprintf(tag, sizeof tag, "%c-%.12s", prefix, digest_hex(digest).s);
    if (remote_manifest_stat(checkpoint->remote, checkpoint->repository, tag, NULL, NULL, &stat,
                             &err) < 0)
        fail_msg("%s", err.text);
    assert_true(digest_equal(&stat.digest, digest));
}

static void read_list(struct plain_checkpoint *checkpoint, const json_t *entry)
{
    struct digest digest = digest_of(entry);
    json_t *list = get_manifest(checkpoint, digest_format(&digest).s, NULL);
    assert_string_equal(text_of(list, "artifactType"), "application/vnd.varve.packs.v1");
    size_t len;
    uint8_t *config = get_blob(checkpoint, json_object_get(list, "config"),
                               "application/vnd.oci.empty.v1+json", &len);
    assert_string_equal((char *)config, "{}");
    free(config);
    const json_t *layers = json_object_get(list, "layers");
    size_t count = json_array_size(layers);
    assert_in_range(count, 1, 1000);
    size_t total = checkpoint->pack_count + count;
    checkpoint->packs = realloc(checkpoint->packs, total * sizeof *checkpoint->packs);
    checkpoint->pack_sizes = realloc(checkpoint->pack_sizes, total * sizeof(uint64_t));
    checkpoint->pack_ids = realloc(checkpoint->pack_ids, total * sizeof *checkpoint->pack_ids);
    assert_true(checkpoint->packs && checkpoint->pack_sizes && checkpoint->pack_ids);
    for (size_t i = 0; i < count; i++) {
        const json_t *layer = json_array_get(layers, i);
        assert_string_equal(text_of(layer, "mediaType"), "application/vnd.varve.pack.v1");
        const struct digest pack = digest_of(layer);
        for (size_t j = 0; j < checkpoint->pack_count; j++)
            assert_memory_not_equal(checkpoint->packs[j].bytes, pack.bytes, 8);
        checkpoint->packs[checkpoint->pack_count] = pack;
        snprintf(checkpoint->pack_ids[checkpoint->pack_count], 17, "%.16s", digest_hex(&pack).s);
        checkpoint->pack_sizes[checkpoint->pack_count++] =
            (uint64_t)json_integer_value(json_object_get(layer, "size"));
    }
    check_tag(checkpoint, 'p', &digest);
    checkpoint->lists[checkpoint->list_count++] = digest;
    json_decref(list);
}

static struct plain_chunk entry_of(const uint8_t *at)
{
    struct plain_chunk entry = {.is_set = true,
                                .offset = (uint32_t)number(at + 40, 4),
                                .length = (uint32_t)number(at + 44, 4)};
    memcpy(entry.digest.bytes, at, 32);
    for (int i = 0; i < 8; i++)
        snprintf(entry.pack + 2 * (size_t)i, 3, "%02x", at[32 + i]);
    return entry;
}

static size_t find_pack(const struct plain_checkpoint *checkpoint, const struct plain_chunk *entry)
{
    for (size_t i = 0; i < checkpoint->pack_count; i++)
        if (strcmp(checkpoint->pack_ids[i], entry->pack) == 0)
            return i;
    fail_msg("no pack begins with %s", entry->pack);
    return 0;
}

/* Notes that a leaf, or the root for it, names a place. */
static void count_place(struct plain_checkpoint *checkpoint, uint64_t leaf,
                        const struct plain_chunk *entry)
{
    unsigned shift = 0;
    while (((checkpoint->chunk_count - 1) / LEAF_CHUNKS) >> shift >= 64)
        shift++;
    size_t i = find_pack(checkpoint, entry);
    checkpoint->pack_live[i] += entry->length;
    checkpoint->pack_groups[i] |= UINT64_C(1) << (leaf >> shift);
    checkpoint->live += entry->length;
}

/* What a root of version 2 says of the packs is what this reader has counted. */
static void check_uses(struct plain_checkpoint *checkpoint, const uint8_t *at, size_t len)
{
    assert_int_equal(number(at, 8), checkpoint->pack_count);
    assert_int_equal(len, 8 + checkpoint->pack_count * 16);
    for (size_t i = 0; i < checkpoint->pack_count; i++) {
        uint64_t live = number(at + 8 + i * 16, 8);
        uint64_t groups = number(at + 16 + i * 16, 8);
        checkpoint->uncounted += live == UINT64_MAX;
        if (live != UINT64_MAX)
            assert_int_equal(live, checkpoint->pack_live[i]);
        assert_int_equal(checkpoint->pack_groups[i] & ~groups, 0);
    }
}

/* The bytes at a place. */
static void read_place(const struct plain_checkpoint *checkpoint, const struct plain_chunk *entry,
                       void *ret)
{
    struct err err = ERR_INIT;
    size_t i = find_pack(checkpoint, entry);
    assert_true((uint64_t)entry->offset + entry->length <= checkpoint->pack_sizes[i]);
    if (remote_blob_read(checkpoint->remote, checkpoint->repository, &checkpoint->packs[i],
                         entry->offset, ret, entry->length, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static void read_leaf(struct plain_checkpoint *checkpoint, uint64_t leaf,
                      const struct plain_chunk *place)
{
    struct digest digest;
    uint8_t *bytes = malloc(place->length);
    assert_non_null(bytes);
    read_place(checkpoint, place, bytes);
    assert_int_equal(digest_bytes(bytes, place->length, &digest, NULL), 0);
    assert_true(digest_equal(&digest, &place->digest));
    assert_memory_equal(bytes, "VRVLEAF1", 8);
    assert_int_equal(number(bytes + 8, 4), 1);
    assert_int_equal(number(bytes + 12, 4), leaf);
    const uint8_t *at = bytes + 544;
    for (uint64_t i = 0; i < LEAF_CHUNKS; i++) {
        if (!(bytes[32 + i / 8] & 1 << i % 8))
            continue;
        uint64_t chunk = leaf * LEAF_CHUNKS + i;
        assert_true(chunk < checkpoint->chunk_count);
        checkpoint->chunks[chunk] = entry_of(at);
        checkpoint->set_count++;
        count_place(checkpoint, leaf, &checkpoint->chunks[chunk]);
        at += ENTRY;
    }
    assert_int_equal(at - bytes, place->length);
    assert_int_equal(number(bytes + 16, 4), (at - bytes - 544) / ENTRY);
    free(bytes);
}

static void read_root(struct plain_checkpoint *checkpoint, const uint8_t *bytes, size_t len)
{
    static const uint8_t nothing[ENTRY];
    assert_memory_equal(bytes, "VRVROOT1", 8);
    uint64_t version = number(bytes + 8, 4);
    assert_in_range(version, 1, 2);
    uint64_t leaves = number(bytes + 12, 4);
    checkpoint->size = number(bytes + 16, 8);
    checkpoint->chunk_count = checkpoint->size / CHUNK;
    assert_int_equal(leaves, (checkpoint->chunk_count + LEAF_CHUNKS - 1) / LEAF_CHUNKS);
    const size_t uses_at = 32 + leaves * ENTRY;
    assert_true(version == 1 ? len == uses_at : len > uses_at);
    checkpoint->chunks = calloc(checkpoint->chunk_count, sizeof *checkpoint->chunks);
    assert_non_null(checkpoint->chunks);
    for (uint64_t i = 0; i < leaves; i++) {
        const uint8_t *at = bytes + 32 + i * ENTRY;
        if (memcmp(at, nothing, ENTRY) == 0)
            continue;
        const struct plain_chunk place = entry_of(at);
        count_place(checkpoint, i, &place);
        read_leaf(checkpoint, i, &place);
    }
    if (version == 2)
        check_uses(checkpoint, bytes + uses_at, len - uses_at);
    assert_int_equal(checkpoint->set_count, number(bytes + 24, 8));
}

static void read_root_manifest(struct plain_checkpoint *checkpoint, const json_t *entry)
{
    struct digest digest = digest_of(entry);
    size_t len;
    json_t *manifest = get_manifest(checkpoint, digest_format(&digest).s, NULL);
    assert_string_equal(text_of(manifest, "artifactType"), "application/vnd.varve.checkpoint.v1");
    check_tag(checkpoint, 'r', &digest);
    uint8_t *config = get_blob(checkpoint, json_object_get(manifest, "config"),
                               "application/vnd.varve.checkpoint.config.v1+json", &len);
    checkpoint->config = json_loadb((char *)config, len, 0, NULL);
    assert_non_null(checkpoint->config);
    const json_t *root = json_array_get(json_object_get(manifest, "layers"), 0);
    uint8_t *bytes = get_blob(checkpoint, root, "application/vnd.varve.checkpoint.root.v1", &len);
    checkpoint->root = digest_of(root);
    assert_string_equal(text_of(checkpoint->config, "root"), digest_format(&checkpoint->root).s);
    read_root(checkpoint, bytes, len);
    assert_int_equal(json_integer_value(json_object_get(checkpoint->config, "size")),
                     checkpoint->size);
    free(bytes);
    free(config);
    json_decref(manifest);
}

void plain_checkpoint_open(struct remote *remote, const char *repository, const char *tag,
                           struct plain_checkpoint *ret)
{
    *ret = (struct plain_checkpoint){.remote = remote, .repository = strdup(repository)};
    json_t *index = get_manifest(ret, tag, &ret->index);
    assert_string_equal(text_of(index, "artifactType"), "application/vnd.varve.checkpoint.v1");
    const json_t *entries = json_object_get(index, "manifests");
    size_t count = json_array_size(entries);
    for (size_t i = 1; i < count; i++)
        read_list(ret, json_array_get(entries, i));
    ret->pack_live = calloc(ret->pack_count + 1, sizeof *ret->pack_live);
    ret->pack_groups = calloc(ret->pack_count + 1, sizeof *ret->pack_groups);
    assert_true(ret->pack_live && ret->pack_groups);
    read_root_manifest(ret, json_array_get(entries, 0));
    json_decref(index);
}

bool plain_checkpoint_read(const struct plain_checkpoint *checkpoint, uint64_t chunk, void *ret)
{
    static uint8_t frame[CHUNK];
    struct digest digest;
    const struct plain_chunk *entry = &checkpoint->chunks[chunk];
    if (!entry->is_set)
        return false;
    assert_in_range(entry->length, 1, CHUNK);
    read_place(checkpoint, entry, frame);
    if (entry->length == CHUNK)
        memcpy(ret, frame, CHUNK);
    else
        assert_int_equal(ZSTD_decompress(ret, CHUNK, frame, entry->length), CHUNK);
    assert_int_equal(digest_bytes(ret, CHUNK, &digest, NULL), 0);
    assert_true(digest_equal(&digest, &entry->digest));
    return true;
}

void plain_checkpoint_close(struct plain_checkpoint *checkpoint)
{
    json_decref(checkpoint->config);
    free(checkpoint->chunks);
    free(checkpoint->packs);
    free(checkpoint->pack_sizes);
    free(checkpoint->pack_ids);
    free(checkpoint->pack_live);
    free(checkpoint->pack_groups);
    free(checkpoint->repository);
}
