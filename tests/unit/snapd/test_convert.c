/* The parent side of converting, with the real child. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "convert_run_fixture.h"
#include "fdio.h"
#include "shell_filter.h"
#include "tar_builder.h"

static void test_tar_of_each_packing(void **state)
{
    struct fixture *f = *state;
    static const char *const commands[] = {"cat", "gzip -c", "zstd -qc", "xz -0c", "bzip2 -1c"};
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        struct convert_request request = request_of(f);
        size_t len;
        char *packed = shell_filter(f->scratch, commands[i], f->body, BODY, &len);
        cleanup_fd int blob = memory_file(packed, len);
        free(packed);
        request.blob_fd = blob;
        request.diff_id = i % 2 ? &f->digest : NULL;
        struct convert_result result;
        struct err err = ERR_INIT;
        if (run(f, &request, &result, &err) < 0)
            fail_msg("%s: %s", commands[i], err.text);
        assert_true(digest_equal(&result.diff_id, &f->digest));
        assert_int_equal(result.tar_bytes, BODY);
        assert_int_equal(result.dropped, 0);
        assert_string_equal(result.dropped_first, "");
        assert_false(result.used_lowers);
        convert_result_free(&result);
        assert_target(f, BODY);
    }
}

/* Zeros are holes of the file, wherever they lie. */
static void test_tar_with_holes(void **state)
{
    struct fixture *f = *state;
    const size_t len = 40u << 20;
    char *bytes = calloc(1, len);
    assert_non_null(bytes);
    memset(bytes + 4095, 'x', 2);
    memset(bytes + (9u << 20), 'y', 5000);
    bytes[(20u << 20) + 1] = 'z';
    cleanup_fd int blob = memory_file(bytes, len);
    struct convert_request request = request_of(f);
    request.blob_fd = blob;
    struct convert_result result;
    struct err err = ERR_INIT;
    assert_int_equal(run(f, &request, &result, &err), CONVERT_DONE);
    convert_result_free(&result);
    struct stat st;
    assert_int_equal(fstat(f->target_fd, &st), 0);
    assert_int_equal(st.st_size, len);
    assert_true(st.st_blocks * 512 < 128 * 1024);
    char *have = malloc(len);
    assert_non_null(have);
    assert_int_equal(pread(f->target_fd, have, len, 0), len);
    assert_memory_equal(have, bytes, len);
    free(have);
    free(bytes);
}

/* Writes an archive in pieces and feeds the conversion. */
struct feeder {
    struct convert *convert;
    int fd;
    const char *bytes;
    size_t len;
    size_t piece;
    pthread_t thread;
};

static void *feed(void *arg)
{
    const struct feeder *feeder = arg;
    for (size_t at = 0; at < feeder->len;) {
        const size_t left = feeder->len - at;
        const size_t n = feeder->piece < left ? feeder->piece : left;
        (void)fdio_write_full(feeder->fd, feeder->bytes + at, n);
        at += n;
        (void)convert_feed(feeder->convert, at, false, NULL);
    }
    (void)convert_feed(feeder->convert, feeder->len, true, NULL);
    return NULL;
}

/* Starts a conversion that a thread feeds. */
static void start_fed(struct fixture *f, const struct convert_request *request,
                      struct feeder *feeder)
{
    struct err err = ERR_INIT;
    assert_int_equal(ftruncate(f->target_fd, 0), 0);
    assert_int_equal(ftruncate(f->blob_fd, 0), 0);
    assert_int_equal(lseek(f->blob_fd, 0, SEEK_SET), 0);
    if (convert_start(request, &feeder->convert, &err) < 0)
        fail_msg("%s", err.text);
    feeder->fd = f->blob_fd;
    assert_int_equal(pthread_create(&feeder->thread, NULL, feed, feeder), 0);
}

static void end_fed(struct feeder *feeder)
{
    assert_int_equal(pthread_join(feeder->thread, NULL), 0);
    convert_free(feeder->convert);
}

