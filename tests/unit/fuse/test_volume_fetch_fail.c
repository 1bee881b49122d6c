/* volume_fetch among workers that die, have no room, hang or lie, and sources that fail. */
#include "fetch_rig.h"

#include "cleanup.h"
#include "clock.h"
#include "volume_fetch_parts.h"
#include "worker_client.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NO_LIMIT UINT64_MAX

static void with_lock(struct fetch_rig *rig, void (*set)(struct fetch_rig *rig))
{
    pthread_mutex_lock(&rig->lock);
    set(rig);
    pthread_mutex_unlock(&rig->lock);
}

static void be_fast(struct fetch_rig *rig)
{
    pthread_mutex_lock(&rig->fetch->lock);
    rig->fetch->lost_ms = 150;
    pthread_mutex_unlock(&rig->fetch->lock);
}

/* --- the worker --- */

static void test_worker_dies(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    rig->deeds.die_after = 5;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_want(rig, 800, 2);
    for (uint32_t deaths = 2; deaths < 6; deaths++) {
        fetch_rig_await_count(rig, &rig->connections, deaths);
        pthread_mutex_lock(&rig->lock);
        rig->deeds.die_after = 7;
        pthread_mutex_unlock(&rig->lock);
    }
    pthread_mutex_lock(&rig->lock);
    rig->deeds.die_after = 0;
    pthread_mutex_unlock(&rig->lock);
    fetch_rig_await(rig, 800, 2);
    fetch_rig_await_end(rig);
    assert_string_equal(fetch_rig_look(rig).text, "");
}

static void test_worker_comes_late(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, 4);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_quiet(100);
    assert_non_null(strstr(fetch_rig_look(rig).text, "the worker does not take chunks"));
    fetch_rig_serve(rig);
    fetch_rig_await_end(rig);
    assert_string_equal(fetch_rig_look(rig).text, "");
}

static void test_worker_refuses(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, 4);
    rig->deeds.refuse = -EOPNOTSUPP;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_end(rig);
    assert_int_equal(fetch_rig_count(rig, &rig->connections), 2);
}

/* The volume was attached anew: nothing that this one brings is wanted any more. */
static void test_another_life(void **state)
{
    struct fetch_rig *rig = *state;
    uint64_t number = 0;
    assert_int_equal(live_map_number(rig->live_fd, &number, NULL), 0);
    fetch_rig_absent(rig, 0, 4);
    rig->deeds.refuse = -ESTALE;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 1);
    fetch_rig_quiet(400);
    assert_int_equal(fetch_rig_count(rig, &rig->connections), 1);
    assert_int_equal(fetch_rig_kept(rig), 0);
    assert_non_null(strstr(fetch_rig_look(rig).text, "the worker does not take chunks"));
    pthread_mutex_lock(&rig->lock);
    uint64_t said = rig->live_number;
    pthread_mutex_unlock(&rig->lock);
    assert_int_equal(said, number);
}

static void test_no_room(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, 200);
    rig->deeds.status = -ENOSPC;
    rig->deeds.status_times = 1000000;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_want(rig, 100, 1);
    fetch_rig_await_count(rig, &rig->fills, 2);
    fetch_rig_quiet(500);
    const struct volume_fetch_status status = fetch_rig_look(rig);
    assert_non_null(strstr(status.text, "No space left"));
    assert_int_equal(status.waiting, 1);
    assert_true(status.waiting_ns > 300000000);
    assert_int_equal(status.fetched, 0);
    assert_int_equal(status.lost, 0);
    /* Pauses grow: 3 reads of 64 chunks each time. */
    assert_true(fetch_rig_count(rig, &rig->fills) < 3000);
    pthread_mutex_lock(&rig->lock);
    rig->deeds.status_times = 0;
    pthread_mutex_unlock(&rig->lock);
    fetch_rig_await_end(rig);
    assert_string_equal(fetch_rig_look(rig).text, "");
    assert_int_equal(fetch_rig_look(rig).fetched, 200);
}

static void answer_for_others(struct fetch_rig *rig)
{
    rig->deeds.other_chunk = !rig->deeds.other_chunk;
}
static void say_garbage(struct fetch_rig *rig)
{
    rig->deeds.garbage = !rig->deeds.garbage;
}

static void test_worker_talks_nonsense(void **state)
{
    struct fetch_rig *rig = *state;
    void (*const ways[])(struct fetch_rig *) = {answer_for_others, say_garbage};
    fetch_rig_serve(rig);
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        fetch_rig_absent(rig, 0, 600);
        with_lock(rig, ways[i]);
        fetch_rig_start(rig, NO_LIMIT, NULL, 0);
        uint32_t before = fetch_rig_count(rig, &rig->connections);
        fetch_rig_await_count(rig, &rig->connections, before + 2);
        while (
            !strstr(fetch_rig_look(rig).text, "not of the protocol")) /* until it is tried again */
            fetch_rig_quiet(1);
        with_lock(rig, ways[i]);
        fetch_rig_await_end(rig);
        volume_fetch_stop(rig->fetch);
        rig->fetch = NULL;
    }
}

