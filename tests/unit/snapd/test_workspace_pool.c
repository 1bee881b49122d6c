#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "workspace_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct world {
    atomic_int begun;
    atomic_int ended;
    atomic_int dropped;
    atomic_int most; /* at once */
    atomic_bool go_on;
};

static void pause_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Holds on until it is let go; "bad" fails. */
static int work(void *arg, const char *name, bool dropped)
{
    struct world *world = arg;
    if (dropped) {
        atomic_fetch_add(&world->dropped, 1);
        return 0;
    }
    int now = atomic_fetch_add(&world->begun, 1) + 1 - atomic_load(&world->ended);
    int most = atomic_load(&world->most);
    while (now > most && !atomic_compare_exchange_weak(&world->most, &most, now))
        ;
    while (!atomic_load(&world->go_on))
        pause_ms(1);
    atomic_fetch_add(&world->ended, 1);
    return strncmp(name, "bad", 3) == 0 ? -EIO : 0;
}

static int add(struct workspace_pool *pool, struct world *world, const char *name)
{
    return workspace_pool_add(pool, name, work, world, NULL);
}

static void add_many(struct workspace_pool *pool, struct world *world, int count)
{
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(add(pool, world, name), 1);
    }
}

static void test_a_few_at_once(void **state)
{
    struct world world = {0};
    struct workspace_pool *pool = workspace_pool_new();
    bool failed = true;
    (void)state;
    assert_int_equal(workspace_pool_wait(pool, 0, &failed), 0);
    assert_false(failed);
    add_many(pool, &world, 50);
    for (int i = 0; i < 5000 && atomic_load(&world.begun) < WORKSPACE_POOL_THREADS; i++)
        pause_ms(1);
    assert_int_equal(workspace_pool_wait(pool, 50, NULL), 50);
    assert_int_equal(atomic_load(&world.begun), WORKSPACE_POOL_THREADS);
    atomic_store(&world.go_on, true);
    assert_int_equal(workspace_pool_wait(pool, 20000, &failed), 0);
    assert_false(failed);
    assert_int_equal(atomic_load(&world.ended), 50);
    assert_int_equal(atomic_load(&world.most), WORKSPACE_POOL_THREADS);
    workspace_pool_free(pool);
    assert_int_equal(atomic_load(&world.dropped), 0);
}

static void test_a_name_is_there_once(void **state)
{
    struct world world = {0};
    struct workspace_pool *pool = workspace_pool_new();
    bool failed;
    (void)state;
    assert_int_equal(add(pool, &world, "bad one"), 1);
    assert_int_equal(add(pool, &world, "bad one"), 0);
    assert_int_equal(add(pool, &world, "another"), 1);
    atomic_store(&world.go_on, true);
    assert_int_equal(workspace_pool_wait(pool, 20000, &failed), 0);
    assert_true(failed);
    assert_int_equal(atomic_load(&world.ended), 2);
    /* It is told once, and the name is free again. */
    assert_int_equal(workspace_pool_wait(pool, 0, &failed), 0);
    assert_false(failed);
    assert_int_equal(add(pool, &world, "bad one"), 1);
    assert_int_equal(workspace_pool_wait(pool, 20000, &failed), 0);
    assert_true(failed);
    workspace_pool_free(pool);
    workspace_pool_free(NULL);
}

static void *let_go(void *arg)
{
    struct world *world = arg;
    pause_ms(100);
    atomic_store(&world->go_on, true);
    return NULL;
}

static void test_what_waits_is_dropped(void **state)
{
    struct world world = {0};
    struct workspace_pool *pool = workspace_pool_new();
    pthread_t thread;
    (void)state;
    add_many(pool, &world, 30);
    for (int i = 0; i < 5000 && atomic_load(&world.begun) < WORKSPACE_POOL_THREADS; i++)
        pause_ms(1);
    workspace_pool_drop(pool);
    assert_int_equal(atomic_load(&world.dropped), 30 - WORKSPACE_POOL_THREADS);
    assert_int_equal(add(pool, &world, "late"), 1);
    assert_int_equal(pthread_create(&thread, NULL, let_go, &world), 0);
    /* The end waits for what is under way. */
    workspace_pool_free(pool);
    assert_int_equal(atomic_load(&world.ended), WORKSPACE_POOL_THREADS);
    assert_int_equal(atomic_load(&world.dropped), 31 - WORKSPACE_POOL_THREADS);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_few_at_once),
        cmocka_unit_test(test_a_name_is_there_once),
        cmocka_unit_test(test_what_waits_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
