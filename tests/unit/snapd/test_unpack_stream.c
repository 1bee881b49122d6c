/* Compressed, concatenated, padded, cut and oversized blobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unpack_fixture.h"

enum {
    BODY = 3000000, /* bytes of the one file of the archive, which compresses badly */
};

/* One archive for all tests: 4 members, one of them large, and its digest. */
struct fixture {
    struct scratch *scratch;
    struct tar_builder tar;
    char *body;
    struct digest diff_id;
    int count; /* targets used */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    void *scratch;
    if (!f || scratch_setup(&scratch) < 0)
        return -1;
    f->scratch = scratch;
    f->body = malloc(BODY);
    uint32_t random = 12345;
    for (size_t i = 0; i < BODY; i++) {
        random = random * 1664525 + 1013904223;
        f->body[i] = (char)(i % 7 == 0 ? 'a' : random >> 24);
    }
    tar_dir(&f->tar, "d");
    tar_add(&f->tar, &(struct tar_member){.name = "d/body", .data = f->body, .size = BODY});
    tar_symlink(&f->tar, "d/l", "body");
    tar_file(&f->tar, "last", "end");
    tar_end(&f->tar);
    assert_int_equal(digest_bytes(f->tar.bytes, f->tar.len, &f->diff_id, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    void *scratch = f->scratch;
    int rc = scratch_teardown(&scratch);
    tar_free(&f->tar);
    free(f->body);
    free(f);
    return rc;
}

static int try(struct fixture *f, const void *bytes, size_t len, enum unpack_mode mode,
               const struct digest *diff_id, struct err *err)
{
    char target[16];
    snprintf(target, sizeof target, "t%d", ++f->count);
    err_clear(err);
    return unpack_try(&(struct unpack_try){.scratch = f->scratch,
                                           .target = target,
                                           .mode = mode,
                                           .bytes = bytes,
                                           .len = len,
                                           .diff_id = diff_id},
                      err);
}

/* The blob gives the whole tree, with and without a digest. */
static void assert_whole(struct fixture *f, const void *bytes, size_t len, enum unpack_mode mode)
{
    for (int with = 0; with < 2; with++) {
        struct err err = ERR_INIT;
        if (try(f, bytes, len, mode, with ? &f->diff_id : NULL, &err) < 0)
            fail_msg("%s", err.text);
        char path[32];
        snprintf(path, sizeof path, "t%d/d/body", f->count);
        assert_int_equal(look(f->scratch, path).st_size, BODY);
        snprintf(path, sizeof path, "t%d/last", f->count);
        assert_content(f->scratch, path, "end");
    }
}

static void assert_refused(struct fixture *f, const void *bytes, size_t len, enum unpack_mode mode,
                           const struct digest *diff_id, enum err_code code)
{
    struct err err = ERR_INIT;
    if (try(f, bytes, len, mode, diff_id, &err) == 0)
        fail_msg("%zu bytes were accepted", len);
    if (err.code != code)
        fail_msg("%s: %s", err_code_name(err.code), err.text);
}

static const char *const packers[] = {"gzip -c", "zstd -qc", "xz -0c", "bzip2 -1c"};

static void test_packings(void **state)
{
    struct fixture *f = *state;
    assert_whole(f, f->tar.bytes, f->tar.len, UNPACK_LAYER);
    for (size_t i = 0; i < 4; i++) {
        char *bytes;
        size_t len;
        filter(f->scratch, packers[i], f->tar.bytes, f->tar.len, &bytes, &len);
        assert_whole(f, bytes, len, UNPACK_PLAIN);
        if (i < 2)
            assert_whole(f, bytes, len, UNPACK_LAYER);
        else
            assert_refused(f, bytes, len, UNPACK_LAYER, &f->diff_id, ERR_UNSUPPORTED);
        free(bytes);
    }
}

/* B12: cut anywhere, also at the boundary of a member, and to nothing. */
static void test_truncated(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < 5; i++) {
        char *bytes;
        size_t len;
        filter(f->scratch, i < 4 ? packers[i] : "cat", f->tar.bytes, f->tar.len, &bytes, &len);
        const size_t cuts[] = {1,       2,       4,       8,       200,      1024,     1536,
                               len / 2, len - 1, len - 4, len - 6, len - 11, len - 20, len};
        for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
            /* Without the second block of the marker a plain tar is still marked as whole. */
            enum err_code with = i == 4 && cuts[k] != len ? ERR_DIGEST : ERR_DAMAGED;
            if (i < 2 || i == 4) {
                struct err err = ERR_INIT;
                assert_true(try(f, bytes, len - cuts[k], UNPACK_LAYER, &f->diff_id, &err) < 0);
                assert_true(err.code == ERR_DAMAGED || err.code == with || err.code == ERR_DIGEST);
            }
            if (!(i == 4 && cuts[k] <= 512))
                assert_refused(f, bytes, len - cuts[k], UNPACK_PLAIN, NULL, ERR_DAMAGED);
        }
        free(bytes);
    }
}

