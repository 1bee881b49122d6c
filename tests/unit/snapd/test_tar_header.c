#include "tar_header.h"

#include "cleanup.h"
#include "digest.h"

#include <locale.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct made {
    struct buf bytes;
    struct buf scratch;
};

static int setup(void **state)
{
    struct made *made = calloc(1, sizeof *made);
    if (!made)
        return -1;
    made->bytes = (struct buf)BUF_INIT(8 << 20);
    made->scratch = (struct buf)BUF_INIT(TAR_PAX_MAX);
    *state = made;
    return 0;
}

static int teardown(void **state)
{
    struct made *made = *state;
    buf_free(&made->bytes);
    buf_free(&made->scratch);
    free(made);
    return 0;
}

static int make(struct made *made, const struct tar_entry *entry, struct err *err)
{
    made->bytes.len = 0;
    return tar_header_add(entry, &made->scratch, &made->bytes, err);
}

/* The header must be one block with this field. */
static void field_is(const struct made *made, size_t block, size_t at, const char *text)
{
    assert_memory_equal(made->bytes.data + block * TAR_BLOCK + at, text, strlen(text) + 1);
}

/* Whether the records hold this whole record. */
static bool has_record(const struct made *made, const void *record, size_t len)
{
    return memmem(made->bytes.data, made->bytes.len, record, len) != NULL;
}

static void record_is(const struct made *made, const char *record)
{
    assert_true(has_record(made, record, strlen(record)));
}

static void test_plain_file(void **state)
{
    struct made *made = *state;
    const struct tar_entry entry = {.path = "etc/passwd",
                                    .type = TAR_FILE,
                                    .mode = 0104755,
                                    .uid = 123,
                                    .gid = 456,
                                    .mtime = 1700000000,
                                    .size = 1234};
    assert_int_equal(make(made, &entry, NULL), 0);
    assert_int_equal(made->bytes.len, TAR_BLOCK);
    field_is(made, 0, 0, "etc/passwd");
    field_is(made, 0, 100, "0004755");
    field_is(made, 0, 108, "0000173");
    field_is(made, 0, 116, "0000710");
    field_is(made, 0, 124, "00000002322");
    field_is(made, 0, 136, "14524770400");
    assert_int_equal(made->bytes.data[156], '0');
    field_is(made, 0, 257, "ustar");
    field_is(made, 0, 265, "");
    field_is(made, 0, 297, "");
}

static void test_names_of_directories(void **state)
{
    struct made *made = *state;
    struct tar_entry entry = {.path = "", .type = TAR_DIR, .mode = 01755};
    assert_int_equal(make(made, &entry, NULL), 0);
    field_is(made, 0, 0, "./");
    entry.path = "a/b";
    assert_int_equal(make(made, &entry, NULL), 0);
    field_is(made, 0, 0, "a/b/");
}

/* 100 bytes are the last that fit into the header. */
static void test_long_names(void **state)
{
    struct made *made = *state;
    char name[300];
    memset(name, 'n', sizeof name);
    name[100] = '\0';
    struct tar_entry entry = {.path = name, .type = TAR_FILE};
    assert_int_equal(make(made, &entry, NULL), 0);
    assert_int_equal(made->bytes.len, TAR_BLOCK);
    entry.type = TAR_DIR;
    assert_int_equal(make(made, &entry, NULL), 0);
    assert_int_equal(made->bytes.len, 3 * TAR_BLOCK);
    assert_int_equal(made->bytes.data[156], 'x');
    assert_memory_equal(made->bytes.data + TAR_BLOCK, "111 path=nnn", 12);
    entry.type = TAR_SYMLINK;
    name[99] = '\0';
    char target[200];
    memset(target, 't', sizeof target);
    target[101] = '\0';
    entry.link = target;
    assert_int_equal(make(made, &entry, NULL), 0);
    assert_memory_equal(made->bytes.data + TAR_BLOCK, "115 linkpath=ttt", 16);
}

/* The length of a record counts its own digits. */
static void test_record_lengths(void **state)
{
    struct made *made = *state;
    static char value[1100];
    memset(value, 'v', sizeof value);
    for (size_t len = 60; len < sizeof value; len++) {
        const struct walk_xattr xattr = {.name = "user.x", .value = value, .len = len};
        const struct tar_entry entry = {
            .path = "f", .type = TAR_FILE, .xattrs = &xattr, .xattr_count = 1};
        assert_int_equal(make(made, &entry, NULL), 0);
        char *end;
        unsigned long said = strtoul(made->bytes.data + TAR_BLOCK, &end, 10);
        size_t digits = (size_t)(end - made->bytes.data - TAR_BLOCK);
        assert_int_equal(said, digits + strlen(" SCHILY.xattr.user.x=") + len + 1);
        assert_int_equal(made->bytes.data[TAR_BLOCK + said - 1], '\n');
        unsigned long size = strtoul(made->bytes.data + 124, NULL, 8);
        assert_int_equal(size, said);
    }
}

static void test_names_that_are_not_ascii(void **state)
{
    struct made *made = *state;
    struct tar_entry entry = {.path = "caf\xc3\xa9", .type = TAR_FILE};
    assert_int_equal(make(made, &entry, NULL), 0);
    record_is(made, "14 path=caf\xc3\xa9\n");
    assert_false(has_record(made, "hdrcharset", 10));
    entry.path = "caf\xe9";
    assert_int_equal(make(made, &entry, NULL), 0);
    record_is(made, "21 hdrcharset=BINARY\n13 path=caf\xe9\n");
    entry = (struct tar_entry){.path = "ln", .type = TAR_SYMLINK, .link = "\xe9t\xe9"};
    assert_int_equal(make(made, &entry, NULL), 0);
    record_is(made, "21 hdrcharset=BINARY\n16 linkpath=\xe9t\xe9\n");
}

