#include "oci_image.h"

#include "buf.h"
#include "sample_image.h"
#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HEX_A       "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" /* of "a" */
#define HEX_B       "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d" /* of "b" */
#define ROOTFS(ids) "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[" ids "]}"

static int parse(const char *text, size_t layers, struct oci_config *ret, struct err *err)
{
    return oci_config_parse(text, strlen(text), layers, ret, err);
}

static void test_reads_a_config(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_oci_config struct oci_config config = {.architecture = NULL};
    assert_ok(parse("{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{\"Env\":[\"A=1\","
                    "\"EMPTY=\",\"B=x=y\"],\"WorkingDir\":\"/srv\",\"User\":\"1000:1000\"}," ROOTFS(
                        "\"sha256:" HEX_A "\",\"sha256:" HEX_B "\"") "}",
                    2, &config, &err),
              err);
    assert_string_equal(config.architecture, "amd64");
    assert_string_equal(config.os, "linux");
    assert_string_equal(config.working_dir, "/srv");
    assert_string_equal(config.user, "1000:1000");
    assert_int_equal(config.env_count, 3);
    assert_string_equal(config.env[0], "A=1");
    assert_string_equal(config.env[1], "EMPTY=");
    assert_string_equal(config.env[2], "B=x=y");
    assert_int_equal(config.diff_id_count, 2);
    assert_string_equal(digest_hex(&config.diff_ids[0]).s, HEX_A);
    assert_string_equal(digest_hex(&config.diff_ids[1]).s, HEX_B);
}

static void test_what_is_not_set_is_null(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{" ROOTFS("\"sha256:" HEX_A "\"") "}",
        "{\"architecture\":\"\",\"os\":\"\",\"config\":{\"Env\":[],\"WorkingDir\":\"\","
        "\"User\":\"\"}," ROOTFS("\"sha256:" HEX_A "\"") "}",
        "{\"architecture\":null,\"config\":null," ROOTFS("\"sha256:" HEX_A "\"") "}",
        "{\"config\":{\"Env\":null,\"User\":null},\"rootfs\":{\"diff_ids\":[\"sha256:" HEX_A
        "\"]}}",
        "{\"config\":{\"Env\":[\"NOTHING\",\"=x\",\"\"]}," ROOTFS("\"sha256:" HEX_A "\"") "}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct err err = ERR_INIT;
        cleanup_oci_config struct oci_config config = {.architecture = NULL};
        assert_ok(parse(texts[i], 1, &config, &err), err);
        assert_null(config.architecture);
        assert_null(config.os);
        assert_null(config.working_dir);
        assert_null(config.user);
        assert_int_equal(config.env_count, 0);
    }
}

