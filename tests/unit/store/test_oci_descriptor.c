#include "oci_image.h"

#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HEX "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

static int parse(const char *text, struct oci_descriptor *ret, struct err *err)
{
    cleanup_json json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    return oci_descriptor_parse(json, "the thing", 1000, ret, err);
}

static void test_reads_and_writes(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct oci_descriptor descriptor;
    assert_ok(parse("{\"mediaType\":\"application/vnd.x.y+json\",\"digest\":\"sha256:" HEX
                    "\",\"size\":1000,\"annotations\":{\"a\":\"b\"}}",
                    &descriptor, &err),
              err);
    assert_string_equal(descriptor.media_type, "application/vnd.x.y+json");
    assert_string_equal(digest_hex(&descriptor.digest).s, HEX);
    assert_int_equal(descriptor.size, 1000);
    cleanup_json json_t *json = oci_descriptor_json(&descriptor);
    cleanup_free char *text = json_doc_dump(json);
    assert_string_equal(text, "{\"digest\":\"sha256:" HEX
                              "\",\"mediaType\":\"application/vnd.x.y+json\",\"size\":1000}");
    oci_descriptor_free(&descriptor);
    oci_descriptor_free(&descriptor);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code code;
        const char *part;
    } cases[] = {
        {"[]", ERR_DAMAGED, "not a JSON object"},
        {"7", ERR_DAMAGED, "not a JSON object"},
        {"{}", ERR_DAMAGED, "the thing lacks 'mediaType'"},
        {"{\"mediaType\":\"a/b\",\"size\":1}", ERR_DAMAGED, "lacks 'digest'"},
        {"{\"mediaType\":\"a/b\",\"digest\":\"sha256:" HEX "\"}", ERR_DAMAGED, "lacks 'size'"},
        {"{\"mediaType\":1,\"digest\":\"sha256:" HEX "\",\"size\":1}", ERR_DAMAGED,
         "'mediaType' in the thing is not a string"},
        {"{\"mediaType\":\"a/b\",\"digest\":\"sha256:" HEX "\",\"size\":\"1\"}", ERR_DAMAGED,
         "not a whole number"},
        {"{\"mediaType\":\"a/b\",\"digest\":\"sha256:" HEX "\",\"size\":1.5}", ERR_DAMAGED,
         "not a whole number"},
        {"{\"mediaType\":\"a/b\",\"digest\":\"sha256:" HEX "\",\"size\":-1}", ERR_DAMAGED,
         "negative"},
        {"{\"mediaType\":\"a/b\",\"digest\":\"sha256:" HEX "\",\"size\":1001}", ERR_TOO_LARGE,
         "has 1001 bytes, more than the limit of 1000"},
        {"{\"mediaType\":\"a/b\",\"digest\":\"sha256:abc\",\"size\":1}", ERR_DAMAGED, "64 digits"},
        {"{\"mediaType\":\"a/b\",\"digest\":\"md5:abc\",\"size\":1}", ERR_DAMAGED, "the thing"},
        {"{\"mediaType\":\"a/b\",\"digest\":\"sha512:abc\",\"size\":1}", ERR_UNSUPPORTED,
         "not sha256"},
        {"{\"mediaType\":\"a/b\\r\\nX: y\",\"digest\":\"sha256:" HEX "\",\"size\":1}", ERR_DAMAGED,
         "not a media type"},
        {"{\"mediaType\":\"ab\",\"digest\":\"sha256:" HEX "\",\"size\":1}", ERR_DAMAGED,
         "not a media type"},
        {"{\"mediaType\":\"a/\",\"digest\":\"sha256:" HEX "\",\"size\":1}", ERR_DAMAGED,
         "not a media type"},
        {"{\"mediaType\":\"\",\"digest\":\"sha256:" HEX "\",\"size\":1}", ERR_DAMAGED,
         "not a media type"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct oci_descriptor descriptor;
        assert_fails(parse(cases[i].text, &descriptor, &err), err, cases[i].code, cases[i].part);
    }
}

static void test_refuses_a_long_media_type(void **state)
{
    (void)state;
    char type[300];
    memset(type, 'a', sizeof type);
    type[1] = '/';
    type[256] = '\0';
    cleanup_json json_t *json =
        json_pack("{s:s, s:s, s:i}", "mediaType", type, "digest", "sha256:" HEX, "size", 1);
    struct err err = ERR_INIT;
    struct oci_descriptor descriptor;
    assert_fails(oci_descriptor_parse(json, "x", 10, &descriptor, &err), err, ERR_DAMAGED,
                 "not a media type");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_and_writes),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_refuses_a_long_media_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
