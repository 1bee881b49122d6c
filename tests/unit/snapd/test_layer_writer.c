#include "layer_writer.h"

#include "layer_list.h"
#include "scratch.h"

#include <sched.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct fixture {
    struct scratch *scratch;
    struct blobs *blobs;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || scratch_setup((void **)&fixture->scratch) < 0)
        return -1;
    *state = fixture;
    return blobs_open(scratch_path(fixture->scratch, "store"), &fixture->blobs, NULL);
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    blobs_close(fixture->blobs);
    int rc = scratch_teardown((void **)&fixture->scratch);
    free(fixture);
    return rc;
}

static void add(struct layer_writer *writer, const struct tar_entry *entry)
{
    struct err err = ERR_INIT;
    if (layer_writer_add(writer, entry, &err) < 0)
        fail_msg("%s", err.text);
}

static void add_file(struct layer_writer *writer, const char *path, const char *content)
{
    const struct tar_entry entry = {
        .path = path, .type = TAR_FILE, .mode = 0644, .size = strlen(content)};
    add(writer, &entry);
    assert_int_equal(layer_writer_data(writer, content, strlen(content), NULL), 0);
}

/* Something that compresses, but not to nothing; the same in every run. */
static unsigned char *make_bytes(size_t len)
{
    unsigned char *bytes = malloc(len);
    assert_non_null(bytes);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (unsigned char)('a' + (x >> 20) % 19);
    }
    return bytes;
}

/* One layer of one large file, its content given in pieces of `step`. */
static struct layer_written write_large(struct blobs *blobs, const unsigned char *bytes, size_t len,
                                        size_t step)
{
    cleanup_layer_writer struct layer_writer *writer = NULL;
    const struct tar_entry entry = {.path = "f", .type = TAR_FILE, .mode = 0644, .size = len};
    struct layer_written written;
    assert_int_equal(layer_writer_begin(blobs, &writer, NULL), 0);
    add(writer, &entry);
    for (size_t at = 0; at < len; at += step)
        assert_int_equal(
            layer_writer_data(writer, bytes + at, len - at < step ? len - at : step, NULL), 0);
    assert_int_equal(layer_writer_finish(writer, 1, len, &written, NULL), 0);
    return written;
}

