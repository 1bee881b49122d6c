#include "digest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* FIPS 180-2, example B.1 and the empty string. */
#define ABC   "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define EMPTY "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void test_known_digests(void **state)
{
    (void)state;
    struct digest digest;
    assert_int_equal(digest_bytes("abc", 3, &digest, NULL), 0);
    assert_string_equal(digest_format(&digest).s, ABC);
    assert_string_equal(digest_hex(&digest).s, ABC + 7);
    assert_int_equal(digest_bytes("", 0, &digest, NULL), 0);
    assert_string_equal(digest_format(&digest).s, EMPTY);
}

static void test_stream_equals_one_call(void **state)
{
    (void)state;
    cleanup_digest_stream struct digest_stream stream = {0};
    assert_int_equal(digest_stream_init(&stream, NULL), 0);
    assert_int_equal(digest_stream_update(&stream, "a", 1, NULL), 0);
    assert_int_equal(digest_stream_update(&stream, "", 0, NULL), 0);
    assert_int_equal(digest_stream_update(&stream, "bc", 2, NULL), 0);
    struct digest digest;
    assert_int_equal(digest_stream_finish(&stream, &digest, NULL), 0);
    assert_string_equal(digest_format(&digest).s, ABC);
}

static void test_parse_round_trip(void **state)
{
    (void)state;
    struct digest digest;
    struct digest again;
    assert_int_equal(digest_parse(ABC, &digest, NULL), 0);
    assert_string_equal(digest_format(&digest).s, ABC);
    assert_int_equal(digest_parse_hex(ABC + 7, &again, NULL), 0);
    assert_true(digest_equal(&digest, &again));
    again.bytes[31] ^= 1;
    assert_false(digest_equal(&digest, &again));
}

static void test_bad_texts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "sha256",
        "sha256:",
        "sha256:ba78",
        ABC "0",
        "SHA256:ba7816bf",
        "md5:abc",
        "sha256:BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "sha256:ga7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "sha256:../../../../../../../../../../../../../../../../../../etc/passwd"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct digest digest = {.bytes = {7}};
        struct err err = ERR_INIT;
        assert_int_equal(digest_parse(bad[i], &digest, &err), -EINVAL);
        assert_int_equal(err.code, ERR_INVALID);
        assert_int_equal(digest.bytes[0], 7);
    }
    struct digest digest;
    struct err err = ERR_INIT;
    assert_int_equal(digest_parse("sha512:00", &digest, &err), -EOPNOTSUPP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_digests),
        cmocka_unit_test(test_stream_equals_one_call),
        cmocka_unit_test(test_parse_round_trip),
        cmocka_unit_test(test_bad_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
