/* Any bytes as each of the manifests of a checkpoint: one digest has one meaning, and what is taken
 * is written again with the same one. */
#include "checkpoint_manifest.h"

#include "fuzz_check.h"

static bool same(const struct checkpoint_blob *a, const struct checkpoint_blob *b)
{
    return digest_equal(&a->digest, &b->digest) && a->size == b->size;
}

static void check_index_again(const struct checkpoint_index *index)
{
    char *text = NULL;
    size_t len = 0;
    struct checkpoint_index again;
    CHECK(checkpoint_index_encode(index, &text, &len, NULL) == 0);
    CHECK(checkpoint_index_decode(text, len, &again, NULL) == 0);
    CHECK(same(&again.root_manifest, &index->root_manifest));
    CHECK(again.list_count == index->list_count);
    for (size_t i = 0; i < again.list_count; i++)
        CHECK(same(&again.lists[i], &index->lists[i]));
    CHECK(strcmp(again.volume, index->volume) == 0 && strcmp(again.node, index->node) == 0);
    CHECK(again.generation == index->generation && again.token == index->token);
    CHECK(again.has_parent == index->has_parent);
    CHECK(!again.has_parent || digest_equal(&again.parent, &index->parent));
    checkpoint_index_free(&again);
    free(text);
}

static bool look_at_index(const char *bytes, size_t len)
{
    struct err err = ERR_INIT;
    struct checkpoint_index index = {.lists = NULL};
    int rc = checkpoint_index_decode(bytes, len, &index, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!index.lists);
        return false;
    }
    CHECK(index.list_count <= CHECKPOINT_LISTS_MAX);
    check_index_again(&index);
    checkpoint_index_free(&index);
    return true;
}

static bool look_at_root(const char *bytes, size_t len)
{
    struct err err = ERR_INIT;
    struct checkpoint_root_manifest root;
    struct checkpoint_root_manifest again;
    char *text = NULL;
    size_t text_len = 0;
    int rc = checkpoint_root_decode(bytes, len, &root, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        return false;
    }
    CHECK(checkpoint_root_encode(&root, &text, &text_len, NULL) == 0);
    CHECK(checkpoint_root_decode(text, text_len, &again, NULL) == 0);
    CHECK(same(&again.config, &root.config) && same(&again.root, &root.root));
    free(text);
    return true;
}

static bool look_at_packs(const char *bytes, size_t len)
{
    struct err err = ERR_INIT;
    struct pack *packs = NULL;
    struct pack *again = NULL;
    size_t count = 0;
    size_t again_count = 0;
    char *text = NULL;
    size_t text_len = 0;
    int rc = checkpoint_packs_decode(bytes, len, &packs, &count, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!packs && count == 0);
        return false;
    }
    CHECK(count >= 1 && count <= CHECKPOINT_LIST_PACKS);
    CHECK(checkpoint_packs_encode(packs, count, &text, &text_len, NULL) == 0);
    CHECK(checkpoint_packs_decode(text, text_len, &again, &again_count, NULL) == 0);
    CHECK(again_count == count);
    for (size_t i = 0; i < count; i++)
        CHECK(digest_equal(&again[i].digest, &packs[i].digest) && again[i].size == packs[i].size);
    free(text);
    free(packs);
    free(again);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const char *text = (const char *)bytes;
    int kinds = look_at_index(text, len) + look_at_root(text, len) + look_at_packs(text, len);
    CHECK(kinds <= 1);
    return 0;
}
