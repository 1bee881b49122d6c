#include "volume_index.h"

#include <endian.h>
#include <string.h>

enum {
    MAGIC_BYTES = 8,
    LEAF_VERSION = 1,
    ROOT_VERSION = 1,
    ROOT_VERSION_USAGE = 2, /* with what follows */
    BITMAP_AT = VOLUME_LEAF_HEAD,
};
static const char leaf_magic[] = "VRVLEAF1";
static const char root_magic[] = "VRVROOT1";

static void put32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static void put_entry(uint8_t *at, const struct volume_entry *entry)
{
    memcpy(at, entry->digest.bytes, DIGEST_BYTES);
    memcpy(at + DIGEST_BYTES, entry->place.pack, VOLUME_PACK_ID);
    put32(at + DIGEST_BYTES + VOLUME_PACK_ID, entry->place.offset);
    put32(at + DIGEST_BYTES + VOLUME_PACK_ID + 4, entry->place.length);
}

static struct volume_entry get_entry(const uint8_t *at)
{
    struct volume_entry entry;
    memcpy(entry.digest.bytes, at, DIGEST_BYTES);
    memcpy(entry.place.pack, at + DIGEST_BYTES, VOLUME_PACK_ID);
    entry.place.offset = get32(at + DIGEST_BYTES + VOLUME_PACK_ID);
    entry.place.length = get32(at + DIGEST_BYTES + VOLUME_PACK_ID + 4);
    return entry;
}

