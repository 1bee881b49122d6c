/* The image as a whole: equal bytes, limits, full disks, states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_made.h"
#include "fdio.h"

#include <fcntl.h>
#include <string.h>

/* Something of everything, more than the buffers hold. */
static void make_tree(struct made *made)
{
    static uint8_t bytes[200000];
    const struct erofs_xattr xattrs[] = {{"user.a", "1", 1}, {"user.b", bytes, 5000}};
    struct erofs_attr attr = made_attr;
    attr.xattrs = xattrs;
    attr.xattr_count = 2;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(1 + i * 13 % 255);
    for (int d = 0; d < 20; d++) {
        char name[32];
        snprintf(name, sizeof name, "dir%d", d * 7 % 20);
        erofs_dir dir = made_mkdir(made, EROFS_ROOT, name);
        made_ok(made, erofs_writer_dir_xattr(made->writer, dir, &xattrs[0], &made->err));
        for (int f = 0; f < 50; f++) {
            snprintf(name, sizeof name, "file-%d", f * 37 % 50);
            uint64_t nid = made_file_attr(made, dir, name, f % 3 == 0 ? &attr : &made_attr, bytes,
                                          (size_t)(f * d * 997) % 20000);
            made_link(made, EROFS_ROOT, "last", S_IFREG, nid);
        }
        made_node(made, dir, "link", S_IFLNK, "target", 0);
    }
    uint64_t nid;
    made_ok(made, erofs_writer_file_begin(made->writer, &attr, 1 << 24, &made->err));
    made_ok(made, erofs_writer_file_data(made->writer, 1 << 22, bytes, sizeof bytes, &made->err));
    made_ok(made, erofs_writer_file_end(made->writer, &nid, &made->err));
    made_link(made, EROFS_ROOT, "sparse", S_IFREG, nid);
}

static void read_image(const struct made *made, struct buf *ret)
{
    struct err err = ERR_INIT;
    assert_int_equal(lseek(made->fd, 0, SEEK_SET), 0);
    assert_int_equal(fdio_read_all(made->fd, "the image", ret, &err), 0);
}

static void test_same_calls_same_bytes(void **state)
{
    struct made *made = *state;
    cleanup_buf struct buf first = BUF_INIT(64 << 20);
    cleanup_buf struct buf second = BUF_INIT(64 << 20);
    make_tree(made);
    made_finish(made);
    assert_int_equal(erofs_writer_bytes(made->writer), made->stats.image_bytes);
    read_image(made, &first);
    assert_true(first.len > 2 << 20);
    /* Another time with memory that lies elsewhere and is not zero. */
    void *blocks[500];
    for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
        blocks[i] = malloc(64 + i * 61 % 40000);
        memset(blocks[i], 0xEE, 64 + i * 61 % 40000);
    }
    for (size_t i = 0; i < ARRAY_SIZE(blocks); i += 2)
        free(blocks[i]);
    made_limits(made, NULL);
    make_tree(made);
    made_finish(made);
    read_image(made, &second);
    for (size_t i = 1; i < ARRAY_SIZE(blocks); i += 2)
        free(blocks[i]);
    assert_int_equal(first.len, second.len);
    assert_int_equal(memcmp(first.data, second.data, first.len), 0);
    made_mount(made);
    assert_int_equal(made_count(made, ""), 22);
    assert_int_equal(made_count(made, "dir3"), 51);
}

static void test_names_limit(void **state)
{
    struct made *made = *state;
    erofs_dir dir = 77;
    made_limits(made, &(struct erofs_writer_limits){.names_max = 10});
    uint64_t nid = made_node(made, EROFS_ROOT, "n0", S_IFIFO, NULL, 0);
    for (int i = 1; i < 8; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        made_link(made, EROFS_ROOT, name, S_IFIFO, nid);
    }
    made_link(made, EROFS_ROOT, "n1", S_IFIFO, nid); /* no new one */
    (void)made_mkdir(made, EROFS_ROOT, "d");         /* a name and a directory: 10 */
    made_failed(made, erofs_writer_link(made->writer, 0, "x", 1, S_IFIFO, nid, &made->err),
                ERR_TOO_LARGE, "more than 10 names");
    made_failed(made, erofs_writer_mkdir(made->writer, 0, "n1", 2, &made_attr, &dir, &made->err),
                ERR_TOO_LARGE, "more than 10 names");
    assert_int_equal(dir, 77);
    made_mount(made);
    assert_int_equal(made_count(made, ""), 9);
}

static void test_name_bytes_limit(void **state)
{
    struct made *made = *state;
    made_limits(made, &(struct erofs_writer_limits){.name_bytes_max = 10});
    uint64_t nid = made_node(made, EROFS_ROOT, "12345", S_IFIFO, NULL, 0);
    made_failed(made, erofs_writer_link(made->writer, 0, "abcdef", 6, S_IFIFO, nid, &made->err),
                ERR_TOO_LARGE, "more than 10 bytes");
    made_link(made, EROFS_ROOT, "abcde", S_IFIFO, nid);
    made_failed(made, erofs_writer_link(made->writer, 0, "x", 1, S_IFIFO, nid, &made->err),
                ERR_TOO_LARGE, "more than 10 bytes");
    made_mount(made);
    assert_int_equal(made_count(made, ""), 2);
}

