#include "registry_pool.h"

#include "cleanup.h"
#include "clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define URL "https://registry.example/v2/"

static int setup(void **state)
{
    const struct registry_pool_options options = {.connections = 2, .auth_file = "/nonexistent"};
    return registry_pool_open(&options, (struct registry_pool **)state, NULL);
}

static int teardown(void **state)
{
    registry_pool_close(*state);
    return 0;
}

static void options_are_checked(void **state)
{
    (void)state;
    static const long wrong[] = {-1, REGISTRY_POOL_CONNECTIONS_MAX + 1};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct registry_pool_options options = {.connections = wrong[i]};
        struct registry_pool *pool = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(registry_pool_open(&options, &pool, &err), -EINVAL);
        assert_non_null(strstr(err.text, "1 to 64"));
    }
    struct registry_pool *pool = NULL;
    assert_int_equal(registry_pool_open(NULL, &pool, NULL), 0);
    assert_non_null(registry_pool_auth(pool));
    registry_pool_close(pool);
    registry_pool_close(NULL);
}

/* Who waits; asks for the end at its n-th call. */
struct patience {
    _Atomic int asked;
    int until;
    uint64_t done; /* what it was told */
};

static int on_ask(void *arg, uint64_t done, uint64_t total)
{
    struct patience *patience = arg;
    assert_int_equal(total, 9);
    patience->done = done;
    return ++patience->asked >= patience->until;
}

static struct registry_waiter waiter_of(struct patience *patience)
{
    return (struct registry_waiter){.progress = on_ask, .arg = patience, .done = 4, .total = 9};
}

static void slots_are_limited_by_origin(void **state)
{
    struct registry_pool *pool = *state;
    struct registry_slot slots[4];
    assert_int_equal(registry_pool_enter(pool, URL, false, NULL, &slots[0], NULL), 0);
    assert_int_equal(
        registry_pool_enter(pool, "https://REGISTRY.example:443/x?y", false, NULL, &slots[1], NULL),
        0);
    assert_ptr_equal(slots[0].origin, slots[1].origin);
    static const char *const others[] = {"https://registry.example:444/",
                                         "http://registry.example:443/"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(registry_pool_enter(pool, others[i], false, NULL, &slots[2 + i], NULL), 0);
        assert_ptr_not_equal(slots[2 + i].origin, slots[0].origin);
    }
    struct patience patience = {.until = 2};
    struct registry_waiter waiter = waiter_of(&patience);
    struct err err = ERR_INIT;
    struct registry_slot none = {.origin = NULL};
    int64_t from = clock_now_ms();
    assert_int_equal(registry_pool_enter(pool, URL, false, &waiter, &none, &err), -ECANCELED);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_in_range(clock_now_ms() - from, 2 * REGISTRY_POOL_ASK_MS - 20, 20000);
    assert_int_equal(patience.done, 4);
    assert_null(none.origin);
    registry_pool_leave(pool, &slots[0]);
    assert_int_equal(registry_pool_enter(pool, URL, false, &waiter, &slots[0], NULL), 0);
    for (size_t i = 0; i < 4; i++)
        registry_pool_leave(pool, &slots[i]);
}

static void bad_urls_are_refused(void **state)
{
    struct registry_slot slot;
    struct err err = ERR_INIT;
    assert_int_equal(registry_pool_enter(*state, "http://", false, NULL, &slot, &err), -EINVAL);
    assert_int_equal(err.code, ERR_INVALID);
    registry_pool_pause(*state, "http://", 1000);
    assert_int_equal(registry_pool_traits(*state, "").chunk_max, 0);
}

/* Threads that queue up one after the other. */
struct queued {
    struct registry_pool *pool;
    bool bulk;
    _Atomic int *next;
    int place; /* in the order in which they were let in */
    struct patience patience;
    pthread_t thread;
};

static void *queue_up(void *arg)
{
    struct queued *queued = arg;
    struct registry_waiter waiter = waiter_of(&queued->patience);
    struct registry_slot slot;
    queued->place = -1;
    if (registry_pool_enter(queued->pool, URL, queued->bulk, &waiter, &slot, NULL) < 0)
        return NULL;
    queued->place = (*queued->next)++;
    registry_pool_leave(queued->pool, &slot);
    return NULL;
}

