/* run.rollback, with the processes that it ends (run_kill.c). */
#include "run_rollback.h"

#include "catalog_image.h"
#include "catalog_snapshot.h"
#include "pull.h"
#include "run.h"
#include "run_fixture.h"
#include "run_internal.h"
#include "run_kill.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

static const char params[] = "{'id':'r1','snapshot':'other'}";

static int setup(void **state)
{
    if (run_world_setup_run(state) != 0)
        return -1;
    free(run_world_image(*state, "other:latest", "b", 3));
    return 0;
}

static void assert_image(const struct run_world *world, bool other)
{
    run_world_assert_ready(world, "r1");
    /* "other" has a layer more, and nothing of the work. */
    assert_int_equal(run_world_exists(world, "run/runs/r1/rootfs/only-2"), other);
    assert_int_equal(run_world_exists(world, "run/runs/r1/rootfs/work"), !other);
    cleanup_catalog_run struct catalog_run run = {0};
    cleanup_free char *digest = NULL;
    assert_int_equal(run_find(world->node, "r1", &run, NULL), 1);
    assert_int_equal(catalog_image_name_get(world->node->catalog,
                                            other ? "other:latest" : "base:latest", &digest, NULL),
                     0);
    assert_string_equal(run.image, digest);
    assert_string_equal(run.image_name, other ? "other" : "base");
}

static size_t count_snapshots(const struct run_world *world)
{
    struct catalog_snapshot *list = NULL;
    size_t count = 0;
    assert_int_equal(catalog_snapshot_list(world->node->catalog, &list, &count, NULL), 0);
    for (size_t i = 0; i < count; i++)
        catalog_snapshot_free(&list[i]);
    free(list);
    return count;
}

static void test_rollback_and_back(void **state)
{
    struct run_world *world = *state;
    cleanup_json json_t *result = run_world_job_ok(world, "run.rollback", "r1", params);
    const char *safety = json_string_value(json_object_get(result, "safety_snapshot"));
    assert_non_null(safety);
    assert_int_equal(json_integer_value(json_object_get(result, "killed")), 0);
    assert_image(world, true);
    struct catalog_snapshot row = {0};
    assert_int_equal(catalog_snapshot_get(world->node->catalog, safety, &row, NULL), 0);
    assert_string_equal(row.labels, "{\"varve.auto\":\"rollback\"}");
    int64_t left = row.expires_ns - clock_wall_ns(&world->node->clock);
    assert_true(left > (RUN_ROLLBACK_SAFETY_S - 600) * CLOCK_NS_PER_S &&
                left <= RUN_ROLLBACK_SAFETY_S * CLOCK_NS_PER_S);
    catalog_snapshot_free(&row);
    /* assert_image() has left a file. */
    json_decref(run_world_job_ok(world, "run.rollback", "r1", "{'id':'r1','snapshot':'base'}"));
    assert_int_equal(count_snapshots(world), 2);
    cleanup_json json_t *again =
        run_world_job_ok(world, "run.rollback", "r1", "{'id':'r1','snapshot':'base'}");
    assert_true(json_is_null(json_object_get(again, "safety_snapshot")));
    assert_int_equal(count_snapshots(world), 2);
}

static void test_refusals(void **state)
{
    struct run_world *world = *state;
    run_world_job_fails(world, "run.rollback", "x", "{'id':'x','snapshot':'other'}", ERR_NOT_FOUND,
                        "x");
    run_world_job_fails(world, "run.rollback", "r1", "{'id':'r1','snapshot':'none'}", ERR_NOT_FOUND,
                        "none");
    run_world_job_fails(world, "run.rollback", "r1", "{'id':'r1','snapshot':'s-none'}",
                        ERR_NOT_FOUND, "s-none");
    run_world_job_fails(world, "run.rollback", "r1", "{'id':'r1'}", ERR_DAMAGED, "snapshot");
    run_world_job_fails(world, "run.rollback", "r1", "{'id':'r1','snapshot':'other','kill':1}",
                        ERR_DAMAGED, "kill");
    assert_image(world, false);
    assert_int_equal(count_snapshots(world), 0);
}

static void test_processes_are_ended_when_told(void **state)
{
    struct run_world *world = *state;
    pid_t pids[3];
    int status;
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
        pids[i] = run_world_process(world, "r1", false);
    run_world_job_fails(world, "run.rollback", "r1", params, ERR_CONFLICT, "and 2 more");
    /* An image that is not here ends nobody. */
    run_world_job_fails(world, "run.rollback", "r1", "{'id':'r1','snapshot':'none','kill':true}",
                        ERR_NOT_FOUND, "none");
    assert_int_equal(waitpid(pids[0], &status, WNOHANG), 0);
    cleanup_json json_t *result =
        run_world_job_ok(world, "run.rollback", "r1", "{'id':'r1','snapshot':'other','kill':true}");
    assert_int_equal(json_integer_value(json_object_get(result, "killed")), 3);
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_image(world, true);
}

