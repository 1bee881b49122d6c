/* Manifests of checkpoints: there and back, and what is none. */
#include "checkpoint_manifest.h"

#include "cleanup.h"
#include "volume_index.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct digest digest_of(unsigned number)
{
    struct digest digest;
    assert_int_equal(digest_bytes(&number, sizeof number, &digest, NULL), 0);
    return digest;
}

static struct checkpoint_blob blob_of(unsigned number)
{
    return (struct checkpoint_blob){.digest = digest_of(number), .size = 500 + number};
}

static void assert_same(const struct checkpoint_blob *a, const struct checkpoint_blob *b)
{
    assert_true(digest_equal(&a->digest, &b->digest));
    assert_int_equal(a->size, b->size);
}

static struct checkpoint_index sample(size_t lists)
{
    struct checkpoint_index index = {.root_manifest = blob_of(1000000),
                                     .list_count = lists,
                                     .volume = "0123456789ab",
                                     .node = "node-a",
                                     .generation = 12,
                                     .token = 3,
                                     .has_parent = true,
                                     .parent = digest_of(2000000)};
    index.lists = calloc(lists + 1, sizeof *index.lists);
    assert_non_null(index.lists);
    for (size_t i = 0; i < lists; i++)
        index.lists[i] = blob_of((unsigned)i);
    return index;
}

static char *encode_index(const struct checkpoint_index *index, size_t *ret_len)
{
    struct err err = ERR_INIT;
    char *text = NULL;
    if (checkpoint_index_encode(index, &text, ret_len, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(strlen(text), *ret_len);
    assert_true(*ret_len <= CHECKPOINT_MANIFEST_BYTES_MAX);
    return text;
}

static void indexes(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, CHECKPOINT_LISTS_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        cleanup_checkpoint_index struct checkpoint_index index = sample(counts[i]);
        cleanup_checkpoint_index struct checkpoint_index back = {.lists = NULL};
        index.has_parent = i % 2;
        index.generation = i == 0 ? 1 : INT64_MAX;
        index.token = i == 0 ? 0 : INT64_MAX;
        size_t len = 0;
        cleanup_free char *text = encode_index(&index, &len);
        assert_int_equal(checkpoint_index_decode(text, len, &back, NULL), 0);
        assert_same(&back.root_manifest, &index.root_manifest);
        assert_int_equal(back.list_count, counts[i]);
        for (size_t j = 0; j < counts[i]; j++)
            assert_same(&back.lists[j], &index.lists[j]);
        assert_string_equal(back.volume, index.volume);
        assert_string_equal(back.node, index.node);
        assert_int_equal(back.generation, index.generation);
        assert_int_equal(back.token, index.token);
        assert_int_equal(back.has_parent, index.has_parent);
        if (back.has_parent)
            assert_true(digest_equal(&back.parent, &index.parent));
    }
}

/* What a registry, and who lists its tags, sees. */
static void the_index_document(void **state)
{
    (void)state;
    cleanup_checkpoint_index struct checkpoint_index index = sample(1);
    size_t len = 0;
    cleanup_free char *text = encode_index(&index, &len);
    char wanted[2048];
    snprintf(wanted, sizeof wanted,
             "{\"annotations\":{\"vnd.varve.generation\":\"12\",\"vnd.varve.node\":\"node-a\","
             "\"vnd.varve.parent\":\"%s\",\"vnd.varve.token\":\"3\","
             "\"vnd.varve.volume\":\"0123456789ab\"},"
             "\"artifactType\":\"application/vnd.varve.checkpoint.v1\",\"manifests\":["
             "{\"artifactType\":\"application/vnd.varve.checkpoint.v1\",\"digest\":\"%s\","
             "\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"size\":1000500},"
             "{\"artifactType\":\"application/vnd.varve.packs.v1\",\"digest\":\"%s\","
             "\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"size\":500}],"
             "\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"schemaVersion\":2}",
             digest_format(&index.parent).s, digest_format(&index.root_manifest.digest).s,
             digest_format(&index.lists[0].digest).s);
    assert_string_equal(text, wanted);
}

static void roots(void **state)
{
    (void)state;
    const struct checkpoint_root_manifest manifest = {.config = blob_of(1), .root = blob_of(2)};
    struct checkpoint_root_manifest back;
    cleanup_free char *text = NULL;
    size_t len = 0;
    assert_int_equal(checkpoint_root_encode(&manifest, &text, &len, NULL), 0);
    assert_int_equal(checkpoint_root_decode(text, len, &back, NULL), 0);
    assert_same(&back.config, &manifest.config);
    assert_same(&back.root, &manifest.root);
}

static struct pack *packs_of(size_t count)
{
    struct pack *packs = calloc(count, sizeof *packs);
    assert_non_null(packs);
    for (size_t i = 0; i < count; i++)
        packs[i] = (struct pack){.digest = digest_of((unsigned)i), .size = 1 + i};
    packs[0].size = PACK_BYTES_MAX;
    return packs;
}

static void pack_lists(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, CHECKPOINT_LIST_PACKS};
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        cleanup_free struct pack *packs = packs_of(counts[i]);
        cleanup_free struct pack *back = NULL;
        cleanup_free char *text = NULL;
        size_t len = 0;
        size_t count = 0;
        assert_int_equal(checkpoint_packs_encode(packs, counts[i], &text, &len, NULL), 0);
        assert_true(len <= CHECKPOINT_MANIFEST_BYTES_MAX);
        assert_int_equal(checkpoint_packs_decode(text, len, &back, &count, NULL), 0);
        assert_int_equal(count, counts[i]);
        for (size_t j = 0; j < count; j++) {
            assert_true(digest_equal(&back[j].digest, &packs[j].digest));
            assert_int_equal(back[j].size, packs[j].size);
        }
    }
}

