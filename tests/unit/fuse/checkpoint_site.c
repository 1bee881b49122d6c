#include "checkpoint_site.h"

#include "cleanup.h"
#include "plain_checkpoint.h"
#include "remote_oci.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

int checkpoint_site_setup(void **state)
{
    struct checkpoint_site *site = calloc(1, sizeof *site);
    char url[96];
    assert_non_null(site);
    assert_int_equal(scratch_setup((void **)&site->scratch), 0);
    snprintf(url, sizeof url, "oci:%s/r", site->scratch->path);
    assert_int_equal(remote_oci_open(url, &site->oci, NULL), 0);
    site->write = (struct checkpoint_write){.remote = hook_remote_init(&site->hook, site->oci),
                                            .repository = SITE_REPOSITORY,
                                            .tag = SITE_TAG,
                                            .temp_fd = site->scratch->fd,
                                            .config = {.volume = "0123456789ab",
                                                       .lineage = "abcdef012345",
                                                       .uuid = {1, 2, 3},
                                                       .node = "node-a"}};
    site->random = 88172645463325252u;
    site->read_fails = UINT64_MAX;
    checkpoint_site_grow(site, VOLUME_SIZE_MIN);
    *state = site;
    return 0;
}

int checkpoint_site_teardown(void **state)
{
    struct checkpoint_site *site = *state;
    checkpoint_free(site->head);
    checkpoint_written_free(&site->written);
    hook_remote_free(&site->hook);
    remote_close(site->oci);
    int rc = scratch_teardown((void **)&site->scratch);
    free(site->now);
    free(site->parent);
    free(site->dirty);
    free(site);
    return rc;
}

uint64_t checkpoint_site_below(struct checkpoint_site *site, uint64_t end)
{
    site->random ^= site->random << 13;
    site->random ^= site->random >> 7;
    site->random ^= site->random << 17;
    return site->random % end;
}

static void *grow(void *array, size_t before, size_t now, size_t each)
{
    uint8_t *grown = realloc(array, now * each);
    assert_non_null(grown);
    memset(grown + before * each, 0, (now - before) * each);
    return grown;
}

void checkpoint_site_grow(struct checkpoint_site *site, uint64_t size)
{
    site->now = grow(site->now, site->size / VOLUME_BLOCK, size / VOLUME_BLOCK, sizeof *site->now);
    site->parent =
        grow(site->parent, site->size / VOLUME_BLOCK, size / VOLUME_BLOCK, sizeof *site->parent);
    site->dirty =
        grow(site->dirty, site->size / VOLUME_CHUNK, size / VOLUME_CHUNK, sizeof *site->dirty);
    site->size = size;
}

void checkpoint_site_set(struct checkpoint_site *site, uint64_t block, uint32_t value)
{
    site->now[block] = value;
    site->dirty[block / VOLUME_CHUNK_BLOCKS] = true;
}

void checkpoint_site_fill(struct checkpoint_site *site, uint64_t chunk, uint32_t value)
{
    for (uint32_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++)
        checkpoint_site_set(site, chunk * VOLUME_CHUNK_BLOCKS + i,
                            value ? value * VOLUME_CHUNK_BLOCKS + i : 0);
}

/* Odd numbers make bytes that do not compress. */
static void make_block(uint32_t value, uint8_t *ret)
{
    uint64_t x = (uint64_t)value * 0x9e3779b97f4a7c15u;
    if (value == 0) {
        memset(ret, 0, VOLUME_BLOCK);
        return;
    }
    for (size_t i = 0; i < VOLUME_BLOCK; i += sizeof x) {
        if (value % 2 == 1 || i % 64 == 0)
            x = x * 6364136223846793005u + 1442695040888963407u;
        const uint64_t mixed = x ^ x >> 29;
        memcpy(ret + i, &mixed, sizeof mixed);
    }
}