/* Who holds the lock and does nothing in the run is left alone, and the wait for him ends. */
static void test_a_lock_that_is_not_given_back(void **state)
{
    struct run_world *world = *state;
    struct err err = ERR_INIT;
    int killed = -1;
    pid_t pid = run_world_process(world, "r1", true);
    int64_t begin = clock_mono_ns(&world->node->clock);
    assert_int_equal(run_kill_idle(world->node, "r1", &killed, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(killed, -1);
    int64_t took = (clock_mono_ns(&world->node->clock) - begin) / (CLOCK_NS_PER_S / 1000);
    assert_true(took >= RUN_KILL_WAIT_MS && took < RUN_KILL_WAIT_MS + 20000);
    assert_int_equal(kill(pid, 0), 0);
    run_world_end(pid);
    int fd = run_kill_idle(world->node, "r1", &killed, NULL);
    assert_true(fd >= 0);
    assert_int_equal(killed, 0);
    close(fd);
    err_clear(&err);
    assert_true(run_kill_idle(world->node, "none", &killed, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

#ifdef VARVE_FAULT_POINTS
static const char *const points[] = {
    "snapshot.captured",    "snapshot.recorded",   "run.rollback-safe", "run.switch-unmounted",
    "run.switch-published", "run.switch-recorded", "run.switch-moved",  "run.switch-placed",
    "run.switch-mounted",   "job.before-finish"};

/* One image with its writable layer, or the other with an empty one: never a mixture. */
static void test_killed(void **state)
{
    struct run_world *world = *state;
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        size_t before = count_snapshots(world);
        run_world_killed_job(world, "run.rollback", "r1", params, points[i], i % 2 == 1);
        run_recover(world->node, NULL, NULL);
        assert_image(world, i > 3);
        run_world_start(world);
        job_fixture_settle(world->node);
        assert_image(world, true);
        assert_int_equal(count_snapshots(world), before + 1);
        json_decref(run_world_job_ok(world, "run.rollback", "r1", "{'id':'r1','snapshot':'base'}"));
        run_world_write(world, "run/runs/r1/rootfs/work", "done");
    }
}

/* The image is removed while the job holds its layers; with the job's end they go. */
static void test_an_image_that_goes_meanwhile(void **state)
{
    struct run_world *world = *state;
    cleanup_free char *digest = NULL;
    int count = run_world_count(world, "data/layers");
    run_world_killed_job(world, "run.rollback", "r1", params, "run.switch-published", false);
    assert_int_equal(run_world_count(world, "data/layers"), count + 3);
    assert_int_equal(catalog_image_name_get(world->node->catalog, "other:latest", &digest, NULL),
                     0);
    assert_int_equal(catalog_image_remove(world->node->catalog, digest, NULL), 0);
    assert_int_equal(pull_run_deletions(world->node, NULL), 0);
    assert_int_equal(run_world_count(world, "data/layers"), count + 3);
    run_recover(world->node, NULL, NULL);
    assert_image(world, false);
    run_world_start(world);
    job_fixture_settle(world->node);
    assert_image(world, false);
    assert_int_equal(run_world_count(world, "data/layers"), count);
}

static void test_a_state_that_cannot_be_saved(void **state)
{
    struct run_world *world = *state;
    /* Hits of all armed points are counted together (base/fault.c). */
    static const char *const early[] = {"snapshot.captured=enospc:1", "run.rollback-safe=eio:2",
                                        "run.switch-unmounted=eio:3"};
    for (size_t i = 0; i < ARRAY_SIZE(early); i++) {
        assert_int_equal(setenv("VARVE_FAULT", early[i], 1), 0);
        struct catalog_job row = run_world_job(world, "run.rollback", "r1", params);
        assert_int_equal(unsetenv("VARVE_FAULT"), 0);
        assert_int_equal(row.state, CATALOG_JOB_FAILED);
        catalog_job_free(&row);
        assert_image(world, false);
    }
}
#endif

#define world_test(fn) cmocka_unit_test_setup_teardown(fn, setup, run_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(test_rollback_and_back),
        world_test(test_refusals),
        world_test(test_processes_are_ended_when_told),
        world_test(test_a_lock_that_is_not_given_back),
#ifdef VARVE_FAULT_POINTS
        world_test(test_killed),
        world_test(test_an_image_that_goes_meanwhile),
        world_test(test_a_state_that_cannot_be_saved),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