static void who_came_first_is_first(void **state)
{
    struct registry_pool *pool = *state;
    struct registry_slot slots[2];
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(registry_pool_enter(pool, URL, false, NULL, &slots[i], NULL), 0);
    _Atomic int next = 0;
    struct queued queued[8];
    for (size_t i = 0; i < ARRAY_SIZE(queued); i++) {
        /* The fifth gives up, and holds up nobody. */
        queued[i] =
            (struct queued){.pool = pool, .next = &next, .patience.until = i == 4 ? 1 : 1000000};
        assert_int_equal(pthread_create(&queued[i].thread, NULL, queue_up, &queued[i]), 0);
        /* It is asked the first time when it has waited. */
        while (queued[i].patience.asked == 0)
            assert_int_equal(registry_pool_sleep(5, NULL, NULL), 0);
    }
    registry_pool_leave(pool, &slots[0]); /* one slot, so that the order is plain */
    for (size_t i = 0; i < ARRAY_SIZE(queued); i++)
        pthread_join(queued[i].thread, NULL);
    registry_pool_leave(pool, &slots[1]);
    for (int i = 0; i < 8; i++)
        assert_int_equal(queued[i].place, i == 4 ? -1 : i - (i > 4));
}

/* A part of the budget is never taken by what may be long; who may take it need not wait behind
 * those who may not. */
static void bulk_transfers_leave_a_share(void **state)
{
    (void)state;
    static const long budgets[][2] = {{1, 1}, {2, 1}, {4, 3}, {8, 6}, {64, 48}};
    for (size_t i = 0; i < ARRAY_SIZE(budgets); i++) {
        const struct registry_pool_options options = {.connections = budgets[i][0],
                                                      .auth_file = "/nonexistent"};
        struct registry_pool *pool = NULL;
        struct registry_slot slots[64];
        struct registry_slot slot;
        long count = 0;
        assert_int_equal(registry_pool_open(&options, &pool, NULL), 0);
        for (; count < budgets[i][1]; count++)
            assert_int_equal(registry_pool_enter(pool, URL, true, NULL, &slots[count], NULL), 0);
        struct patience patience = {.until = 1};
        struct registry_waiter waiter = waiter_of(&patience);
        assert_int_equal(registry_pool_enter(pool, URL, true, &waiter, &slot, NULL), -ECANCELED);
        for (; count < budgets[i][0]; count++)
            assert_int_equal(registry_pool_enter(pool, URL, false, NULL, &slots[count], NULL), 0);
        assert_int_equal(registry_pool_enter(pool, URL, false, &waiter, &slot, NULL), -ECANCELED);
        while (count > 0)
            registry_pool_leave(pool, &slots[--count]);
        assert_int_equal(registry_pool_enter(pool, URL, true, NULL, &slot, NULL), 0);
        registry_pool_leave(pool, &slot);
        registry_pool_close(pool);
    }
}

