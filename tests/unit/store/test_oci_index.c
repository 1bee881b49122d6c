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

/* One entry of an index; the digest is that of `name`, so that a choice can be told. */
static void add_entry(struct buf *buf, const char *name, const char *media_type, const char *rest)
{
    struct digest digest = store_digest(name);
    assert_int_equal(buf_addf(buf, NULL,
                              "%s{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":500%s}",
                              buf->data[buf->len - 1] == '[' ? "" : ",", media_type,
                              digest_format(&digest).s, rest),
                     0);
}

static void begin(struct buf *buf)
{
    assert_int_equal(buf_addf(buf, NULL, "{\"schemaVersion\":2,\"manifests\":["), 0);
}

/* ,"platform":{...} for an architecture; static. */
static const char *platform(const char *os, const char *architecture, const char *variant)
{
    static char text[200];
    snprintf(text, sizeof text, ",\"platform\":{\"os\":\"%s\",\"architecture\":\"%s\"%s%s%s}", os,
             architecture, variant ? ",\"variant\":\"" : "", variant ? variant : "",
             variant ? "\"" : "");
    return text;
}

static int select_from(struct buf *buf, struct oci_descriptor *ret, struct err *err)
{
    assert_int_equal(buf_addf(buf, NULL, "]}"), 0);
    return oci_index_select(buf_str(buf), buf->len, ret, err);
}

static void assert_selected(struct buf *buf, const char *name)
{
    struct err err = ERR_INIT;
    struct oci_descriptor descriptor;
    struct digest digest = store_digest(name);
    assert_ok(select_from(buf, &descriptor, &err), err);
    assert_string_equal(digest_format(&descriptor.digest).s, digest_format(&digest).s);
    assert_int_equal(descriptor.size, 500);
    oci_descriptor_free(&descriptor);
}

static void test_picks_this_machine(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(100000);
    begin(&buf);
    add_entry(&buf, "win", OCI_MEDIA_MANIFEST, platform("windows", oci_host_architecture(), NULL));
    add_entry(&buf, "mips", OCI_MEDIA_MANIFEST, platform("linux", "mips64le", NULL));
    add_entry(&buf, "own", OCI_MEDIA_MANIFEST, platform("linux", oci_host_architecture(), NULL));
    add_entry(&buf, "own2", OCI_MEDIA_MANIFEST, platform("linux", oci_host_architecture(), NULL));
    assert_selected(&buf, "own");
}

static void test_picks_from_a_docker_list(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(100000);
    assert_int_equal(buf_addf(&buf, NULL,
                              "{\"schemaVersion\":2,\"mediaType\":\"%s\",\"manifests\":[",
                              DOCKER_MEDIA_LIST),
                     0);
    add_entry(&buf, "mips", DOCKER_MEDIA_MANIFEST, platform("linux", "mips64le", NULL));
    add_entry(&buf, "own", DOCKER_MEDIA_MANIFEST, platform("linux", oci_host_architecture(), NULL));
    assert_selected(&buf, "own");
}

static void test_prefers_the_baseline_variant(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(100000);
    begin(&buf);
    add_entry(&buf, "v99", OCI_MEDIA_MANIFEST, platform("linux", oci_host_architecture(), "v99"));
    add_entry(&buf, "v98", OCI_MEDIA_MANIFEST, platform("linux", oci_host_architecture(), "v98"));
    add_entry(&buf, "plain", OCI_MEDIA_MANIFEST, platform("linux", oci_host_architecture(), NULL));
    assert_selected(&buf, "plain");
    buf_free(&buf);
    begin(&buf);
    add_entry(&buf, "v99", OCI_MEDIA_MANIFEST, platform("linux", oci_host_architecture(), "v99"));
    add_entry(&buf, "v98", OCI_MEDIA_MANIFEST, platform("linux", oci_host_architecture(), "v98"));
    assert_selected(&buf, "v98");
}

static void test_skips_attestations(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(100000);
    begin(&buf);
    add_entry(&buf, "sbom", OCI_MEDIA_MANIFEST, platform("unknown", "unknown", NULL));
    add_entry(&buf, "proof", OCI_MEDIA_MANIFEST,
              ",\"annotations\":{\"vnd.docker.reference.type\":\"attestation-manifest\"}");
    add_entry(&buf, "image", OCI_MEDIA_MANIFEST, "");
    add_entry(&buf, "art", "application/vnd.oci.artifact.manifest.v1+json", "");
    assert_selected(&buf, "image");
}

static void test_takes_a_single_entry_without_a_platform(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(100000);
    begin(&buf);
    add_entry(&buf, "only", OCI_MEDIA_MANIFEST,
              ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"x\"}");
    assert_selected(&buf, "only");
    buf_free(&buf);
    begin(&buf);
    add_entry(&buf, "nested", OCI_MEDIA_INDEX, ",\"platform\":null");
    assert_selected(&buf, "nested");
}

