/* What volume_fetch brings, in which order, and from whom it does not let itself be disturbed. */
#include "fetch_rig.h"

#include "cleanup.h"
#include "clock.h"
#include "volume_fetch_parts.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NO_LIMIT UINT64_MAX
#define MIB      ((uint64_t)1 << 20)

static void test_background(void **state)
{
    struct fetch_rig *rig = *state;
    static const uint32_t first[] = {700, 3, 5000, 700, 512};
    fetch_rig_absent(rig, 0, rig->chunks);
    fetch_rig_state(rig, 9, VOLUME_ZERO);
    fetch_rig_state(rig, 10, VOLUME_CLEAN);
    fetch_rig_state(rig, 11, VOLUME_CHANGED);
    rig->source.zero = 12;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, first, ARRAY_SIZE(first));
    fetch_rig_await_end(rig);
    const struct volume_fetch_status status = fetch_rig_look(rig);
    assert_int_equal(status.absent, 0);
    assert_int_equal(status.fetched, 1021);
    assert_int_equal(status.waiting, 0);
    assert_int_equal(status.lost, 0);
    assert_string_equal(status.text, "");
    for (uint32_t i = 0; i < rig->chunks; i++)
        assert_int_equal(fetch_rig_count(rig, &rig->asked[i]), i < 9 || i > 11);
    assert_int_equal(live_word_state(rig->live.words[12]), VOLUME_ZERO);
    /* Two read at a time, so the first task's chunks may be between those of the second. */
    bool early[3] = {false};
    for (size_t i = 0; i < 3 + 64; i++)
        for (size_t n = 0; n < 3; n++)
            early[n] = early[n] || rig->kept[i] == (uint32_t[]){700, 3, 512}[n];
    assert_true(early[0] && early[1] && early[2]);
    assert_int_equal(rig->first_asked, 1);
}

/* The source is asked again what is first, and reads do not wait for that. */
static void test_first_is_not_known_yet(void **state)
{
    struct fetch_rig *rig = *state;
    static const uint32_t first[] = {1000};
    fetch_rig_absent(rig, 0, rig->chunks);
    rig->source.fail_times = 2;
    rig->source.fail = ERR_UNREACHABLE;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, first, 1);
    fetch_rig_await_end(rig);
    assert_in_range(rig->first_asked, 2, 3);
    /* Another one reads at the same time, whose chunks may be between. */
    bool early = false;
    for (size_t i = 0; i < 1 + 64; i++)
        early = early || rig->kept[i] == 1000;
    assert_true(early);
    assert_string_equal(fetch_rig_look(rig).text, "");
}

static void test_nothing_absent(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_end(rig);
    assert_int_equal(fetch_rig_reads(rig), 0);
}

static void test_miss(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    fetch_rig_state(rig, 101, VOLUME_CHANGED);
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 0, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 1);
    fetch_rig_want(rig, 103, 2);
    fetch_rig_await(rig, 96, 16);
    fetch_rig_quiet(50);
    assert_int_equal(fetch_rig_kept(rig), 15);
    for (uint32_t i = 0; i < rig->chunks; i++)
        assert_int_equal(fetch_rig_count(rig, &rig->asked[i]), i >= 96 && i < 112 && i != 101);
    /* One read for what is waited for, one for the rest. */
    assert_int_equal(rig->read_count, 2);
    assert_true((rig->reads[0].count == 2 && rig->reads[0].first == 103) ||
                (rig->reads[1].count == 2 && rig->reads[1].first == 103));
    const struct volume_fetch_status status = fetch_rig_look(rig);
    assert_int_equal(status.waiting, 0);
    assert_int_equal(status.waiting_ns, 0);
    assert_int_equal(status.absent, 1024 - 16);
    assert_false(status.ended);
}

