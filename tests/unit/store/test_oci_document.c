#include "oci_image.h"

#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HEX   "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
#define THING "{\"mediaType\":\"a/b\",\"digest\":\"sha256:" HEX "\",\"size\":1}"

static int load(const char *text, const char *media_type, json_t **ret, const char **ret_type,
                struct err *err)
{
    return oci_document_load(text, strlen(text), media_type, ret, ret_type, err);
}

static void test_decides_the_media_type(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *announced;
        const char *type;
    } cases[] = {
        {"{\"schemaVersion\":2,\"layers\":[]}", NULL, OCI_MEDIA_MANIFEST},
        {"{\"schemaVersion\":2,\"manifests\":[]}", NULL, OCI_MEDIA_INDEX},
        {"{\"schemaVersion\":2,\"layers\":[]}", DOCKER_MEDIA_MANIFEST, DOCKER_MEDIA_MANIFEST},
        {"{\"schemaVersion\":2,\"manifests\":[]}", DOCKER_MEDIA_LIST, DOCKER_MEDIA_LIST},
        {"{\"schemaVersion\":2,\"mediaType\":\"" DOCKER_MEDIA_MANIFEST "\"}", NULL,
         DOCKER_MEDIA_MANIFEST},
        {"{\"schemaVersion\":2,\"mediaType\":\"" OCI_MEDIA_INDEX "\",\"manifests\":[]}",
         OCI_MEDIA_INDEX, OCI_MEDIA_INDEX},
        {"{\"schemaVersion\":2,\"mediaType\":null,\"layers\":[],\"manifests\":null}", NULL,
         OCI_MEDIA_MANIFEST},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        cleanup_json json_t *document = NULL;
        const char *type = NULL;
        assert_ok(load(cases[i].text, cases[i].announced, &document, &type, &err), err);
        assert_string_equal(type, cases[i].type);
        assert_true(json_is_object(document));
    }
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *announced;
        enum err_code code;
        const char *part;
    } cases[] = {
        {"", NULL, ERR_DAMAGED, "not valid JSON"},
        {"[]", NULL, ERR_DAMAGED, "not a JSON object"},
        {"{\"schemaVersion\":2,\"layers\":[]", NULL, ERR_DAMAGED, "not valid JSON"},
        {"{\"schemaVersion\":2,\"layers\":[]}x", NULL, ERR_DAMAGED, "not valid JSON"},
        {"{\"schemaVersion\":2,\"schemaVersion\":2}", NULL, ERR_DAMAGED, "duplicate"},
        {"{\"layers\":[]}", NULL, ERR_DAMAGED, "lacks 'schemaVersion'"},
        {"{\"schemaVersion\":\"2\"}", NULL, ERR_DAMAGED, "not a whole number"},
        {"{\"schemaVersion\":99999999999999999999}", NULL, ERR_DAMAGED, "not valid JSON"},
        {"{\"schemaVersion\":3}", NULL, ERR_UNSUPPORTED, "schema version 3"},
        {"{\"schemaVersion\":1,\"fsLayers\":[]}", NULL, ERR_UNSUPPORTED, "schema 1"},
        {"{}", "application/vnd.docker.distribution.manifest.v1+prettyjws", ERR_UNSUPPORTED,
         "schema 1"},
        {"{\"schemaVersion\":2,\"layers\":[],\"manifests\":[]}", NULL, ERR_DAMAGED,
         "an image and an index at once"},
        {"{\"schemaVersion\":2,\"config\":{},\"manifests\":[]}", NULL, ERR_DAMAGED,
         "an image and an index at once"},
        {"{\"schemaVersion\":2,\"mediaType\":\"" OCI_MEDIA_MANIFEST "\"}", DOCKER_MEDIA_MANIFEST,
         ERR_DAMAGED, "was announced as"},
        {"{\"schemaVersion\":2,\"mediaType\":7}", NULL, ERR_DAMAGED, "not a string"},
        {"{\"schemaVersion\":2,\"manifests\":[]}", OCI_MEDIA_MANIFEST, ERR_DAMAGED,
         "has 'manifests'"},
        {"{\"schemaVersion\":2,\"layers\":[]}", OCI_MEDIA_INDEX, ERR_DAMAGED, "lacks 'manifests'"},
        {"{\"schemaVersion\":2,\"layers\":[]}", "text/html", ERR_UNSUPPORTED, "'text/html'"},
        {"{\"schemaVersion\":2,\"mediaType\":\"application/json\"}", NULL, ERR_UNSUPPORTED,
         "neither an image manifest nor an image index"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        json_t *document = NULL;
        const char *type;
        assert_fails(load(cases[i].text, cases[i].announced, &document, &type, &err), err,
                     cases[i].code, cases[i].part);
        assert_null(document);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    json_t *document;
    const char *type;
    size_t len = JSON_DOC_BYTES_MAX + 1;
    cleanup_free char *text = malloc(len + 1);
    memset(text, '[', len);
    text[len] = '\0';
    assert_fails(load(text, NULL, &document, &type, &err), err, ERR_TOO_LARGE, "more than the");
    text[1000] = '\0';
    assert_fails(load(text, NULL, &document, &type, &err), err, ERR_DAMAGED, "nested deeper");
}

static int references(const char *text, struct oci_descriptor **ret, size_t *ret_count,
                      struct err *err)
{
    cleanup_json json_t *document = json_loads(text, 0, NULL);
    assert_non_null(document);
    return oci_document_references(document, ret, ret_count, err);
}

static void test_references(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t count;
    } cases[] = {
        {"{}", 0},
        {"{\"config\":null,\"layers\":null}", 0},
        {"{\"config\":" THING ",\"layers\":[" THING "," THING "]}", 3},
        {"{\"manifests\":[" THING "," THING "]}", 2},
        {"{\"config\":" THING ",\"layers\":[],\"subject\":" THING "}", 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct oci_descriptor *list;
        size_t count = 99;
        assert_ok(references(cases[i].text, &list, &count, &err), err);
        assert_int_equal(count, cases[i].count);
        for (size_t k = 0; k < count; k++)
            assert_string_equal(digest_hex(&list[k].digest).s, HEX);
        oci_descriptor_free_all(list, count);
    }
}

static void test_bad_references(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"{\"config\":7}", "the config's descriptor is not a JSON object"},
        {"{\"layers\":{}}", "'layers' in the manifest is not an array"},
        {"{\"config\":" THING ",\"layers\":5}", "'layers' in the manifest is not an array"},
        {"{\"layers\":[" THING "],\"manifests\":\"x\"}", "'manifests' in the manifest is not an"},
        {"{\"config\":" THING ",\"layers\":[" THING ",7]}", "entry 1 of 'layers'"},
        {"{\"manifests\":[{}]}", "entry 0 of 'manifests' in the manifest lacks"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct oci_descriptor *list;
        size_t count;
        assert_fails(references(cases[i].text, &list, &count, &err), err, ERR_DAMAGED,
                     cases[i].part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decides_the_media_type),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_bad_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
