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
    /* No baseline of any architecture is as high as v20. */
    const char *own = oci_host_architecture();
    int fit = oci_host_fit("linux", own, NULL);
    assert_true(oci_host_fit("linux", own, "v20") < fit);
    assert_true(oci_host_fit("linux", own, "v30") < oci_host_fit("linux", own, "v20"));
    assert_true(oci_host_fit("linux", own, "v9.2") < oci_host_fit("linux", own, "v30"));
    assert_true(oci_host_fit("linux", own, "garbage") > 0);
    assert_true(oci_host_fit("linux", own, "v99999999999999999999") > 0);
}

static void test_spellings_and_baselines(void **state)
{
    (void)state;
    static const struct {
        const char *spelling;
        const char *name;
        const char *baseline;
    } cases[] = {{"x86_64", "amd64", "v1"}, {"aarch64", "arm64", "v8"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int fit = oci_host_fit("linux", cases[i].name, NULL);
        assert_int_equal(fit > 0, strcmp(cases[i].name, oci_host_architecture()) == 0);
        assert_int_equal(oci_host_fit("linux", cases[i].spelling, NULL), fit);
        assert_int_equal(oci_host_fit("linux", cases[i].spelling, cases[i].baseline), fit);
        assert_int_equal(oci_host_fit("linux", cases[i].name, cases[i].baseline), fit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_architecture),
        cmocka_unit_test(test_others_do_not_fit),
        cmocka_unit_test(test_variants_are_ordered),
        cmocka_unit_test(test_spellings_and_baselines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
