#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workspace_claim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    struct workspaces *workspaces = workspaces_new();
    assert_int_equal(workspace_claim_try(workspaces, "a", NULL), 1);
    assert_int_equal(workspace_claim_try(workspaces, "a", NULL), 0);
    assert_int_equal(workspace_claim_try(workspaces, "b", NULL), 1);
    workspace_claim_release(workspaces, "a");
    workspace_claim_release(workspaces, "a"); /* of nothing is fine */
    assert_int_equal(workspace_claim_try(workspaces, "b", NULL), 0);
    assert_int_equal(workspace_claim_try(workspaces, "a", NULL), 1);
    {
        cleanup_workspace_claim struct workspace_claim claim = {workspaces, "b"};
        assert_int_equal(workspace_claim_try(workspaces, "b", NULL), 0);
    }
    assert_int_equal(workspace_claim_try(workspaces, "b", NULL), 1);
    workspaces_free(workspaces);
    workspaces_free(NULL);
}

struct crowd {
    struct workspaces *workspaces;
    atomic_int inside;
    atomic_int worst;
    atomic_int turns;
};

static void *take_turns(void *arg)
{
    struct crowd *crowd = arg;
    for (int i = 0; i < 50; i++) {
        if (workspace_claim_wait(crowd->workspaces, "a", NULL, NULL, NULL) != 0)
            return crowd;
        if (atomic_fetch_add(&crowd->inside, 1) > 0)
            atomic_store(&crowd->worst, 1);
        atomic_fetch_add(&crowd->turns, 1);
        atomic_fetch_sub(&crowd->inside, 1);
        workspace_claim_release(crowd->workspaces, "a");
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    (void)state;
    struct crowd crowd = {.workspaces = workspaces_new()};
    pthread_t threads[4];
    void *failed;
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &crowd), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(atomic_load(&crowd.worst), 0);
    assert_int_equal(atomic_load(&crowd.turns), 200);
    workspaces_free(crowd.workspaces);
}

static int give_up(void *arg, struct err *err)
{
    int *asked = arg;
    return ++*asked < 2 ? 0 : err_fail(err, ERR_INTERRUPTED, "told to");
}

static void test_the_wait_can_be_ended(void **state)
{
    (void)state;
    struct workspaces *workspaces = workspaces_new();
    struct err err = ERR_INIT;
    int asked = 0;
    assert_int_equal(workspace_claim_try(workspaces, "a", NULL), 1);
    assert_true(workspace_claim_wait(workspaces, "a", give_up, &asked, &err) < 0);
    assert_int_equal(err.code, ERR_INTERRUPTED);
    assert_int_equal(asked, 2);
    workspaces_free(workspaces);
}

struct taker {
    struct workspaces *workspaces;
    atomic_int asked;
    atomic_bool taken;
};

static int count_asks(void *arg, struct err *err)
{
    (void)err;
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void *take_over(void *arg)
{
    struct taker *taker = arg;
    if (workspace_claim_take_over(taker->workspaces, "a", count_asks, &taker->asked, NULL) == 0)
        atomic_store(&taker->taken, true);
    return NULL;
}

/* Who has it can know, nobody else gets it in between, and without anybody nobody is asked. */
static void test_a_claim_is_taken_over(void **state)
{
    (void)state;
    struct taker taker = {.workspaces = workspaces_new()};
    pthread_t thread;
    assert_false(workspace_claim_is_awaited(taker.workspaces, "a"));
    assert_int_equal(workspace_claim_try(taker.workspaces, "a", NULL), 1);
    assert_false(workspace_claim_is_awaited(taker.workspaces, "a"));
    assert_int_equal(pthread_create(&thread, NULL, take_over, &taker), 0);
    while (atomic_load(&taker.asked) == 0)
        nap();
    assert_true(workspace_claim_is_awaited(taker.workspaces, "a"));
    pthread_t waiter;
    struct crowd crowd = {.workspaces = taker.workspaces};
    assert_int_equal(pthread_create(&waiter, NULL, take_turns, &crowd), 0);
    workspace_claim_release(taker.workspaces, "a");
    while (!atomic_load(&taker.taken)) {
        assert_int_equal(workspace_claim_try(taker.workspaces, "a", NULL), 0);
        nap();
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(workspace_claim_is_awaited(taker.workspaces, "a"));
    assert_int_equal(workspace_claim_try(taker.workspaces, "a", NULL), 0);
    assert_int_equal(atomic_load(&crowd.turns), 0);
    workspace_claim_release(taker.workspaces, "a");
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_int_equal(atomic_load(&crowd.turns), 50);
    assert_int_equal(workspace_claim_take_over(taker.workspaces, "a", NULL, NULL, NULL), 0);
    assert_int_equal(workspace_claim_try(taker.workspaces, "a", NULL), 0);
    workspaces_free(taker.workspaces);
}

static void test_a_take_over_can_be_ended(void **state)
{
    (void)state;
    struct workspaces *workspaces = workspaces_new();
    struct err err = ERR_INIT;
    int asked = 0;
    assert_int_equal(workspace_claim_try(workspaces, "a", NULL), 1);
    assert_true(workspace_claim_take_over(workspaces, "a", give_up, &asked, &err) < 0);
    assert_int_equal(err.code, ERR_INTERRUPTED);
    assert_false(workspace_claim_is_awaited(workspaces, "a"));
    assert_int_equal(workspace_claim_try(workspaces, "a", NULL), 0);
    workspace_claim_release(workspaces, "a");
    assert_int_equal(workspace_claim_try(workspaces, "a", NULL), 1);
    workspaces_free(workspaces);
}

/* A job waits for the monitor, and goes on when it is ready. */
static void test_a_job_waits(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.create", "w", "{}");
    assert_int_equal(workspace_claim_try(world->node->workspaces, "w", NULL), 1);
    cleanup_json json_t *params = json_pack("{s:s}", "name", "w");
    const struct job_request request = {
        .kind = "workspace.rm", .object = "workspace:w", .params = params};
    cleanup_free char *id = NULL;
    assert_int_equal(engine_submit(world->engine, &request, &id, NULL), 0);
    for (int i = 0; i < 50; i++)
        nap();
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    workspace_claim_release(world->node->workspaces, "w");
    assert_int_equal(engine_wait(world->engine, id, 30, NULL), 1);
    assert_string_equal(workspace_world_rows(world, "w"), "none");
}

/* An orderly stop does not wait for it, and the next start goes on. */
static void test_a_stop_while_a_job_waits(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.create", "w", "{}");
    assert_int_equal(workspace_claim_try(world->node->workspaces, "w", NULL), 1);
    cleanup_json json_t *params = json_pack("{s:s}", "name", "w");
    const struct job_request request = {
        .kind = "workspace.rm", .object = "workspace:w", .params = params};
    cleanup_free char *id = NULL;
    assert_int_equal(engine_submit(world->engine, &request, &id, NULL), 0);
    for (int i = 0; i < 50; i++)
        nap();
    workspace_world_stop(world);
    workspace_world_start(world);
    job_fixture_settle(world->node);
    assert_string_equal(workspace_world_rows(world, "w"), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_the_wait_can_be_ended),
        with_workspaces(test_a_job_waits),
        with_workspaces(test_a_stop_while_a_job_waits),
        cmocka_unit_test(test_a_claim_is_taken_over),
        cmocka_unit_test(test_a_take_over_can_be_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
