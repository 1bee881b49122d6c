#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "world.h"

#include <pthread.h>
#include <string.h>

static void test_wait(void **state)
{
    struct world *f = *state;
    world_start(f);
    struct err err = ERR_INIT;
    assert_int_equal(engine_wait(f->engine, "j-none", 1, &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    cleanup_free char *id = world_submit_ok(f, "test.hold", NULL, NULL, "{}");
    assert_int_equal(engine_wait(f->engine, id, 0, NULL), 0);
    assert_int_equal(engine_wait(f->engine, id, 1, NULL), 0);
    atomic_store(&world_shared.go_on, true);
    world_wait_final(f, id);
    assert_int_equal(engine_wait(f->engine, id, 0, NULL), 1);
    world_stop(f);
    world_start(f);
    assert_int_equal(engine_wait(f->engine, id, 0, NULL), 1); /* of a former life */
}

static void test_newest_progress_is_shown(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.hold", NULL, NULL, "{}");
    world_wait_until_held(1);
    struct catalog_job row = {0};
    for (int i = 0; i < 1000; i++) { /* well before the second write */
        row = world_get(f, id);
        if (row.state == CATALOG_JOB_RUNNING && row.progress_done == 1)
            break;
        catalog_job_free(&row);
        world_nap_ms(1);
    }
    for (int i = 0; i < 100 && row.progress_done < 2; i++) {
        engine_overlay(f->engine, &row);
        world_nap_ms(1);
    }
    assert_int_equal(row.progress_done, 2);
    assert_int_equal(row.progress_total, 7);
    assert_string_equal(row.progress_unit, "entries");
    catalog_job_free(&row);
    struct catalog_job other = {.id = strdup("j-other"), .state = CATALOG_JOB_RUNNING};
    engine_overlay(f->engine, &other);
    assert_null(other.progress_unit);
    catalog_job_free(&other);
}

static void test_stop_interrupts_and_start_goes_on(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *plain = world_submit_ok(f, "test.hold", "run:a", NULL, "{}");
    cleanup_free char *words = world_submit_ok(f, "test.hold", NULL, NULL, "{'own_words':true}");
    world_wait_until_held(2);
    world_stop(f);
    const char *ids[] = {plain, words};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct catalog_job row = world_get(f, ids[i]);
        assert_int_equal(row.state, CATALOG_JOB_RUNNING);
        assert_string_equal(row.step, "stopped");
        assert_int_equal(row.attempt, 1);
        catalog_job_free(&row);
    }
    atomic_store(&world_shared.go_on, true);
    world_start(f);
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        world_wait_final(f, ids[i]);
        struct catalog_job row = world_get(f, ids[i]);
        assert_int_equal(row.state, CATALOG_JOB_DONE);
        assert_int_equal(row.attempt, 2);
        assert_string_equal(row.step, "hold");
        catalog_job_free(&row);
    }
    assert_int_equal(atomic_load(&world_shared.runs), 4);
}

/* What a job has given back is free at once, and after a restart it has what it moved on to. */
static void test_a_job_moves_on(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *first = world_submit_ok(f, "test.hold", "run:a", NULL, "{'move':'b:c'}");
    world_wait_until_held(1);
    cleanup_free char *second = world_submit_ok(f, "test.hold", "run:a", NULL, "{}");
    for (int life = 0; life < 2; life++) {
        struct err err = ERR_INIT;
        world_wait_until_held(2);
        assert_null(world_submit(f, "test.hold", "b:c", NULL, "{}", &err));
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_non_null(strstr(err.text, first));
        struct catalog_job row = world_get(f, first);
        assert_string_equal(row.object, "b:c");
        catalog_job_free(&row);
        if (life == 0) {
            world_stop(f);
            world_start(f);
        }
    }
    /* What another one has is not had. */
    cleanup_free char *third = world_submit_ok(f, "test.hold", "x:y", NULL, "{'move':'run:a'}");
    world_wait_final(f, third);
    struct catalog_job row = world_get(f, third);
    assert_string_equal(row.error_code, "conflict");
    assert_non_null(strstr(row.error_message, second));
    catalog_job_free(&row);
    atomic_store(&world_shared.go_on, true);
    world_wait_final(f, first);
    world_wait_final(f, second);
}

