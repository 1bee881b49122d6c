#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_lease.h"
#include "cleanup.h"
#include "world.h"

#include <string.h>
#include <sys/wait.h>

static void test_success(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.good", "run:x", NULL, "{'value':[1,'two']}");
    world_wait_final(f, id);
    struct catalog_job row = world_get(f, id);
    assert_int_equal(row.state, CATALOG_JOB_DONE);
    assert_string_equal(row.result, "{\"given\":[1,\"two\"]}");
    assert_string_equal(row.step, "second");
    assert_int_equal(row.uid, 7);
    assert_int_equal(row.attempt, 1);
    assert_null(row.error_code);
    assert_int_equal(row.progress_done, 10); /* although it is written once a second */
    assert_int_equal(row.progress_total, 10);
    assert_true(row.started_ns > 0 && row.finished_ns >= row.started_ns);
    catalog_job_free(&row);
    struct catalog_step *steps = NULL;
    size_t count = 0;
    assert_int_equal(catalog_job_steps(f->node.catalog, id, &steps, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_string_equal(steps[0].name, "first");
    assert_true(steps[1].finished_ns > 0);
    for (size_t i = 0; i < count; i++)
        catalog_step_free(&steps[i]);
    free(steps);
}

static void test_leases_end_with_the_job(void **state)
{
    struct world *f = *state;
    static const char key[] = "blob:sha256:"
                              "0000000000000000000000000000000000000000000000000000000000000000";
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.good", NULL, NULL, "{'value':1}");
    world_wait_final(f, id);
    assert_int_equal(catalog_deletion_queue(f->node.catalog, key, NULL), 0);
    cleanup_free char *next = NULL;
    assert_int_equal(catalog_deletion_next(f->node.catalog, &next, NULL), 0);
    assert_string_equal(next, key);
    catalog_rollback(f->node.catalog);
}

static void test_failure(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.bad", NULL, NULL, "{}");
    world_wait_final(f, id);
    struct catalog_job row = world_get(f, id);
    assert_int_equal(row.state, CATALOG_JOB_FAILED);
    assert_string_equal(row.error_code, "digest_mismatch");
    assert_string_equal(row.error_message, "the bytes are not what they should be");
    assert_string_equal(row.error_hint, "fetch them again");
    assert_string_equal(row.step, "break");
    assert_null(row.result);
    catalog_job_free(&row);
}

static void test_failure_without_a_sentence(void **state)
{
    struct world *f = *state;
    world_start(f);
    cleanup_free char *id = world_submit_ok(f, "test.silent", NULL, NULL, "{}");
    world_wait_final(f, id);
    struct catalog_job row = world_get(f, id);
    assert_string_equal(row.error_code, "no_space");
    assert_non_null(strstr(row.error_message, "test.silent"));
    catalog_job_free(&row);
}

/* Puts a row into the catalog as a former life, or another version, left it. */
static void leave_row(struct world *f, const char *id, const char *kind, int attempts, int stops)
{
    struct catalog_job row = {
        .id = (char *)id, .kind = (char *)kind, .params = (char *)"{\"value\":1}"};
    char *existing = NULL;
    assert_int_equal(catalog_job_add(f->node.catalog, &row, &existing, NULL), 0);
    for (int i = 0; i < attempts; i++) {
        assert_int_equal(catalog_job_start(f->node.catalog, id, NULL), 0);
        if (i < stops)
            assert_int_equal(catalog_job_step(f->node.catalog, id, "stopped", NULL), 0);
    }
}

static void check_error(struct world *f, const char *id, const char *code, const char *words)
{
    world_wait_final(f, id);
    struct catalog_job row = world_get(f, id);
    if (!code) {
        assert_int_equal(row.state, CATALOG_JOB_DONE);
    } else {
        assert_int_equal(row.state, CATALOG_JOB_FAILED);
        assert_string_equal(row.error_code, code);
        assert_non_null(strstr(row.error_message, words));
    }
    catalog_job_free(&row);
}

static void test_unknown_kind(void **state)
{
    struct world *f = *state;
    leave_row(f, "j-1", "future.thing", 1, 0);
    leave_row(f, "j-2", "test.good", 0, 0);
    world_start(f);
    check_error(f, "j-1", "unsupported", "future.thing");
    check_error(f, "j-2", NULL, NULL);
    struct err err = ERR_INIT;
    assert_null(world_submit(f, "future.thing", NULL, NULL, "{}", &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

static void test_crash_loops_end(void **state)
{
    struct world *f = *state;
    leave_row(f, "j-last", "test.good", ENGINE_CRASHES_MAX, 0);
    leave_row(f, "j-over", "test.good", ENGINE_CRASHES_MAX + 1, 0);
    leave_row(f, "j-stops", "test.good", ENGINE_CRASHES_MAX + 5, 5);
    world_start(f);
    check_error(f, "j-last", NULL, NULL);
    check_error(f, "j-over", "interrupted", "21 times");
    check_error(f, "j-stops", NULL, NULL);
}

#ifdef VARVE_FAULT_POINTS

/* In a process of its own, as the point acts on the whole process: submits five jobs and waits for
 * them. Returns how the process ended. */
static int run_child(struct world *f, const char *fault, bool must_accept_all)
{
    catalog_close(f->node.catalog);
    f->node.catalog = NULL;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("VARVE_FAULT", fault, 1);
        struct err err = ERR_INIT;
        char path[128];
        snprintf(path, sizeof path, "%s/catalog.db", world_scratch(f)->path);
        if (catalog_open(path, &f->node.clock, &f->node.catalog, &err) < 0 ||
            engine_start(&f->node, world_kinds, WORLD_KINDS, &f->engine, &err) < 0)
            _exit(10);
        int refused = 0;
        for (int i = 0; i < 5; i++) {
            char key[16];
            char *id = NULL;
            snprintf(key, sizeof key, "k%d", i);
            cleanup_json json_t *params = json_object();
            struct job_request request = {.kind = "test.effect", .key = key, .params = params};
            refused += engine_submit(f->engine, &request, &id, &err) < 0;
            free(id);
        }
        for (int i = 0; i < 6000 && world_count_jobs(f, true) > 0; i++)
            world_nap_ms(10);
        _exit(world_count_jobs(f, true) > 0 ? 11 : must_accept_all && refused > 0 ? 12 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    world_open_catalog(f);
    return status;
}

/* Every job is done exactly if its file is there, and the same keys find the same jobs. */
static void check_agreement(struct world *f)
{
    char *ids[5];
    for (int i = 0; i < 5; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        cleanup_json json_t *params = json_object();
        struct job_request request = {.kind = "test.effect", .key = key, .params = params};
        assert_int_equal(engine_submit(f->engine, &request, &ids[i], NULL), 0);
        world_wait_final(f, ids[i]);
    }
    assert_int_equal(world_count_jobs(f, false), 5);
    assert_int_equal(world_count_jobs(f, true), 0);
    for (int i = 0; i < 5; i++) {
        struct catalog_job row = world_get(f, ids[i]);
        assert_int_equal(row.state, CATALOG_JOB_DONE);
        assert_int_equal(faccessat(world_shared.fd, ids[i], F_OK, 0), 0);
        catalog_job_free(&row);
        free(ids[i]);
    }
}

static void test_kill_at_every_point(void **state)
{
    struct world *f = *state;
    static const char *const faults[] = {
        "job.recorded=kill",          "job.recorded=kill:4",          "job.started=kill",
        "job.started=kill:3",         "job.before-finish=kill",       "job.before-finish=kill:5",
        "catalog.before-commit=kill", "catalog.before-commit=kill:7", "catalog.after-commit=kill:2",
        "catalog.after-commit=kill:9"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        int status = run_child(f, faults[i], false);
        /* Later rounds find all jobs done and pass fewer points. */
        if (i == 0)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        world_start(f);
        check_agreement(f);
        world_stop(f);
        catalog_close(f->node.catalog);
        f->node.catalog = NULL;
        assert_int_equal(scratch_teardown(&f->scratch), 0);
        assert_int_equal(scratch_setup(&f->scratch), 0);
        world_shared.fd = world_scratch(f)->fd;
        world_open_catalog(f);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
}

static void test_a_catalog_that_fails_for_a_while(void **state)
{
    struct world *f = *state;
    static const char *const faults[] = {"catalog.before-commit=enospc:6",
                                         "catalog.before-commit=eio:9",
                                         "catalog.after-commit=eio:7", "job.before-finish=eio:2"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        int status = run_child(f, faults[i], false);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        world_start(f);
        check_agreement(f);
        world_stop(f);
    }
}

static void test_a_lost_answer_is_not_a_lost_job(void **state)
{
    struct world *f = *state;
    /* The answer fails, the job is there and runs. */
    int status = run_child(f, "job.recorded=eio:3", true);
    assert_int_equal(WEXITSTATUS(status), 12);
    assert_int_equal(world_count_jobs(f, false), 5);
    assert_int_equal(world_count_jobs(f, true), 0);
    world_start(f);
    check_agreement(f);
}

static void test_a_commit_that_only_seems_to_fail(void **state)
{
    struct world *f = *state;
    int status = run_child(f, "catalog.after-commit=eio:1", true);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    world_start(f);
    check_agreement(f);
}

#endif

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_success),
        TEST(test_leases_end_with_the_job),
        TEST(test_failure),
        TEST(test_failure_without_a_sentence),
        TEST(test_unknown_kind),
        TEST(test_crash_loops_end),
#ifdef VARVE_FAULT_POINTS
        TEST(test_kill_at_every_point),
        TEST(test_a_catalog_that_fails_for_a_while),
        TEST(test_a_lost_answer_is_not_a_lost_job),
        TEST(test_a_commit_that_only_seems_to_fail),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
