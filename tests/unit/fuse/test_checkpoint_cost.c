/* What a checkpoint of 10 MiB costs in large volumes with much data: bytes of its index, requests,
 * milliseconds. The data are only said to be there; the remote is memory. The figures are printed,
 * for docs/BENCHMARKS.md. */
#include "checkpoint_write.h"

#include "cleanup.h"
#include "clock.h"
#include "scratch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    DIRTY = 160,   /* chunks: 10 MiB */
    FRAME = 30000, /* bytes of each chunk that is said to be there */
};
#define GIB        ((uint64_t)1 << 30)
#define REPOSITORY "volumes/0123456789ab"
#define TAG        "0123456789ab-live-n1"

/* --- a remote in memory, which has every blob that it is asked for --- */

struct object {
    struct digest digest;
    char tag[64];
    uint8_t *bytes;
    size_t len;
    struct object *next;
};

struct store {
    struct remote remote; /* first, so that the pointers are the same */
    pthread_mutex_t lock;
    struct object *objects; /* lock */
    atomic_int requests;
    atomic_ullong read;
    atomic_ullong sent;
};

static struct store *store_of(struct remote *remote)
{
    atomic_fetch_add(&((struct store *)remote)->requests, 1);
    return (struct store *)remote;
}

static const struct object *find(struct store *store, const struct digest *digest, const char *tag)
{
    pthread_mutex_lock(&store->lock);
    const struct object *object = store->objects;
    while (object && (digest ? !digest_equal(&object->digest, digest)
                             : !tag || strcmp(object->tag, tag) != 0))
        object = object->next;
    pthread_mutex_unlock(&store->lock);
    return object;
}

/* Takes the bytes. */
static struct digest add(struct store *store, uint8_t *bytes, size_t len, const char *tag)
{
    struct object *object = calloc(1, sizeof *object);
    assert_non_null(object);
    *object = (struct object){.bytes = bytes, .len = len};
    snprintf(object->tag, sizeof object->tag, "%s", tag ? tag : "");
    assert_int_equal(digest_bytes(bytes, len, &object->digest, NULL), 0);
    pthread_mutex_lock(&store->lock);
    object->next = store->objects;
    store->objects = object;
    pthread_mutex_unlock(&store->lock);
    return object->digest;
}

static void *copy_of(const void *bytes, size_t len)
{
    void *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    return copy;
}

static int store_stat(struct remote *remote, const char *repository, const struct digest *digest,
                      remote_progress progress, void *arg, uint64_t *ret_size, struct err *err)
{
    (void)repository, (void)progress, (void)arg, (void)err;
    const struct object *object = find(store_of(remote), digest, NULL);
    *ret_size = object ? object->len : 0;
    return object != NULL;
}

static int store_put(struct remote *remote, const char *repository, const struct digest *digest,
                     int fd, uint64_t size, remote_progress progress, void *arg,
                     struct remote_upload *upload, struct err *err)
{
    (void)repository, (void)digest, (void)progress, (void)arg, (void)err;
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    assert_int_equal(pread(fd, bytes, size, 0), size);
    (void)add(store_of(remote), bytes, size, NULL);
    atomic_fetch_add(&((struct store *)remote)->sent, size);
    upload->outcome = REMOTE_BLOB_SENT;
    return 0;
}

static int store_read(struct remote *remote, const char *repository, const struct digest *digest,
                      uint64_t offset, void *into, size_t len, remote_progress progress, void *arg,
                      struct err *err)
{
    (void)repository, (void)progress, (void)arg;
    const struct object *object = find(store_of(remote), digest, NULL);
    atomic_fetch_add(&((struct store *)remote)->read, len);
    if (!object || offset + len > object->len)
        return err_fail(err, ERR_NOT_FOUND, "nobody has made that blob");
    memcpy(into, object->bytes + offset, len);
    return 0;
}

static int store_probe(struct remote *remote, const char *repository, const struct digest *digest,
                       uint64_t size, remote_progress progress, void *arg, uint64_t *ret_size,
                       struct err *err)
{
    (void)size;
    return store_stat(remote, repository, digest, progress, arg, ret_size, err);
}