static bool is_nothing(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/* Magic and version, from 1 to `newest`. */
static int check_head(const uint8_t *bytes, size_t len, size_t least, uint32_t newest,
                      const char *magic, const char *what, struct err *err)
{
    if (len < MAGIC_BYTES + 4 || memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return err_fail(err, ERR_DAMAGED, "it is no %s of a checkpoint", what);
    uint32_t version = get32(bytes + MAGIC_BYTES);
    if (version > newest)
        return err_fail(err, ERR_TOO_NEW, "the %s has version %u, this program knows %u", what,
                        version, newest);
    if (version < 1 || len < least)
        return err_fail(err, ERR_DAMAGED, "the %s of a checkpoint is damaged", what);
    return 0;
}

/* Leaves */

void volume_leaf_init(struct volume_leaf *leaf, uint32_t number)
{
    memset(leaf, 0, sizeof *leaf);
    leaf->number = number;
}

void volume_leaf_set(struct volume_leaf *leaf, uint32_t chunk, const struct volume_entry *entry)
{
    leaf->count += (entry != NULL) - leaf->set[chunk];
    leaf->set[chunk] = entry != NULL;
    if (entry)
        leaf->entries[chunk] = *entry;
}

size_t volume_leaf_encode(const struct volume_leaf *leaf, uint8_t *ret)
{
    uint8_t *at = ret + VOLUME_LEAF_BYTES_MIN;
    memset(ret, 0, VOLUME_LEAF_BYTES_MIN);
    memcpy(ret, leaf_magic, MAGIC_BYTES);
    put32(ret + 8, LEAF_VERSION);
    put32(ret + 12, leaf->number);
    put32(ret + 16, leaf->count);
    for (uint32_t i = 0; i < VOLUME_LEAF_CHUNKS; i++) {
        if (!leaf->set[i])
            continue;
        ret[BITMAP_AT + i / 8] |= (uint8_t)(1u << (i % 8));
        put_entry(at, &leaf->entries[i]);
        at += VOLUME_ENTRY_BYTES;
    }
    return (size_t)(at - ret);
}

static bool is_set(const uint8_t *bytes, uint32_t chunk)
{
    return bytes[BITMAP_AT + chunk / 8] >> (chunk % 8) & 1;
}

static uint32_t count_set(const uint8_t *bytes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < VOLUME_LEAF_CHUNKS; i++)
        count += is_set(bytes, i);
    return count;
}

int volume_leaf_decode(const uint8_t *bytes, size_t len, uint32_t number, struct volume_leaf *ret,
                       struct err *err)
{
    int rc = check_head(bytes, len, VOLUME_LEAF_BYTES_MIN, LEAF_VERSION, leaf_magic, "leaf", err);
    if (rc < 0)
        return rc;
    uint32_t count = get32(bytes + 16);
    if (get32(bytes + 12) != number || count != count_set(bytes) ||
        len != VOLUME_LEAF_BYTES_MIN + (size_t)count * VOLUME_ENTRY_BYTES ||
        !is_nothing(bytes + 20, 12))
        return err_fail(err, ERR_DAMAGED, "leaf %u of a checkpoint is damaged", number);
    const uint8_t *at = bytes + VOLUME_LEAF_BYTES_MIN;
    volume_leaf_init(ret, number);
    for (uint32_t i = 0; i < VOLUME_LEAF_CHUNKS; i++) {
        if (!is_set(bytes, i))
            continue;
        const struct volume_entry entry = get_entry(at);
        if (entry.place.length == 0 || entry.place.length > VOLUME_CHUNK)
            return err_fail(err, ERR_DAMAGED, "leaf %u of a checkpoint has a chunk of %u bytes",
                            number, entry.place.length);
        volume_leaf_set(ret, i, &entry);
        at += VOLUME_ENTRY_BYTES;
    }
    return 0;
}

/* Roots */

void volume_root_init(struct volume_root *root, uint64_t size)
{
    memset(root, 0, sizeof *root);
    root->size = size;
    root->leaf_count = volume_leaves_of(size);
}

void volume_root_set(struct volume_root *root, uint32_t leaf, const struct volume_entry *entry,
                     uint32_t count, uint32_t before)
{
    root->chunks = root->chunks - before + count;
    root->set[leaf] = count > 0;
    if (count > 0)
        root->leaves[leaf] = *entry;
}

size_t volume_root_encode(const struct volume_root *root, uint8_t *ret)
{
    size_t len = volume_root_bytes(root);
    memset(ret, 0, len);
    memcpy(ret, root_magic, MAGIC_BYTES);
    put32(ret + 8, root->has_usage ? ROOT_VERSION_USAGE : ROOT_VERSION);
    put32(ret + 12, root->leaf_count);
    put64(ret + 16, root->size);
    put64(ret + 24, root->chunks);
    for (uint32_t i = 0; i < root->leaf_count; i++)
        if (root->set[i])
            put_entry(ret + VOLUME_ROOT_HEAD + (size_t)i * VOLUME_ENTRY_BYTES, &root->leaves[i]);
    return len;
}

static int check_root(const struct volume_root *root, uint32_t leaf_count, size_t len,
                      struct err *err)
{
    if (!volume_is_size(root->size))
        return err_fail(err, ERR_DAMAGED, "the root of a checkpoint has a volume of %llu bytes",
                        (unsigned long long)root->size);
    if (leaf_count != root->leaf_count ||
        (root->has_usage ? len < volume_root_bytes(root) : len != volume_root_bytes(root)) ||
        root->chunks > root->size / VOLUME_CHUNK)
        return err_fail(err, ERR_DAMAGED, "the root of a checkpoint is damaged");
    return 0;
}

static bool is_leaf(const struct volume_entry *entry)
{
    uint32_t length = entry->place.length;
    return length > VOLUME_LEAF_BYTES_MIN && length <= VOLUME_LEAF_BYTES_MAX &&
           (length - VOLUME_LEAF_BYTES_MIN) % VOLUME_ENTRY_BYTES == 0;
}

int volume_root_decode(const uint8_t *bytes, size_t len, struct volume_root *ret, struct err *err)
{
    int rc = check_head(bytes, len, VOLUME_ROOT_HEAD, ROOT_VERSION_USAGE, root_magic, "root", err);
    if (rc < 0)
        return rc;
    volume_root_init(ret, get64(bytes + 16));
    ret->has_usage = get32(bytes + 8) == ROOT_VERSION_USAGE;
    ret->chunks = get64(bytes + 24);
    rc = check_root(ret, get32(bytes + 12), len, err);
    if (rc < 0)
        return rc;
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < ret->leaf_count; i++) {
        const uint8_t *at = bytes + VOLUME_ROOT_HEAD + (size_t)i * VOLUME_ENTRY_BYTES;
        ret->set[i] = !is_nothing(at, VOLUME_ENTRY_BYTES);
        ret->leaves[i] = get_entry(at);
        if (ret->set[i] && !is_leaf(&ret->leaves[i]))
            return err_fail(err, ERR_DAMAGED, "leaf %u of a checkpoint cannot have %u bytes", i,
                            ret->leaves[i].place.length);
        if (ret->set[i])
            chunks += (ret->leaves[i].place.length - VOLUME_LEAF_BYTES_MIN) / VOLUME_ENTRY_BYTES;
    }
    if (chunks != ret->chunks)
        return err_fail(err, ERR_DAMAGED, "the root of a checkpoint counts its chunks wrong");
    return 0;
}