/* B13: several members or frames are one stream. */
static void test_concatenated(void **state)
{
    struct fixture *f = *state;
    static const char *const commands[] = {
        "cat > l; split -b 1M l p.; for x in p.*; do gzip -c $x; done",
        "cat > l; split -b 1M l p.; for x in p.*; do zstd -qc $x; done",
        "cat > l; split -b 1M l p.; S() { printf 'P*M\\030\\004\\000\\000\\000abcd'; }; "
        "S; for x in p.*; do zstd -qc $x; S; done",
        "cat > l; S() { printf '\\137*M\\030\\000\\000\\000\\000'; }; zstd -qc l; S",
        "cat > l; gzip -c l; head -c 100000 /dev/zero",
        "cat > l; : | gzip -c; gzip -c l; : | gzip -c",
        "cat > l; split -b 1M l p.; for x in p.*; do xz -0c $x; done",
        "cat > l; split -b 1M l p.; for x in p.*; do bzip2 -1c $x; done",
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char *bytes;
        size_t len;
        filter(f->scratch, commands[i], f->tar.bytes, f->tar.len, &bytes, &len);
        assert_whole(f, bytes, len, i < 6 ? UNPACK_LAYER : UNPACK_PLAIN);
        free(bytes);
    }
}

/* Bytes that belong to no member or frame. */
static void test_garbage_after_packing(void **state)
{
    struct fixture *f = *state;
    static const char *const commands[] = {
        "cat > l; gzip -c l; echo junk", "cat > l; zstd -qc l; echo junk",
        "cat > l; gzip -c l; printf '\\037'", "cat > l; gzip -c l; printf '\\037\\213'"};
    for (size_t i = 0; i < 4; i++) {
        char *bytes;
        size_t len;
        filter(f->scratch, commands[i], f->tar.bytes, f->tar.len, &bytes, &len);
        assert_refused(f, bytes, len, UNPACK_LAYER, &f->diff_id, ERR_DAMAGED);
        free(bytes);
    }
}

/* B14: what follows the end-of-archive marker counts for the digest, and only there. */
static void test_after_the_marker(void **state)
{
    struct fixture *f = *state;
    static const char *const commands[] = {"cat; head -c 70000 /dev/zero",
                                           "cat; yes junk | head -c 300001"};
    for (size_t i = 0; i < 2; i++) {
        char *bytes;
        size_t len;
        struct digest digest;
        filter(f->scratch, commands[i], f->tar.bytes, f->tar.len, &bytes, &len);
        assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
        struct err err = ERR_INIT;
        assert_int_equal(try(f, bytes, len, UNPACK_LAYER, &digest, &err), 0);
        assert_int_equal(try(f, bytes, len, UNPACK_PLAIN, NULL, &err), 0);
        assert_refused(f, bytes, len, UNPACK_LAYER, &f->diff_id, ERR_DIGEST);
        free(bytes);
    }
}

