/* Packed, concatenated, padded, cut, damaged, oversized and growing archives. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "convert_run_fixture.h"
#include "convert_stream.h"
#include "convert_wire.h"
#include "fdio.h"
#include "long_counts.h"
#include "shell_filter.h"

enum {
    PACKERS = 4,
};

static const char *const packers[PACKERS] = {"gzip -c", "zstd -qc --check", "xz -0c", "bzip2 -1c"};

/* What the stream gives; its end or its failure. */
struct got {
    struct buf bytes;
    struct digest digest;
    struct err err;
    int rc;
};

static void read_all(struct convert_stream_options options, struct got *ret)
{
    *ret = (struct got){.bytes = BUF_INIT(1 << 30)};
    struct convert_stream *stream;
    if (options.bytes_max == 0)
        options.bytes_max = CONVERT_BYTES_MAX;
    if (options.growth_free == 0)
        options.growth_free = CONVERT_GROWTH_FREE;
    assert_int_equal(convert_stream_open(&options, &stream, &ret->err), 0);
    convert_stream_start(stream);
    const void *bytes = NULL;
    ssize_t n;
    while ((n = convert_stream_read(stream, &bytes, &ret->err)) > 0) {
        assert_true(n <= CONVERT_STREAM_CHUNK);
        assert_int_equal(buf_add(&ret->bytes, bytes, (size_t)n, "test", NULL), 0);
        assert_int_equal(convert_stream_bytes(stream), ret->bytes.len);
    }
    ret->rc = (int)n;
    struct err again = ERR_INIT;
    assert_int_equal(convert_stream_read(stream, &bytes, &again), n);
    assert_int_equal(again.code, ret->err.code);
    if (n == 0)
        ret->digest = *convert_stream_digest(stream);
    convert_stream_close(stream);
}

static void run_bytes(const void *bytes, size_t len, bool any_codec, const struct digest *expected,
                      struct got *ret)
{
    cleanup_fd int fd = memory_file(bytes, len);
    read_all((struct convert_stream_options){.fd = fd,
                                             .growth_fd = -1,
                                             .any_codec = any_codec,
                                             .expected = expected,
                                             .archive_size = len},
             ret);
}

/* The archive gives the bytes, with and without an expected digest. */
static void assert_gives(const void *packed, size_t packed_len, const void *bytes, size_t len)
{
    struct digest digest;
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    for (int with = 0; with < 2; with++) {
        struct got got;
        run_bytes(packed, packed_len, true, with ? &digest : NULL, &got);
        if (got.rc < 0)
            fail_msg("%s: %s", err_code_name(got.err.code), got.err.text);
        assert_int_equal(got.bytes.len, len);
        assert_true(len == 0 || memcmp(buf_str(&got.bytes), bytes, len) == 0);
        assert_true(digest_equal(&got.digest, &digest));
        buf_free(&got.bytes);
    }
}

static void assert_refused(const void *packed, size_t len, bool any_codec,
                           const struct digest *expected, enum err_code code)
{
    struct got got;
    run_bytes(packed, len, any_codec, expected, &got);
    buf_free(&got.bytes);
    if (got.rc == 0)
        fail_msg("%zu bytes were accepted", len);
    if (got.err.code != code || got.rc != -got.err.num)
        fail_msg("%s: %s", err_code_name(got.err.code), got.err.text);
}

static void test_packings(void **state)
{
    struct fixture *f = *state;
    assert_gives(f->body, BODY, f->body, BODY);
    assert_gives("", 0, "", 0);
    for (size_t i = 0; i < PACKERS; i++) {
        size_t len;
        char *packed = shell_filter(f->scratch, packers[i], f->body, BODY, &len);
        assert_gives(packed, len, f->body, BODY);
        struct got got;
        run_bytes(packed, len, false, NULL, &got);
        assert_int_equal(got.err.code, i < 2 ? ERR_NONE : ERR_UNSUPPORTED);
        buf_free(&got.bytes);
        free(packed);
    }
}

/* Every level and kind of block: stored, fixed and dynamic codes, runs, short and long distances.
 */