static void test_reads_commands(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_oci_config struct oci_config config = {.architecture = NULL};
    assert_ok(parse("{\"config\":{\"Entrypoint\":[\"/init\",\"\"],\"Cmd\":\"sh\"}," ROOTFS(
                        "\"sha256:" HEX_A "\"") "}",
                    1, &config, &err),
              err);
    assert_int_equal(config.entrypoint_count, 2);
    assert_string_equal(config.entrypoint[0], "/init");
    assert_string_equal(config.entrypoint[1], "");
    assert_int_equal(config.cmd_count, 1);
    assert_string_equal(config.cmd[0], "sh");
    cleanup_oci_config struct oci_config none = {.architecture = NULL};
    assert_ok(
        parse("{\"config\":{\"Entrypoint\":null,\"Cmd\":[]}," ROOTFS("\"sha256:" HEX_A "\"") "}", 1,
              &none, &err),
        err);
    assert_int_equal(none.entrypoint_count, 0);
    assert_int_equal(none.cmd_count, 0);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code code;
        const char *part;
    } cases[] = {
        {"", ERR_DAMAGED, "not valid JSON"},
        {"[]", ERR_DAMAGED, "not a JSON object"},
        {"{\"os\":\"linux\",\"os\":\"linux\"}", ERR_DAMAGED, "duplicate"},
        {"{}", ERR_DAMAGED, "lacks 'rootfs'"},
        {"{\"rootfs\":{}}", ERR_DAMAGED, "lacks 'diff_ids'"},
        {"{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":\"x\"}}", ERR_DAMAGED, "not an array"},
        {"{\"rootfs\":{\"type\":\"btrfs\",\"diff_ids\":[]}}", ERR_UNSUPPORTED, "'btrfs'"},
        {"{" ROOTFS("") "}", ERR_DAMAGED, "has 0 diff IDs, but the manifest has 1 layers"},
        {"{" ROOTFS("\"sha256:" HEX_A "\",\"sha256:" HEX_B "\"") "}", ERR_DAMAGED,
         "has 2 diff IDs, but the manifest has 1 layers"},
        {"{" ROOTFS("7") "}", ERR_DAMAGED, "diff ID 0 in the image config is not a string"},
        {"{" ROOTFS("\"sha256:x\"") "}", ERR_DAMAGED, "diff ID 0"},
        {"{" ROOTFS("\"sha512:x\"") "}", ERR_UNSUPPORTED, "diff ID 0"},
        {"{\"os\":\"windows\"," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_UNSUPPORTED, "'windows'"},
        {"{\"os\":7," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED, "'os'"},
        {"{\"architecture\":{}," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED, "'architecture'"},
        {"{\"config\":[]," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED, "'config'"},
        {"{\"config\":{\"Env\":{}}," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED, "'Env'"},
        {"{\"config\":{\"Env\":[\"A=1\",2]}," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED,
         "line 1 of 'Env'"},
        {"{\"config\":{\"Env\":[\"A=\\u0000\"]}," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED,
         "not valid JSON"},
        {"{\"config\":{\"WorkingDir\":7}," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED,
         "'WorkingDir'"},
        {"{\"config\":{\"Entrypoint\":{}}," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED,
         "'Entrypoint' in the image config is not an array"},
        {"{\"config\":{\"Cmd\":[\"a\",7]}," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED,
         "word 1 of 'Cmd'"},
        {"{\"config\":{\"User\":0}," ROOTFS("\"sha256:" HEX_A "\"") "}", ERR_DAMAGED, "'User'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct oci_config config;
        assert_fails(parse(cases[i].text, 1, &config, &err), err, cases[i].code, cases[i].part);
    }
}

