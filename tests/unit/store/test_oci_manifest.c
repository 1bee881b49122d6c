#include "oci_image.h"

#include "buf.h"
#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HEX_A "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" /* of "a" */
#define HEX_B "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d" /* of "b" */

#define CONFIG(type) "{\"mediaType\":\"" type "\",\"digest\":\"sha256:" HEX_A "\",\"size\":7}"
#define LAYER(type)  "{\"mediaType\":\"" type "\",\"digest\":\"sha256:" HEX_B "\",\"size\":9}"
#define IMAGE(layers)                                                                              \
    "{\"schemaVersion\":2,\"config\":" CONFIG(OCI_MEDIA_CONFIG) ",\"layers\":[" layers "]}"

static int parse(const char *text, const char *media_type, struct oci_manifest *ret,
                 struct err *err)
{
    return oci_manifest_parse(text, strlen(text), media_type, ret, err);
}

static void test_reads_an_oci_manifest(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_oci_manifest struct oci_manifest manifest = {.media_type = NULL};
    assert_ok(parse(IMAGE(LAYER(OCI_MEDIA_LAYER_ZSTD) "," LAYER(OCI_MEDIA_LAYER)),
                    OCI_MEDIA_MANIFEST, &manifest, &err),
              err);
    assert_string_equal(manifest.media_type, OCI_MEDIA_MANIFEST);
    assert_string_equal(manifest.config.media_type, OCI_MEDIA_CONFIG);
    assert_string_equal(digest_hex(&manifest.config.digest).s, HEX_A);
    assert_int_equal(manifest.config.size, 7);
    assert_int_equal(manifest.layer_count, 2);
    assert_string_equal(manifest.layers[0].media_type, OCI_MEDIA_LAYER_ZSTD);
    assert_string_equal(manifest.layers[1].media_type, OCI_MEDIA_LAYER);
    assert_string_equal(digest_hex(&manifest.layers[1].digest).s, HEX_B);
    assert_int_equal(manifest.layers[1].size, 9);
}

static void test_reads_a_docker_manifest(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_oci_manifest struct oci_manifest manifest = {.media_type = NULL};
    assert_ok(parse("{\"schemaVersion\":2,\"mediaType\":\"" DOCKER_MEDIA_MANIFEST
                    "\",\"config\":" CONFIG(DOCKER_MEDIA_CONFIG) ",\"layers\":[" LAYER(
                        DOCKER_MEDIA_LAYER) "]}",
                    NULL, &manifest, &err),
              err);
    assert_string_equal(manifest.media_type, DOCKER_MEDIA_MANIFEST);
    assert_int_equal(manifest.layer_count, 1);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code code;
        const char *part;
    } cases[] = {
        {"{\"schemaVersion\":1,\"fsLayers\":[]}", ERR_UNSUPPORTED, "schema 1"},
        {"{\"schemaVersion\":2,\"manifests\":[]}", ERR_UNSUPPORTED, "an index of images"},
        {"{\"schemaVersion\":2,\"manifests\":[],\"layers\":[]}", ERR_DAMAGED, "at once"},
        {"{\"schemaVersion\":2,\"layers\":[" LAYER(OCI_MEDIA_LAYER) "]}", ERR_DAMAGED,
         "lacks 'config'"},
        {"{\"schemaVersion\":2,\"config\":" CONFIG(OCI_MEDIA_CONFIG) "}", ERR_DAMAGED,
         "lacks 'layers'"},
        {"{\"schemaVersion\":2,\"config\":[],\"layers\":[]}", ERR_DAMAGED, "'config'"},
        {"{\"schemaVersion\":2,\"config\":" CONFIG(OCI_MEDIA_CONFIG) ",\"layers\":{}}", ERR_DAMAGED,
         "'layers' in the manifest is not an array"},
        {IMAGE(""), ERR_UNSUPPORTED, "no layers"},
        {IMAGE("7"), ERR_DAMAGED, "layer 0 is not a JSON object"},
        {IMAGE(LAYER(OCI_MEDIA_LAYER) ",{}"), ERR_DAMAGED, "layer 1 lacks"},
        {"{\"schemaVersion\":2,\"artifactType\":\"application/vnd.sbom\",\"config\":" CONFIG(
             "application/vnd.oci.empty.v1+json") ",\"layers\":[" LAYER(OCI_MEDIA_LAYER) "]}",
         ERR_UNSUPPORTED, "not an image but an artifact of type 'application/vnd.sbom'"},
        {"{\"schemaVersion\":2,\"config\":" CONFIG(
             "application/vnd.cncf.helm.config.v1+json") ",\"layers\":[" LAYER(OCI_MEDIA_LAYER) "]"
                                                                                                "}",
         ERR_UNSUPPORTED, "not an image but an artifact of type 'application/vnd.cncf.helm"},
        {IMAGE(LAYER("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip")),
         ERR_UNSUPPORTED, "layer 0 is a foreign layer"},
        {IMAGE(LAYER("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")), ERR_UNSUPPORTED,
         "layer 0 is a foreign layer"},
        {IMAGE(LAYER("application/vnd.oci.image.layer.v1.tar+gzip+encrypted")), ERR_UNSUPPORTED,
         "layer 0 is encrypted"},
        {IMAGE(LAYER("application/x-tar")), ERR_UNSUPPORTED, "unknown media type"},
        {IMAGE("{\"mediaType\":\"" OCI_MEDIA_LAYER "\",\"digest\":\"sha256:" HEX_B
               "\",\"size\":-9}"),
         ERR_DAMAGED, "negative"},
        {IMAGE("{\"mediaType\":\"" OCI_MEDIA_LAYER "\",\"digest\":\"sha256:" HEX_B
               "\",\"size\":1099511627777}"),
         ERR_TOO_LARGE, "layer 0 has 1099511627777 bytes"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct oci_manifest manifest;
        assert_fails(parse(cases[i].text, NULL, &manifest, &err), err, cases[i].code,
                     cases[i].part);
    }
}