/* B19: both digests stand in the message. */
static void test_wrong_digest(void **state)
{
    struct fixture *f = *state;
    struct digest other = f->diff_id;
    other.bytes[31] ^= 1;
    struct err err = ERR_INIT;
    assert_true(try(f, f->tar.bytes, f->tar.len, UNPACK_LAYER, &other, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_non_null(strstr(err.text, digest_format(&other).s));
    assert_non_null(strstr(err.text, digest_format(&f->diff_id).s));
}

/* A flipped bit in the body of a gzip file, which only its checksum shows. */
static void test_checksum_of_gzip(void **state)
{
    struct fixture *f = *state;
    char *bytes;
    size_t len;
    filter(f->scratch, "gzip -1c", f->tar.bytes, f->tar.len, &bytes, &len);
    bytes[len - 8] ^= 1; /* of the CRC itself */
    assert_refused(f, bytes, len, UNPACK_PLAIN, NULL, ERR_DAMAGED);
    free(bytes);
}

static void test_empty_and_foreign(void **state)
{
    struct fixture *f = *state;
    static const char zeros[1024];
    struct digest digest;
    struct err err = ERR_INIT;
    /* Two zero blocks are an archive without members. */
    assert_int_equal(try(f, zeros, 1024, UNPACK_PLAIN, NULL, &err), 0);
    assert_int_equal(digest_bytes(zeros, 1024, &digest, NULL), 0);
    assert_int_equal(try(f, zeros, 1024, UNPACK_LAYER, &digest, &err), 0);
    /* Nothing at all is one only where a digest says so. */
    assert_int_equal(digest_bytes("", 0, &digest, NULL), 0);
    assert_int_equal(try(f, "", 0, UNPACK_LAYER, &digest, &err), 0);
    assert_refused(f, "", 0, UNPACK_PLAIN, NULL, ERR_DAMAGED);
    assert_refused(f, "", 0, UNPACK_LAYER, &f->diff_id, ERR_DIGEST);
    static const char text[] = "#!/bin/sh\necho this is no archive at all, but some kind of text\n";
    assert_refused(f, text, sizeof text - 1, UNPACK_PLAIN, NULL, ERR_DAMAGED);
    assert_refused(f, text, 3, UNPACK_PLAIN, NULL, ERR_DAMAGED);
    char *zip;
    size_t len;
    filter(f->scratch,
           "python3 -c \"import zipfile,sys,io; b=io.BytesIO(); "
           "z=zipfile.ZipFile(b,'w'); z.writestr('f','x'); z.close(); "
           "sys.stdout.buffer.write(b.getvalue())\"",
           "", 0, &zip, &len);
    assert_refused(f, zip, len, UNPACK_PLAIN, NULL, ERR_DAMAGED);
    free(zip);
}

/* B18: an archive that grows too much ends at a limit; below it, the same archive is good. */
static void test_growth(void **state)
{
    struct fixture *f = *state;
    char *bytes;
    size_t len;
    filter(f->scratch, "truncate -s 64M z && tar --format=posix -cf - z | zstd -q -1 -c; rm z", "",
           0, &bytes, &len);
    assert_true((64u << 20) / len > UNPACK_GROWTH_MAX);
    struct unpack_try growing = {.scratch = f->scratch,
                                 .target = "bomb",
                                 .mode = UNPACK_LAYER,
                                 .bytes = bytes,
                                 .len = len,
                                 .growth_free = 32 << 20};
    struct err err = ERR_INIT;
    assert_true(unpack_try(&growing, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_non_null(strstr(err.text, "times its size"));
    err_clear(&err);
    growing.target = "good";
    growing.growth_free = 0;
    assert_int_equal(unpack_try(&growing, &err), 0);
    assert_int_equal(look(f->scratch, "good/z").st_size, 64 << 20);
    free(bytes);
    const uint64_t over = UNPACK_GROWTH_FREE + 1;
    assert_true(unpack_grows_too_much(over, over / UNPACK_GROWTH_MAX - 1, UNPACK_GROWTH_FREE));
    assert_false(unpack_grows_too_much(over, over / UNPACK_GROWTH_MAX, UNPACK_GROWTH_FREE));
    assert_false(unpack_grows_too_much(over - 1, 1, UNPACK_GROWTH_FREE));
}

static void test_long_window(void **state)
{
    struct fixture *f = *state;
    char *bytes;
    size_t len;
    filter(f->scratch,
           "truncate -s 300M z && tar --format=posix -cf - z | zstd -q -1 --long=30 -c; rm z", "",
           0, &bytes, &len);
    assert_refused(f, bytes, len, UNPACK_LAYER, NULL, ERR_TOO_LARGE);
    free(bytes);
}

/* The last part of a disk is left to others: 79 MiB on a disk of 80. */
static void test_full_disk(void **state)
{
    struct fixture *f = *state;
    scratch_tmpfs(f->scratch, "small", 80L << 20);
    const size_t size = 79u << 20;
    char *body = malloc(size);
    assert_non_null(body);
    memset(body, 'x', size);
    for (int i = 0; i < 2; i++) {
        struct tar_builder tar = {0};
        /* The second one is too large by far and meets the end of the disk itself. */
        tar_add(&tar, &(struct tar_member){.name = "a", .data = body, .size = size});
        if (i == 1)
            tar_add(&tar, &(struct tar_member){.name = "b", .data = body, .size = size});
        unpack_bad(f->scratch, i == 0 ? "small/t" : "small/u", UNPACK_PLAIN, &tar, ERR_NO_SPACE,
                   "");
    }
    free(body);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_packings),         T(test_truncated),
        T(test_concatenated),     T(test_garbage_after_packing),
        T(test_after_the_marker), T(test_wrong_digest),
        T(test_checksum_of_gzip), T(test_empty_and_foreign),
        T(test_growth),           T(test_long_window),
        T(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