static void test_times(void **state)
{
    struct made *made = *state;
    static const struct {
        int64_t seconds;
        uint32_t ns;
        const char *record; /* NULL: the header alone */
    } cases[] = {
        {0, 0, NULL},
        {077777777777, 0, NULL},
        {0100000000000, 0, "20 mtime=8589934592\n"},
        {1, 987654321, "21 mtime=1.987654321\n"},
        {1, 500000000, "13 mtime=1.5\n"},
        {1, 1, "21 mtime=1.000000001\n"},
        {-1, 0, "12 mtime=-1\n"},
        {-1, 500000000, "12 mtime=-1\n"},
        {-2147472000, 0, "21 mtime=-2147472000\n"},
        {13569465600, 0, "21 mtime=13569465600\n"},
        {INT64_MAX, 999999999, "39 mtime=9223372036854775807.999999999\n"},
        {INT64_MIN, 0, "30 mtime=-9223372036854775808\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct tar_entry entry = {
            .path = "f", .type = TAR_FILE, .mtime = cases[i].seconds, .mtime_ns = cases[i].ns};
        assert_int_equal(make(made, &entry, NULL), 0);
        if (cases[i].record)
            record_is(made, cases[i].record);
        else
            assert_int_equal(made->bytes.len, TAR_BLOCK);
    }
}

static void test_large_numbers(void **state)
{
    struct made *made = *state;
    struct tar_entry entry = {
        .path = "f", .type = TAR_FILE, .uid = 07777777, .gid = 07777777, .size = 077777777777};
    assert_int_equal(make(made, &entry, NULL), 0);
    assert_int_equal(made->bytes.len, TAR_BLOCK);
    entry.uid = 4294967294;
    entry.gid = 010000000;
    entry.size = 0100000000000;
    assert_int_equal(make(made, &entry, NULL), 0);
    record_is(made, "19 size=8589934592\n18 uid=4294967294\n15 gid=2097152\n");
    field_is(made, 2, 124, "00000000000");
}

static void test_xattrs(void **state)
{
    struct made *made = *state;
    const struct walk_xattr xattrs[] = {
        {.name = "user.100%", .value = "v\0\n\xff", .len = 4},
        {.name = "user.a=b%\xe9", .value = "val\xff", .len = 4},
        {.name = "user.e", .value = "", .len = 0},
    };
    const struct tar_entry entry = {
        .path = "f", .type = TAR_FILE, .xattrs = xattrs, .xattr_count = 3};
    assert_int_equal(make(made, &entry, NULL), 0);
    assert_true(has_record(made, "31 SCHILY.xattr.user.100%=v\0\n\xff\n", 31));
    record_is(made, "44 LIBARCHIVE.xattr.user.a%3Db%25%E9=dmFs/w\n");
    record_is(made, "24 SCHILY.xattr.user.e=\n");
}

static void test_too_large(void **state)
{
    struct made *made = *state;
    static char value[300000];
    struct walk_xattr xattrs[4];
    for (size_t i = 0; i < ARRAY_SIZE(xattrs); i++)
        xattrs[i] = (struct walk_xattr){.name = "user.x", .value = value, .len = sizeof value};
    const struct tar_entry entry = {
        .path = "dir/f", .type = TAR_FILE, .xattrs = xattrs, .xattr_count = 4};
    struct err err = ERR_INIT;
    assert_true(make(made, &entry, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_non_null(strstr(err.text, "cannot store dir/f"));
}

static void test_devices(void **state)
{
    struct made *made = *state;
    struct tar_entry entry = {.path = "null", .type = TAR_CHAR, .major = 1, .minor = 3};
    assert_int_equal(make(made, &entry, NULL), 0);
    assert_int_equal(made->bytes.data[156], '3');
    field_is(made, 0, 329, "0000001");
    field_is(made, 0, 337, "0000003");
    entry.minor = 010000000;
    struct err err = ERR_INIT;
    assert_true(make(made, &entry, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

/* The bytes of this header are part of the format: they make the digests of layers. */
static void test_golden_bytes(void **state)
{
    struct made *made = *state;
    const struct walk_xattr xattr = {.name = "user.k", .value = "v\0\xff", .len = 3};
    const struct tar_entry entry = {.path = "caf\xe9",
                                    .type = TAR_FILE,
                                    .mode = 04755,
                                    .uid = 4294967294,
                                    .gid = 5,
                                    .mtime = 1,
                                    .mtime_ns = 987654321,
                                    .size = 3,
                                    .xattrs = &xattr,
                                    .xattr_count = 1};
    struct digest digest;
    assert_int_equal(make(made, &entry, NULL), 0);
    assert_int_equal(digest_bytes(made->bytes.data, made->bytes.len, &digest, NULL), 0);
    assert_string_equal(digest_hex(&digest).s,
                        "02be68bd333a3328576ee39bf960cac093a99357283eeb307ad5f9d3b22e387f");
}

#define header_test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    (void)setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        header_test(test_plain_file),
        header_test(test_names_of_directories),
        header_test(test_long_names),
        header_test(test_record_lengths),
        header_test(test_names_that_are_not_ascii),
        header_test(test_times),
        header_test(test_large_numbers),
        header_test(test_xattrs),
        header_test(test_too_large),
        header_test(test_devices),
        header_test(test_golden_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
