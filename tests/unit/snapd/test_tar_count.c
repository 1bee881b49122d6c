#include "tar_count.h"

#include "cleanup.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void add(struct buf *tar, const void *bytes, size_t len)
{
    assert_int_equal(buf_add(tar, bytes, len, "tar", NULL), 0);
}

static void add_zeros(struct buf *tar, size_t len)
{
    static const char zeros[1 << 17];
    add(tar, zeros, len);
}

static void seal(char *header)
{
    memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
}

/* A header made by hand; returns where it lies in the buffer. */
static char *add_header(struct buf *tar, const char *name, char type, const char *size)
{
    char header[512] = "";
    memcpy(header, name, strlen(name));
    memcpy(header + 100, "0000644", 8);
    memcpy(header + 124, size, strlen(size));
    header[156] = type;
    if (type == '1' || type == '2')
        memcpy(header + 157, "target", 6);
    memcpy(header + 257, "ustar\00000", 8);
    seal(header);
    add(tar, header, sizeof header);
    return tar->data + tar->len - 512;
}

static void add_pax(struct buf *tar, const char *records, size_t len)
{
    char size[16];
    snprintf(size, sizeof size, "%011zo", len);
    add_header(tar, "././@PaxHeader", 'x', size);
    add(tar, records, len);
    add_zeros(tar, (512 - len % 512) % 512);
}

static void add_file(struct buf *tar, const char *name, size_t len)
{
    char size[16];
    snprintf(size, sizeof size, "%011zo", len);
    add_header(tar, name, '0', size);
    add_zeros(tar, (len + 511) / 512 * 512);
}

/* Feeds in pieces of `step` bytes and finishes. */
static int count(const struct buf *tar, size_t step, uint64_t *ret_entries, uint64_t *ret_bytes,
                 struct err *err)
{
    struct tar_count counter;
    tar_count_init(&counter);
    int rc = 0;
    for (size_t at = 0; at < tar->len && rc == 0; at += step) {
        size_t n = tar->len - at < step ? tar->len - at : step;
        rc = tar_count_feed(&counter, tar->data + at, n, err);
    }
    if (rc == 0)
        rc = tar_count_finish(&counter, err);
    *ret_entries = counter.entries;
    *ret_bytes = counter.bytes;
    tar_count_free(&counter);
    return rc;
}

static void is_damaged(const struct buf *tar, const char *text)
{
    uint64_t entries;
    uint64_t bytes;
    struct err err = ERR_INIT;
    assert_true(count(tar, tar->len ? tar->len : 1, &entries, &bytes, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in: %s", text, err.text);
}

#define TAR_BUF(name) cleanup_buf struct buf name = BUF_INIT(16 << 20)

static void fill(struct buf *tar)
{
    static const char records[] = "19 path=long/name/\n13 mtime=1.5\n";
    add_header(tar, "./", '5', "00000000000");
    add_file(tar, "a", 0);
    add_file(tar, "b", 1);
    add_file(tar, "c", 512);
    add_file(tar, "d", 513);
    add_header(tar, "l", '2', "00000000000");
    add_header(tar, "h", '1', "00000000000");
    add_pax(tar, records, strlen(records));
    add_header(tar, "short", '5', "00000000000");
    add_file(tar, "e", 100000);
    add_zeros(tar, 1024);
}

static void test_counts_however_it_is_cut(void **state)
{
    (void)state;
    TAR_BUF(tar);
    fill(&tar);
    static const size_t steps[] = {1, 7, 511, 512, 513, 4096, 1 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        uint64_t entries;
        uint64_t bytes;
        assert_int_equal(count(&tar, steps[i], &entries, &bytes, NULL), 0);
        assert_int_equal(entries, 9);
        assert_int_equal(bytes, 1 + 512 + 513 + 100000);
    }
}

static void test_every_early_end_is_found(void **state)
{
    (void)state;
    TAR_BUF(tar);
    add_file(&tar, "a", 700);
    add_pax(&tar, "10 path=x\n", 10);
    add_file(&tar, "b", 1);
    add_zeros(&tar, 1024);
    for (size_t len = 0; len < tar.len; len++) {
        struct buf cut = tar;
        cut.len = len;
        uint64_t entries;
        uint64_t bytes;
        assert_true(count(&cut, cut.len + 1, &entries, &bytes, NULL) < 0);
    }
}

static void test_every_changed_header_byte_is_found(void **state)
{
    (void)state;
    TAR_BUF(tar);
    add_file(&tar, "a", 3);
    add_zeros(&tar, 1024);
    for (size_t at = 0; at < 512; at++) {
        /* Spaces and NUL bytes end a number alike. */
        if (at == 154 || at == 155)
            continue;
        char good = tar.data[at];
        tar.data[at] ^= 1;
        is_damaged(&tar, "near byte");
        tar.data[at] = good;
    }
}

static void test_large_sizes(void **state)
{
    (void)state;
    struct tar_count counter;
    TAR_BUF(tar);
    static const unsigned char nine_gib[12] = {0x80, 0, 0, 0, 0, 0, 0, 2, 0x40, 0, 0, 0};
    char *header = add_header(&tar, "big", '0', "");
    memcpy(header + 124, nine_gib, sizeof nine_gib);
    seal(header);
    tar_count_init(&counter);
    assert_int_equal(tar_count_feed(&counter, tar.data, tar.len, NULL), 0);
    assert_int_equal(counter.bytes, UINT64_C(9) << 30);
    tar_count_free(&counter);
    tar.len = 0;
    add_pax(&tar, "19 size=9663676416\n", 19);
    add_header(&tar, "big", '0', "00000000000");
    tar_count_init(&counter);
    assert_int_equal(tar_count_feed(&counter, tar.data, tar.len, NULL), 0);
    assert_int_equal(counter.bytes, UINT64_C(9) << 30);
    assert_true(tar_count_finish(&counter, NULL) < 0);
    tar_count_free(&counter);
}

static void test_impossible_sizes(void **state)
{
    (void)state;
    static const char *const sizes[] = {"99999999999", "", "-1", "0000000000x", " 10"};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        TAR_BUF(tar);
        add_header(&tar, "a", '0', sizes[i]);
        add_zeros(&tar, 1024);
        is_damaged(&tar, "malformed");
    }
    TAR_BUF(tar);
    char *header = add_header(&tar, "a", '0', "");
    memset(header + 124, 0xFF, 12);
    header[124] = (char)0x80;
    seal(header);
    is_damaged(&tar, "malformed");
    tar.len = 0;
    add_pax(&tar, "28 size=9223372036854775807\n", 28);
    add_header(&tar, "a", '0', "00000000000");
    add_pax(&tar, "28 size=9223372036854775807\n", 28);
    is_damaged(&tar, "ends early");
}

static void test_malformed_records(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
    } records[] = {
        {"11 path=x\n", 10},  {"10 path=xx", 10},    {"10 =pathx\n", 10},
        {"10 pathxx\n", 10},  {"path=x\n", 7},       {"0 path=x\n", 9},
        {" 10 path=x\n", 11}, {"12 size=abc\n", 12}, {"9 size=\n", 8},
        {"10 size=-1\n", 11}, {"-5 path=x\n", 10},   {"99999999999999999999999 path=x\n", 31},
    };
    for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
        TAR_BUF(tar);
        add_pax(&tar, records[i].text, records[i].len);
        add_file(&tar, "a", 0);
        add_zeros(&tar, 1024);
        is_damaged(&tar, "record");
    }
}

