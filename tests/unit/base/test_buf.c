#include "buf.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_empty_is_an_empty_string(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(8);
    assert_string_equal(buf_str(&buf), "");
    cleanup_free char *text = buf_steal(&buf);
    assert_string_equal(text, "");
}

static void test_maximum_holds_at_max_and_max_plus_one(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(8);
    struct err err = ERR_INIT;
    assert_int_equal(buf_add(&buf, "12345678", 8, "a manifest", &err), 0);
    assert_int_equal(buf_add(&buf, "9", 1, "a manifest", &err), -EFBIG);
    assert_string_equal(err.text, "a manifest is larger than the limit of 8 bytes");
    assert_string_equal(buf_str(&buf), "12345678");
}

static void test_length_that_would_wrap_is_refused(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(SIZE_MAX - 16);
    struct err err = ERR_INIT;
    assert_int_equal(buf_add(&buf, "abc", 3, "x", &err), 0);
    assert_int_equal(buf_add(&buf, "abc", SIZE_MAX - 2, "x", &err), -EFBIG);
}

static void test_grows_and_formats(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(1 << 20);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(buf_addf(&buf, NULL, "%05d", i), 0);
    assert_int_equal(buf.len, 50000);
    assert_memory_equal(buf.data + 5 * 1234, "01234", 5);
    assert_int_equal(strlen(buf.data), 50000);
}

static void test_steal_leaves_an_empty_buffer(void **state)
{
    (void)state;
    cleanup_buf struct buf buf = BUF_INIT(16);
    assert_int_equal(buf_add(&buf, "a\0b", 3, "x", NULL), 0);
    cleanup_free char *bytes = buf_steal(&buf);
    assert_memory_equal(bytes, "a\0b", 4);
    assert_int_equal(buf.len, 0);
    assert_int_equal(buf_add(&buf, "again", 5, "x", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_is_an_empty_string),
        cmocka_unit_test(test_maximum_holds_at_max_and_max_plus_one),
        cmocka_unit_test(test_length_that_would_wrap_is_refused),
        cmocka_unit_test(test_grows_and_formats),
        cmocka_unit_test(test_steal_leaves_an_empty_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
