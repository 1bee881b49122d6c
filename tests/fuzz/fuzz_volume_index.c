/* Any bytes as a leaf or a root of a checkpoint, with what may follow that: what is accepted is
 * encoded to the same bytes. */
#include "pack_usage.h"
#include "volume_index.h"

#include "fuzz_check.h"

static struct volume_leaf leaf;
static struct volume_root root;
static uint8_t bytes_again[VOLUME_LEAF_BYTES_MAX];
_Static_assert(sizeof bytes_again >= VOLUME_ROOT_BYTES_MAX, "both fit");

static void check_failure(int rc, const struct err *err)
{
    fuzz_check_failure(rc, err);
    CHECK(err->code == ERR_DAMAGED || err->code == ERR_TOO_NEW);
}

static void look_at_leaf(const uint8_t *bytes, size_t len)
{
    struct err err = ERR_INIT;
    uint32_t number = len > 12 ? bytes[12] : 0;
    int rc = volume_leaf_decode(bytes, len, number, &leaf, &err);
    if (rc < 0) {
        check_failure(rc, &err);
        return;
    }
    CHECK(volume_leaf_encode(&leaf, bytes_again) == len);
    CHECK(memcmp(bytes, bytes_again, len) == 0);
}

static void look_at_uses(const uint8_t *bytes, size_t len)
{
    struct err err = ERR_INIT;
    struct pack_use *uses = NULL;
    size_t count = 0;
    int rc = pack_usage_decode(bytes, len, root.leaf_count, &uses, &count, &err);
    if (rc < 0) {
        check_failure(rc, &err);
        return;
    }
    uint8_t *again = malloc(PACK_USAGE_HEAD + count * PACK_USE_BYTES);
    CHECK(again && pack_usage_encode(uses, count, again) == len);
    CHECK(memcmp(bytes, again, len) == 0);
    free(again);
    free(uses);
}

static void look_at_root(const uint8_t *bytes, size_t len)
{
    struct err err = ERR_INIT;
    int rc = volume_root_decode(bytes, len, &root, &err);
    if (rc < 0) {
        check_failure(rc, &err);
        return;
    }
    CHECK(root.chunks <= root.size / VOLUME_CHUNK);
    const size_t root_len = volume_root_encode(&root, bytes_again);
    CHECK(root.has_usage ? root_len <= len : root_len == len);
    CHECK(memcmp(bytes, bytes_again, root_len) == 0);
    if (root.has_usage)
        look_at_uses(bytes + root_len, len - root_len);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    look_at_leaf(bytes, len);
    look_at_root(bytes, len);
    return 0;
}