/* Its digest is of its bytes. */
static void the_empty_config(void **state)
{
    (void)state;
    struct digest digest;
    const struct checkpoint_blob blob = checkpoint_packs_config();
    assert_int_equal(digest_bytes(CHECKPOINT_EMPTY, strlen(CHECKPOINT_EMPTY), &digest, NULL), 0);
    assert_true(digest_equal(&blob.digest, &digest));
    assert_int_equal(blob.size, strlen(CHECKPOINT_EMPTY));
}

static void what_cannot_be_written(void **state)
{
    (void)state;
    cleanup_free struct pack *packs = packs_of(CHECKPOINT_LIST_PACKS + 1);
    struct err err = ERR_INIT;
    char *text = NULL;
    size_t len = 0;
    assert_true(checkpoint_packs_encode(packs, 0, &text, &len, &err) < 0);
    err_clear(&err);
    assert_true(checkpoint_packs_encode(packs, CHECKPOINT_LIST_PACKS + 1, &text, &len, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    memcpy(packs[9].digest.bytes, packs[3].digest.bytes, VOLUME_PACK_ID);
    assert_true(checkpoint_packs_encode(packs, 10, &text, &len, NULL) < 0);
    assert_int_equal(checkpoint_packs_encode(packs, 9, &text, &len, NULL), 0);
    free(text);
    text = NULL;
    cleanup_checkpoint_index struct checkpoint_index index = sample(CHECKPOINT_LISTS_MAX + 1);
    err_clear(&err);
    assert_true(checkpoint_index_encode(&index, &text, &len, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    index.list_count = 3;
    index.lists[2] = index.lists[0];
    err_clear(&err);
    assert_true(checkpoint_index_encode(&index, &text, &len, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_null(text);
}

/* Documents that are sound but for one thing. */

enum kind {
    INDEX,
    ROOT,
    PACKS
};

static json_t *sound(enum kind kind)
{
    cleanup_free char *text = NULL;
    size_t len = 0;
    cleanup_checkpoint_index struct checkpoint_index index = sample(3);
    cleanup_free struct pack *packs = packs_of(3);
    const struct checkpoint_root_manifest root = {.config = blob_of(1), .root = blob_of(2)};
    int rc = kind == INDEX  ? checkpoint_index_encode(&index, &text, &len, NULL)
             : kind == ROOT ? checkpoint_root_encode(&root, &text, &len, NULL)
                            : checkpoint_packs_encode(packs, 3, &text, &len, NULL);
    assert_int_equal(rc, 0);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return json;
}

static int decode(enum kind kind, const char *text, size_t len, struct err *err)
{
    struct checkpoint_index index = {.lists = NULL};
    struct checkpoint_root_manifest root;
    struct pack *packs = NULL;
    size_t count;
    int rc = kind == INDEX  ? checkpoint_index_decode(text, len, &index, err)
             : kind == ROOT ? checkpoint_root_decode(text, len, &root, err)
                            : checkpoint_packs_decode(text, len, &packs, &count, err);
    assert_true(rc == 0 || (!index.lists && !packs));
    checkpoint_index_free(&index);
    free(packs);
    return rc;
}

/* Sets what the path ("manifests/1/size") leads to; `value` NULL takes it away. */
static void set(json_t *json, const char *path, const char *value)
{
    char copy[128];
    snprintf(copy, sizeof copy, "%s", path);
    char *rest = copy;
    char *name = strsep(&rest, "/");
    for (; rest; name = strsep(&rest, "/"))
        json = json_is_array(json) ? json_array_get(json, (size_t)strtol(name, NULL, 10))
                                   : json_object_get(json, name);
    assert_non_null(json);
    json_t *made = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    assert_true(made || !value);
    if (json_is_array(json) && value)
        assert_int_equal(json_array_set_new(json, (size_t)strtol(name, NULL, 10), made), 0);
    else if (json_is_array(json))
        assert_int_equal(json_array_remove(json, (size_t)strtol(name, NULL, 10)), 0);
    else if (value)
        assert_int_equal(json_object_set_new(json, name, made), 0);
    else
        assert_int_equal(json_object_del(json, name), 0);
}

#define D64   "1111111111111111111111111111111111111111111111111111111111111111"
#define IMAGE "application/vnd.oci.image.manifest.v1+json"

static const struct {
    enum kind kind;
    const char *path;
    const char *value;
    enum err_code code;
} bad[] = {
    {INDEX, "schemaVersion", "1", ERR_UNSUPPORTED},
    {INDEX, "artifactType", NULL, ERR_UNSUPPORTED},
    {INDEX, "artifactType", "5", ERR_DAMAGED},
    {INDEX, "artifactType", "\"application/vnd.varve.packs.v1\"", ERR_UNSUPPORTED},
    {INDEX, "artifactType", "\"application/vnd.varve.checkpoint.v2\"", ERR_TOO_NEW},
    {INDEX, "mediaType", "\"" IMAGE "\"", ERR_DAMAGED},
    {INDEX, "manifests", NULL, ERR_DAMAGED},
    {INDEX, "manifests", "{}", ERR_DAMAGED},
    {INDEX, "manifests", "[]", ERR_DAMAGED},
    {INDEX, "manifests/0", NULL, ERR_DAMAGED}, /* a list in the root manifest's place */
    {INDEX, "manifests/1", "7", ERR_DAMAGED},
    {INDEX, "manifests/1/artifactType", NULL, ERR_DAMAGED},
    {INDEX, "manifests/1/artifactType", "\"application/vnd.varve.packs.v2\"", ERR_DAMAGED},
    {INDEX, "manifests/1/mediaType", "\"application/json\"", ERR_DAMAGED},
    {INDEX, "manifests/1/size", "0", ERR_DAMAGED},
    {INDEX, "manifests/1/size", "-1", ERR_DAMAGED},
    {INDEX, "manifests/1/size", "1048577", ERR_TOO_LARGE},
    {INDEX, "manifests/1/digest", "\"sha256:" D64 "1\"", ERR_DAMAGED},
    {INDEX, "annotations", NULL, ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.volume", NULL, ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.volume", "\"0123456789aX\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.volume", "\"0123456789abc\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.node", "\"\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.generation", "1", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.generation", "\"0\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.generation", "\"01\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.generation", "\"+1\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.generation", "\"9223372036854775808\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.generation", "\"99999999999999999999\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.token", "\"\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.token", "\"1 \"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.parent", "\"\"", ERR_DAMAGED},
    {INDEX, "annotations/vnd.varve.parent", "3", ERR_DAMAGED},
    {ROOT, "artifactType", "\"application/vnd.varve.packs.v1\"", ERR_UNSUPPORTED},
    {ROOT, "artifactType", "\"application/vnd.varve.checkpoint.v9\"", ERR_TOO_NEW},
    {ROOT, "config", NULL, ERR_DAMAGED},
    {ROOT, "config/mediaType", "\"application/vnd.oci.image.config.v1+json\"", ERR_DAMAGED},
    {ROOT, "config/size", "1", ERR_DAMAGED},
    {ROOT, "config/size", "131073", ERR_TOO_LARGE},
    {ROOT, "layers", "[]", ERR_DAMAGED},
    {ROOT, "layers/0/mediaType", "\"application/vnd.varve.pack.v1\"", ERR_DAMAGED},
    {ROOT, "layers/0/size", "79", ERR_DAMAGED},
    {ROOT, "layers/0/size", "4292649", ERR_TOO_LARGE},
    {PACKS, "artifactType", "\"application/vnd.varve.checkpoint.v1\"", ERR_UNSUPPORTED},
    {PACKS, "artifactType", "\"application/vnd.varve.packs.v2\"", ERR_TOO_NEW},
    {PACKS, "config", NULL, ERR_DAMAGED},
    {PACKS, "config/digest", "\"sha256:" D64 "\"", ERR_DAMAGED},
    {PACKS, "config/size", "3", ERR_TOO_LARGE},
    {PACKS, "config/size", "1", ERR_DAMAGED},
    {PACKS, "layers", NULL, ERR_DAMAGED},
    {PACKS, "layers", "[]", ERR_DAMAGED},
    {PACKS, "layers/2", "null", ERR_DAMAGED},
    {PACKS, "layers/2/size", "0", ERR_DAMAGED},
    {PACKS, "layers/2/size", "4294967296", ERR_TOO_LARGE},
    {PACKS, "layers/2/mediaType", "\"application/vnd.varve.checkpoint.root.v1\"", ERR_DAMAGED},
};

static void bad_documents(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_json json_t *json = sound(bad[i].kind);
        set(json, bad[i].path, bad[i].value);
        cleanup_free char *text = json_doc_dump(json);
        struct err err = ERR_INIT;
        if (decode(bad[i].kind, text, strlen(text), &err) == 0)
            fail_msg("%s = %s was taken", bad[i].path, bad[i].value);
        if (err.code != bad[i].code)
            fail_msg("%s = %s: %s: %s", bad[i].path, bad[i].value, err_code_name(err.code),
                     err.text);
    }
}

static void cut_and_padded(void **state)
{
    (void)state;
    static char padded[CHECKPOINT_MANIFEST_BYTES_MAX + 1];
    for (int kind = INDEX; kind <= PACKS; kind++) {
        cleanup_json json_t *json = sound((enum kind)kind);
        cleanup_free char *text = json_doc_dump(json);
        size_t len = strlen(text);
        for (size_t cut = 0; cut < len; cut++)
            assert_true(decode((enum kind)kind, text, cut, NULL) < 0);
        memset(padded, ' ', sizeof padded);
        memcpy(padded, text, len);
        assert_int_equal(decode((enum kind)kind, padded, sizeof padded - 1, NULL), 0);
        struct err err = ERR_INIT;
        assert_true(decode((enum kind)kind, padded, sizeof padded, &err) < 0);
        assert_int_equal(err.code, ERR_TOO_LARGE);
    }
}

/* What others may add does not disturb; one thing under two names does. */
static void more_members_and_repetitions(void **state)
{
    (void)state;
    cleanup_json json_t *index = sound(INDEX);
    set(index, "annotations/org.example", "\"x\"");
    set(index, "subject", "{}");
    set(index, "manifests/1/annotations", "{\"a\":\"b\"}");
    cleanup_free char *text = json_doc_dump(index);
    assert_int_equal(decode(INDEX, text, strlen(text), NULL), 0);
    json_t *list = json_array_get(json_object_get(index, "manifests"), 1);
    assert_int_equal(json_array_append(json_object_get(index, "manifests"), list), 0);
    cleanup_free char *twice = json_doc_dump(index);
    struct err err = ERR_INIT;
    assert_true(decode(INDEX, twice, strlen(twice), &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    cleanup_json json_t *packs = sound(PACKS);
    const char *first = json_string_value(
        json_object_get(json_array_get(json_object_get(packs, "layers"), 0), "digest"));
    char alike[80]; /* as the first one in its first 16 digits */
    snprintf(alike, sizeof alike, "\"%.23s%.48s\"", first, D64);
    set(packs, "layers/2/digest", alike);
    cleanup_free char *ambiguous = json_doc_dump(packs);
    err_clear(&err);
    assert_true(decode(PACKS, ambiguous, strlen(ambiguous), &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "same digits"));
}

static void too_many(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_json json_t *index = sound(INDEX);
    json_t *array = json_object_get(index, "manifests");
    while (json_array_size(array) < CHECKPOINT_LISTS_MAX + 2)
        assert_int_equal(json_array_append(array, json_array_get(array, 1)), 0);
    cleanup_free char *text = json_doc_dump(index);
    assert_true(decode(INDEX, text, strlen(text), &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    cleanup_json json_t *packs = sound(PACKS);
    array = json_object_get(packs, "layers");
    while (json_array_size(array) < CHECKPOINT_LIST_PACKS + 1)
        assert_int_equal(json_array_append(array, json_array_get(array, 1)), 0);
    cleanup_free char *many = json_doc_dump(packs);
    err_clear(&err);
    assert_true(decode(PACKS, many, strlen(many), &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "1001"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes),
        cmocka_unit_test(the_index_document),
        cmocka_unit_test(roots),
        cmocka_unit_test(pack_lists),
        cmocka_unit_test(the_empty_config),
        cmocka_unit_test(what_cannot_be_written),
        cmocka_unit_test(bad_documents),
        cmocka_unit_test(cut_and_padded),
        cmocka_unit_test(more_members_and_repetitions),
        cmocka_unit_test(too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
