#include "base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* RFC 4648, section 10. */
static const char *const vectors[][3] = {{"", "", ""},
                                         {"f", "Zg==", "Zg"},
                                         {"fo", "Zm8=", "Zm8"},
                                         {"foo", "Zm9v", "Zm9v"},
                                         {"foob", "Zm9vYg==", "Zm9vYg"},
                                         {"fooba", "Zm9vYmE=", "Zm9vYmE"},
                                         {"foobar", "Zm9vYmFy", "Zm9vYmFy"}};

static void texts_of_the_standard(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(vectors); i++)
        for (int padded = 0; padded < 2; padded++) {
            const char *text = vectors[i][padded ? 1 : 2];
            cleanup_buf struct buf encoded = BUF_INIT(100);
            cleanup_buf struct buf decoded = BUF_INIT(100);
            assert_int_equal(
                base64_encode(vectors[i][0], strlen(vectors[i][0]), padded, &encoded, NULL), 0);
            assert_string_equal(buf_str(&encoded), text);
            assert_int_equal(base64_decode(text, strlen(text), &decoded, NULL), 0);
            assert_string_equal(buf_str(&decoded), vectors[i][0]);
        }
}

static void every_byte_survives(void **state)
{
    (void)state;
    unsigned char bytes[256];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    cleanup_buf struct buf encoded = BUF_INIT(1000);
    cleanup_buf struct buf decoded = BUF_INIT(1000);
    assert_int_equal(base64_encode(bytes, sizeof bytes, true, &encoded, NULL), 0);
    assert_int_equal(base64_decode(encoded.data, encoded.len, &decoded, NULL), 0);
    assert_int_equal(decoded.len, sizeof bytes);
    assert_memory_equal(decoded.data, bytes, sizeof bytes);
}

static void what_is_none_is_refused_without_being_shown(void **state)
{
    (void)state;
    static const char *const bad[] = {"Zg=",   "Z",    "Zg==Zg==", "Zm9v\n",    "Zm-_",
                                      "=",     "====", "Zm=v",     "Zh==",      "Zm9=",
                                      "Zm 9v", "Z===", "Zm9vYg=",  "\xc3\xa4Zm"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = ERR_INIT;
        cleanup_buf struct buf decoded = BUF_INIT(100);
        if (base64_decode(bad[i], strlen(bad[i]), &decoded, &err) == 0)
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_null(strstr(err.text, bad[i]));
    }
}

static void the_buffer_bounds_it(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_buf struct buf small = BUF_INIT(3);
    assert_int_equal(base64_decode("Zm9v", 4, &small, NULL), 0);
    assert_true(base64_decode("Zg==", 4, &small, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_the_standard),
        cmocka_unit_test(every_byte_survives),
        cmocka_unit_test(what_is_none_is_refused_without_being_shown),
        cmocka_unit_test(the_buffer_bounds_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
