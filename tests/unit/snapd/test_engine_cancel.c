#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_event.h"
#include "catalog_lease.h"
#include "cleanup.h"
#include "world.h"

#include <pthread.h>
#include <string.h>

static int cancel(struct world *f, const char *id)
{
    struct err err = ERR_INIT;
    int rc = engine_cancel(f->engine, id, 7, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    return rc;
}

static int64_t count_events(struct world *f, const char *id)
{
    char object[80];
    int64_t count = 0;
    snprintf(object, sizeof object, "job:%s", id);
    assert_int_equal(catalog_event_count(f->node.catalog, object, &count, NULL), 0);
    return count;
}

static void check(struct world *f, const char *id, enum catalog_job_state state, const char *words)
{
    world_wait_final(f, id);
    struct catalog_job row = world_get(f, id);
    if (row.state != state)
        fail_msg("%s is %s: %s", id, catalog_job_state_name(row.state), row.error_message);
    if (words) {
        assert_string_equal(row.error_code,
                            state == CATALOG_JOB_CANCELLED ? "cancelled" : row.error_code);
        if (!strstr(row.error_message, words))
            fail_msg("%s", row.error_message);
    }
    catalog_job_free(&row);
}

/* Whether any job has a lease on what the held ones take. */
static bool is_leased(struct world *f)
{
    static const char key[] = "blob:sha256:"
                              "0000000000000000000000000000000000000000000000000000000000000000";
    cleanup_free char *next = NULL;
    assert_int_equal(catalog_deletion_queue(f->node.catalog, key, NULL), 0);
    assert_int_equal(catalog_deletion_next(f->node.catalog, &next, NULL), 0);
    catalog_rollback(f->node.catalog);
    return !next;
}

static void test_a_queued_job_ends_at_once(void **state)
{
    struct world *f = *state;
    char *held[ENGINE_THREADS];
    world_start(f);
    for (size_t i = 0; i < ARRAY_SIZE(held); i++)
        held[i] = world_submit_ok(f, "test.hold", NULL, NULL, "{}");
    world_wait_until_held(ENGINE_THREADS);
    cleanup_free char *id = world_submit_ok(f, "test.hold", "run:a", "key", "{}");
    cleanup_free char *behind = world_submit_ok(f, "test.good", "run:b", NULL, "{'value':1}");
    assert_int_equal(cancel(f, id), 1);
    assert_int_equal(engine_wait(f->engine, id, 0, NULL), 1);
    check(f, id, CATALOG_JOB_CANCELLED, "before it began");
    assert_int_equal(count_events(f, id), 2);
    assert_int_equal(cancel(f, id), 1);
    /* The key stays its own, the object is free. */
    cleanup_free char *again = world_submit_ok(f, "test.hold", "run:a", "key", "{}");
    assert_string_equal(again, id);
    cleanup_free char *other = world_submit_ok(f, "test.good", "run:a", NULL, "{'value':1}");
    atomic_store(&world_shared.go_on, true);
    check(f, behind, CATALOG_JOB_DONE, NULL);
    check(f, other, CATALOG_JOB_DONE, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
        check(f, held[i], CATALOG_JOB_DONE, NULL);
        free(held[i]);
    }
    assert_int_equal(atomic_load(&world_shared.runs), ENGINE_THREADS + 2);
}

static void test_a_running_job(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.hold", "run:a", NULL, "{}");
    cleanup_free char *words = world_submit_ok(f, "test.wait", NULL, NULL, "{'own_words':true}");
    world_wait_until_held(2);
    assert_int_equal(cancel(f, id), 0);
    assert_int_equal(cancel(f, words), 0);
    check(f, id, CATALOG_JOB_CANCELLED, "it was cancelled");
    check(f, words, CATALOG_JOB_CANCELLED, "it was cancelled: the helper ended too early");
    assert_int_equal(count_events(f, id), 2);
    assert_false(is_leased(f));
    assert_int_equal(cancel(f, id), 1);
    cleanup_free char *next = world_submit_ok(f, "test.good", "run:a", NULL, "{'value':1}");
    check(f, next, CATALOG_JOB_DONE, NULL);
    assert_int_equal(atomic_load(&world_shared.working), 0);
}

static void test_a_settled_job_is_done(void **state)
{
    struct world *f = *state;
    struct err err = ERR_INIT;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.hold", NULL, NULL, "{'settle':true}");
    world_wait_until_held(1);
    for (int i = 0; i < 1000; i++) {
        struct catalog_job row = world_get(f, id);
        bool settled = row.settled;
        catalog_job_free(&row);
        if (settled)
            break;
        world_nap_ms(5);
    }
    assert_int_equal(engine_cancel(f->engine, id, 7, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.hint, id));
    /* Not even by a restart, which runs it again. */
    world_stop(f);
    world_start(f);
    assert_int_equal(engine_cancel(f->engine, id, 7, NULL), -EBUSY);
    world_wait_until_held(1);
    atomic_store(&world_shared.go_on, true);
    check(f, id, CATALOG_JOB_DONE, NULL);
    err_clear(&err);
    assert_int_equal(engine_cancel(f->engine, id, 7, &err), -EBUSY);
    assert_non_null(strstr(err.text, "done"));
    err_clear(&err);
    assert_int_equal(engine_cancel(f->engine, "j-none", 7, &err), -ENOENT);
}

/* The wish was first, so it is not done, whether it has a point to settle at or not. */
static void test_who_does_not_ask_hears_of_it_at_the_end(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *settles =
        world_submit_ok(f, "test.hold", NULL, NULL, "{'deaf':true,'late':true}");
    cleanup_free char *never = world_submit_ok(f, "test.hold", NULL, NULL, "{'deaf':true}");
    world_wait_until_held(2);
    for (int i = 0; i < 200 && !is_leased(f); i++)
        world_nap_ms(5);
    world_nap_ms(50); /* both are behind their last question */
    assert_int_equal(cancel(f, settles), 0);
    assert_int_equal(cancel(f, never), 0);
    assert_int_equal(engine_wait(f->engine, settles, 0, NULL), 0);
    atomic_store(&world_shared.go_on, true);
    check(f, settles, CATALOG_JOB_CANCELLED, "it was cancelled");
    check(f, never, CATALOG_JOB_CANCELLED, "at its end");
    struct catalog_job row = world_get(f, never);
    assert_null(row.result);
    catalog_job_free(&row);
}

static void test_a_failure_of_its_own_stays_one(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.bad", NULL, NULL, "{}");
    check(f, id, CATALOG_JOB_FAILED, "not what they should be");
    struct err err = ERR_INIT;
    assert_int_equal(engine_cancel(f->engine, id, 7, &err), -EBUSY);
    assert_non_null(strstr(err.text, "failed"));
}

struct many {
    struct world *world;
    const char *id;
    atomic_int waited;
};

static void *cancel_many(void *arg)
{
    const struct many *many = arg;
    for (int i = 0; i < 20; i++)
        if (engine_cancel(many->world->engine, many->id, 7, NULL) < 0)
            return (void *)"failed";
    return NULL;
}

static void *wait_long(void *arg)
{
    struct many *many = arg;
    if (engine_wait(many->world->engine, many->id, 60, NULL) != 1)
        return (void *)"failed";
    atomic_fetch_add(&many->waited, 1);
    return NULL;
}

/* Everybody who waits is told, and several who cancel are one wish. */
static void test_many_at_once(void **state)
{
    struct world *f = *state;
    static const char *const kinds[] = {"test.hold", "test.hold", "test.remote", "test.urgent"};
    world_start(f);
    for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
        pthread_t threads[12];
        cleanup_free char *id = world_submit_ok(f, kinds[k], "run:a", NULL, "{}");
        struct many many = {.world = f, .id = id};
        if (k > 0) /* the first one may be queued still */
            world_wait_until_held(1);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
            assert_int_equal(
                pthread_create(&threads[i], NULL, i % 2 ? cancel_many : wait_long, &many), 0);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
            void *failed = NULL;
            assert_int_equal(pthread_join(threads[i], &failed), 0);
            assert_null(failed);
        }
        assert_int_equal(atomic_load(&many.waited), ARRAY_SIZE(threads) / 2);
        check(f, id, CATALOG_JOB_CANCELLED, NULL);
        assert_int_equal(count_events(f, id), 2);
    }
    assert_int_equal(world_count_jobs(f, true), 0);
}