static void test_wants_of_nonsense(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, 600);
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 0, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 1);
    fetch_rig_want(rig, 5000, 1);
    fetch_rig_want(rig, UINT64_MAX, 2);
    fetch_rig_want(rig, 1023, 2);
    fetch_rig_want(rig, 7, 1);
    fetch_rig_await(rig, 7, 1);
    assert_int_equal(fetch_rig_look(rig).waiting, 0);
    fetch_rig_want(rig, 0, 65);
    fetch_rig_await_count(rig, &rig->connections, 3);
    pthread_mutex_lock(&rig->lock);
    rig->want_count = 0;
    pthread_mutex_unlock(&rig->lock);
    volume_fetch_limit(rig->fetch, NO_LIMIT);
    fetch_rig_await_end(rig);
}

/* More reads that wait than a worker can have. */
static void test_too_many_wants(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    rig->source.fail = ERR_UNREACHABLE;
    rig->source.fail_times = 1000000;
    for (uint32_t i = 0; i < 2000; i++)
        fetch_rig_want(rig, i % 1000, 1);
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 2);
    pthread_mutex_lock(&rig->lock);
    rig->want_count = 1000;
    rig->source.fail_times = 0;
    pthread_mutex_unlock(&rig->lock);
    fetch_rig_await_end(rig);
}

/* One that says that it has kept what it has not is not brought it for ever. */
static void test_worker_lies(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, 32);
    rig->deeds.lie = true;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_count(rig, &rig->fills, 2);
    fetch_rig_quiet(600);
    assert_true(fetch_rig_count(rig, &rig->fills) < 1000);
    pthread_mutex_lock(&rig->lock);
    rig->deeds.lie = false;
    pthread_mutex_unlock(&rig->lock);
    assert_non_null(strstr(fetch_rig_look(rig).text, "absent still"));
    fetch_rig_await_end(rig);
}

/* --- the source --- */

static void test_source_away(void **state)
{
    struct fetch_rig *rig = *state;
    static const enum err_code codes[] = {ERR_UNREACHABLE, ERR_REFUSED, ERR_DENIED, ERR_IO,
                                          ERR_CANCELLED};
    fetch_rig_serve(rig);
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        fetch_rig_absent(rig, 0, 100);
        rig->want_count = 0;
        rig->source.fail = codes[i];
        rig->source.fail_times = 1000000;
        fetch_rig_want(rig, 50, 1);
        fetch_rig_start(rig, NO_LIMIT, NULL, 0);
        fetch_rig_quiet(450);
        const struct volume_fetch_status status = fetch_rig_look(rig);
        assert_non_null(strstr(status.text, "the source is away"));
        assert_int_equal(status.lost, 0);
        assert_int_equal(status.waiting, 1);
        assert_true(status.waiting_ns > 200000000);
        assert_int_equal(fetch_rig_kept(rig), 100 * i);
        /* At 0, 100, 300 ms and so on, by three. */
        assert_true(fetch_rig_count(rig, &rig->source.fail_times) > 1000000 - 60);
        pthread_mutex_lock(&rig->lock);
        rig->source.fail_times = 0;
        pthread_mutex_unlock(&rig->lock);
        fetch_rig_await_end(rig);
        assert_string_equal(fetch_rig_look(rig).text, "");
        volume_fetch_stop(rig->fetch);
        rig->fetch = NULL;
    }
}

static void test_chunk_is_lost(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    rig->source.lost = 70;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    be_fast(rig);
    fetch_rig_want(rig, 70, 2);
    fetch_rig_await(rig, 0, 70);
    fetch_rig_await(rig, 71, 1024 - 71);
    struct volume_fetch_status status = fetch_rig_look(rig);
    assert_int_equal(status.absent, 1);
    assert_int_equal(status.lost, 1);
    assert_int_equal(status.waiting, 1);
    assert_string_equal(status.text, "chunk 70 is damaged");
    const uint32_t asked = fetch_rig_count(rig, &rig->asked[70]);
    const int64_t before = clock_now_ms();
    fetch_rig_quiet(500);
    const uint32_t again = fetch_rig_count(rig, &rig->asked[70]) - asked;
    /* Each 150 ms, by whoever is free. */
    if (again == 0 || again > (clock_now_ms() - before) / 150 + 1)
        fail_msg("a lost chunk was asked for %u times", again);
    pthread_mutex_lock(&rig->lock);
    rig->source.lost = UINT32_MAX;
    pthread_mutex_unlock(&rig->lock);
    fetch_rig_await_end(rig);
    status = fetch_rig_look(rig);
    assert_int_equal(status.lost, 0);
    assert_string_equal(status.text, "");
}