static void test_no_match_names_what_there_is(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct oci_descriptor descriptor;
    cleanup_buf struct buf buf = BUF_INIT(1000000);
    begin(&buf);
    add_entry(&buf, "mips", OCI_MEDIA_MANIFEST, platform("linux", "mips64le", "v2"));
    add_entry(&buf, "win", OCI_MEDIA_MANIFEST, platform("windows", "amd64", NULL));
    add_entry(&buf, "sbom", OCI_MEDIA_MANIFEST, platform("unknown", "unknown", NULL));
    add_entry(&buf, "bare", OCI_MEDIA_MANIFEST, "");
    assert_fails(select_from(&buf, &descriptor, &err), err, ERR_NOT_FOUND,
                 "it has linux/mips64le/v2, windows/amd64, one without a platform");
    buf_free(&buf);
    begin(&buf);
    add_entry(&buf, "mips", OCI_MEDIA_MANIFEST, platform("linux", "mips64le", NULL));
    assert_fails(select_from(&buf, &descriptor, &err), err, ERR_NOT_FOUND, "it has linux/mips64le");
    buf_free(&buf);
    begin(&buf);
    assert_fails(select_from(&buf, &descriptor, &err), err, ERR_NOT_FOUND, "no image at all");
    buf_free(&buf);
    begin(&buf);
    for (int i = 0; i < 1000; i++)
        add_entry(&buf, "mips", OCI_MEDIA_MANIFEST, platform("linux", "mips64le", NULL));
    assert_fails(select_from(&buf, &descriptor, &err), err, ERR_NOT_FOUND, "linux/mips64le, linux");
}

static void test_refuses(void **state)
{
    (void)state;
    static const char thing[] = "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"a/b\","
                                "\"digest\":\"sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa742"
                                "5e73043362938b9824\",\"size\":";
    static const struct {
        const char *text;
        enum err_code code;
        const char *part;
    } cases[] = {
        {"{\"schemaVersion\":2,\"layers\":[]}", ERR_DAMAGED, "not an index"},
        {"{\"schemaVersion\":2,\"manifests\":{}}", ERR_DAMAGED, "not an array"},
        {"{\"schemaVersion\":2,\"manifests\":[7]}", ERR_DAMAGED, "entry 0 of the index"},
        {"{\"schemaVersion\":2,\"manifests\":[{}]}", ERR_DAMAGED, "lacks 'mediaType'"},
        {"{\"schemaVersion\":2,\"layers\":[],\"manifests\":[]}", ERR_DAMAGED, "at once"},
        {"{\"schemaVersion\":1}", ERR_UNSUPPORTED, "schema 1"},
        {"{\"schemaVersion\":2,\"mediaType\":\"" OCI_MEDIA_MANIFEST "\",\"manifests\":[]}",
         ERR_DAMAGED, "has 'manifests'"},
        {"@1,\"platform\":[]}]}", ERR_DAMAGED, "'platform' in entry 0"},
        {"@1,\"platform\":{\"os\":7}}]}", ERR_DAMAGED, "'os' in entry 0"},
        {"@1,\"platform\":{\"architecture\":{}}}]}", ERR_DAMAGED, "'architecture' in entry 0"},
        {"@1,\"platform\":{\"variant\":8}}]}", ERR_DAMAGED, "'variant' in entry 0"},
        {"@-1}]}", ERR_DAMAGED, "negative"},
        {"@4194305}]}", ERR_TOO_LARGE, "more than the limit"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct oci_descriptor descriptor;
        cleanup_buf struct buf buf = BUF_INIT(10000);
        const char *text = cases[i].text;
        assert_int_equal(
            buf_addf(&buf, NULL, "%s%s", *text == '@' ? thing : "", *text == '@' ? text + 1 : text),
            0);
        assert_fails(oci_index_select(buf_str(&buf), buf.len, &descriptor, &err), err,
                     cases[i].code, cases[i].part);
    }
}

/* What says nothing has to be looked into: its place in the index is told. */
static void test_nested_indexes(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(10000);
    struct err err = ERR_INIT;
    begin(&buf);
    add_entry(&buf, "arm", OCI_MEDIA_MANIFEST, platform("linux", "arm64", NULL));
    add_entry(&buf, "one", OCI_MEDIA_INDEX, "");
    add_entry(&buf, "placed", OCI_MEDIA_INDEX, platform("linux", "arm64", NULL));
    add_entry(&buf, "bare", OCI_MEDIA_MANIFEST, "");
    add_entry(&buf, "two", OCI_MEDIA_INDEX, "");
    assert_int_equal(buf_addf(&buf, NULL, "]}"), 0);
    static const char *const names[] = {"one", "two"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct oci_descriptor entry;
        struct digest digest = store_digest(names[i]);
        assert_int_equal(oci_index_nested(buf_str(&buf), buf.len, i, &entry, &err), 1);
        assert_true(digest_equal(&entry.digest, &digest));
        oci_descriptor_free(&entry);
    }
    struct oci_descriptor entry;
    assert_int_equal(oci_index_nested(buf_str(&buf), buf.len, 2, &entry, &err), 0);
    int rc = oci_index_nested("[]", 2, 0, &entry, &err);
    assert_fails(rc, err, ERR_DAMAGED, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picks_this_machine),
        cmocka_unit_test(test_picks_from_a_docker_list),
        cmocka_unit_test(test_prefers_the_baseline_variant),
        cmocka_unit_test(test_skips_attestations),
        cmocka_unit_test(test_takes_a_single_entry_without_a_platform),
        cmocka_unit_test(test_no_match_names_what_there_is),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_nested_indexes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