/* As a kill leaves it: running, with the wish on record or not yet. */
static void leave_row(struct world *f, const char *id, const char *kind, bool cancelled)
{
    struct catalog_job row = {.id = (char *)id, .kind = (char *)kind, .params = (char *)"{}"};
    char *existing = NULL;
    assert_int_equal(catalog_job_add(f->node.catalog, &row, &existing, NULL), 0);
    assert_int_equal(catalog_job_start(f->node.catalog, id, NULL), 0);
    if (cancelled)
        assert_int_equal(catalog_job_cancel(f->node.catalog, id, 7, NULL), 0);
}

/* The start runs it for its undoing, however many others wait for the same before it. */
static void test_a_start_cancels(void **state)
{
    struct world *f = *state;
    enum {
        HELD = ENGINE_REMOTE_MAX + 2,
    };
    char id[16];
    for (int i = 0; i < HELD; i++) {
        snprintf(id, sizeof id, "j-%d", i);
        leave_row(f, id, "test.remote", false);
    }
    for (int i = 0; i < ENGINE_THREADS; i++) {
        snprintf(id, sizeof id, "j-h%d", i);
        leave_row(f, id, "test.hold", false);
    }
    leave_row(f, "j-wish", "test.remote", true);
    leave_row(f, "j-other", "test.hold", true);
    leave_row(f, "j-later", "test.remote", false);
    leave_row(f, "j-unknown", "future.thing", true);
    world_start(f);
    check(f, "j-wish", CATALOG_JOB_CANCELLED, "it was cancelled");
    check(f, "j-other", CATALOG_JOB_CANCELLED, "it was cancelled");
    check(f, "j-unknown", CATALOG_JOB_FAILED, "knows no jobs");
    struct catalog_job row = world_get(f, "j-wish");
    assert_int_equal(row.attempt, 2);
    catalog_job_free(&row);
    world_wait_until_held(ENGINE_REMOTE_MAX + ENGINE_THREADS);
    /* One that waits for its place in this life is not begun, but was before. */
    assert_int_equal(cancel(f, "j-later"), 0);
    check(f, "j-later", CATALOG_JOB_CANCELLED, NULL);
    assert_int_equal(atomic_load(&world_shared.working), ENGINE_REMOTE_MAX + ENGINE_THREADS);
    atomic_store(&world_shared.go_on, true);
    for (int i = 0; i < HELD; i++) {
        snprintf(id, sizeof id, "j-%d", i);
        check(f, id, CATALOG_JOB_DONE, NULL);
    }
}

/* A stop comes first: the next start sees to the wish. */
static void test_a_stop_leaves_the_wish(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.hold", "run:a", NULL, "{}");
    world_wait_until_held(1);
    engine_interrupt(f->engine);
    assert_true(engine_cancel(f->engine, id, 7, NULL) >= 0);
    world_stop(f);
    struct catalog_job row = world_get(f, id);
    assert_int_equal(row.state, CATALOG_JOB_RUNNING);
    assert_true(row.cancel);
    catalog_job_free(&row);
    world_start(f);
    check(f, id, CATALOG_JOB_CANCELLED, NULL);
    assert_false(is_leased(f));
}

#define test(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_a_queued_job_ends_at_once),
        test(test_a_running_job),
        test(test_a_settled_job_is_done),
        test(test_who_does_not_ask_hears_of_it_at_the_end),
        test(test_a_failure_of_its_own_stays_one),
        test(test_many_at_once),
        test(test_a_start_cancels),
        test(test_a_stop_leaves_the_wish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