bool checkpoint_site_bytes(const uint32_t *blocks, uint64_t chunk, uint8_t *ret)
{
    bool is_set = false;
    for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++) {
        uint32_t value = blocks[chunk * VOLUME_CHUNK_BLOCKS + i];
        make_block(value, ret + i * VOLUME_BLOCK);
        is_set = is_set || value != 0;
    }
    return is_set;
}

static bool is_set(const uint32_t *blocks, uint64_t chunk)
{
    for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++)
        if (blocks[chunk * VOLUME_CHUNK_BLOCKS + i] != 0)
            return true;
    return false;
}

static uint64_t source_next(void *arg, uint64_t from, uint64_t until, bool zeros)
{
    const struct checkpoint_site *site = arg;
    assert_true(from < until && until <= site->size / VOLUME_CHUNK);
    for (uint64_t chunk = from; chunk < until; chunk++)
        if (site->dirty[chunk] && (zeros || !site->passes_over || is_set(site->now, chunk)))
            return chunk;
    return UINT64_MAX;
}

/* Blocks that differ from the parent's, and some others. */
static uint32_t changed_blocks(struct checkpoint_site *site, uint64_t chunk)
{
    uint32_t mask = 0;
    for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++) {
        uint64_t block = chunk * VOLUME_CHUNK_BLOCKS + i;
        if (site->now[block] != site->parent[block])
            mask |= 1u << i;
    }
    if (mask != 0 && checkpoint_site_below(site, 2) == 0)
        mask |= 1u << checkpoint_site_below(site, VOLUME_CHUNK_BLOCKS);
    return mask;
}

static int source_read(void *arg, uint64_t chunk, void *buffer, uint32_t *ret_mask, struct err *err)
{
    struct checkpoint_site *site = arg;
    uint8_t *bytes = buffer;
    if (chunk == site->read_fails)
        return err_errno(err, EIO, "chunk %d cannot be read", (int)chunk);
    bool has_bytes = checkpoint_site_bytes(site->now, chunk, bytes);
    if (!site->plain && site->write.parent && checkpoint_site_below(site, 3) > 0) {
        uint32_t mask = changed_blocks(site, chunk);
        for (unsigned i = 0; i < VOLUME_CHUNK_BLOCKS; i++)
            if (!(mask & 1u << i)) /* what the source does not have is anything */
                memset(bytes + (size_t)i * VOLUME_BLOCK, 0xEE, VOLUME_BLOCK);
        *ret_mask = mask;
        return CHECKPOINT_CHUNK_PARENT;
    }
    if (has_bytes || site->plain || checkpoint_site_below(site, 2) == 0)
        return CHECKPOINT_CHUNK_BYTES;
    memset(bytes, 0xEE, VOLUME_CHUNK);
    return CHECKPOINT_CHUNK_ZERO;
}

static void source_done(void *arg, uint64_t chunk)
{
    struct checkpoint_site *site = arg;
    assert_true(chunk < site->size / VOLUME_CHUNK && site->dirty[chunk]);
    site->done++;
}

static struct checkpoint *open_head(struct checkpoint_site *site, const struct digest *digest)
{
    struct err err = ERR_INIT;
    struct checkpoint *head = NULL;
    const struct checkpoint_options options = {.remote = site->hooked ? &site->hook.remote
                                                                      : site->hook.to,
                                               .repository = SITE_REPOSITORY,
                                               .key = site->write.key};
    if (checkpoint_open(&options, digest_format(digest).s, NULL, NULL, &head, &err) < 0)
        fail_msg("%s", err.text);
    return head;
}