static void test_readers_find_what_was_written(void **state)
{
    struct fixture *fixture = *state;
    cleanup_layer_writer struct layer_writer *writer = NULL;
    assert_int_equal(layer_writer_begin(fixture->blobs, &writer, NULL), 0);
    const struct tar_entry root = {.path = "", .type = TAR_DIR, .mode = 01755, .uid = 5, .gid = 6};
    add(writer, &root);
    add_file(writer, "a", "");
    add_file(writer, "b", "hello");
    const struct tar_entry link = {.path = "c", .type = TAR_HARD_LINK, .mode = 0644, .link = "b"};
    add(writer, &link);
    struct layer_written written;
    assert_int_equal(layer_writer_finish(writer, 4, 5, &written, NULL), 0);
    assert_int_equal(written.entries, 4);
    assert_int_equal(written.bytes, 5);
    assert_int_equal(written.tar_size, 4 * 512 + 512 + 1024);

    json_t *list = layer_list(fixture->blobs, &written.digest);
    cleanup_free char *names = layer_names(list);
    assert_string_equal(names, "./\na\nb\nc\n");
    assert_int_equal(layer_int(layer_entry(list, "./"), "mode"), 01755);
    assert_string_equal(layer_str(layer_entry(list, "c"), "link"), "b");
    assert_string_equal(layer_str(layer_entry(list, "b"), "sha256"),
                        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    json_decref(list);
}

static void test_digests_are_those_of_the_bytes(void **state)
{
    struct fixture *fixture = *state;
    size_t len = 3 << 20;
    cleanup_free unsigned char *bytes = make_bytes(len);
    struct layer_written written = write_large(fixture->blobs, bytes, len, 100000);
    uint64_t size;
    assert_int_equal(blobs_stat(fixture->blobs, &written.digest, &size, NULL), 0);
    assert_int_equal(size, written.size);
    assert_int_equal(blobs_verify(fixture->blobs, &written.digest, NULL), 0);
    cleanup_free char *sum =
        layer_shell_output("zstd -dcq '%s/blobs/sha256/%s' | sha256sum | cut -c1-64",
                           blobs_path(fixture->blobs), digest_hex(&written.digest).s);
    assert_string_equal(sum, digest_hex(&written.diff_id).s);
    cleanup_free char *check =
        layer_shell_output("zstd -lv '%s/blobs/sha256/%s' | grep Check", blobs_path(fixture->blobs),
                           digest_hex(&written.digest).s);
    assert_non_null(strstr(check, "XXH64"));
}

/* Several worker jobs, cut at any place, on any number of processors: one blob. */
static void test_one_blob_however_it_is_made(void **state)
{
    struct fixture *fixture = *state;
    size_t len = 11 * (size_t)LAYER_ZSTD_JOB_BYTES / 2 + 12345;
    cleanup_free unsigned char *bytes = make_bytes(len);
    struct layer_written first = write_large(fixture->blobs, bytes, len, len);
    struct layer_written second = write_large(fixture->blobs, bytes, len, 4097);
    assert_true(digest_equal(&first.digest, &second.digest));
    cpu_set_t all;
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    struct layer_written third = write_large(fixture->blobs, bytes, len, 1 << 20);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(digest_equal(&first.digest, &third.digest));
    assert_true(digest_equal(&first.diff_id, &third.diff_id));
}

static void test_zeros_are_bytes(void **state)
{
    struct fixture *fixture = *state;
    size_t len = 5 * 1000 * 1000 + 1;
    cleanup_free unsigned char *bytes = calloc(1, len);
    struct layer_written data = write_large(fixture->blobs, bytes, len, 70000);
    cleanup_layer_writer struct layer_writer *writer = NULL;
    const struct tar_entry entry = {.path = "f", .type = TAR_FILE, .mode = 0644, .size = len};
    struct layer_written written;
    assert_int_equal(layer_writer_begin(fixture->blobs, &writer, NULL), 0);
    add(writer, &entry);
    assert_int_equal(layer_writer_zeros(writer, len / 2, NULL), 0);
    assert_int_equal(layer_writer_data(writer, bytes, 0, NULL), 0);
    assert_int_equal(layer_writer_data(writer, bytes, 1, NULL), 0);
    assert_int_equal(layer_writer_zeros(writer, len - len / 2 - 1, NULL), 0);
    assert_int_equal(layer_writer_zeros(writer, 0, NULL), 0);
    assert_int_equal(layer_writer_finish(writer, 1, len, &written, NULL), 0);
    assert_true(digest_equal(&data.digest, &written.digest));
}

static void test_empty_layer(void **state)
{
    struct fixture *fixture = *state;
    cleanup_layer_writer struct layer_writer *writer = NULL;
    struct layer_written written;
    assert_int_equal(layer_writer_begin(fixture->blobs, &writer, NULL), 0);
    assert_int_equal(layer_writer_finish(writer, 0, 0, &written, NULL), 0);
    assert_int_equal(written.tar_size, 1024);
    assert_string_equal(digest_hex(&written.diff_id).s,
                        "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef");
    json_t *list = layer_list(fixture->blobs, &written.digest);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
}

static void no_blob_is_there(const struct fixture *fixture)
{
    cleanup_free char *files =
        layer_shell_output("find '%s/blobs' '%s/.varve' -type f ! -name lock | wc -l",
                           blobs_path(fixture->blobs), blobs_path(fixture->blobs));
    assert_string_equal(files, "0");
}

static void test_wrong_amount_of_content(void **state)
{
    struct fixture *fixture = *state;
    const struct tar_entry file = {.path = "f", .type = TAR_FILE, .size = 3};
    const struct tar_entry dir = {.path = "d", .type = TAR_DIR};
    struct layer_written written;
    for (int way = 0; way < 5; way++) {
        cleanup_layer_writer struct layer_writer *writer = NULL;
        struct err err = ERR_INIT;
        int rc = 0;
        assert_int_equal(layer_writer_begin(fixture->blobs, &writer, NULL), 0);
        add(writer, way == 4 ? &dir : &file);
        if (way == 0)
            rc = layer_writer_data(writer, "1234", 4, &err);
        if (way == 1)
            rc = layer_writer_zeros(writer, 4, &err);
        if (way == 2)
            rc = layer_writer_add(writer, &dir, &err);
        if (way == 3)
            rc = layer_writer_finish(writer, 1, 3, &written, &err);
        if (way == 4)
            rc = layer_writer_data(writer, "1", 1, &err);
        assert_true(rc < 0);
        assert_int_equal(err.code, ERR_INTERNAL);
    }
    no_blob_is_there(fixture);
}

/* What the source had and what the layer holds must agree, or there is no layer. */
static void test_a_gap_is_no_layer(void **state)
{
    struct fixture *fixture = *state;
    static const uint64_t claims[][2] = {{2, 5}, {1, 6}, {1, 4}, {0, 5}};
    for (size_t i = 0; i < ARRAY_SIZE(claims); i++) {
        cleanup_layer_writer struct layer_writer *writer = NULL;
        struct layer_written written;
        struct err err = ERR_INIT;
        assert_int_equal(layer_writer_begin(fixture->blobs, &writer, NULL), 0);
        add_file(writer, "f", "hello");
        assert_true(layer_writer_finish(writer, claims[i][0], claims[i][1], &written, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_non_null(strstr(err.text, "not complete"));
    }
    no_blob_is_there(fixture);
}

/* The independent count refuses what the writer was told to write. */
static void test_impossible_entries_are_found(void **state)
{
    struct fixture *fixture = *state;
    static const char *const paths[] = {"/abs", "a/../b", "a//b"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        cleanup_layer_writer struct layer_writer *writer = NULL;
        struct layer_written written;
        struct err err = ERR_INIT;
        assert_int_equal(layer_writer_begin(fixture->blobs, &writer, NULL), 0);
        add_file(writer, paths[i], "");
        assert_true(layer_writer_finish(writer, 1, 0, &written, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
    }
    no_blob_is_there(fixture);
}

static void test_full_disk(void **state)
{
    struct fixture *fixture = *state;
    scratch_tmpfs(fixture->scratch, "small", 1 << 20);
    struct blobs *blobs;
    assert_int_equal(blobs_open(scratch_path(fixture->scratch, "small/store"), &blobs, NULL), 0);
    size_t len = 24 << 20;
    cleanup_free unsigned char *bytes = make_bytes(len);
    struct layer_writer *writer;
    const struct tar_entry entry = {.path = "f", .type = TAR_FILE, .mode = 0644, .size = len};
    struct layer_written written;
    struct err err = ERR_INIT;
    assert_int_equal(layer_writer_begin(blobs, &writer, NULL), 0);
    add(writer, &entry);
    int rc = layer_writer_data(writer, bytes, len, &err);
    if (rc == 0)
        rc = layer_writer_finish(writer, 1, len, &written, &err);
    assert_true(rc < 0);
    assert_int_equal(err.code, ERR_NO_SPACE);
    layer_writer_free(writer);
    cleanup_free char *files =
        layer_shell_output("find '%s' -name '.tmp-*' | wc -l", blobs_path(blobs));
    assert_string_equal(files, "0");
    blobs_close(blobs);
}

#define writer_test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        writer_test(test_readers_find_what_was_written),
        writer_test(test_digests_are_those_of_the_bytes),
        writer_test(test_one_blob_however_it_is_made),
        writer_test(test_zeros_are_bytes),
        writer_test(test_empty_layer),
        writer_test(test_wrong_amount_of_content),
        writer_test(test_a_gap_is_no_layer),
        writer_test(test_impossible_entries_are_found),
        writer_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