static int store_get(struct remote *remote, const char *repository, const char *reference,
                     remote_progress progress, void *arg, struct remote_manifest *ret,
                     struct err *err)
{
    (void)repository, (void)progress, (void)arg;
    struct digest digest;
    bool by_digest = digest_parse(reference, &digest, NULL) == 0;
    const struct object *object = find(store_of(remote), by_digest ? &digest : NULL, reference);
    if (!object)
        return err_fail(err, ERR_NOT_FOUND, "there is no manifest %s", reference);
    bool index = memmem(object->bytes, object->len, "image.index", 11) != NULL;
    *ret =
        (struct remote_manifest){.bytes = copy_of(object->bytes, object->len),
                                 .len = object->len,
                                 .media_type = strdup(index ? OCI_MEDIA_INDEX : OCI_MEDIA_MANIFEST),
                                 .digest = object->digest};
    ret->bytes[object->len] = '\0';
    return 0;
}

static int store_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                               remote_progress progress, void *arg,
                               struct remote_manifest_stat *ret, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    int rc = store_get(remote, repository, reference, progress, arg, &manifest, err);
    if (rc == 0)
        *ret = (struct remote_manifest_stat){.digest = manifest.digest, .size = manifest.len};
    return rc;
}

static int store_manifest_put(struct remote *remote, const char *repository, const char *tag,
                              const char *media_type, const void *bytes, size_t len, bool claim,
                              remote_progress progress, void *arg, struct remote_missing *missing,
                              struct err *err)
{
    (void)repository, (void)media_type, (void)claim, (void)progress, (void)arg, (void)missing;
    (void)err;
    (void)add(store_of(remote), copy_of(bytes, len), len, tag);
    atomic_fetch_add(&((struct store *)remote)->sent, len);
    return 0;
}

static const struct remote_ops ops = {.blob_stat = store_stat,
                                      .blob_put = store_put,
                                      .blob_read = store_read,
                                      .blob_probe = store_probe,
                                      .manifest_get = store_get,
                                      .manifest_stat = store_manifest_stat,
                                      .manifest_put = store_manifest_put};

/* --- the parent --- */

/* Of a volume: which chunks are said to be there, and in which packs. */
struct volume {
    struct store store;
    uint64_t size;
    uint64_t data; /* bytes from the beginning on */
    struct volume_root root;
    struct volume_leaf leaf;
    struct pack *packs;
    struct pack_use *uses;
    size_t pack_count;
    uint8_t *leaves; /* the pack of leaves that is being made */
    size_t leaves_len;
    uint32_t first_leaf; /* in it */
    bool scattered;      /* of the source */
};

static size_t add_pack(struct volume *volume, const struct digest *digest, uint64_t size)
{
    volume->packs = realloc(volume->packs, (volume->pack_count + 1) * sizeof *volume->packs);
    volume->uses = realloc(volume->uses, (volume->pack_count + 1) * sizeof *volume->uses);
    assert_true(volume->packs && volume->uses);
    volume->packs[volume->pack_count] = (struct pack){.digest = *digest, .size = size};
    volume->uses[volume->pack_count] = (struct pack_use){.live = 0};
    return volume->pack_count++;
}

static void use_pack(struct volume *volume, size_t pack, uint32_t leaf, uint64_t bytes)
{
    volume->uses[pack].live += bytes;
    volume->uses[pack].groups |= pack_usage_group(leaf, pack_usage_shift(volume->root.leaf_count));
}

/* The chunks of a leaf, in packs that are as large as they would be. */
static void fill_leaf(struct volume *volume, uint32_t number, uint64_t pack_bytes)
{
    static struct digest current;
    static size_t pack;
    static uint32_t offset;
    static uint64_t count;
    volume_leaf_init(&volume->leaf, number);
    for (uint32_t i = 0; i < VOLUME_LEAF_CHUNKS; i++) {
        uint64_t chunk = (uint64_t)number * VOLUME_LEAF_CHUNKS + i;
        if (chunk * VOLUME_CHUNK >= volume->data)
            break;
        if (chunk == 0 || offset + FRAME > pack_bytes) {
            count++;
            assert_int_equal(digest_bytes(&count, sizeof count, &current, NULL), 0);
            pack = add_pack(volume, &current, 0);
            offset = 0;
        }
        struct volume_entry entry = {.place = {.offset = offset, .length = FRAME}};
        assert_int_equal(digest_bytes(&chunk, sizeof chunk, &entry.digest, NULL), 0);
        memcpy(entry.place.pack, current.bytes, VOLUME_PACK_ID);
        volume_leaf_set(&volume->leaf, i, &entry);
        use_pack(volume, pack, number, FRAME);
        offset += FRAME;
        volume->packs[pack].size = offset;
    }
}

