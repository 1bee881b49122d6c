/* Data of files: sizes, tails, pieces, holes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_made.h"

#include <fcntl.h>
#include <string.h>

enum {
    PAGE = 4096,
    LARGE = 3 << 20,
};

/* Bytes without a zero among them, that differ from block to block. */
static uint8_t *pattern(size_t len)
{
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(1 + (i * 31 + i / 251) % 255);
    return bytes;
}

/* Offsets that SEEK_DATA and SEEK_HOLE give one after the other, as text. */
static const char *holes(const struct made *made, const char *name)
{
    static char text[1024];
    size_t len = 0;
    cleanup_fd int fd = open(made_path(made, name), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    text[0] = '\0';
    for (off_t at = 0;;) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0)
            break;
        at = lseek(fd, data, SEEK_HOLE);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%lld-%lld", len > 0 ? " " : "",
                                (long long)data, (long long)at);
        assert_true(len < sizeof text);
    }
    return text;
}

static const size_t sizes[] = {0,    1,     31,    1983,  1984,        1985,        2048,
                               4032, 4095,  4096,  4097,  4096 + 1984, 4096 + 1985, 8191,
                               8192, 65535, 65536, 65537, 65536 + 100, LARGE,       LARGE + 1};

static void test_sizes(void **state)
{
    struct made *made = *state;
    cleanup_free uint8_t *bytes = pattern(LARGE + 1);
    char name[32];
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        snprintf(name, sizeof name, "%zu", sizes[i]);
        made_file(made, EROFS_ROOT, name, bytes, sizes[i]);
    }
    made_mount(made);
    assert_int_equal(made_count(made, ""), ARRAY_SIZE(sizes));
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        snprintf(name, sizeof name, "%zu", sizes[i]);
        made_content(made, name, bytes, sizes[i]);
    }
}

static void add_pieces(struct made *made, const char *name, const uint8_t *bytes, size_t len,
                       size_t piece)
{
    uint64_t nid = 0;
    made_ok(made, erofs_writer_file_begin(made->writer, &made_attr, len, &made->err));
    for (size_t at = 0; at < len; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        made_ok(made, erofs_writer_file_data(made->writer, at, bytes + at, n, &made->err));
    }
    made_ok(made, erofs_writer_file_end(made->writer, &nid, &made->err));
    made_link(made, EROFS_ROOT, name, S_IFREG, nid);
}

static void test_pieces(void **state)
{
    struct made *made = *state;
    static const size_t pieces[] = {1, 511, 4095, 4096, 4097, 70000};
    static const size_t lengths[] = {1000, 9000, 66000};
    cleanup_free uint8_t *bytes = pattern(66000);
    memset(bytes + 5000, 0, 3000); /* zeros that begin and end in blocks */
    char name[32];
    for (size_t i = 0; i < ARRAY_SIZE(pieces) * ARRAY_SIZE(lengths); i++) {
        size_t len = lengths[i % ARRAY_SIZE(lengths)];
        snprintf(name, sizeof name, "%zu", i);
        add_pieces(made, name, bytes, len, pieces[i / ARRAY_SIZE(lengths)]);
    }
    made_mount(made);
    for (size_t i = 0; i < ARRAY_SIZE(pieces) * ARRAY_SIZE(lengths); i++) {
        snprintf(name, sizeof name, "%zu", i);
        made_content(made, name, bytes, lengths[i % ARRAY_SIZE(lengths)]);
        assert_int_equal(made_stat(made, name).st_nlink, 1);
    }
}

struct piece {
    uint64_t offset;
    size_t len;
};

static void add_sparse(struct made *made, const char *name, uint64_t size,
                       const struct piece *pieces, size_t count, const uint8_t *bytes)
{
    uint64_t nid = 0;
    made_ok(made, erofs_writer_file_begin(made->writer, &made_attr, size, &made->err));
    for (size_t i = 0; i < count; i++)
        made_ok(made, erofs_writer_file_data(made->writer, pieces[i].offset, bytes, pieces[i].len,
                                             &made->err));
    made_ok(made, erofs_writer_file_end(made->writer, &nid, &made->err));
    made_link(made, EROFS_ROOT, name, S_IFREG, nid);
}

struct sparse_case {
    const char *name;
    uint64_t size;
    size_t count;
    struct piece pieces[3];
    const char *data; /* SEEK_DATA-SEEK_HOLE */
};

