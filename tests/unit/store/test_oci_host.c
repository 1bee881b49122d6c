#include "oci_image.h"

#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_own_architecture(void **state)
{
    (void)state;
    const char *own = oci_host_architecture();
    assert_true(strlen(own) > 0);
    assert_true(oci_host_fit("linux", own, NULL) > 0);
    assert_int_equal(oci_host_fit("linux", own, ""), oci_host_fit("linux", own, NULL));
}

static void test_others_do_not_fit(void **state)
{
    (void)state;
    assert_int_equal(oci_host_fit("windows", oci_host_architecture(), NULL), 0);
    assert_int_equal(oci_host_fit("", "", ""), 0);
    assert_int_equal(oci_host_fit("linux", "unknown", NULL), 0);
    assert_int_equal(oci_host_fit("linux", "mips64le", NULL), 0);
}

static void test_variants_are_ordered(void **state)
{
    (void)state;
    const char *own = oci_host_architecture();
    const char *spelling = strcmp(own, "amd64") == 0 ? "x86_64" : "aarch64";
    if (strcmp(own, "amd64") != 0 && strcmp(own, "arm64") != 0)
        return; /* the order below is that of these two; others have no variants */
    const char *base = strcmp(own, "amd64") == 0 ? "v1" : "v8";
    const char *above = strcmp(own, "amd64") == 0 ? "v2" : "v9";
    const char *far_above = strcmp(own, "amd64") == 0 ? "v3" : "v9.2";
    int fit = oci_host_fit("linux", own, NULL);
    assert_int_equal(oci_host_fit("linux", own, base), fit);
    assert_int_equal(oci_host_fit("linux", spelling, base), fit);
    assert_true(oci_host_fit("linux", own, above) < fit);
    assert_true(oci_host_fit("linux", own, far_above) < oci_host_fit("linux", own, above));
    assert_true(oci_host_fit("linux", own, "garbage") > 0);
    assert_true(oci_host_fit("linux", own, "v99999999999999999999") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_architecture),
        cmocka_unit_test(test_others_do_not_fit),
        cmocka_unit_test(test_variants_are_ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
