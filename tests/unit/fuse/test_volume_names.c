/* IDs, UUIDs and sizes of volumes: what is one, and what only looks so. */
#include "volume_names.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void ids(void **state)
{
    (void)state;
    assert_true(volume_names_is_id("0123456789ab"));
    assert_true(volume_names_is_id("cdefcdefcdef"));
    static const char *const wrong[] = {"",
                                        "0123456789a",
                                        "0123456789abc",
                                        "0123456789aB",
                                        "0123456789ag",
                                        "0123456789a ",
                                        "../456789abc"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(volume_names_is_id(wrong[i]));
}

static void uuids(void **state)
{
    (void)state;
    static const uint8_t uuid[VOLUME_UUID_LEN] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                                  0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
    static const char text[] = "01234567-89ab-cdef-fedc-ba9876543210";
    uint8_t parsed[VOLUME_UUID_LEN] = {0};
    assert_string_equal(volume_names_uuid(uuid).s, text);
    assert_true(volume_names_parse_uuid(text, parsed));
    assert_memory_equal(parsed, uuid, sizeof uuid);
    static const char *const wrong[] = {"",
                                        "0123456789abcdeffedcba9876543210",
                                        "01234567-89ab-cdef-fedc-ba987654321",
                                        "01234567-89ab-cdef-fedc-ba98765432100",
                                        "01234567-89AB-cdef-fedc-ba9876543210",
                                        "0123456-789ab-cdef-fedc-ba9876543210",
                                        "01234567-89ab-cdef-fedc-ba987654321x",
                                        "01234567-89ab-cdef-fedc-ba9876543210-"};
    memset(parsed, 0x5a, sizeof parsed);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(volume_names_parse_uuid(wrong[i], parsed));
    for (size_t i = 0; i < sizeof parsed; i++)
        assert_int_equal(parsed[i], 0x5a);
}

static void sizes(void **state)
{
    (void)state;
    assert_true(volume_is_size(VOLUME_SIZE_MIN));
    assert_true(volume_is_size(VOLUME_SIZE_MIN + VOLUME_SIZE_UNIT));
    assert_true(volume_is_size(VOLUME_SIZE_MAX));
    static const uint64_t wrong[] = {0, VOLUME_SIZE_MIN - VOLUME_SIZE_UNIT, VOLUME_SIZE_MIN + 1,
                                     VOLUME_SIZE_MAX + VOLUME_SIZE_UNIT, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(volume_is_size(wrong[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids),
        cmocka_unit_test(uuids),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