static void test_holes(void **state)
{
    struct made *made = *state;
    static const struct sparse_case cases[] = {
        {"first", 2 * PAGE, 1, {{PAGE, PAGE}}, "4096-8192"},
        {"middle", 3 * PAGE, 2, {{0, 10}, {2 * PAGE, PAGE}}, "0-4096 8192-12288"},
        {"last", 3 * PAGE, 1, {{0, PAGE}}, "0-4096"},
        {"part", 3 * PAGE, 1, {{PAGE + 5, 10}}, "4096-8192"},
        {"tail", 3 * PAGE + 100, 1, {{3 * PAGE, 100}}, "12288-12388"},
        {"tail-hole", 3 * PAGE + 100, 1, {{0, PAGE}}, "0-4096"},
        {"nothing", 5 * PAGE + 1, 0, {{0}}, ""},
        {"in-block", PAGE, 2, {{0, 1}, {4000, 1}}, "0-4096"},
        {"small", 500, 1, {{400, 1}}, "0-500"},
        {"all-large", 1 << 20, 0, {{0}}, ""},
        {"bytes", 1 << 20, 2, {{99999, 2}, {(1 << 20) - 1, 1}}, "98304-102400 1044480-1048576"},
    };
    cleanup_free uint8_t *bytes = pattern(PAGE);
    cleanup_free uint8_t *expected = malloc(1 << 20);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        add_sparse(made, cases[i].name, cases[i].size, cases[i].pieces, cases[i].count, bytes);
    made_mount(made);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct sparse_case *c = &cases[i];
        memset(expected, 0, c->size);
        for (size_t p = 0; p < c->count; p++)
            memcpy(expected + c->pieces[p].offset, bytes, c->pieces[p].len);
        made_content(made, c->name, expected, c->size);
        if (strcmp(holes(made, c->name), c->data) != 0)
            fail_msg("%s: %s instead of %s", c->name, holes(made, c->name), c->data);
    }
}

static void test_zeros_as_data(void **state)
{
    struct made *made = *state;
    enum {
        RUN = 64 << 10
    };
    cleanup_free uint8_t *bytes = pattern(LARGE);
    static const uint8_t zeros[LARGE];
    memset(bytes + PAGE, 0, RUN - PAGE); /* a block less than a hole */
    memset(bytes + (1 << 20), 0, RUN);   /* a hole */
    memset(bytes + LARGE - RUN, 0, RUN); /* one at the end */
    made_file(made, EROFS_ROOT, "mixed", bytes, LARGE);
    made_file(made, EROFS_ROOT, "short", bytes, 1 << 20);
    made_file(made, EROFS_ROOT, "zeros", zeros, LARGE);
    made_file(made, EROFS_ROOT, "zeros-tail", zeros, 2 * PAGE + 7);
    made_file(made, EROFS_ROOT, "zeros-small", zeros, 100);
    add_pieces(made, "pieces", zeros, 1 << 20, 1000);
    made_mount(made);
    made_content(made, "mixed", bytes, LARGE);
    assert_string_equal(holes(made, "mixed"), "0-1048576 1114112-3080192");
    assert_string_equal(holes(made, "short"), "0-1048576");
    made_content(made, "zeros", zeros, LARGE);
    assert_string_equal(holes(made, "zeros"), "");
    assert_string_equal(holes(made, "zeros-tail"), "");
    assert_string_equal(holes(made, "pieces"), "");
    made_content(made, "zeros-tail", zeros, 2 * PAGE + 7);
    made_content(made, "zeros-small", zeros, 100);
}

static void test_large_sparse(void **state)
{
    struct made *made = *state;
    const uint64_t size = UINT64_C(20) << 30;
    const struct piece pieces[] = {{0, 1}, {size / 2 + 12345, 5}, {size - 1, 1}};
    cleanup_free uint8_t *bytes = pattern(PAGE);
    add_sparse(made, "large", size, pieces, ARRAY_SIZE(pieces), bytes);
    made_mount(made);
    /* 2^18 chunks at most, so they have 128 KiB. */
    assert_string_equal(holes(made, "large"),
                        "0-131072 10737418240-10737549312 21474705408-21474836480");
    cleanup_fd int fd = open(made_path(made, "large"), O_RDONLY | O_CLOEXEC);
    uint8_t found[7];
    assert_int_equal(pread(fd, found, 7, (off_t)(size / 2 + 12344)), 7);
    assert_int_equal(found[0], 0);
    assert_memory_equal(found + 1, bytes, 5);
    assert_int_equal(found[6], 0);
    assert_int_equal(pread(fd, found, 7, (off_t)(size - 1)), 1);
    assert_int_equal(found[0], bytes[0]);
    struct stat st;
    assert_int_equal(fstat(made->fd, &st), 0);
    assert_true(st.st_size < 2 << 20);
    assert_true(st.st_blocks * 512 < 1 << 20);
}

