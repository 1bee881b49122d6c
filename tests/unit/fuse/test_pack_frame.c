/* Frames of chunks: there and back, what is not smaller, and what is no frame. */
#include "pack_frame.h"

#include "cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zdict.h>
#include <zstd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static uint8_t chunk[VOLUME_CHUNK + 1];
static uint8_t frame[2 * VOLUME_CHUNK];
static uint8_t back[VOLUME_CHUNK];
static struct digest digest;

static int setup(void **state)
{
    return pack_frame_new((struct pack_frame **)state, NULL);
}

static int teardown(void **state)
{
    pack_frame_free(*state);
    return 0;
}

/* Bytes that compress the better the larger `step` is. */
static void fill(unsigned seed, size_t step)
{
    uint64_t x = seed + 1;
    for (size_t i = 0; i < VOLUME_CHUNK; i++) {
        if (i % step == 0)
            x = x * 6364136223846793005u + 1442695040888963407u;
        chunk[i] = (uint8_t)(x >> 56);
    }
    assert_int_equal(digest_bytes(chunk, VOLUME_CHUNK, &digest, NULL), 0);
}

static void there_and_back(void **state)
{
    struct err err = ERR_INIT;
    static const size_t steps[] = {1, 2, 3, 16, 4096, VOLUME_CHUNK};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        fill((unsigned)i, steps[i]);
        memset(frame, 0xA5, sizeof frame);
        size_t len = pack_frame_encode(*state, chunk, frame);
        assert_in_range(len, 1, VOLUME_CHUNK);
        assert_true(steps[i] == 1 ? len == VOLUME_CHUNK : steps[i] < 16 || len < VOLUME_CHUNK);
        assert_int_equal(frame[VOLUME_CHUNK], 0xA5);
        assert_int_equal(pack_frame_decode(*state, frame, len, &digest, back, &err), 0);
        assert_memory_equal(back, chunk, VOLUME_CHUNK);
    }
}

/* Random bytes stand there as they are. */
static void what_is_not_smaller(void **state)
{
    fill(1, 1);
    assert_int_equal(pack_frame_encode(*state, chunk, frame), VOLUME_CHUNK);
    assert_memory_equal(frame, chunk, VOLUME_CHUNK);
}

/* Another codec, and one that has been used, make the same bytes. */
static void frames_are_always_the_same(void **state)
{
    struct pack_frame *other = NULL;
    assert_int_equal(pack_frame_new(&other, NULL), 0);
    static uint8_t again[VOLUME_CHUNK];
    for (unsigned i = 0; i < 8; i++) {
        fill(i, 2 + i % 5);
        size_t len = pack_frame_encode(*state, chunk, frame);
        assert_int_equal(pack_frame_encode(i % 2 ? other : *state, chunk, again), len);
        assert_memory_equal(again, frame, len);
    }
    pack_frame_free(other);
}

static void assert_refused(struct pack_frame *codec, const void *bytes, size_t len)
{
    struct err err = ERR_INIT;
    assert_true(pack_frame_decode(codec, bytes, len, &digest, back, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

static void cut_and_longer(void **state)
{
    fill(3, 32);
    size_t len = pack_frame_encode(*state, chunk, frame);
    for (size_t cut = 0; cut < len; cut += cut < 64 || cut + 64 > len ? 1 : 97)
        assert_refused(*state, frame, cut);
    frame[len] = 0;
    assert_refused(*state, frame, len + 1);
    memmove(frame + len, frame, len); /* two of them */
    assert_refused(*state, frame, 2 * len);
    assert_refused(*state, frame, sizeof frame);
    assert_int_equal(pack_frame_decode(*state, frame, len, &digest, back, NULL), 0);
}

static void other_bytes(void **state)
{
    fill(4, 16);
    size_t len = pack_frame_encode(*state, chunk, frame);
    for (size_t i = 0; i < len; i += 41) {
        frame[i] ^= 0x10;
        assert_refused(*state, frame, len);
        frame[i] ^= 0x10;
    }
    chunk[7] ^= 1;
    assert_refused(*state, chunk, VOLUME_CHUNK);
    digest.bytes[31] ^= 1;
    assert_refused(*state, frame, len);
}

/* Sound frames of zstd that are none of ours. */
static void other_frames(void **state)
{
    fill(5, 64);
    static const uint8_t skippable[] = {0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 1, 2};
    assert_refused(*state, skippable, sizeof skippable);
    static const size_t sizes[] = {0, 1, VOLUME_CHUNK - 1, VOLUME_CHUNK + 1};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t len = ZSTD_compress(frame, sizeof frame, chunk, sizes[i], 1);
        assert_false(ZSTD_isError(len));
        assert_refused(*state, frame, len);
    }
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_non_null(context);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0); /* says no size */
    size_t len = ZSTD_compress2(context, frame, sizeof frame, chunk, VOLUME_CHUNK);
    assert_false(ZSTD_isError(len));
    assert_refused(*state, frame, len);
    ZSTD_freeCCtx(context);
}

/* A frame that was made with a dictionary that it names, and is sound otherwise. */
static void a_dictionary(void **state)
{
    enum {
        SAMPLES = 64,
        SAMPLE = VOLUME_CHUNK / SAMPLES
    };
    static uint8_t dictionary[32 * 1024];
    size_t sizes[SAMPLES];
    for (size_t i = 0; i < SAMPLES; i++)
        sizes[i] = SAMPLE;
    fill(6, 3);
    const ZDICT_params_t params = {.dictID = 7};
    size_t dict_len = ZDICT_finalizeDictionary(dictionary, sizeof dictionary, chunk, 16 * 1024,
                                               chunk, sizes, SAMPLES, params);
    assert_false(ZDICT_isError(dict_len));
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_non_null(context);
    size_t len = ZSTD_compress_usingDict(context, frame, sizeof frame, chunk, VOLUME_CHUNK,
                                         dictionary, dict_len, 1);
    ZSTD_freeCCtx(context);
    assert_false(ZSTD_isError(len));
    assert_true(len < VOLUME_CHUNK);
    assert_int_equal(ZSTD_getDictID_fromFrame(frame, len), 7);
    assert_refused(*state, frame, len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(there_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_smaller, setup, teardown),
        cmocka_unit_test_setup_teardown(frames_are_always_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_and_longer, setup, teardown),
        cmocka_unit_test_setup_teardown(other_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(other_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(a_dictionary, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