static void test_growing(void **state)
{
    struct fixture *f = *state;
    static const size_t pieces[] = {1, 65536, BODY};
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        const size_t bytes = i == 0 ? 3000 : BODY;
        size_t len;
        char *packed = shell_filter(f->scratch, "gzip -c", f->body, bytes, &len);
        struct digest digest;
        assert_int_equal(digest_bytes(f->body, bytes, &digest, NULL), 0);
        struct convert_request request = request_of(f);
        request.diff_id = &digest;
        struct feeder feeder = {.bytes = packed, .len = len, .piece = pieces[i]};
        start_fed(f, &request, &feeder);
        struct convert_result result;
        struct err err = ERR_INIT;
        if (convert_wait(feeder.convert, NULL, NULL, &result, &err) != CONVERT_DONE)
            fail_msg("%s", err.text);
        end_fed(&feeder);
        convert_result_free(&result);
        assert_target(f, bytes);
        free(packed);
    }
}

static void test_fed_too_little(void **state)
{
    struct fixture *f = *state;
    size_t len;
    char *packed = shell_filter(f->scratch, "gzip -c", f->body, BODY, &len);
    const struct convert_request request = request_of(f);
    struct feeder feeder = {.bytes = packed, .len = len / 2, .piece = 65536};
    start_fed(f, &request, &feeder);
    struct convert_result result;
    struct err err = ERR_INIT;
    assert_true(convert_wait(feeder.convert, NULL, NULL, &result, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "in the middle of its gzip data"));
    /* There is nothing more to wait for, and feeding does no harm. */
    assert_int_equal(convert_feed(feeder.convert, len, true, &err), 0);
    err_clear(&err);
    assert_true(convert_wait(feeder.convert, NULL, NULL, &result, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    end_fed(&feeder);
    free(packed);
}

static void test_wrong_digest(void **state)
{
    struct fixture *f = *state;
    struct digest other = f->digest;
    other.bytes[31] ^= 1;
    cleanup_fd int blob = memory_file(f->body, BODY);
    struct convert_request request = request_of(f);
    request.blob_fd = blob;
    request.diff_id = &other;
    struct convert_result result;
    struct err err = ERR_INIT;
    assert_true(run(f, &request, &result, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_non_null(strstr(err.text, digest_format(&other).s));
    assert_non_null(strstr(err.text, digest_format(&f->digest).s));
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    cleanup_fd int blob = memory_file(f->body, BODY);
    struct convert_request request = request_of(f);
    request.blob_fd = blob;
    request.bytes_max = BODY;
    struct convert_result result;
    struct err err = ERR_INIT;
    assert_int_equal(run(f, &request, &result, &err), CONVERT_DONE);
    convert_result_free(&result);
    request.bytes_max--;
    assert_true(run(f, &request, &result, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    /* 64 MiB of zeros in a few kilobytes. */
    size_t len;
    char *packed = shell_filter(f->scratch, "head -c 64M /dev/zero | zstd -q -1 -c", "", 0, &len);
    cleanup_fd int bomb = memory_file(packed, len);
    free(packed);
    request = (struct convert_request){
        .blob_fd = bomb, .target_fd = f->target_fd, .mode = CONVERT_TAR, .growth_free = 32 << 20};
    assert_true(run(f, &request, &result, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_non_null(strstr(err.text, "times its size"));
    const uint64_t over = CONVERT_GROWTH_FREE + 1;
    assert_true(convert_grows_too_much(over, over / CONVERT_GROWTH_MAX - 1, CONVERT_GROWTH_FREE));
    assert_false(convert_grows_too_much(over, over / CONVERT_GROWTH_MAX, CONVERT_GROWTH_FREE));
    assert_false(convert_grows_too_much(over - 1, 1, CONVERT_GROWTH_FREE));
}

/* Nothing is written over; nothing but files goes in or out. */
static void test_bad_requests(void **state)
{
    struct fixture *f = *state;
    cleanup_fd int blob = memory_file(f->body, BODY);
    struct convert_request request = request_of(f);
    request.blob_fd = blob;
    struct convert_result result;
    struct err err = ERR_INIT;
    assert_int_equal(ftruncate(f->target_fd, 1), 0);
    assert_true(convert_file(&request, NULL, NULL, &result, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    cleanup_fd int reading = openat(f->scratch->fd, "target", O_RDONLY | O_CLOEXEC);
    request.target_fd = reading;
    assert_true(run(f, &request, &result, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    request.target_fd = f->target_fd;
    request.blob_fd = f->scratch->fd;
    assert_true(run(f, &request, &result, &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
}

/* Converts an archive of a layer over the images `lowers`; the image is the scratch file `name`. */
static int convert_over(struct fixture *f, struct tar_builder *tar, const char *name,
                        const int *lowers, size_t lower_count, bool *ret_asked,
                        struct convert_result *ret, struct err *err)
{
    tar_end(tar);
    cleanup_fd int blob = memory_file(tar->bytes, tar->len);
    cleanup_fd int target =
        openat(f->scratch->fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const struct convert_request request = {.blob_fd = blob,
                                            .target_fd = target,
                                            .mode = CONVERT_LAYER,
                                            .is_lowest = !lowers,
                                            .blob_size = tar->len};
    struct convert *convert;
    int rc = convert_start(&request, &convert, err);
    if (rc == 0)
        rc = convert_feed(convert, tar->len, true, err);
    if (rc == 0)
        rc = convert_wait(convert, NULL, NULL, ret, err);
    *ret_asked = rc == CONVERT_NEEDS_LOWERS;
    if (*ret_asked) {
        /* It must be asked for first, and given once. */
        rc = convert_continue(convert, lowers, lower_count, err);
        struct err twice = ERR_INIT;
        assert_true(convert_continue(convert, lowers, lower_count, &twice) < 0);
        if (rc == 0)
            rc = convert_wait(convert, NULL, NULL, ret, err);
    }
    convert_free(convert);
    tar_free(tar);
    return rc;
}

static void test_layers(void **state)
{
    struct fixture *f = *state;
    struct err err = ERR_INIT;
    struct convert_result result;
    struct tar_builder tar = {0};
    bool asked;
    tar_dir(&tar, "d");
    tar_file(&tar, "d/f", "lower bytes");
    tar_text(&tar, "SCHILY.xattr.trusted.overlay.redirect", "/x");
    tar_file(&tar, "d/g", "g");
    if (convert_over(f, &tar, "lower", NULL, 0, &asked, &result, &err) != CONVERT_DONE)
        fail_msg("%s", err.text);
    assert_false(asked);
    assert_int_equal(result.entries, 3);
    assert_false(result.used_lowers);
    assert_int_equal(result.dropped, 1);
    assert_non_null(strstr(result.dropped_first, "d/g"));
    struct stat st;
    assert_int_equal(fstatat(f->scratch->fd, "lower", &st, 0), 0);
    assert_int_equal(result.image_bytes, st.st_size);
    convert_result_free(&result);
    /* A link into the layer below, whose image we could write to. */
    int lowers[CONVERT_LOWERS_MAX];
    for (size_t i = 0; i < CONVERT_LOWERS_MAX; i++)
        lowers[i] = openat(f->scratch->fd, "lower", O_RDWR | O_CLOEXEC);
    static const size_t counts[] = {1, CONVERT_LOWERS_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        tar_hardlink(&tar, "h", "d/f");
        if (convert_over(f, &tar, "upper", lowers, counts[i], &asked, &result, &err) !=
            CONVERT_DONE)
            fail_msg("%s", err.text);
        assert_true(asked && result.used_lowers);
        convert_result_free(&result);
    }
    /* Without the layer that has it. */
    tar_hardlink(&tar, "h", "d/f");
    assert_true(convert_over(f, &tar, "upper", lowers, 0, &asked, &result, &err) < 0);
    assert_true(asked);
    assert_int_equal(err.code, ERR_DAMAGED);
    for (size_t i = 0; i < CONVERT_LOWERS_MAX; i++)
        close(lowers[i]);
}

/* A letter and its accent stay two characters, which the child's locale has a say in. */
static void test_decomposed_name(void **state)
{
    struct fixture *f = *state;
    struct err err = ERR_INIT;
    struct convert_result result;
    struct tar_builder tar = {0};
    bool asked;
    tar_text(&tar, "path", "cafe\xcc\x81");
    tar_file(&tar, "short", "x");
    if (convert_over(f, &tar, "image", NULL, 0, &asked, &result, &err) != CONVERT_DONE)
        fail_msg("%s", err.text);
    convert_result_free(&result);
    char image[32768];
    cleanup_fd int fd = openat(f->scratch->fd, "image", O_RDONLY | O_CLOEXEC);
    ssize_t n = pread(fd, image, sizeof image, 0);
    assert_true(n > 0 && (size_t)n < sizeof image);
    assert_non_null(memmem(image, (size_t)n, "cafe\xcc\x81", 6));
}

/* A tar is no bzip2 because its first name begins so. */
static void test_names_like_packings(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"BZh", "BZh9", "BZh91", "BZh0\x31\x41", "7zXZ"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct err err = ERR_INIT;
        struct convert_result result;
        struct tar_builder tar = {0};
        bool asked;
        tar_file(&tar, names[i], "x");
        if (convert_over(f, &tar, "image", NULL, 0, &asked, &result, &err) != CONVERT_DONE)
            fail_msg("%s: %s", names[i], err.text);
        assert_int_equal(result.entries, 1);
        convert_result_free(&result);
    }
}

/* What is given as an image of a layer is looked at before it is used. */
static void test_bad_lower(void **state)
{
    struct fixture *f = *state;
    struct err err = ERR_INIT;
    struct convert_result result;
    bool asked;
    cleanup_fd int bad = memory_file(f->body, BODY);
    cleanup_fd int empty = memory_file("", 0);
    const int lowers[] = {bad, empty};
    for (size_t i = 0; i < ARRAY_SIZE(lowers); i++) {
        struct tar_builder tar = {0};
        tar_hardlink(&tar, "h", "d/f");
        err_clear(&err);
        assert_true(convert_over(f, &tar, "upper", &lowers[i], 1, &asked, &result, &err) < 0);
        assert_true(asked);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_non_null(strstr(err.text, "image 1 of the layers below"));
    }
}

/* A user's archive needs no layers, and is refused by the name of the member. */
static void test_plain(void **state)
{
    struct fixture *f = *state;
    struct err err = ERR_INIT;
    struct convert_result result;
    struct tar_builder tar = {0};
    struct convert_request request = request_of(f);
    request.mode = CONVERT_PLAIN;
    tar_file(&tar, "a/b", "x");
    tar_end(&tar);
    cleanup_fd int good = memory_file(tar.bytes, tar.len);
    tar_free(&tar);
    request.blob_fd = good;
    if (run(f, &request, &result, &err) != CONVERT_DONE)
        fail_msg("%s", err.text);
    assert_int_equal(result.entries, 2);
    convert_result_free(&result);
    tar_file(&tar, "a/../../b", "x");
    tar_end(&tar);
    cleanup_fd int bad = memory_file(tar.bytes, tar.len);
    tar_free(&tar);
    request.blob_fd = bad;
    assert_true(run(f, &request, &result, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "a/../../b"));
}

/* The last part of a disk is left to others, and the disk's end is met without a hang. */
static void test_full_disk(void **state)
{
    struct fixture *f = *state;
    scratch_tmpfs(f->scratch, "small", 80L << 20);
    static const char *const commands[] = {"yes | head -c 79M", "yes | head -c 300M | gzip -1c"};
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        size_t len;
        char *packed = shell_filter(f->scratch, commands[i], "", 0, &len);
        cleanup_fd int blob = memory_file(packed, len);
        cleanup_fd int target =
            openat(f->scratch->fd, "small/t", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        free(packed);
        struct convert_request request = request_of(f);
        request.blob_fd = blob;
        request.target_fd = target;
        struct convert_result result;
        struct err err = ERR_INIT;
        assert_true(convert_file(&request, NULL, NULL, &result, &err) < 0);
        if (err.code != ERR_NO_SPACE)
            fail_msg("%s: %s", err_code_name(err.code), err.text);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, convert_run_setup, convert_run_teardown)
    const struct CMUnitTest tests[] = {
        T(test_tar_of_each_packing), T(test_tar_with_holes), T(test_growing),
        T(test_fed_too_little),      T(test_wrong_digest),   T(test_limits),
        T(test_bad_requests),        T(test_layers),         T(test_decomposed_name),
        T(test_names_like_packings), T(test_bad_lower),      T(test_plain),
        T(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