static void test_kinds_of_gzip(void **state)
{
    struct fixture *f = *state;
    static const char *const commands[] = {
        "gzip -1c",
        "gzip -9c",
        "python3 -c 'import sys,zlib; c=zlib.compressobj(0,8,31); d=sys.stdin.buffer.read(); "
        "sys.stdout.buffer.write(c.compress(d)+c.flush())'",
        "python3 -c 'import sys,zlib; c=zlib.compressobj(9,8,31,9,zlib.Z_FIXED); "
        "d=sys.stdin.buffer.read(); sys.stdout.buffer.write(c.compress(d)+c.flush())'",
        "python3 -c 'import sys,zlib; c=zlib.compressobj(9,8,25,9,zlib.Z_HUFFMAN_ONLY); "
        "d=sys.stdin.buffer.read(); sys.stdout.buffer.write(c.compress(d)+c.flush())'",
        "python3 -c 'import sys,zlib; c=zlib.compressobj(6,8,31); d=sys.stdin.buffer.read();\n"
        "for i in range(0,len(d),999): sys.stdout.buffer.write(c.compress(d[i:i+999])+"
        "c.flush([zlib.Z_SYNC_FLUSH,zlib.Z_FULL_FLUSH,zlib.Z_PARTIAL_FLUSH][i%3]))\n"
        "sys.stdout.buffer.write(c.flush())'"};
    size_t mixed_len;
    char *mixed = shell_filter(f->scratch,
                               "head -c 200000; head -c 500000 /dev/zero; yes abcdefghij | head -c "
                               "300000; seq 100000",
                               f->body, BODY, &mixed_len);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        size_t len;
        char *packed = shell_filter(f->scratch, commands[i], mixed, mixed_len, &len);
        assert_gives(packed, len, mixed, mixed_len);
        free(packed);
    }
    free(mixed);
}

/* Several members or frames are one stream. */
static void test_concatenated(void **state)
{
    struct fixture *f = *state;
    static const char *const commands[] = {
        "cat > l; split -b 500K l p.; for x in p.*; do gzip -1c $x; done",
        "cat > l; split -b 500K l p.; for x in p.*; do zstd -qc $x; done",
        "cat > l; split -b 500K l p.; S() { printf 'P*M\\030\\004\\000\\000\\000abcd'; }; "
        "S; for x in p.*; do zstd -qc $x; S; done",
        "cat > l; S() { printf '\\137*M\\030\\000\\000\\000\\000'; }; zstd -qc l; S",
        "cat > l; gzip -1c l; head -c 100000 /dev/zero",
        "cat > l; : | gzip -1c; gzip -1c l; : | gzip -1c",
        "cat > l; bzip2 -1c l; head -c 600001 /dev/zero",
        "cat > l; split -b 500K l p.; for x in p.*; do xz -0c $x; done",
        "cat > l; split -b 500K l p.; for x in p.*; do bzip2 -1c $x; done",
        /* As eStargz has them: thousands of small members. */
        "python3 -c 'import sys,gzip; d=sys.stdin.buffer.read()\n"
        "for i in range(0,len(d),577): sys.stdout.buffer.write(gzip.compress(d[i:i+577],1))'",
    };
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        size_t len;
        char *packed = shell_filter(f->scratch, commands[i], f->body, BODY, &len);
        assert_gives(packed, len, f->body, BODY);
        free(packed);
    }
}

/* Member headers with everything that the format has (RFC 1952, 2.3). */
static const char headers_of_gzip[] =
    "python3 -c 'import sys,zlib,struct\n"
    "d=sys.stdin.buffer.read(); c=zlib.compressobj(6,8,-15); z=c.compress(d)+c.flush()\n"
    "t=struct.pack(\"<II\",zlib.crc32(d),len(d)); w=sys.stdout.buffer.write\n"
    "for flags in range(32):\n"
    "  h=struct.pack(\"<BBBBIBB\",31,139,8,flags,1,2,3)\n"
    "  if flags&4: h+=struct.pack(\"<H\",300)+b\"e\"*300\n"
    "  if flags&8: h+=b\"name\"*70+b\"\\0\"\n"
    "  if flags&16: h+=b\"comment\"+b\"\\0\"\n"
    "  if flags&2: h+=struct.pack(\"<H\",zlib.crc32(h)&65535)\n"
    "  w(h+z+t)'";

static void test_headers_of_gzip(void **state)
{
    struct fixture *f = *state;
    size_t len;
    char *packed = shell_filter(f->scratch, headers_of_gzip, f->body, SMALL, &len);
    char *want = malloc(32 * SMALL);
    assert_non_null(want);
    for (size_t i = 0; i < 32; i++)
        memcpy(want + i * SMALL, f->body, SMALL);
    assert_gives(packed, len, want, 32 * SMALL);
    free(want);
    free(packed);
    packed = shell_filter(f->scratch, "gzip -nc", f->body, SMALL, &len);
    static const struct {
        size_t at;
        char value;
    } wrong[] = {{2, 7}, {3, 0x20}, {3, 0x40}, {3, (char)0x80}};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        const char good = packed[wrong[i].at];
        packed[wrong[i].at] = wrong[i].value;
        assert_refused(packed, len, false, NULL, ERR_DAMAGED);
        packed[wrong[i].at] = good;
    }
    packed[3] = 2; /* the next two bytes are no checksum of the header */
    assert_refused(packed, len, false, NULL, ERR_DAMAGED);
    free(packed);
}