static void test_sequential(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 0, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 1);
    fetch_rig_want(rig, 64, 2);
    fetch_rig_await(rig, 64, 16);
    assert_int_equal(fetch_rig_kept(rig), 16);
    fetch_rig_want(rig, 81, 1); /* a little behind the end of what was read ahead */
    fetch_rig_await(rig, 64, 64);
    assert_int_equal(fetch_rig_kept(rig), 64);
    fetch_rig_want(rig, 128, 1);
    fetch_rig_await(rig, 128, 64);
    assert_int_equal(fetch_rig_kept(rig), 128);
    fetch_rig_want(rig, 1023, 1); /* elsewhere: as before, up to the volume's end */
    fetch_rig_await(rig, 1008, 16);
    fetch_rig_quiet(50);
    assert_int_equal(fetch_rig_kept(rig), 144);
}

/* Two that read in turn are two. */
static void test_two_streams(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 0, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 1);
    fetch_rig_want(rig, 0, 1);
    fetch_rig_await(rig, 0, 16);
    fetch_rig_want(rig, 512, 1);
    fetch_rig_await(rig, 512, 16);
    fetch_rig_want(rig, 16, 1);
    fetch_rig_await(rig, 0, 64);
    fetch_rig_want(rig, 528, 1);
    fetch_rig_await(rig, 512, 64);
    fetch_rig_quiet(50);
    assert_int_equal(fetch_rig_kept(rig), 128);
}

static void test_touched(void **state)
{
    struct fetch_rig *rig = *state;
    uint32_t touched[8];
    fetch_rig_absent(rig, 0, rig->chunks);
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 0, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 1);
    fetch_rig_want(rig, 900, 2);
    fetch_rig_await(rig, 900, 2);
    fetch_rig_want(rig, 3, 1);
    fetch_rig_await(rig, 3, 1);
    fetch_rig_absent(rig, 3, 1);
    fetch_rig_want(rig, 3, 2);
    fetch_rig_await(rig, 3, 2);
    assert_int_equal(volume_fetch_touched(rig->fetch, touched, 8), 4);
    assert_int_equal(touched[0], 900);
    assert_int_equal(touched[1], 901);
    assert_int_equal(touched[2], 3);
    assert_int_equal(touched[3], 4);
    assert_int_equal(volume_fetch_touched(rig->fetch, touched, 1), 1);
    assert_int_equal(volume_fetch_touched(rig->fetch, NULL, 0), 0);
}

/* The background is in the middle of reads of many ranges; a read that waits is not behind more
 * than what has begun. */
static void test_reads_go_first(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    rig->source.range = 4;
    rig->source.delay_ms = 60;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_reads(rig, 3);
    fetch_rig_want(rig, 1000, 1);
    fetch_rig_want(rig, 60, 1); /* which one of those under way was to bring at its end */
    const int64_t before = clock_now_ms();
    fetch_rig_await(rig, 1000, 1);
    fetch_rig_await(rig, 60, 1);
    const int64_t took = clock_now_ms() - before;
    /* 2 to 4 would do, 16 ranges stand before it in its own read. */
    if (took > 8 * 60)
        fail_msg("a read waited for %d ms", (int)took);
    pthread_mutex_lock(&rig->lock);
    bool yielded = false;
    for (size_t i = 0; i < rig->read_count; i++)
        yielded = yielded || rig->reads[i].yielded;
    rig->source.delay_ms = 0;
    pthread_mutex_unlock(&rig->lock);
    assert_true(yielded);
    fetch_rig_await_end(rig);
    assert_int_equal(fetch_rig_kept(rig), 1024);
}

/* One reader is kept for them: with two slow reads in the background, nothing is waited for. */
static void test_one_is_kept(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    rig->source.hang = true;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_reads(rig, 2);
    pthread_mutex_lock(&rig->lock);
    rig->source.slow_from = UINT32_MAX;
    pthread_mutex_unlock(&rig->lock);
    fetch_rig_quiet(30);
    assert_int_equal(fetch_rig_reads(rig), 2);
    fetch_rig_want(rig, 1000, 1);
    fetch_rig_await_reads(rig, 3);
    assert_int_equal(rig->reads[2].first, 1000);
    pthread_mutex_lock(&rig->lock);
    rig->source.hang = false;
    pthread_mutex_unlock(&rig->lock);
    fetch_rig_await_end(rig);
}

