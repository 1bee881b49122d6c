#include "oci_image.h"

#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_docker_types_have_oci_names(void **state)
{
    (void)state;
    assert_string_equal(oci_media_to_oci(DOCKER_MEDIA_MANIFEST), OCI_MEDIA_MANIFEST);
    assert_string_equal(oci_media_to_oci(DOCKER_MEDIA_LIST), OCI_MEDIA_INDEX);
    assert_string_equal(oci_media_to_oci(DOCKER_MEDIA_CONFIG), OCI_MEDIA_CONFIG);
    assert_string_equal(oci_media_to_oci(DOCKER_MEDIA_LAYER), OCI_MEDIA_LAYER_GZIP);
    assert_string_equal(oci_media_to_oci("application/vnd.docker.image.rootfs.diff.tar"),
                        OCI_MEDIA_LAYER);
    assert_string_equal(oci_media_to_oci(OCI_MEDIA_LAYER_ZSTD), OCI_MEDIA_LAYER_ZSTD);
    assert_string_equal(oci_media_to_oci("text/plain"), "text/plain");
}

static void test_kinds(void **state)
{
    (void)state;
    assert_true(oci_media_is_index(OCI_MEDIA_INDEX));
    assert_true(oci_media_is_index(DOCKER_MEDIA_LIST));
    assert_false(oci_media_is_index(OCI_MEDIA_MANIFEST));
    assert_true(oci_media_is_manifest(OCI_MEDIA_MANIFEST));
    assert_true(oci_media_is_manifest(DOCKER_MEDIA_MANIFEST));
    assert_false(oci_media_is_manifest(DOCKER_MEDIA_LIST));
    assert_false(oci_media_is_manifest(""));
}

static void test_layers(void **state)
{
    (void)state;
    static const char *const good[] = {OCI_MEDIA_LAYER, OCI_MEDIA_LAYER_GZIP, OCI_MEDIA_LAYER_ZSTD,
                                       DOCKER_MEDIA_LAYER,
                                       "application/vnd.docker.image.rootfs.diff.tar.zstd"};
    static const char *const bad[] = {
        "",
        "application/vnd.oci.image.layer.v1.tar+xz",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
        OCI_MEDIA_CONFIG,
        OCI_MEDIA_LAYER " "};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(oci_media_is_layer(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(oci_media_is_layer(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_docker_types_have_oci_names),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
