/* Threads that hash and compress: what each job comes to, and the table of what was stored. */
#include "chunk_pool.h"
#include "chunk_seen.h"
#include "cleanup.h"
#include "pack_frame.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    JOBS = 24,
    SEEN = 5000,
};

static struct chunk_job jobs[JOBS];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct chunk_job){
            .chunk = i, .bytes = calloc(1, VOLUME_CHUNK), .frame = calloc(1, VOLUME_CHUNK)};
        if (!jobs[i].bytes || !jobs[i].frame)
            return -1;
        for (size_t j = 0; i % 4 != 0 && j < VOLUME_CHUNK; j++)
            jobs[i].bytes[j] = (uint8_t)(j * i >> 8);
    }
    memset(jobs[4].bytes, 7, VOLUME_CHUNK); /* alike, and not zero */
    jobs[8].bytes[VOLUME_CHUNK - 1] = 1;
    jobs[12].bytes[0] = 1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < JOBS; i++) {
        free(jobs[i].bytes);
        free(jobs[i].frame);
    }
    return 0;
}

static bool is_expected_zero(size_t i)
{
    return i == 0 || i == 16 || i == 20;
}

static void check_job(struct pack_frame *codec, const struct chunk_job *job)
{
    static uint8_t back[VOLUME_CHUNK];
    struct digest digest;
    assert_int_equal(job->is_zero, is_expected_zero(job->chunk));
    if (job->is_zero) {
        assert_int_equal(job->frame_len, 0);
        return;
    }
    assert_int_equal(digest_bytes(job->bytes, VOLUME_CHUNK, &digest, NULL), 0);
    assert_true(digest_equal(&digest, &job->digest));
    assert_in_range(job->frame_len, 1, VOLUME_CHUNK);
    assert_int_equal(pack_frame_decode(codec, job->frame, job->frame_len, &digest, back, NULL), 0);
}

static void jobs_are_done(void **state)
{
    (void)state;
    struct chunk_pool *pool = NULL;
    struct pack_frame *codec = NULL;
    assert_int_equal(pack_frame_new(&codec, NULL), 0);
    for (unsigned threads = 1; threads <= 3; threads++) {
        assert_int_equal(chunk_pool_new(threads, NULL, NULL, &pool, NULL), 0);
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < JOBS; i++)
                chunk_pool_submit(pool, &jobs[i]);
            for (size_t i = 0; i < JOBS; i++)
                assert_int_equal(chunk_pool_wait(pool, &jobs[i], NULL), 0);
        }
        for (size_t i = 0; i < JOBS; i++)
            check_job(codec, &jobs[i]);
        chunk_pool_free(pool);
    }
    pack_frame_free(codec);
}

static bool is_of_job_5(void *arg, const struct digest *digest)
{
    return digest_equal(arg, digest);
}

static void frames_that_nobody_needs(void **state)
{
    (void)state;
    struct chunk_pool *pool = NULL;
    struct digest stored;
    assert_int_equal(digest_bytes(jobs[5].bytes, VOLUME_CHUNK, &stored, NULL), 0);
    assert_int_equal(digest_bytes(jobs[6].bytes, VOLUME_CHUNK, &jobs[6].known, NULL), 0);
    jobs[6].has_known = true;
    jobs[7].has_known = true; /* and has other bytes */
    assert_int_equal(chunk_pool_new(2, is_of_job_5, &stored, &pool, NULL), 0);
    for (size_t i = 0; i < JOBS; i++)
        chunk_pool_submit(pool, &jobs[i]);
    for (size_t i = 0; i < JOBS; i++) {
        assert_int_equal(chunk_pool_wait(pool, &jobs[i], NULL), 0);
        bool is_needed = !is_expected_zero(i) && i != 5 && i != 6;
        assert_int_equal(jobs[i].frame_len > 0, is_needed);
    }
    assert_true(digest_equal(&jobs[5].digest, &stored));
    assert_true(digest_equal(&jobs[6].digest, &jobs[6].known));
    chunk_pool_free(pool);
}

/* Jobs that nobody waits for. */
static void an_early_end(void **state)
{
    (void)state;
    struct chunk_pool *pool = NULL;
    for (int round = 0; round < 20; round++) {
        assert_int_equal(chunk_pool_new(2, NULL, NULL, &pool, NULL), 0);
        for (size_t i = 0; i < JOBS; i++)
            chunk_pool_submit(pool, &jobs[i]);
        chunk_pool_free(pool);
    }
    assert_true(chunk_pool_new(0, NULL, NULL, &pool, NULL) < 0);
    assert_true(chunk_pool_new(1000, NULL, NULL, &pool, NULL) < 0);
}

static struct digest number_digest(uint32_t number)
{
    struct digest digest;
    assert_int_equal(digest_bytes(&number, sizeof number, &digest, NULL), 0);
    if (number % 3 == 0) /* many that begin alike */
        memset(digest.bytes, 0xAB, 8);
    return digest;
}

static void what_was_stored(void **state)
{
    (void)state;
    struct chunk_seen *seen = NULL;
    assert_int_equal(chunk_seen_new(SEEN, &seen, NULL), 0);
    for (uint32_t i = 0; i < SEEN + 100; i++) {
        const struct digest digest = number_digest(i);
        const struct pack_spot spot = {.pack = i, .offset = 2 * i, .length = 1 + i};
        assert_false(chunk_seen_find(seen, &digest, NULL));
        assert_int_equal(chunk_seen_add(seen, &digest, &spot, NULL), 0);
    }
    for (uint32_t i = 0; i < SEEN + 100; i++) {
        const struct digest digest = number_digest(i);
        struct pack_spot spot = {.pack = UINT32_MAX};
        assert_int_equal(chunk_seen_find(seen, &digest, &spot), i < SEEN);
        assert_int_equal(spot.pack, i < SEEN ? i : UINT32_MAX);
        if (i < SEEN)
            assert_true(spot.offset == 2 * i && spot.length == 1 + i);
    }
    chunk_seen_free(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(jobs_are_done, setup, teardown),
        cmocka_unit_test_setup_teardown(frames_that_nobody_needs, setup, teardown),
        cmocka_unit_test_setup_teardown(an_early_end, setup, teardown),
        cmocka_unit_test(what_was_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