/* One with 16 blocks of data: two blocks of metadata at most, one for the root. */
static int make_sized(struct made *made, uint64_t limit)
{
    static uint8_t bytes[16 * 4096];
    struct erofs_writer *w = made->writer;
    uint64_t nid;
    memset(bytes, 1, sizeof bytes);
    made_limits(made, &(struct erofs_writer_limits){.image_bytes_max = limit});
    w = made->writer;
    int rc = erofs_writer_file_begin(w, &made_attr, sizeof bytes, &made->err);
    if (rc == 0)
        rc = erofs_writer_file_data(w, 0, bytes, sizeof bytes, &made->err);
    if (rc == 0)
        rc = erofs_writer_file_end(w, &nid, &made->err);
    if (rc == 0)
        rc = erofs_writer_link(w, EROFS_ROOT, "file", 4, S_IFREG, nid, &made->err);
    return rc < 0 ? rc : erofs_writer_finish(w, made_uuid, &made->stats, &made->err);
}

static void test_image_limit(void **state)
{
    struct made *made = *state;
    made_ok(made, make_sized(made, 0));
    uint64_t size = made->stats.image_bytes;
    assert_int_equal(size, (1 + 16 + 1 + 1) * 4096);
    for (uint64_t limit = 4096; limit < size; limit += 4096)
        made_failed(made, make_sized(made, limit), ERR_TOO_LARGE, "larger than");
    made_failed(made, make_sized(made, size - 1), ERR_TOO_LARGE, "larger than");
    made_ok(made, make_sized(made, size));
    made_mount(made);
    assert_int_equal(made_count(made, ""), 1);
}

/* After a failure of the output nothing more succeeds. */
static void test_failure_stays(void **state)
{
    struct made *made = *state;
    made_failed(made, make_sized(made, 8 * 4096), ERR_TOO_LARGE, "larger than");
    uint64_t nid = 99;
    made_failed(made, erofs_writer_file_end(made->writer, &nid, &made->err), ERR_INTERNAL,
                "earlier failure");
    assert_int_equal(nid, 99);
    made_failed(made, erofs_writer_finish(made->writer, made_uuid, &made->stats, &made->err),
                ERR_INTERNAL, "earlier failure");
    assert_int_equal(made->stats.inodes, 0);
}

static void test_full_disk(void **state)
{
    struct made *made = *state;
    static uint8_t bytes[1 << 20];
    uint64_t nid;
    int rc = 0;
    memset(bytes, 1, sizeof bytes);
    scratch_tmpfs(made->scratch, "small", 4 << 20);
    cleanup_fd int fd =
        openat(made->scratch->fd, "small/image", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    struct erofs_writer *writer;
    made_ok(made, erofs_writer_open(fd, NULL, &writer, &made->err));
    made_ok(made, erofs_writer_file_begin(writer, &made_attr, 8 << 20, &made->err));
    for (uint64_t at = 0; rc == 0 && at < 8 << 20; at += sizeof bytes)
        rc = erofs_writer_file_data(writer, at, bytes, sizeof bytes, &made->err);
    made_failed(made, rc, ERR_NO_SPACE, "cannot write the image");
    assert_true(erofs_writer_file_end(writer, &nid, &made->err) < 0);
    erofs_writer_free(writer);
}

static void test_states(void **state)
{
    struct made *made = *state;
    struct erofs_entry entry;
    erofs_dir dir;
    uint64_t nid = made_node(made, EROFS_ROOT, "n", S_IFIFO, NULL, 0);
    made_finish(made);
    struct err *err = &made->err;
    struct erofs_writer *w = made->writer;
    made_failed(made, erofs_writer_finish(w, made_uuid, &made->stats, err), ERR_INTERNAL, "end");
    made_failed(made, erofs_writer_file_begin(w, &made_attr, 1, err), ERR_INTERNAL, "file");
    made_failed(made, erofs_writer_link(w, 0, "x", 1, S_IFIFO, nid, err), ERR_INTERNAL, "complete");
    made_failed(made, erofs_writer_mkdir(w, 0, "x", 1, &made_attr, &dir, err), ERR_INTERNAL,
                "complete");
    made_failed(made, erofs_writer_dir_set(w, 0, &made_attr, err), ERR_INTERNAL, "complete");
    assert_int_equal(erofs_writer_find(w, 0, "n", 1, &entry), 0);
    assert_false(erofs_writer_dir_is_live(w, 5));
    erofs_writer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_calls_same_bytes, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_names_limit, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_name_bytes_limit, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_image_limit, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_failure_stays, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_states, made_setup, made_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