/* A config with `count` diff IDs; caller frees. */
static char *config_with(size_t count)
{
    struct buf buf = BUF_INIT(1 << 20);
    assert_int_equal(buf_addf(&buf, NULL, "{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":["), 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(buf_addf(&buf, NULL, "%s\"sha256:%s\"", i > 0 ? "," : "", HEX_A), 0);
    assert_int_equal(buf_addf(&buf, NULL, "]}}"), 0);
    return buf_steal(&buf);
}

static struct oci_new_layer new_layer(void)
{
    return (struct oci_new_layer){.digest = store_digest("blob"),
                                  .size = 12,
                                  .media_type = OCI_MEDIA_LAYER_ZSTD,
                                  .diff_id = store_digest("b"),
                                  .created_by = "varve snapshot"};
}

static void test_number_of_layers_is_bounded(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct oci_config config;
    struct oci_new_layer layer = new_layer();
    char *text = NULL;
    cleanup_free char *more = config_with(OCI_LAYERS_MAX + 1);
    assert_fails(parse(more, OCI_LAYERS_MAX + 1, &config, &err), err, ERR_TOO_LARGE,
                 "has 128 diff IDs");
    cleanup_free char *most = config_with(OCI_LAYERS_MAX);
    assert_ok(parse(most, OCI_LAYERS_MAX, &config, &err), err);
    oci_config_free(&config);
    assert_fails(oci_config_append(most, strlen(most), &layer, NULL, &text, &err), err,
                 ERR_TOO_LARGE, "has 127 layers already");
    assert_null(text);
}

static void test_new_config(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct oci_new_layer layer = new_layer();
    cleanup_free char *text = NULL;
    assert_ok(oci_config_new("arm64", &layer, &text, &err), err);
    assert_string_equal(text, "{\"architecture\":\"arm64\",\"config\":{},\"history\":[{\"created_"
                              "by\":\"varve snapshot\"}],\"os\":\"linux\",\"rootfs\":{"
                              "\"diff_ids\":[\"sha256:" HEX_B "\"],\"type\":\"layers\"}}");
    cleanup_oci_config struct oci_config config = {.architecture = NULL};
    assert_ok(parse(text, 1, &config, &err), err);
    assert_string_equal(config.architecture, "arm64");
}

static void test_append_keeps_everything_else(void **state)
{
    (void)state;
    static const char base[] =
        "{\"created\":\"2020-01-02T03:04:05Z\",\"author\":\"me\",\"architecture\":\"amd64\","
        "\"os\":\"linux\",\"variant\":\"v1\",\"config\":{\"Env\":[\"A=1\"],\"Labels\":{\"x\":"
        "\"\\u00e9\"},\"Strange\":[1,null,true,{\"deep\":{}}]},\"docker_version\":\"20.10\","
        "\"x.unknown\":{\"n\":9007199254740993},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":["
        "\"sha256:" HEX_A "\"],\"more\":1},\"history\":[{\"created\":\"2020-01-02T03:04:05Z\","
        "\"created_by\":\"sh\"},{\"empty_layer\":true}]}";
    struct err err = ERR_INIT;
    struct oci_new_layer layer = new_layer();
    cleanup_free char *text = NULL;
    cleanup_free char *again = NULL;
    assert_ok(oci_config_append(base, strlen(base), &layer, "before upgrade", &text, &err), err);
    assert_ok(oci_config_append(base, strlen(base), &layer, "before upgrade", &again, &err), err);
    assert_string_equal(text, again);
    cleanup_json json_t *have = json_loads(text, 0, NULL);
    cleanup_json json_t *wanted = json_loads(base, 0, NULL);
    json_array_append_new(json_object_get(json_object_get(wanted, "rootfs"), "diff_ids"),
                          json_string("sha256:" HEX_B));
    json_array_append_new(
        json_object_get(wanted, "history"),
        json_pack("{s:s, s:s}", "created_by", "varve snapshot", "comment", "before upgrade"));
    assert_true(json_equal(have, wanted));
}

static void test_append_counts_history_lines(void **state)
{
    (void)state;
    static const char *const bases[] = {
        "{" ROOTFS("\"sha256:" HEX_A "\",\"sha256:" HEX_A "\"") "}",
        "{\"history\":null," ROOTFS("\"sha256:" HEX_A "\",\"sha256:" HEX_A "\"") "}",
        "{\"history\":[]," ROOTFS("\"sha256:" HEX_A "\",\"sha256:" HEX_A "\"") "}"};
    struct oci_new_layer layer = new_layer();
    for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
        struct err err = ERR_INIT;
        cleanup_free char *text = NULL;
        assert_ok(oci_config_append(bases[i], strlen(bases[i]), &layer, NULL, &text, &err), err);
        assert_non_null(strstr(text, "\"history\":[{},{},{\"created_by\":\"varve snapshot\"}]"));
        assert_null(strstr(text, "\"created\""));
    }
}

static void test_append_refuses_a_bad_base(void **state)
{
    (void)state;
    static const char *const bases[] = {
        "",
        "[]",
        "{}",
        "{\"rootfs\":{\"diff_ids\":{}}}",
        "{\"history\":{}," ROOTFS("\"sha256:" HEX_A "\"") "}",
    };
    struct oci_new_layer layer = new_layer();
    for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
        struct err err = ERR_INIT;
        char *text = NULL;
        assert_fails(oci_config_append(bases[i], strlen(bases[i]), &layer, NULL, &text, &err), err,
                     ERR_DAMAGED, "the image config");
        assert_null(text);
    }
}