int checkpoint_site_try(struct checkpoint_site *site, struct err *err)
{
    const struct checkpoint_source source = {.size = site->size,
                                             .next = source_next,
                                             .read = source_read,
                                             .done = source_done,
                                             .arg = site};
    struct checkpoint_written written = {.unchanged = true, .chunks = 4711};
    site->write.parent = site->head;
    site->write.config.generation = site->generation + 1;
    site->write.config.created_ns = (int64_t)(site->generation + 1) * 1000000000;
    site->done = 0;
    int rc = checkpoint_write(&site->write, &source, &written, err);
    if (rc < 0) {
        assert_int_equal(written.chunks, 4711); /* not touched */
        return rc;
    }
    assert_int_equal(site->done, written.chunks_read);
    checkpoint_written_free(&site->written);
    site->written = written;
    if (!written.unchanged) {
        checkpoint_free(site->head);
        site->head = open_head(site, &written.digest);
        site->generation++;
    }
    memcpy(site->parent, site->now, site->size / VOLUME_BLOCK * sizeof *site->now);
    memset(site->dirty, 0, site->size / VOLUME_CHUNK * sizeof *site->dirty);
    return 0;
}

void checkpoint_site_write(struct checkpoint_site *site)
{
    struct err err = ERR_INIT;
    if (checkpoint_site_try(site, &err) < 0)
        fail_msg("%s", err.text);
}

bool checkpoint_site_tag(struct checkpoint_site *site, struct digest *ret)
{
    struct remote_manifest_stat stat;
    if (remote_manifest_stat(site->hook.to, SITE_REPOSITORY, SITE_TAG, NULL, NULL, &stat, NULL) < 0)
        return false;
    *ret = stat.digest;
    return true;
}

void checkpoint_site_compare(struct checkpoint_site *site)
{
    static uint8_t wanted[VOLUME_CHUNK];
    static uint8_t got[VOLUME_CHUNK];
    struct plain_checkpoint plain;
    uint64_t bytes = 0;
    plain_checkpoint_open(site->hook.to, SITE_REPOSITORY, SITE_TAG, &plain);
    assert_true(digest_equal(&plain.index, &site->written.digest));
    assert_int_equal(plain.size, site->size);
    for (uint64_t chunk = 0; chunk < plain.chunk_count; chunk++) {
        assert_int_equal(plain.chunks[chunk].is_set, is_set(site->parent, chunk));
        if (!plain.chunks[chunk].is_set)
            continue;
        (void)checkpoint_site_bytes(site->parent, chunk, wanted);
        assert_true(plain_checkpoint_read(&plain, chunk, got));
        assert_memory_equal(got, wanted, VOLUME_CHUNK);
    }
    for (size_t i = 0; i < plain.pack_count; i++)
        bytes += plain.pack_sizes[i];
    assert_int_equal(site->written.bytes_total, bytes);
    assert_int_equal(site->written.chunks, plain.set_count);
    site->packs = plain.pack_count;
    site->live = plain.live;
    site->uncounted = plain.uncounted;
    site->small = 0;
    for (size_t i = 0; i < plain.pack_count; i++)
        site->small += plain.pack_sizes[i] < site->write.pack_bytes / 4;
    plain_checkpoint_close(&plain);
}

struct comparison {
    struct checkpoint_site *site;
    uint64_t count;
};

static int compare_chunk(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    static uint8_t wanted[VOLUME_CHUNK];
    struct comparison *comparison = arg;
    (void)err;
    assert_true(checkpoint_site_bytes(comparison->site->parent, chunk, wanted));
    assert_non_null(bytes);
    assert_memory_equal(bytes, wanted, VOLUME_CHUNK);
    comparison->count++;
    return 0;
}

void checkpoint_site_compare_read(struct checkpoint_site *site)
{
    struct err err = ERR_INIT;
    struct comparison comparison = {.site = site};
    size_t count = 0;
    cleanup_free uint64_t *chunks = malloc(site->size / VOLUME_CHUNK * sizeof *chunks);
    assert_non_null(chunks);
    for (uint64_t chunk = 0; chunk < site->size / VOLUME_CHUNK; chunk++)
        if (is_set(site->parent, chunk))
            chunks[count++] = chunk;
    if (checkpoint_read(site->head, chunks, count, NULL, NULL, compare_chunk, &comparison, &err) <
        0)
        fail_msg("%s", err.text);
    assert_int_equal(comparison.count, count);
}