static void questions_pass_by_bulk_transfers_that_wait(void **state)
{
    struct registry_pool *pool = *state; /* of two slots */
    struct registry_slot bulk;
    struct registry_slot slot;
    _Atomic int next = 0;
    assert_int_equal(registry_pool_enter(pool, URL, true, NULL, &bulk, NULL), 0);
    struct queued queued = {.pool = pool, .next = &next, .bulk = true, .patience.until = 1000000};
    assert_int_equal(pthread_create(&queued.thread, NULL, queue_up, &queued), 0);
    while (queued.patience.asked == 0)
        assert_int_equal(registry_pool_sleep(5, NULL, NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(registry_pool_enter(pool, URL, false, NULL, &slot, NULL), 0);
        registry_pool_leave(pool, &slot);
    }
    assert_int_equal(next, 0);
    registry_pool_leave(pool, &bulk);
    pthread_join(queued.thread, NULL);
    assert_int_equal(queued.place, 0);
}

static void pauses_hold_for_all(void **state)
{
    struct registry_pool *pool = *state;
    struct registry_slot slot;
    registry_pool_pause(pool, URL, 400);
    registry_pool_pause(pool, URL, 10); /* does not shorten it */
    int64_t from = clock_now_ms();
    assert_int_equal(registry_pool_enter(pool, "https://other.example", false, NULL, &slot, NULL),
                     0);
    registry_pool_leave(pool, &slot);
    assert_true(clock_now_ms() - from < 400);
    assert_int_equal(registry_pool_enter(pool, URL "x", false, NULL, &slot, NULL), 0);
    assert_in_range(clock_now_ms() - from, 390, 20000);
    registry_pool_leave(pool, &slot);
    registry_pool_pause(pool, URL, 600000);
    struct patience patience = {.until = 1};
    struct registry_waiter waiter = waiter_of(&patience);
    assert_int_equal(registry_pool_enter(pool, URL, false, &waiter, &slot, NULL), -ECANCELED);
}

static void sleeps_can_be_ended(void **state)
{
    (void)state;
    struct patience patience = {.until = 3};
    struct registry_waiter waiter = waiter_of(&patience);
    struct err err = ERR_INIT;
    int64_t from = clock_now_ms();
    assert_int_equal(registry_pool_sleep(600000, &waiter, &err), -ECANCELED);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_in_range(clock_now_ms() - from, 2 * REGISTRY_POOL_ASK_MS - 20, 20000);
    from = clock_now_ms();
    assert_int_equal(registry_pool_sleep(300, NULL, NULL), 0);
    assert_in_range(clock_now_ms() - from, 299, 20000);
    assert_int_equal(registry_pool_sleep(0, NULL, NULL), 0);
}

static void set_chunk(void *arg, struct registry_traits *traits)
{
    traits->chunk_max = *(uint64_t *)arg;
    traits->no_patch = true;
}

static void what_was_learned_is_known(void **state)
{
    struct registry_pool *pool = *state;
    assert_false(registry_pool_traits(pool, URL).no_patch);
    uint64_t chunk = 12345;
    registry_pool_learn(pool, URL, set_chunk, &chunk);
    struct registry_traits traits = registry_pool_traits(pool, "https://registry.example:443");
    assert_true(traits.no_patch);
    assert_int_equal(traits.chunk_max, 12345);
    assert_int_equal(registry_pool_traits(pool, "https://registry.example:5000").chunk_max, 0);
}

static void set_no_delete(void *arg, struct registry_traits *traits)
{
    (void)arg;
    traits->no_delete = true;
}

/* One odd answer does not decide for ever. */
static void what_was_learned_is_forgotten(void **state)
{
    struct registry_pool *pool = *state;
    uint64_t chunk = 7;
    registry_pool_set_traits_ms(pool, 200);
    registry_pool_learn(pool, URL, set_chunk, &chunk);
    assert_int_equal(registry_pool_traits(pool, URL).chunk_max, 7);
    assert_int_equal(registry_pool_sleep(100, NULL, NULL), 0);
    registry_pool_learn(pool, URL, set_no_delete, NULL); /* does not lengthen it */
    assert_int_equal(registry_pool_sleep(110, NULL, NULL), 0);
    assert_int_equal(registry_pool_traits(pool, URL).chunk_max, 0);
    assert_false(registry_pool_traits(pool, URL).no_delete);
}

/* Idle origins are forgotten, oldest first; those in use are not. */
static void origins_are_bounded(void **state)
{
    struct registry_pool *pool = *state;
    struct registry_slot slot;
    uint64_t chunk = 7;
    assert_int_equal(registry_pool_enter(pool, URL, false, NULL, &slot, NULL), 0);
    registry_pool_learn(pool, URL, set_chunk, &chunk);
    registry_pool_learn(pool, "https://idle.example", set_chunk, &chunk);
    for (int i = 0; i < REGISTRY_POOL_ORIGINS_MAX + 10; i++) {
        char url[64];
        snprintf(url, sizeof url, "https://host%d.example/", i);
        registry_pool_learn(pool, url, set_chunk, &chunk);
    }
    assert_int_equal(registry_pool_traits(pool, URL).chunk_max, 7);
    assert_int_equal(registry_pool_traits(pool, "https://idle.example").chunk_max, 0);
    registry_pool_leave(pool, &slot);
}

struct crowd {
    struct registry_pool *pool;
    _Atomic int inside;
    _Atomic int most;
    _Atomic bool failed;
};

static void *come_and_go(void *arg)
{
    struct crowd *crowd = arg;
    for (int i = 0; i < 200; i++) {
        struct registry_slot slot;
        if (registry_pool_enter(crowd->pool, URL, i % 2, NULL, &slot, NULL) < 0) {
            crowd->failed = true;
            return NULL;
        }
        int inside = ++crowd->inside;
        if (inside > crowd->most)
            crowd->most = inside;
        crowd->inside--;
        registry_pool_leave(crowd->pool, &slot);
    }
    return NULL;
}

static void crowds_get_through(void **state)
{
    struct crowd crowd = {.pool = *state};
    pthread_t threads[16];
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &crowd), 0);
    for (size_t i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    assert_false(crowd.failed);
    assert_in_range(crowd.most, 1, 2);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_checked),
        test(slots_are_limited_by_origin),
        test(bad_urls_are_refused),
        test(who_came_first_is_first),
        cmocka_unit_test(bulk_transfers_leave_a_share),
        test(questions_pass_by_bulk_transfers_that_wait),
        test(pauses_hold_for_all),
        test(sleeps_can_be_ended),
        test(what_was_learned_is_known),
        test(what_was_learned_is_forgotten),
        test(origins_are_bounded),
        test(crowds_get_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