static void test_append_makes_nothing_that_is_too_large(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct oci_new_layer layer = new_layer();
    struct buf buf = BUF_INIT(JSON_DOC_BYTES_MAX);
    assert_int_equal(buf_addf(&buf, NULL, "{" ROOTFS("\"sha256:" HEX_A "\"") ",\"x\":\""), 0);
    while (buf.len < JSON_DOC_BYTES_MAX - 2)
        assert_int_equal(buf_add(&buf, "y", 1, "text", NULL), 0);
    assert_int_equal(buf_addf(&buf, NULL, "\"}"), 0);
    char *text = NULL;
    assert_fails(oci_config_append(buf_str(&buf), buf.len, &layer, NULL, &text, &err), err,
                 ERR_TOO_LARGE, "the image config would have");
    assert_null(text);
    buf_free(&buf);
}

/* Stores the image `base` with the layer of `top` on it and names it app:2. */
static void store_two_layers(struct store_fixture *fixture, const struct sample_image *base,
                             const struct sample_image *top)
{
    struct err err = ERR_INIT;
    cleanup_oci_manifest struct oci_manifest lower = {.media_type = NULL};
    cleanup_oci_manifest struct oci_manifest upper = {.media_type = NULL};
    assert_ok(oci_manifest_parse(base->bytes, base->len, NULL, &lower, &err), err);
    assert_ok(oci_manifest_parse(top->bytes, top->len, NULL, &upper, &err), err);
    struct oci_new_layer layer = {.digest = top->layer,
                                  .size = (int64_t)top->layer_size,
                                  .media_type = OCI_MEDIA_LAYER,
                                  .diff_id = top->layer,
                                  .created_by = "varve snapshot"};
    cleanup_buf struct buf config = BUF_INIT(JSON_DOC_BYTES_MAX);
    assert_ok(blobs_read(fixture->blobs, &base->config, &config, &err), err);
    cleanup_free char *text = NULL;
    assert_ok(oci_config_append(buf_str(&config), config.len, &layer, "note", &text, &err), err);
    lower.config.digest = store_put(fixture->blobs, text);
    lower.config.size = (int64_t)strlen(text);
    struct oci_descriptor layers[2] = {lower.layers[0], upper.layers[0]};
    cleanup_free char *manifest = NULL;
    assert_ok(oci_manifest_new(&lower.config, layers, 2, NULL, &manifest, &err), err);
    struct digest digest = store_put(fixture->blobs, manifest);
    struct digest_text digest_text = digest_format(&digest);
    char name[] = "app:2", type[] = OCI_MEDIA_MANIFEST;
    struct blobs_ref ref = {name, digest_text.s, type, (int64_t)strlen(manifest)};
    assert_ok(blobs_index_write(fixture->blobs, &ref, 1, &err), err);
}

static void test_stock_tools_take_an_appended_layer(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    cleanup_sample_image struct sample_image base = {.bytes = NULL};
    cleanup_sample_image struct sample_image top = {.bytes = NULL};
    sample_image_make(scratch, fixture->blobs, "one\n", &base);
    sample_image_make(scratch, fixture->blobs, "two\n", &top);
    store_two_layers(fixture, &base, &top);
    const char *source = store_text("oci:%s/l:app:2", scratch->path);
    cleanup_buf struct buf out = BUF_INIT(1 << 16);
    assert_tool(&out, "skopeo", "inspect", "--format", "{{len .Layers}}", source);
    assert_string_equal(buf_str(&out), "2\n");
    /* The conversion compares history and layers. */
    assert_tool(NULL, "skopeo", "copy", "-q", "--format", "v2s2", source,
                store_text("dir:%s/docker", scratch->path));
    assert_tool(NULL, "umoci", "unpack", "--image", store_text("%s/l:app:2", scratch->path),
                store_text("%s/bundle", scratch->path));
    assert_true(store_content_is(scratch, "bundle/rootfs/hello.txt", "two\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_a_config),
        cmocka_unit_test(test_what_is_not_set_is_null),
        cmocka_unit_test(test_reads_commands),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_number_of_layers_is_bounded),
        cmocka_unit_test(test_new_config),
        cmocka_unit_test(test_append_keeps_everything_else),
        cmocka_unit_test(test_append_counts_history_lines),
        cmocka_unit_test(test_append_refuses_a_bad_base),
        cmocka_unit_test(test_append_makes_nothing_that_is_too_large),
        with_store(test_stock_tools_take_an_appended_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