/* Leaves that were made go into a pack of their own, once they fill one. */
static void end_leaves(struct volume *volume, uint32_t next)
{
    size_t len = volume->leaves_len;
    if (len == 0)
        return;
    struct digest digest = add(&volume->store, volume->leaves, len, NULL);
    size_t pack = add_pack(volume, &digest, len);
    for (uint32_t i = volume->first_leaf; i < next; i++) {
        memcpy(volume->root.leaves[i].place.pack, digest.bytes, VOLUME_PACK_ID);
        use_pack(volume, pack, i, volume->root.leaves[i].place.length);
    }
    volume->leaves = NULL;
    volume->leaves_len = 0;
    volume->first_leaf = next;
}

static void make_leaves(struct volume *volume, uint64_t pack_bytes)
{
    uint32_t number = 0;
    volume_root_init(&volume->root, volume->size);
    volume->root.has_usage = true;
    for (; (uint64_t)number * VOLUME_LEAF_CHUNKS * VOLUME_CHUNK < volume->data; number++) {
        fill_leaf(volume, number, pack_bytes);
        volume->leaves = realloc(volume->leaves, volume->leaves_len + VOLUME_LEAF_BYTES_MAX);
        assert_non_null(volume->leaves);
        uint8_t *at = volume->leaves + volume->leaves_len;
        struct volume_entry entry = {.place = {.offset = (uint32_t)volume->leaves_len}};
        entry.place.length = (uint32_t)volume_leaf_encode(&volume->leaf, at);
        assert_int_equal(digest_bytes(at, entry.place.length, &entry.digest, NULL), 0);
        volume_root_set(&volume->root, number, &entry, volume->leaf.count, 0);
        volume->leaves_len += entry.place.length;
        if (volume->leaves_len >= pack_bytes)
            end_leaves(volume, number + 1);
    }
    end_leaves(volume, number);
}

static struct checkpoint_blob store_text(struct volume *volume, char *text, size_t len,
                                         const char *tag)
{
    return (struct checkpoint_blob){.digest = add(&volume->store, (uint8_t *)text, len, tag),
                                    .size = len};
}

static struct checkpoint_config config_of(const struct volume *volume)
{
    struct checkpoint_config config = {.volume = "0123456789ab",
                                       .lineage = "0123456789ab",
                                       .uuid = {1},
                                       .size = volume->size,
                                       .generation = 1,
                                       .node = "n1",
                                       .created_ns = 1000000000};
    return config;
}

static void make_manifests(struct volume *volume)
{
    struct checkpoint_blob lists[CHECKPOINT_LISTS_MAX];
    struct checkpoint_index index = {.lists = lists, .generation = 1};
    struct checkpoint_root_manifest manifest;
    struct checkpoint_config config = config_of(volume);
    char *text;
    size_t len;
    uint8_t *root = malloc(CHECKPOINT_ROOT_BYTES_MAX);
    assert_non_null(root);
    len = volume_root_encode(&volume->root, root);
    len += pack_usage_encode(volume->uses, volume->pack_count, root + len);
    manifest.root = store_text(volume, (char *)root, len, NULL);
    config.root = manifest.root.digest;
    assert_int_equal(checkpoint_config_encode(&config, NULL, &text, &len, NULL), 0);
    manifest.config = store_text(volume, text, len, NULL);
    assert_int_equal(checkpoint_root_encode(&manifest, &text, &len, NULL), 0);
    index.root_manifest = store_text(volume, text, len, NULL);
    for (size_t at = 0; at < volume->pack_count; at += CHECKPOINT_LIST_PACKS) {
        size_t some = volume->pack_count - at;
        some = some > CHECKPOINT_LIST_PACKS ? CHECKPOINT_LIST_PACKS : some;
        assert_int_equal(checkpoint_packs_encode(volume->packs + at, some, &text, &len, NULL), 0);
        lists[index.list_count++] = store_text(volume, text, len, NULL);
    }
    snprintf(index.volume, sizeof index.volume, "%s", config.volume);
    snprintf(index.node, sizeof index.node, "%s", config.node);
    assert_int_equal(checkpoint_index_encode(&index, &text, &len, NULL), 0);
    (void)store_text(volume, text, len, TAG);
}

static struct volume *make_volume(uint64_t size, uint64_t data)
{
    struct volume *volume = calloc(1, sizeof *volume);
    assert_non_null(volume);
    volume->size = size;
    volume->data = data;
    pthread_mutex_init(&volume->store.lock, NULL);
    volume->store.remote = (struct remote){
        .ops = &ops, .url = strdup("memory:"), .host = strdup(""), .prefix = strdup("")};
    make_leaves(volume, size < PACK_LARGE_FROM ? PACK_BYTES : PACK_BYTES_LARGE);
    make_manifests(volume);
    return volume;
}

