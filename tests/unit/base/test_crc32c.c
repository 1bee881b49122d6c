#include "crc32c.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_crc(const void *bytes, size_t len, uint32_t wanted)
{
    assert_int_equal(crc32c(bytes, len), wanted);
    assert_int_equal(~crc32c_update_table(UINT32_MAX, bytes, len), wanted);
}

/* RFC 3720, B.4, and the check value of the catalogues. */
static void test_known_values(void **state)
{
    (void)state;
    uint8_t bytes[32];
    assert_crc("123456789", 9, 0xE3069283);
    assert_crc("", 0, 0);
    memset(bytes, 0, sizeof bytes);
    assert_crc(bytes, sizeof bytes, 0x8A9136AA);
    memset(bytes, 0xFF, sizeof bytes);
    assert_crc(bytes, sizeof bytes, 0x62A8AB43);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    assert_crc(bytes, sizeof bytes, 0x46DD794E);
}

static void test_parts_and_alignment(void **state)
{
    (void)state;
    uint8_t bytes[300];
    srand(7);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rand();
    for (size_t from = 0; from < 16; from++) {
        for (size_t len = 0; len < 200; len++) {
            uint32_t whole = crc32c_update_table(UINT32_MAX, bytes + from, len);
            assert_int_equal(crc32c_update(UINT32_MAX, bytes + from, len), whole);
            size_t cut = len / 3;
            uint32_t crc = crc32c_update(UINT32_MAX, bytes + from, cut);
            assert_int_equal(crc32c_update(crc, bytes + from + cut, len - cut), whole);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_parts_and_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