static void test_media_type_must_agree(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct oci_manifest manifest;
    assert_fails(parse(IMAGE(LAYER(OCI_MEDIA_LAYER)), OCI_MEDIA_INDEX, &manifest, &err), err,
                 ERR_DAMAGED, "lacks 'manifests'");
    assert_fails(parse("{\"schemaVersion\":2,\"mediaType\":\"" OCI_MEDIA_MANIFEST
                       "\",\"layers\":[]}",
                       DOCKER_MEDIA_MANIFEST, &manifest, &err),
                 err, ERR_DAMAGED, "was announced as");
}

/* A manifest with `count` layers; caller frees. */
static char *manifest_with(size_t count)
{
    struct buf buf = BUF_INIT(1 << 20);
    assert_int_equal(buf_addf(&buf, NULL, "{\"schemaVersion\":2,\"config\":%s,\"layers\":[",
                              CONFIG(OCI_MEDIA_CONFIG)),
                     0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(
            buf_addf(&buf, NULL, "%s%s", i > 0 ? "," : "", LAYER(OCI_MEDIA_LAYER_GZIP)), 0);
    assert_int_equal(buf_addf(&buf, NULL, "]}"), 0);
    return buf_steal(&buf);
}

static void test_number_of_layers_is_bounded(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct oci_manifest manifest;
    cleanup_free char *most = manifest_with(OCI_LAYERS_MAX);
    assert_ok(parse(most, NULL, &manifest, &err), err);
    assert_int_equal(manifest.layer_count, OCI_LAYERS_MAX);
    oci_manifest_free(&manifest);
    cleanup_free char *more = manifest_with(OCI_LAYERS_MAX + 1);
    assert_fails(parse(more, NULL, &manifest, &err), err, ERR_TOO_LARGE, "has 128 layers");
}

static void test_config_size_is_bounded(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct oci_manifest manifest;
    assert_fails(parse("{\"schemaVersion\":2,\"config\":{\"mediaType\":\"" OCI_MEDIA_CONFIG
                       "\",\"digest\":\"sha256:" HEX_A "\",\"size\":4194305},\"layers\":[]}",
                       NULL, &manifest, &err),
                 err, ERR_TOO_LARGE, "the image config has 4194305 bytes");
}

static void test_makes_a_manifest(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char docker_config[] = DOCKER_MEDIA_CONFIG;
    char docker_layer[] = DOCKER_MEDIA_LAYER;
    char zstd_layer[] = OCI_MEDIA_LAYER_ZSTD;
    struct oci_descriptor config = {docker_config, store_digest("a"), 7};
    struct oci_descriptor layers[2] = {{docker_layer, store_digest("b"), 9},
                                       {zstd_layer, store_digest("b"), 10}};
    cleanup_json json_t *annotations = json_pack("{s:s, s:s}", "b", "2", "a", "1");
    cleanup_free char *text = NULL;
    assert_ok(oci_manifest_new(&config, layers, 2, annotations, &text, &err), err);
    assert_string_equal(
        text,
        "{\"annotations\":{\"a\":\"1\",\"b\":\"2\"},\"config\":{\"digest\":\"sha256:" HEX_A
        "\",\"mediaType\":\"" OCI_MEDIA_CONFIG
        "\",\"size\":7},\"layers\":[{\"digest\":\"sha256:" HEX_B
        "\",\"mediaType\":\"" OCI_MEDIA_LAYER_GZIP "\",\"size\":9},{\"digest\":\"sha256:" HEX_B
        "\",\"mediaType\":\"" OCI_MEDIA_LAYER_ZSTD
        "\",\"size\":10}],\"mediaType\":\"" OCI_MEDIA_MANIFEST "\",\"schemaVersion\":2}");
    cleanup_oci_manifest struct oci_manifest manifest = {.media_type = NULL};
    assert_ok(parse(text, OCI_MEDIA_MANIFEST, &manifest, &err), err);
    assert_int_equal(manifest.layer_count, 2);
}

static void test_makes_no_bad_manifest(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char config_type[] = OCI_MEDIA_CONFIG;
    struct oci_descriptor config = {config_type, store_digest("a"), 7};
    struct oci_descriptor *layers = calloc(OCI_LAYERS_MAX + 1, sizeof *layers);
    cleanup_json json_t *annotations = json_pack("{s:i}", "a", 1);
    char *text = NULL;
    assert_fails(oci_manifest_new(&config, layers, OCI_LAYERS_MAX + 1, NULL, &text, &err), err,
                 ERR_TOO_LARGE, "would have 128 layers");
    assert_fails(oci_manifest_new(&config, layers, 0, annotations, &text, &err), err, ERR_INTERNAL,
                 "annotation 'a'");
    assert_null(text);
    free(layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_an_oci_manifest),
        cmocka_unit_test(test_reads_a_docker_manifest),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_media_type_must_agree),
        cmocka_unit_test(test_number_of_layers_is_bounded),
        cmocka_unit_test(test_config_size_is_bounded),
        cmocka_unit_test(test_makes_a_manifest),
        cmocka_unit_test(test_makes_no_bad_manifest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