static void test_records_without_entry(void **state)
{
    (void)state;
    TAR_BUF(tar);
    add_pax(&tar, "10 path=x\n", 10);
    add_zeros(&tar, 1024);
    is_damaged(&tar, "no entry");
    tar.len = 0;
    add_pax(&tar, "10 path=x\n", 10);
    add_pax(&tar, "10 path=y\n", 10);
    is_damaged(&tar, "follow pax records");
    tar.len = 0;
    add_header(&tar, "p", 'x', "00010000000");
    is_damaged(&tar, "impossible size");
    tar.len = 0;
    add_header(&tar, "p", 'x', "00000000000");
    is_damaged(&tar, "impossible size");
}

static void test_bad_paths(void **state)
{
    (void)state;
    static const char *const paths[] = {"", "/a", "a/../b", "..", "a//b", "../a"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        TAR_BUF(tar);
        add_file(&tar, paths[i], 0);
        is_damaged(&tar, "a path is");
    }
    TAR_BUF(tar);
    add_pax(&tar, "11 path=/x\n", 11);
    add_file(&tar, "a", 0);
    is_damaged(&tar, "a path is");
    tar.len = 0;
    add_pax(&tar, "12 path=a\0b\n", 12);
    add_file(&tar, "a", 0);
    is_damaged(&tar, "a path is");
    tar.len = 0;
    add_file(&tar, "a..b", 0);
    add_file(&tar, "..a", 0);
    add_file(&tar, "...", 0);
    add_zeros(&tar, 1024);
    uint64_t entries;
    uint64_t bytes;
    assert_int_equal(count(&tar, 512, &entries, &bytes, NULL), 0);
}

static void test_types_and_content(void **state)
{
    (void)state;
    TAR_BUF(tar);
    add_header(&tar, "d/", '5', "00000000001");
    is_damaged(&tar, "has content");
    tar.len = 0;
    add_header(&tar, "d", '5', "00000000000");
    is_damaged(&tar, "do not fit");
    tar.len = 0;
    add_file(&tar, "f/", 0);
    is_damaged(&tar, "do not fit");
    tar.len = 0;
    add_header(&tar, "g", 'g', "00000000000");
    is_damaged(&tar, "type");
    tar.len = 0;
    add_header(&tar, "g", 'L', "00000000000");
    is_damaged(&tar, "type");
    tar.len = 0;
    char *header = add_header(&tar, "l", '2', "00000000000");
    memset(header + 157, 0, 100);
    seal(header);
    is_damaged(&tar, "no target");
}

static void test_nothing_follows_the_end(void **state)
{
    (void)state;
    TAR_BUF(tar);
    add_file(&tar, "a", 0);
    add_zeros(&tar, 1024);
    add_zeros(&tar, 1);
    is_damaged(&tar, "follows the end");
    tar.len = 0;
    add_zeros(&tar, 512);
    add_file(&tar, "a", 0);
    is_damaged(&tar, "follows a block of zeros");
}

static void test_empty_archive(void **state)
{
    (void)state;
    TAR_BUF(tar);
    is_damaged(&tar, "ends early");
    add_zeros(&tar, 1024);
    uint64_t entries;
    uint64_t bytes;
    assert_int_equal(count(&tar, 1, &entries, &bytes, NULL), 0);
    assert_int_equal(entries, 0);
    assert_int_equal(bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_however_it_is_cut),
        cmocka_unit_test(test_every_early_end_is_found),
        cmocka_unit_test(test_every_changed_header_byte_is_found),
        cmocka_unit_test(test_large_sizes),
        cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_malformed_records),
        cmocka_unit_test(test_records_without_entry),
        cmocka_unit_test(test_bad_paths),
        cmocka_unit_test(test_types_and_content),
        cmocka_unit_test(test_nothing_follows_the_end),
        cmocka_unit_test(test_empty_archive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
