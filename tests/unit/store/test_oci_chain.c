#include "oci_image.h"

#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_chain_of_three(void **state)
{
    (void)state;
    /* The rule of config.md computed by hand: printf 'sha256:.. sha256:..' | sha256sum. */
    struct digest diff_ids[3] = {store_digest("a"), store_digest("b"), store_digest("c")};
    struct digest chain[3];
    struct err err = ERR_INIT;
    assert_ok(oci_chain_ids(diff_ids, 3, chain, &err), err);
    assert_true(digest_equal(&chain[0], &diff_ids[0]));
    assert_string_equal(digest_hex(&chain[1]).s,
                        "51c0c8ace48498d6f5fee6b0592cc06f2da0f3cbe09c5a34a97dce85c3889676");
    assert_string_equal(digest_hex(&chain[2]).s,
                        "2fce7f8ce91bcf0a1428b36e1024639fdbd9469eea762dba98aa749631885106");
}

static void test_no_layers(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_ok(oci_chain_ids(NULL, 0, NULL, &err), err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_of_three),
        cmocka_unit_test(test_no_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