/* Many reads that wait near each other are one read of the source. */
static void test_many_waits(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    for (uint32_t i = 0; i < 32; i++)
        fetch_rig_want(rig, 130 + 2 * i, 2); /* over the border of 4 MiB at 192 */
    fetch_rig_want(rig, 900, 1);
    fetch_rig_start(rig, 0, NULL, 0);
    fetch_rig_serve(rig);
    fetch_rig_await(rig, 130, 64);
    fetch_rig_await(rig, 900, 1);
    assert_int_equal(fetch_rig_look(rig).waiting, 0);
    for (uint32_t i = 130; i < 194; i++)
        assert_int_equal(fetch_rig_count(rig, &rig->asked[i]), 1);
}

static void test_limit(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, 256); /* 16 MiB */
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 8 * MIB, NULL, 0);
    int64_t before = clock_now_ms();
    fetch_rig_await(rig, 0, 128);
    int64_t took = clock_now_ms() - before;
    /* 8 MiB a second in parts of 2 MiB, the first of which costs nothing: 0.75 s. */
    if (took < 600)
        fail_msg("8 MiB took %d ms", (int)took);
    volume_fetch_limit(rig->fetch, 0);
    fetch_rig_quiet(50); /* what is under way */
    size_t kept = fetch_rig_kept(rig);
    fetch_rig_quiet(400);
    assert_int_equal(fetch_rig_kept(rig), kept);
    assert_true(kept < 256);
    volume_fetch_limit(rig->fetch, 1); /* practically for ever */
    fetch_rig_quiet(100);
    volume_fetch_limit(rig->fetch, NO_LIMIT);
    before = clock_now_ms();
    fetch_rig_await_end(rig);
    assert_true(clock_now_ms() - before < 2000);
}

/* A limit is none for what reads wait for. */
static void test_limit_and_reads(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 1, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 1);
    const int64_t before = clock_now_ms();
    for (uint32_t i = 0; i < 8; i++)
        fetch_rig_want(rig, 100 * i + 50, 1);
    for (uint32_t i = 0; i < 8; i++)
        fetch_rig_await(rig, 100 * i + 50, 1);
    assert_true(clock_now_ms() - before < 2000);
}

static void test_bad_options(void **state)
{
    struct fetch_rig *rig = *state;
    struct err err = ERR_INIT;
    const struct volume_fetch_options options = {
        .workers_fd = rig->workers_fd, .id = "0123456789/b", .live_fd = rig->live_fd};
    assert_int_equal(volume_fetch_start(&options, &rig->fetch, &err), -EINVAL);
    assert_int_equal(err.code, ERR_INVALID);
    const struct volume_fetch_options other = {
        .workers_fd = rig->workers_fd, .id = FETCH_RIG_ID, .live_fd = rig->workers_fd};
    err_clear(&err);
    assert_true(volume_fetch_start(&other, &rig->fetch, &err) < 0);
    assert_non_null(strstr(err.text, FETCH_RIG_ID));
    assert_null(rig->fetch);
    volume_fetch_stop(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fetch_rig_setup, fetch_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_background),     TEST(test_first_is_not_known_yet),
        TEST(test_nothing_absent), TEST(test_miss),
        TEST(test_sequential),     TEST(test_two_streams),
        TEST(test_touched),        TEST(test_reads_go_first),
        TEST(test_one_is_kept),    TEST(test_many_waits),
        TEST(test_limit),          TEST(test_limit_and_reads),
        TEST(test_bad_options),
    };
    return cmocka_run_group_tests_name("volume_fetch", tests, NULL, NULL);
}