/* Many large files of nothing are not many long maps. */
static void test_short_maps(void **state)
{
    struct made *made = *state;
    const uint64_t size = (UINT64_C(1) << 30) + 1;
    const struct piece halves[] = {{0, 1 << 20}};
    cleanup_free uint8_t *bytes = pattern(1 << 20);
    char name[32];
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "hole%d", i);
        add_sparse(made, name, size, NULL, 0, NULL);
    }
    add_sparse(made, "largest", EROFS_FILE_BYTES_MAX, NULL, 0, NULL);
    add_sparse(made, "half", 2 << 20, halves, 1, bytes);
    made_mount(made);
    assert_true(made->stats.image_bytes < 3 << 20);
    assert_string_equal(holes(made, "hole499"), "");
    assert_int_equal(made_stat(made, "hole499").st_size, size);
    assert_true((uint64_t)made_stat(made, "largest").st_size == EROFS_FILE_BYTES_MAX);
    assert_string_equal(holes(made, "half"), "0-1048576");
}

static void test_refused(void **state)
{
    struct made *made = *state;
    struct erofs_writer *writer = made->writer;
    struct err *err = &made->err;
    uint64_t nid = 99;
    uint8_t bytes[20] = {1};
    made_failed(made, erofs_writer_file_data(writer, 0, bytes, 1, err), ERR_INTERNAL, "outside");
    made_failed(made, erofs_writer_file_end(writer, &nid, err), ERR_INTERNAL, "outside");
    made_failed(made, erofs_writer_file_begin(writer, &made_attr, EROFS_FILE_BYTES_MAX + 1, err),
                ERR_TOO_LARGE, "2305843009213693953");
    made_ok(made, erofs_writer_file_begin(writer, &made_attr, 10, err));
    made_failed(made, erofs_writer_file_begin(writer, &made_attr, 10, err), ERR_INTERNAL,
                "middle of a file");
    made_failed(made, erofs_writer_node(writer, S_IFIFO, &made_attr, NULL, 0, &nid, err),
                ERR_INTERNAL, "middle of a file");
    made_failed(made, erofs_writer_finish(writer, made_uuid, &made->stats, err), ERR_INTERNAL,
                "middle of a file");
    made_failed(made, erofs_writer_file_data(writer, 0, bytes, 11, err), ERR_INVALID, "end");
    made_failed(made, erofs_writer_file_data(writer, 11, bytes, 0, err), ERR_INVALID, "end");
    made_failed(made, erofs_writer_file_data(writer, 5, bytes, SIZE_MAX, err), ERR_INVALID, "end");
    made_ok(made, erofs_writer_file_data(writer, 3, bytes, 3, err));
    made_failed(made, erofs_writer_file_data(writer, 5, bytes, 1, err), ERR_INVALID, "after data");
    made_ok(made, erofs_writer_file_data(writer, 10, bytes, 0, err));
    assert_int_equal(nid, 99);
    made_ok(made, erofs_writer_file_end(writer, &nid, err));
    made_link(made, EROFS_ROOT, "file", S_IFREG, nid);
    made_mount(made);
    made_content(made, "file", "\0\0\0\1\0\0\0\0\0\0", 10);
}

static void test_blocks_are_shared_by_nobody(void **state)
{
    struct made *made = *state;
    cleanup_free uint8_t *bytes = pattern(300000);
    char name[32];
    for (int i = 0; i < 500; i++) { /* inodes and data take turns over several runs */
        snprintf(name, sizeof name, "f%d", i);
        made_file(made, EROFS_ROOT, name, bytes + i, (size_t)i * 577 % 9000);
    }
    made_mount(made);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "f%d", i);
        made_content(made, name, bytes + i, (size_t)i * 577 % 9000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sizes, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_pieces, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_holes, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_zeros_as_data, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_large_sparse, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_short_maps, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_refused, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_blocks_are_shared_by_nobody, made_setup,
                                        made_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