/* Bytes that belong to no member or frame. */
static void test_garbage_after_packing(void **state)
{
    struct fixture *f = *state;
    static const char *const commands[] = {
        "cat > l; gzip -1c l; echo junk",
        "cat > l; zstd -qc l; echo junk",
        "cat > l; gzip -1c l; printf '\\037'",
        "cat > l; gzip -1c l; printf '\\037\\213'",
        "cat > l; gzip -1c l; head -c 600000 /dev/zero; printf x",
        "cat > l; gzip -1c l; printf '\\000'; gzip -1c l",
        "cat > l; zstd -qc l; head -c 512 /dev/zero",
        "cat > l; zstd -qc l; printf 'P*M\\030\\004\\000\\000\\000abc'",
        "cat > l; xz -0c l; echo junk",
        "cat > l; bzip2 -1c l; echo junk",
        "xz -0c | bzip2 -1c"};
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        size_t len;
        char *packed = shell_filter(f->scratch, commands[i], f->body, BODY, &len);
        assert_refused(packed, len, true, NULL, ERR_DAMAGED);
        free(packed);
    }
}

/* Cut at every byte. Without a digest only what is too short to be known as packed passes. */
static void test_cut_anywhere(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < PACKERS; i++) {
        size_t len;
        char *packed = shell_filter(f->scratch, packers[i], f->body, SMALL, &len);
        for (size_t cut = 0; cut < len; cut++) {
            struct got got;
            run_bytes(packed, cut, true, NULL, &got);
            if (got.rc == 0 && !(cut < 6 && got.bytes.len == cut))
                fail_msg("%s: %zu bytes of %zu were accepted", packers[i], cut, len);
            if (got.rc < 0 && got.err.code != ERR_DAMAGED)
                fail_msg("%s: %s", err_code_name(got.err.code), got.err.text);
            buf_free(&got.bytes);
            run_bytes(packed, cut, true, &f->small_digest, &got);
            assert_true(got.rc < 0);
            assert_true(got.err.code == ERR_DAMAGED || got.err.code == ERR_DIGEST);
            buf_free(&got.bytes);
        }
        free(packed);
    }
    assert_refused(f->body, SMALL - 1, true, &f->small_digest, ERR_DIGEST);
}

/* Every bit (of xz and bzip2, and in short runs, some) of a small archive flipped: a failure or the
 * right bytes, never others. */
static void test_flipped_bits(void **state)
{
    struct fixture *f = *state;
    const size_t step = long_counts() ? 1 : 3;
    for (size_t i = 0; i < PACKERS; i++) {
        size_t len;
        char *packed = shell_filter(f->scratch, packers[i], f->body, SMALL, &len);
        size_t refused = 0;
        size_t tried = 0;
        for (size_t bit = 0; bit < 8 * len; bit += i < 2 ? step : 11) {
            struct got got;
            packed[bit / 8] ^= (char)(1 << bit % 8);
            run_bytes(packed, len, true, NULL, &got);
            const bool same =
                got.bytes.len == SMALL && memcmp(buf_str(&got.bytes), f->body, SMALL) == 0;
            /* Without its magic number it is a plain tar. */
            const bool plain = bit / 8 < 6 && got.bytes.len == len;
            if (got.rc == 0 && !same && !plain)
                fail_msg("%s: bit %zu of %zu gives %zu other bytes", packers[i], bit, 8 * len,
                         got.bytes.len);
            tried++;
            refused += got.rc < 0;
            packed[bit / 8] ^= (char)(1 << bit % 8);
            buf_free(&got.bytes);
        }
        assert_true(refused > tried * 9 / 10);
        free(packed);
    }
}

/* CRC and length of a gzip member, each alone, also of one that is not the last. */
static void test_checksums_of_gzip(void **state)
{
    struct fixture *f = *state;
    size_t len;
    char *packed = shell_filter(f->scratch, "gzip -c", f->body, BODY, &len);
    char *twice = malloc(2 * len);
    assert_non_null(twice);
    for (size_t i = 1; i <= 8; i++) {
        packed[len - i] ^= 1;
        assert_refused(packed, len, false, NULL, ERR_DAMAGED);
        memcpy(twice, packed, len);
        packed[len - i] ^= 1;
        memcpy(twice + len, packed, len);
        assert_refused(twice, 2 * len, false, NULL, ERR_DAMAGED);
    }
    free(twice);
    free(packed);
}