static void test_stop_leaves_queued_jobs_queued(void **state)
{
    struct world *f = *state;
    world_start(f);
    char *ids[ENGINE_THREADS + 3];
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        ids[i] = world_submit_ok(f, "test.hold", NULL, NULL, "{}");
    world_wait_until_held(ENGINE_THREADS);
    world_stop(f);
    struct catalog_job row = world_get(f, ids[ARRAY_SIZE(ids) - 1]);
    assert_int_equal(row.state, CATALOG_JOB_QUEUED);
    catalog_job_free(&row);
    atomic_store(&world_shared.go_on, true);
    world_start(f);
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        world_wait_final(f, ids[i]);
        free(ids[i]);
    }
    assert_int_equal(world_count_jobs(f, true), 0);
}

static void test_equal_keys_join(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *first = world_submit_ok(f, "test.hold", "run:a", "k", "{'v':1,'w':2}");
    cleanup_free char *again = world_submit_ok(f, "test.hold", "run:a", "k", "{'w':2, 'v':1}");
    assert_string_equal(first, again);
    struct err err = ERR_INIT;
    assert_null(world_submit(f, "test.hold", "run:a", "k", "{'v':2}", &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "key"));
    err_clear(&err);
    assert_null(world_submit(f, "test.good", NULL, "k", "{'v':1,'w':2}", &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    atomic_store(&world_shared.go_on, true);
    world_wait_final(f, first);
    cleanup_free char *later = world_submit_ok(f, "test.hold", "run:a", "k", "{'v':1,'w':2}");
    assert_string_equal(first, later);
    assert_int_equal(atomic_load(&world_shared.runs), 1);
    cleanup_json json_t *params = json_pack("{s:i, s:i}", "v", 1, "w", 2);
    struct job_request request = {.kind = "test.hold", .key = "k", .uid = 8, .params = params};
    cleanup_free char *other_user = NULL;
    assert_int_equal(engine_submit(f->engine, &request, &other_user, NULL), 0);
    assert_string_not_equal(first, other_user);
    world_wait_final(f, other_user);
}

static void test_objects_are_exclusive(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *first = world_submit_ok(f, "test.hold", "run:a", NULL, "{}");
    struct err err = ERR_INIT;
    assert_null(world_submit(f, "test.good", "run:a", NULL, "{'value':1}", &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, first));
    cleanup_free char *other = world_submit_ok(f, "test.good", "run:b", NULL, "{'value':1}");
    world_wait_final(f, other);
    /* Still so in the next life. */
    world_stop(f);
    world_start(f);
    err_clear(&err);
    assert_null(world_submit(f, "test.good", "run:a", NULL, "{'value':1}", &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    atomic_store(&world_shared.go_on, true);
    /* Whoever has seen the final state may go on at once. */
    for (bool final = false; !final;) {
        struct catalog_job row = world_get(f, first);
        final = catalog_job_state_is_final(row.state);
        catalog_job_free(&row);
    }
    cleanup_free char *next = world_submit_ok(f, "test.good", "run:a", NULL, "{'value':1}");
    world_wait_final(f, next);
}

static int refuse(void *arg, struct err *err)
{
    ++*(int *)arg;
    return err_fail(err, ERR_EXISTS, "the name is taken");
}

static int accept(void *arg, struct err *err)
{
    (void)err;
    ++*(int *)arg;
    return 0;
}

static void test_check_refuses_before_the_record(void **state)
{
    struct world *f = *state;
    world_start(f);
    int calls = 0;
    cleanup_json json_t *params = json_pack("{s:i}", "value", 1);
    struct job_request request = {
        .kind = "test.good", .key = "k", .params = params, .check = refuse, .check_arg = &calls};
    struct err err = ERR_INIT;
    char *none = NULL;
    assert_int_equal(engine_submit(f->engine, &request, &none, &err), -EEXIST);
    assert_string_equal(err.text, "the name is taken");
    assert_int_equal(world_count_jobs(f, false), 0);
    request.check = accept;
    cleanup_free char *id = NULL;
    assert_int_equal(engine_submit(f->engine, &request, &id, NULL), 0);
    assert_int_equal(calls, 2);
    world_wait_final(f, id);
    /* A repeat joins: what its own effect has taken is not held against it. */
    request.check = refuse;
    cleanup_free char *again = NULL;
    assert_int_equal(engine_submit(f->engine, &request, &again, NULL), 0);
    assert_string_equal(id, again);
    assert_int_equal(calls, 2);
}

static void test_made_ids(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.makes", NULL, "k", "{}");
    world_wait_final(f, id);
    assert_memory_equal(world_shared.made_id, "s-", 2);
    assert_string_equal(world_shared.made_id + 2, id + 2);
    cleanup_free char *again = world_submit_ok(f, "test.makes", NULL, "k", "{}");
    assert_string_equal(id, again);
    cleanup_free char *given = world_submit_ok(f, "test.makes", NULL, NULL, "{'id':'mine'}");
    world_wait_final(f, given);
    assert_string_equal(world_shared.made_id, "mine");
    struct job_request request = {.kind = "test.makes", .id = "j-00112233aabb"};
    cleanup_json json_t *params = json_object();
    request.params = params;
    cleanup_free char *chosen = NULL;
    assert_int_equal(engine_submit(f->engine, &request, &chosen, NULL), 0);
    assert_string_equal(chosen, "j-00112233aabb");
    world_wait_final(f, chosen);
    assert_string_equal(world_shared.made_id, "s-00112233aabb");
}

static void test_many_jobs_on_few_threads(void **state)
{
    struct world *f = *state;
    enum {
        COUNT = 200,
        HELD = ENGINE_THREADS + 2,
    };
    world_start(f);
    char *ids[COUNT];
    for (int i = 0; i < COUNT; i++)
        ids[i] = world_submit_ok(f, i < HELD ? "test.hold" : "test.short", NULL, NULL, "{}");
    /* Every thread is at work, and none of the held jobs beyond that. */
    world_wait_until_held(ENGINE_THREADS);
    atomic_store(&world_shared.go_on, true);
    for (int i = 0; i < COUNT; i++) {
        world_wait_final(f, ids[i]);
        struct catalog_job row = world_get(f, ids[i]);
        assert_int_equal(row.state, CATALOG_JOB_DONE);
        catalog_job_free(&row);
        free(ids[i]);
    }
    assert_int_equal(atomic_load(&world_shared.runs), COUNT);
    assert_int_equal(atomic_load(&world_shared.working_max), ENGINE_THREADS);
    assert_int_equal(world_count_jobs(f, true), 0);
}

/* However many wait for a volume, whatever would help it runs. */
static void test_jobs_that_wait_hold_up_no_others(void **state)
{
    struct world *f = *state;
    enum {
        HELD = ENGINE_WAITERS_MAX + 3,
    };
    world_start(f);
    char *ids[HELD];
    for (int i = 0; i < HELD; i++)
        ids[i] = world_submit_ok(f, "test.wait", NULL, NULL, "{}");
    world_wait_until_held(ENGINE_WAITERS_MAX);
    for (int i = 0; i < 2 * ENGINE_THREADS; i++) {
        cleanup_free char *id = world_submit_ok(f, "test.short", NULL, NULL, "{}");
        world_wait_final(f, id);
    }
    assert_int_equal(atomic_load(&world_shared.runs), ENGINE_WAITERS_MAX + 2 * ENGINE_THREADS);
    /* They are left to the next start, where all are begun anew. */
    world_stop(f);
    assert_int_equal(world_count_jobs(f, true), HELD);
    world_start(f);
    world_wait_until_held(ENGINE_WAITERS_MAX);
    atomic_store(&world_shared.go_on, true);
    for (int i = 0; i < HELD; i++) {
        world_wait_final(f, ids[i]);
        free(ids[i]);
    }
    assert_int_equal(world_count_jobs(f, true), 0);
}

/* However many wait for a registry, in more than one way, none of the others is behind them. */
static void test_jobs_that_wait_for_a_registry_hold_up_no_others(void **state)
{
    struct world *f = *state;
    enum {
        EACH = ENGINE_REMOTE_MAX + ENGINE_WAITERS_MAX,
        RUNNING = 2 * ENGINE_REMOTE_MAX + ENGINE_WAITERS_MAX,
    };
    world_start(f);
    char *ids[3 * EACH];
    for (int i = 0; i < EACH; i++)
        ids[i] = world_submit_ok(f, "test.remote", NULL, NULL, "{}");
    world_wait_until_held(ENGINE_REMOTE_MAX);
    for (int i = EACH; i < 2 * EACH; i++)
        ids[i] = world_submit_ok(f, "test.distant", NULL, NULL, "{}");
    world_wait_until_held(2 * ENGINE_REMOTE_MAX);
    for (int i = 2 * EACH; i < 3 * EACH; i++)
        ids[i] = world_submit_ok(f, "test.wait", NULL, NULL, "{}");
    world_wait_until_held(RUNNING);
    for (int i = 0; i < 2 * ENGINE_THREADS; i++) {
        cleanup_free char *id = world_submit_ok(f, "test.short", NULL, NULL, "{}");
        world_wait_final(f, id);
    }
    assert_int_equal(atomic_load(&world_shared.runs), RUNNING + 2 * ENGINE_THREADS);
    /* The same after a restart, where they are queued in their order. */
    world_stop(f);
    assert_int_equal(world_count_jobs(f, true), 3 * EACH);
    world_start(f);
    world_wait_until_held(RUNNING);
    atomic_store(&world_shared.go_on, true);
    for (int i = 0; i < 3 * EACH; i++) {
        world_wait_final(f, ids[i]);
        free(ids[i]);
    }
    assert_int_equal(world_count_jobs(f, true), 0);
}

/* What would end their wait is not behind them, nor is there a thread less afterwards. */
static void test_urgent_jobs_get_past_those_that_wait(void **state)
{
    struct world *f = *state;
    enum {
        HELD = ENGINE_WAITERS_MAX + 3,
    };
    world_start(f);
    char *ids[HELD + ENGINE_URGENT_MAX];
    for (int i = 0; i < HELD; i++)
        ids[i] = world_submit_ok(f, "test.wait", NULL, NULL, "{}");
    world_wait_until_held(ENGINE_WAITERS_MAX);
    for (int i = 0; i < ENGINE_URGENT_MAX; i++)
        ids[HELD + i] = world_submit_ok(f, "test.urgent", NULL, NULL, "{}");
    world_wait_until_held(ENGINE_WAITERS_MAX + ENGINE_URGENT_MAX);
    /* The same after a restart, where the plain ones are the older ones. */
    world_stop(f);
    world_start(f);
    world_wait_until_held(ENGINE_WAITERS_MAX + ENGINE_URGENT_MAX);
    assert_int_equal(atomic_load(&world_shared.working_max),
                     ENGINE_WAITERS_MAX + ENGINE_URGENT_MAX);
    atomic_store(&world_shared.go_on, true);
    for (int i = 0; i < HELD + ENGINE_URGENT_MAX; i++) {
        world_wait_final(f, ids[i]);
        free(ids[i]);
    }
    assert_int_equal(world_count_jobs(f, true), 0);
}

static void *submit_many(void *arg)
{
    struct world *f = arg;
    cleanup_json json_t *params = json_pack("{s:i}", "value", 1);
    for (int i = 0; i < 25; i++) {
        struct job_request request = {.kind = "test.good", .key = "one", .params = params};
        char *id = NULL;
        if (engine_submit(f->engine, &request, &id, NULL) < 0 ||
            engine_wait(f->engine, id, 60, NULL) != 1)
            return (void *)"failed";
        free(id);
    }
    return NULL;
}

static void test_one_key_from_many_threads(void **state)
{
    struct world *f = *state;
    world_start(f);
    pthread_t threads[8];
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, f), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    assert_int_equal(atomic_load(&world_shared.runs), 1);
    assert_int_equal(world_count_jobs(f, false), 1);
}

static void test_the_queue_has_an_end(void **state)
{
    struct world *f = *state;
    assert_int_equal(catalog_begin(f->node.catalog, NULL), 0);
    for (int i = 0; i < ENGINE_QUEUE_MAX; i++) {
        char id[32];
        snprintf(id, sizeof id, "j-%d", i);
        struct catalog_job row = {.id = id, .kind = (char *)"test.hold", .params = (char *)"{}"};
        char *existing = NULL;
        assert_int_equal(catalog_job_add(f->node.catalog, &row, &existing, NULL), 0);
    }
    assert_int_equal(catalog_commit(f->node.catalog, NULL), 0);
    world_start(f);
    world_wait_until_held(ENGINE_THREADS);
    /* Oldest first. */
    struct catalog_job row = world_get(f, "j-0");
    assert_int_equal(row.state, CATALOG_JOB_RUNNING);
    catalog_job_free(&row);
    struct err err = ERR_INIT;
    assert_null(world_submit(f, "test.good", NULL, NULL, "{}", &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(world_count_jobs(f, true), ENGINE_QUEUE_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_wait),
        TEST(test_newest_progress_is_shown),
        TEST(test_stop_interrupts_and_start_goes_on),
        TEST(test_a_job_moves_on),
        TEST(test_stop_leaves_queued_jobs_queued),
        TEST(test_equal_keys_join),
        TEST(test_objects_are_exclusive),
        TEST(test_check_refuses_before_the_record),
        TEST(test_made_ids),
        TEST(test_many_jobs_on_few_threads),
        TEST(test_jobs_that_wait_hold_up_no_others),
        TEST(test_jobs_that_wait_for_a_registry_hold_up_no_others),
        TEST(test_urgent_jobs_get_past_those_that_wait),
        TEST(test_one_key_from_many_threads),
        TEST(test_the_queue_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