/* Those that are lost, tried again and again, leave the others beside them their turn. */
static void test_many_are_lost(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, 128);
    rig->source.lost = 64;
    rig->source.lost_more = 7;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    pthread_mutex_lock(&rig->fetch->lock);
    rig->fetch->lost_ms = 20;
    pthread_mutex_unlock(&rig->fetch->lock);
    fetch_rig_await(rig, 0, 64);
    fetch_rig_await(rig, 72, 56);
    assert_int_equal(fetch_rig_look(rig).lost, 8);
    assert_int_equal(fetch_rig_look(rig).absent, 8);
}

/* What is written meanwhile is not lost any more. */
static void test_lost_is_overwritten(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, 100);
    rig->source.lost = 70;
    rig->source.silent_loss = true; /* and nobody says so */
    fetch_rig_serve(rig);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    be_fast(rig);
    fetch_rig_await(rig, 0, 70);
    fetch_rig_await(rig, 71, 29);
    while (fetch_rig_look(rig).lost == 0)
        fetch_rig_quiet(1);
    assert_non_null(strstr(fetch_rig_look(rig).text, "did not give all"));
    fetch_rig_state(rig, 70, VOLUME_CHANGED);
    fetch_rig_await_end(rig);
}

static void test_gives_too_much(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    rig->source.too_many = true;
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 0, NULL, 0);
    fetch_rig_want(rig, 40, 1);
    fetch_rig_await(rig, 32, 16);
    fetch_rig_quiet(50);
    assert_int_equal(fetch_rig_kept(rig), 16);
    assert_false(rig->wrong_bytes);
    volume_fetch_limit(rig->fetch, NO_LIMIT);
    fetch_rig_await_end(rig);
    assert_int_equal(fetch_rig_count(rig, &rig->fills), 1024);
}

/* --- the end --- */

static void stop_soon(struct fetch_rig *rig)
{
    const int64_t before = clock_now_ms();
    volume_fetch_stop(rig->fetch);
    rig->fetch = NULL;
    int64_t took = clock_now_ms() - before;
    if (took > 1000)
        fail_msg("the end took %d ms", (int)took);
}

static void test_stop_while_source_hangs(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    rig->source.hang = true;
    fetch_rig_serve(rig);
    fetch_rig_want(rig, 500, 1);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_reads(rig, 3);
    stop_soon(rig);
    assert_int_equal(live_word_state(rig->live.words[500]), VOLUME_ABSENT);
    /* Another one goes on. */
    rig->source.hang = false;
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_await_end(rig);
}

static void test_stop_while_worker_hangs(void **state)
{
    struct fetch_rig *rig = *state;
    fetch_rig_absent(rig, 0, rig->chunks);
    fetch_rig_serve(rig);
    fetch_rig_start(rig, 0, NULL, 0);
    fetch_rig_await_count(rig, &rig->connections, 1);
    pthread_mutex_lock(&rig->lock);
    rig->deeds.hold = true;
    pthread_mutex_unlock(&rig->lock);
    fetch_rig_want(rig, 1, 1);
    fetch_rig_quiet(20);
    volume_fetch_limit(rig->fetch, NO_LIMIT);
    fetch_rig_await_reads(rig, 3);
    fetch_rig_quiet(100);
    stop_soon(rig);
}

static void test_stop_without_worker(void **state)
{
    struct fetch_rig *rig = *state;
    struct err err = ERR_INIT;
    fetch_rig_absent(rig, 0, rig->chunks);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_quiet(50);
    stop_soon(rig);
    /* A socket at which nobody accepts. */
    cleanup_fd int listener = worker_client_listen(rig->workers_fd, FETCH_RIG_ID, &err);
    assert_true(listener >= 0);
    fetch_rig_start(rig, NO_LIMIT, NULL, 0);
    fetch_rig_quiet(50);
    stop_soon(rig);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fetch_rig_setup, fetch_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_worker_dies),
        TEST(test_worker_comes_late),
        TEST(test_worker_refuses),
        TEST(test_another_life),
        TEST(test_no_room),
        TEST(test_worker_talks_nonsense),
        TEST(test_wants_of_nonsense),
        TEST(test_too_many_wants),
        TEST(test_worker_lies),
        TEST(test_source_away),
        TEST(test_chunk_is_lost),
        TEST(test_many_are_lost),
        TEST(test_lost_is_overwritten),
        TEST(test_gives_too_much),
        TEST(test_stop_while_source_hangs),
        TEST(test_stop_while_worker_hangs),
        TEST(test_stop_without_worker),
    };
    return cmocka_run_group_tests_name("volume_fetch_fail", tests, NULL, NULL);
}
