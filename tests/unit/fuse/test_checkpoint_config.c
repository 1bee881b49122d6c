/* Configs of checkpoints: there and back, their HMAC, and what is no config. */
#include "checkpoint_config.h"

#include "cleanup.h"
#include "clock.h"
#include "json_doc.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CREATED (INT64_C(1795970336) * CLOCK_NS_PER_S)

static const struct hmac_key key = {.bytes = "0123456789abcdef", .len = 16};
static const struct hmac_key other_key = {.bytes = "0123456789abcdeg", .len = 16};
static uint32_t touched[] = {7, 3, 1023};

static struct checkpoint_config sample(void)
{
    struct checkpoint_config config = {.volume = "0123456789ab",
                                       .lineage = "abcdef012345",
                                       .uuid = {1, 2, 3, 4},
                                       .size = VOLUME_SIZE_MIN,
                                       .generation = 5,
                                       .has_parent = true,
                                       .token = 7,
                                       .node = "node-a",
                                       .created_ns = CREATED + 999,
                                       .touched = touched,
                                       .touched_count = ARRAY_SIZE(touched)};
    memset(config.parent.bytes, 0xaa, DIGEST_BYTES);
    memset(config.root.bytes, 0xbb, DIGEST_BYTES);
    return config;
}

static char *encode(const struct checkpoint_config *config, const struct hmac_key *with)
{
    struct err err = ERR_INIT;
    char *text = NULL;
    size_t len = 0;
    if (checkpoint_config_encode(config, with, &text, &len, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(strlen(text), len);
    return text;
}

static struct checkpoint_config decode(const char *text)
{
    struct err err = ERR_INIT;
    struct checkpoint_config config;
    if (checkpoint_config_decode(text, strlen(text), &config, &err) < 0)
        fail_msg("%s", err.text);
    return config;
}

#define AS "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define BS "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* As docs/FORMAT.md has it, compact and with sorted keys. */
static void the_document(void **state)
{
    (void)state;
    const struct checkpoint_config config = sample();
    cleanup_free char *text = encode(&config, NULL);
    assert_string_equal(
        text, "{\"created\":\"2026-11-29T16:38:56Z\",\"firstTouch\":[7,3,1023],\"format\":1,"
              "\"generation\":5,\"lineage\":\"abcdef012345\",\"node\":\"node-a\","
              "\"parent\":\"sha256:" AS "\",\"root\":\"sha256:" BS "\",\"size\":67108864,"
              "\"token\":7,\"uuid\":\"01020304-0000-0000-0000-000000000000\","
              "\"volume\":\"0123456789ab\"}");
}

static void there_and_back(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct checkpoint_config config = sample();
        config.has_parent = i & 1;
        config.touched_count = i & 2 ? ARRAY_SIZE(touched) : 0;
        config.generation = i ? INT64_MAX : 1;
        config.token = i ? INT64_MAX : 0;
        config.size = i ? VOLUME_SIZE_MAX : VOLUME_SIZE_MIN;
        cleanup_free char *text = encode(&config, i ? &key : NULL);
        cleanup_checkpoint_config struct checkpoint_config back = decode(text);
        assert_string_equal(back.volume, config.volume);
        assert_string_equal(back.lineage, config.lineage);
        assert_string_equal(back.node, config.node);
        assert_memory_equal(back.uuid, config.uuid, VOLUME_UUID_LEN);
        assert_int_equal(back.size, config.size);
        assert_int_equal(back.generation, config.generation);
        assert_int_equal(back.token, config.token);
        assert_int_equal(back.has_parent, config.has_parent);
        if (back.has_parent)
            assert_true(digest_equal(&back.parent, &config.parent));
        assert_true(digest_equal(&back.root, &config.root));
        assert_int_equal(back.created_ns, CREATED);
        assert_int_equal(back.touched_count, config.touched_count);
        if (back.touched_count > 0)
            assert_memory_equal(back.touched, touched, sizeof touched);
        assert_int_equal(back.is_signed, i > 0);
        cleanup_free char *again = encode(&back, i ? &key : NULL);
        assert_string_equal(again, text);
    }
}

static void as_many_touched_as_fit(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    static uint32_t many[CHECKPOINT_TOUCH_MAX + 1];
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = (uint32_t)(VOLUME_SIZE_MAX / VOLUME_CHUNK - 1 - i);
    struct checkpoint_config config = sample();
    config.size = VOLUME_SIZE_MAX;
    config.touched = many;
    config.touched_count = CHECKPOINT_TOUCH_MAX;
    cleanup_free char *text = encode(&config, &key);
    assert_true(strlen(text) < CHECKPOINT_CONFIG_BYTES_MAX);
    cleanup_checkpoint_config struct checkpoint_config back = decode(text);
    assert_memory_equal(back.touched, many, CHECKPOINT_TOUCH_MAX * sizeof *many);
    char *none = NULL;
    size_t len;
    config.touched_count++;
    assert_true(checkpoint_config_encode(&config, NULL, &none, &len, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_null(none);
}

static void assert_denied(const struct checkpoint_config *config, const struct hmac_key *with)
{
    struct err err = ERR_INIT;
    assert_true(checkpoint_config_verify(config, with, &err) < 0);
    assert_int_equal(err.code, ERR_DENIED);
}

/* Every member is below the HMAC. */
static void the_hmac(void **state)
{
    (void)state;
    const struct checkpoint_config config = sample();
    cleanup_free char *text = encode(&config, &key);
    cleanup_checkpoint_config struct checkpoint_config back = decode(text);
    assert_int_equal(checkpoint_config_verify(&back, &key, NULL), 0);
    assert_denied(&back, &other_key);
    cleanup_free char *plain = encode(&config, NULL);
    uint8_t hmac[HMAC_BYTES];
    assert_int_equal(hmac_sign(&key, plain, strlen(plain), hmac, NULL), 0);
    assert_memory_equal(hmac, back.hmac, HMAC_BYTES);
    struct checkpoint_config changed[13];
    for (size_t i = 0; i < ARRAY_SIZE(changed); i++)
        changed[i] = back;
    changed[0].volume[0] ^= 1;
    changed[1].lineage[0] ^= 1;
    changed[2].uuid[15] ^= 1;
    changed[3].size += VOLUME_SIZE_UNIT;
    changed[4].generation++;
    changed[5].has_parent = false;
    changed[6].parent.bytes[0] ^= 1;
    changed[7].token = 0;
    changed[8].node[0] ^= 1;
    changed[9].root.bytes[31] ^= 1;
    changed[10].created_ns += CLOCK_NS_PER_S;
    changed[11].touched_count--;
    changed[12].hmac[31] ^= 1;
    for (size_t i = 0; i < ARRAY_SIZE(changed); i++)
        assert_denied(&changed[i], &key);
    cleanup_checkpoint_config struct checkpoint_config unsigned_one = decode(plain);
    assert_denied(&unsigned_one, &key);
}

/* A sound document with one member changed; `value` NULL: without it. */
static char *with_member(const char *name, const char *value)
{
    const struct checkpoint_config config = sample();
    cleanup_free char *text = encode(&config, &key);
    cleanup_json json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    if (value)
        assert_int_equal(json_object_set_new(json, name, json_loads(value, JSON_DECODE_ANY, NULL)),
                         0);
    else
        assert_int_equal(json_object_del(json, name), 0);
    return json_doc_dump(json);
}

static void assert_refused(const char *text, size_t len, enum err_code code, const char *word)
{
    struct err err = ERR_INIT;
    struct checkpoint_config config = {.size = 42};
    assert_true(checkpoint_config_decode(text, len, &config, &err) < 0);
    if (err.code != code || !strstr(err.text, word))
        fail_msg("%s: %s (wanted %s, '%s')", err_code_name(err.code), err.text, err_code_name(code),
                 word);
    assert_int_equal(config.size, 42);
}

static void bad_members(void **state)
{
    (void)state;
    static const char *const members[] = {"created", "format", "generation", "lineage", "node",
                                          "root",    "size",   "token",      "uuid",    "volume"};
    static const char *const values[] = {"null", "{}", "[]", "1.5", "true", "-1", "\"\"", "\"x\""};
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        cleanup_free char *without = with_member(members[i], NULL);
        assert_refused(without, strlen(without), ERR_DAMAGED, members[i]);
        for (size_t j = 0; j < ARRAY_SIZE(values); j++) {
            if (strcmp(members[i], "node") == 0 && strcmp(values[j], "\"x\"") == 0)
                continue;
            cleanup_free char *text = with_member(members[i], values[j]);
            assert_refused(text, strlen(text), ERR_DAMAGED, members[i]);
        }
    }
}

static void bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *member;
        const char *value;
        enum err_code code;
        const char *word;
    } cases[] = {
        {"format", "2", ERR_TOO_NEW, "format 2"},
        {"format", "0", ERR_DAMAGED, "format"},
        {"more", "1", ERR_DAMAGED, "more"},
        {"parent", "null", ERR_DAMAGED, "parent"},
        {"parent", "\"sha256:12\"", ERR_DAMAGED, "parent"},
        {"parent", "5", ERR_DAMAGED, "parent"},
        {"root", "\"sha512:" AS AS "\"", ERR_DAMAGED, "root"},
        {"root", "\"" BS "\"", ERR_DAMAGED, "root"},
        {"size", "67108865", ERR_DAMAGED, "size"},
        {"size", "1099512676352", ERR_DAMAGED, "size"},
        {"size", "\"67108864\"", ERR_DAMAGED, "size"},
        {"generation", "0", ERR_DAMAGED, "generation"},
        {"generation", "9223372036854775808", ERR_DAMAGED, "JSON"},
        {"token", "\"1\"", ERR_DAMAGED, "token"},
        {"volume", "\"0123456789AB\"", ERR_DAMAGED, "volume"},
        {"volume", "\"0123456789abc\"", ERR_DAMAGED, "volume"},
        {"lineage", "\"../456789abc\"", ERR_DAMAGED, "lineage"},
        {"node", "\"a\\nb\"", ERR_DAMAGED, "node"},
        {"uuid", "\"01020304-0000-0000-0000-00000000000A\"", ERR_DAMAGED, "uuid"},
        {"created", "\"2026-11-29T16:38:56+01:00\"", ERR_DAMAGED, "created"},
        {"created", "\"2026-02-30T00:00:00Z\"", ERR_DAMAGED, "created"},
        {"hmac", "\"\"", ERR_DAMAGED, "hmac"},
        {"hmac", "\"" AS "a\"", ERR_DAMAGED, "hmac"},
        {"hmac", "\"" AS "\\u0000\"", ERR_DAMAGED, "JSON"},
        {"firstTouch", "[]", ERR_DAMAGED, "firstTouch"},
        {"firstTouch", "{}", ERR_DAMAGED, "firstTouch"},
        {"firstTouch", "[-1]", ERR_DAMAGED, "firstTouch"},
        {"firstTouch", "[\"1\"]", ERR_DAMAGED, "firstTouch"},
        {"firstTouch", "[1.0]", ERR_DAMAGED, "firstTouch"},
        {"firstTouch", "[1024]", ERR_DAMAGED, "firstTouch"}, /* the volume has 1,024 chunks */
        {"firstTouch", "[4294967296]", ERR_DAMAGED, "firstTouch"},
        {"firstTouch", "[4,5,4]", ERR_DAMAGED, "twice"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *value = cases[i].value;
        cleanup_free char *text = NULL;
        if (strcmp(cases[i].word, "JSON") == 0) /* what the writer of JSON cannot have */
            assert_true(asprintf(&text, "{\"%s\":%s}", cases[i].member, value) > 0);
        else
            text = with_member(cases[i].member, value);
        assert_refused(text, strlen(text), cases[i].code, cases[i].word);
    }
}

static void what_is_no_document(void **state)
{
    (void)state;
    const struct checkpoint_config config = sample();
    cleanup_free char *text = encode(&config, &key);
    size_t len = strlen(text);
    for (size_t cut = 0; cut < len; cut++)
        assert_refused(text, cut, ERR_DAMAGED, "config");
    assert_refused("[]", 2, ERR_DAMAGED, "config");
    static char large[CHECKPOINT_CONFIG_BYTES_MAX + 1];
    memset(large, ' ', sizeof large);
    memcpy(large, text, len);
    assert_refused(large, sizeof large, ERR_DAMAGED, "bytes");
    struct checkpoint_config back;
    assert_int_equal(checkpoint_config_decode(large, sizeof large - 1, &back, NULL), 0);
    checkpoint_config_free(&back);
}

static void what_cannot_be_written(void **state)
{
    (void)state;
    struct checkpoint_config wrong[9];
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        wrong[i] = sample();
    wrong[0].volume[0] = 'X';
    wrong[1].lineage[3] = '\0';
    wrong[2].size++;
    wrong[3].generation = 0;
    wrong[4].generation = (uint64_t)INT64_MAX + 1;
    wrong[5].token = UINT64_MAX;
    wrong[6].node[0] = '\0';
    wrong[7].created_ns = -1;
    wrong[8].node[0] = '\n';
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct err err = ERR_INIT;
        char *text = NULL;
        size_t len;
        assert_true(checkpoint_config_encode(&wrong[i], &key, &text, &len, &err) < 0);
        assert_int_equal(err.code, ERR_INTERNAL);
        assert_null(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_document),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(as_many_touched_as_fit),
        cmocka_unit_test(the_hmac),
        cmocka_unit_test(bad_members),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(what_is_no_document),
        cmocka_unit_test(what_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