/* Both digests stand in the message. */
static void test_wrong_digest(void **state)
{
    struct fixture *f = *state;
    struct got got;
    run_bytes(f->body, BODY, false, &f->small_digest, &got);
    buf_free(&got.bytes);
    assert_int_equal(got.err.code, ERR_DIGEST);
    assert_non_null(strstr(got.err.text, digest_format(&f->small_digest).s));
    assert_non_null(strstr(got.err.text, digest_format(&f->digest).s));
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    cleanup_fd int fd = memory_file(f->body, BODY);
    struct convert_stream_options options = {
        .fd = fd, .growth_fd = -1, .archive_size = BODY, .bytes_max = BODY};
    struct got got;
    read_all(options, &got);
    assert_int_equal(got.rc, 0);
    buf_free(&got.bytes);
    options.bytes_max = BODY - 1;
    read_all(options, &got);
    assert_int_equal(got.err.code, ERR_TOO_LARGE);
    assert_non_null(strstr(got.err.text, "2999999 bytes"));
    buf_free(&got.bytes);
}

static void test_growth_limit(void **state)
{
    struct fixture *f = *state;
    size_t len;
    char *packed = shell_filter(f->scratch, "head -c 64M /dev/zero | zstd -q -1 -c", "", 0, &len);
    assert_true((64u << 20) / len > CONVERT_GROWTH_MAX);
    cleanup_fd int fd = memory_file(packed, len);
    struct convert_stream_options options = {
        .fd = fd, .growth_fd = -1, .archive_size = len, .growth_free = 32 << 20};
    struct got got;
    read_all(options, &got);
    assert_int_equal(got.err.code, ERR_TOO_LARGE);
    assert_non_null(strstr(got.err.text, "times its size"));
    buf_free(&got.bytes);
    options.growth_free = 0;
    read_all(options, &got);
    assert_int_equal(got.rc, 0);
    assert_int_equal(got.bytes.len, 64 << 20);
    buf_free(&got.bytes);
    free(packed);
}

static void test_long_window(void **state)
{
    struct fixture *f = *state;
    size_t len;
    char *packed =
        shell_filter(f->scratch, "head -c 300M /dev/zero | zstd -q -1 --long=30 -c", "", 0, &len);
    assert_refused(packed, len, false, NULL, ERR_TOO_LARGE);
    free(packed);
    packed =
        shell_filter(f->scratch, "head -c 140M /dev/zero | zstd -q -1 --long=27 -c", "", 0, &len);
    struct got got;
    run_bytes(packed, len, false, NULL, &got);
    assert_int_equal(got.rc, 0);
    assert_int_equal(got.bytes.len, 140 << 20);
    buf_free(&got.bytes);
    free(packed);
}

/* A growing archive: a thread writes it in pieces and says so. */
struct growing {
    const char *bytes;
    size_t len;
    size_t piece;
    size_t announced; /* in the end */
    int fd;
    int socket;
    bool hangs_up; /* instead of saying that it is the end */
};

static void announce(int socket, uint64_t size, bool end)
{
    const struct convert_wire_growth growth = {
        .magic = CONVERT_WIRE_GROWTH_MAGIC, .end = end, .size = size};
    (void)send(socket, &growth, sizeof growth, MSG_NOSIGNAL); /* which may be closed already */
}

static void *grow(void *arg)
{
    const struct growing *g = arg;
    announce(g->socket, 0, false);
    for (size_t at = 0; at < g->len;) {
        const size_t n = g->piece < g->len - at ? g->piece : g->len - at;
        (void)fdio_write_full(g->fd, g->bytes + at, n);
        at += n;
        announce(g->socket, at, false);
    }
    if (!g->hangs_up)
        announce(g->socket, g->announced, true);
    else
        (void)shutdown(g->socket, SHUT_RDWR);
    return NULL;
}