static void free_volume(struct volume *volume)
{
    for (struct object *object = volume->store.objects; object;) {
        struct object *next = object->next;
        free(object->bytes);
        free(object);
        object = next;
    }
    pthread_mutex_destroy(&volume->store.lock);
    free(volume->store.remote.url);
    free(volume->store.remote.host);
    free(volume->store.remote.prefix);
    free(volume->packs);
    free(volume->uses);
    free(volume);
}

/* --- the checkpoint --- */

static uint64_t dirty_chunk(const struct volume *volume, uint64_t i)
{
    uint64_t chunks = volume->data / VOLUME_CHUNK;
    return volume->scattered ? i * (chunks / DIRTY) : chunks / 2 + i;
}

static uint64_t source_next(void *arg, uint64_t from, uint64_t until, bool zeros)
{
    (void)zeros;
    for (uint64_t i = 0; i < DIRTY; i++) {
        uint64_t chunk = dirty_chunk(arg, i);
        if (chunk >= from && chunk < until)
            return chunk;
    }
    return UINT64_MAX;
}

static int source_read(void *arg, uint64_t chunk, void *buffer, uint32_t *ret_mask, struct err *err)
{
    uint64_t x = chunk + 1;
    uint8_t *bytes = buffer;
    (void)arg, (void)ret_mask, (void)err;
    for (size_t i = 0; i < VOLUME_CHUNK; i += sizeof x) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const uint64_t value = i % 16 ? x : 0; /* half of it compresses */
        memcpy(bytes + i, &value, sizeof value);
    }
    return CHECKPOINT_CHUNK_BYTES;
}

static void measure(struct volume *volume, int temp_fd, uint64_t index_max, int requests_max)
{
    struct err err = ERR_INIT;
    struct checkpoint *parent = NULL;
    cleanup_checkpoint_written struct checkpoint_written written = {.packs = NULL};
    const struct checkpoint_options options = {.remote = &volume->store.remote,
                                               .repository = REPOSITORY};
    const struct checkpoint_source source = {
        .size = volume->size, .next = source_next, .read = source_read, .arg = volume};
    volume->store.requests = 0;
    volume->store.sent = volume->store.read = 0;
    const int64_t begun = clock_now_ns();
    if (checkpoint_open(&options, TAG, NULL, NULL, &parent, &err) < 0)
        fail_msg("%s", err.text);
    struct checkpoint_write write = {.remote = &volume->store.remote,
                                     .repository = REPOSITORY,
                                     .tag = TAG "-next",
                                     .parent = parent,
                                     .temp_fd = temp_fd,
                                     .config = config_of(volume)};
    write.config.generation = 2;
    const int64_t opened = clock_now_ns();
    if (checkpoint_write(&write, &source, &written, &err) < 0)
        fail_msg("%s", err.text);
    const int64_t ended = clock_now_ns();
    const uint64_t chunks = (uint64_t)DIRTY * VOLUME_CHUNK / 2;
    const uint64_t index = volume->store.sent - chunks;
    print_message("# %5llu GiB, %3llu of data, %s: index and manifests %7.1f KiB sent, %7.1f KiB "
                  "read, %d requests, %.0f + %.0f ms\n",
                  (unsigned long long)(volume->size / GIB),
                  (unsigned long long)(volume->data / GIB),
                  volume->scattered ? "scattered" : "in a row ", (double)index / 1024,
                  (double)volume->store.read / 1024, (int)volume->store.requests,
                  (double)(opened - begun) / 1e6, (double)(ended - opened) / 1e6);
    assert_int_equal(written.bytes_moved, 0);
    assert_in_range(index, 1, index_max);
    assert_in_range((int)volume->store.requests, 1, requests_max);
    checkpoint_free(parent);
}

static void cost(void **state)
{
    struct scratch *scratch = *state;
    /* A leaf has 197 KiB, a pack in root and list 0.2; the root of 1 TiB 192 KiB. */
    static const struct {
        uint64_t size, data, row_max, scattered_max;
        int row_requests, scattered_requests;
    } cases[] = {
        {10, 8, 700 << 10, 7 << 20, 60, 90},
        {100, 50, 1300 << 10, 36 << 20, 60, 400},
        {1024, 50, 1300 << 10, 36 << 20, 60, 400},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct volume *volume = make_volume(cases[i].size * GIB, cases[i].data * GIB);
        measure(volume, scratch->fd, cases[i].row_max, cases[i].row_requests);
        volume->scattered = true;
        measure(volume, scratch->fd, cases[i].scattered_max, cases[i].scattered_requests);
        free_volume(volume);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cost, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