static void run_growing(struct growing *g, const struct digest *expected, struct got *ret)
{
    int pair[2];
    pthread_t thread;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    g->fd = memory_file("", 0);
    g->socket = pair[1];
    assert_int_equal(pthread_create(&thread, NULL, grow, g), 0);
    read_all((struct convert_stream_options){.fd = g->fd,
                                             .growth_fd = pair[0],
                                             .any_codec = true,
                                             .expected = expected,
                                             .archive_size = g->len},
             ret);
    close(pair[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(pair[1]);
    close(g->fd);
}

static void test_growing(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i <= PACKERS; i++) {
        for (int large = 0; large < 2; large++) {
            size_t len;
            char *packed = shell_filter(f->scratch, i < PACKERS ? packers[i] : "cat", f->body,
                                        large ? BODY : SMALL, &len);
            struct growing g = {
                .bytes = packed, .len = len, .piece = large ? 70001 : 1, .announced = len};
            struct got got;
            run_growing(&g, large ? &f->digest : &f->small_digest, &got);
            if (got.rc < 0)
                fail_msg("%zu: %s", i, got.err.text);
            assert_int_equal(got.bytes.len, large ? BODY : SMALL);
            buf_free(&got.bytes);
            free(packed);
        }
    }
    size_t len;
    char *packed = shell_filter(f->scratch, headers_of_gzip, f->body, SMALL, &len);
    struct growing g = {.bytes = packed, .len = len, .piece = 1, .announced = len};
    struct got got;
    run_growing(&g, NULL, &got);
    assert_int_equal(got.rc, 0);
    assert_int_equal(got.bytes.len, 32 * SMALL);
    buf_free(&got.bytes);
    free(packed);
}

/* Ends too early, is shorter than it was said to be, or is given up. */
static void test_growing_badly(void **state)
{
    struct fixture *f = *state;
    size_t len;
    char *packed = shell_filter(f->scratch, "zstd -qc", f->body, BODY, &len);
    struct got got;
    struct growing g = {.bytes = packed, .len = len - 9, .piece = 100000, .announced = len - 9};
    run_growing(&g, NULL, &got);
    assert_int_equal(got.err.code, ERR_DAMAGED);
    assert_non_null(strstr(got.err.text, "in the middle of its zstd data"));
    buf_free(&got.bytes);
    g.announced = len;
    run_growing(&g, NULL, &got);
    assert_int_equal(got.err.code, ERR_DAMAGED);
    assert_non_null(strstr(got.err.text, "9 bytes less"));
    buf_free(&got.bytes);
    g.hangs_up = true;
    run_growing(&g, NULL, &got);
    assert_int_equal(got.err.code, ERR_INTERRUPTED);
    buf_free(&got.bytes);
    g.hangs_up = false;
    g.announced = 5; /* sizes only grow */
    run_growing(&g, NULL, &got);
    assert_int_equal(got.err.code, ERR_INTERNAL);
    buf_free(&got.bytes);
    free(packed);
}

/* What was not announced is not read, though the file has it. */
static void test_not_beyond_the_announced(void **state)
{
    struct fixture *f = *state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    cleanup_fd int fd = memory_file(f->body, BODY);
    announce(pair[1], 10, false);
    announce(pair[1], SMALL, true);
    struct got got;
    read_all(
        (struct convert_stream_options){
            .fd = fd, .growth_fd = pair[0], .expected = &f->small_digest, .archive_size = SMALL},
        &got);
    assert_int_equal(got.rc, 0);
    buf_free(&got.bytes);
    close(pair[0]);
    close(pair[1]);
}

/* Closing ends all threads: before the start, while they wait for the archive, for the caller. */
static void test_close_anywhere(void **state)
{
    struct fixture *f = *state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    cleanup_fd int fd = memory_file(f->body, BODY);
    struct convert_stream_options options = {.fd = fd,
                                             .growth_fd = pair[0],
                                             .archive_size = BODY,
                                             .bytes_max = CONVERT_BYTES_MAX,
                                             .growth_free = CONVERT_GROWTH_FREE};
    for (int i = 0; i < 4; i++) {
        struct err err = ERR_INIT;
        struct convert_stream *stream;
        assert_int_equal(convert_stream_open(&options, &stream, &err), 0);
        if (i > 0)
            convert_stream_start(stream);
        if (i == 2)
            announce(pair[1], BODY - 1, false);
        const void *bytes;
        if (i >= 2)
            assert_true(convert_stream_read(stream, &bytes, &err) > 0);
        convert_stream_close(stream);
        options.growth_fd = i == 2 ? -1 : options.growth_fd;
    }
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, convert_run_setup, convert_run_teardown)
    const struct CMUnitTest tests[] = {
        T(test_packings),        T(test_kinds_of_gzip),         T(test_concatenated),
        T(test_headers_of_gzip), T(test_garbage_after_packing), T(test_cut_anywhere),
        T(test_flipped_bits),    T(test_checksums_of_gzip),     T(test_wrong_digest),
        T(test_limits),          T(test_growth_limit),          T(test_long_window),
        T(test_growing),         T(test_growing_badly),         T(test_not_beyond_the_announced),
        T(test_close_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
