#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_lease.h"

#include <pthread.h>

/* What a request is made of. */
struct request {
    const char *id;
    const char *kind;
    const char *object;
    const char *key;
    int64_t uid;
    const char *params;
};

static int add(struct fixture *fixture, struct request request, char **ret_existing,
               struct err *err)
{
    struct catalog_job job = {.id = (char *)request.id,
                              .kind = (char *)request.kind,
                              .object = (char *)request.object,
                              .key = (char *)request.key,
                              .uid = request.uid,
                              .params = (char *)request.params,
                              .state = CATALOG_JOB_DONE, /* not looked at */
                              .attempt = 5};
    return catalog_job_add(fixture->catalog, &job, ret_existing, err);
}

static void get(struct fixture *fixture, const char *id, struct catalog_job *ret)
{
    struct err err = ERR_INIT;
    if (catalog_job_get(fixture->catalog, id, ret, &err) < 0)
        fail_msg("%s", err.text);
}

static enum catalog_job_state state_of(struct fixture *fixture, const char *id)
{
    struct catalog_job job;
    get(fixture, id, &job);
    enum catalog_job_state state = job.state;
    catalog_job_free(&job);
    return state;
}

static void start(struct fixture *fixture, const char *id)
{
    assert_int_equal(catalog_job_start(fixture->catalog, id, NULL), 0);
}

static void step(struct fixture *fixture, const char *id, const char *name)
{
    assert_int_equal(catalog_job_step(fixture->catalog, id, name, NULL), 0);
}

static void finish(struct fixture *fixture, const char *id, enum catalog_job_state state)
{
    assert_int_equal(catalog_job_finish(fixture->catalog, id, state, NULL, NULL, NULL), 0);
}

static void test_a_new_job(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 60;
    char *existing = (char *)"unset";
    struct request request = {"j-1", "image.pull", "image:x", "key", 1000, "{\"b\": 1, \"a\": 2}"};
    assert_int_equal(add(fixture, request, &existing, NULL), 0);
    assert_null(existing);
    fixture_close(fixture);
    fixture_open(fixture);
    struct catalog_job job;
    get(fixture, "j-1", &job);
    assert_string_equal(job.id, "j-1");
    assert_string_equal(job.kind, "image.pull");
    assert_string_equal(job.object, "image:x");
    assert_string_equal(job.key, "key");
    assert_int_equal(job.uid, 1000);
    assert_string_equal(job.params, "{\"a\":2,\"b\":1}");
    assert_int_equal(job.state, CATALOG_JOB_QUEUED);
    assert_int_equal(job.attempt, 0);
    assert_null(job.step);
    assert_null(job.progress_unit);
    assert_null(job.error_code);
    assert_null(job.result);
    assert_int_equal(job.created_ns, 60);
    assert_int_equal(job.started_ns, 0);
    assert_int_equal(job.finished_ns, 0);
    catalog_job_free(&job);
    catalog_job_free(&job); /* of nothing is fine */
}

static void test_missing_parts_of_a_request(void **state)
{
    struct fixture *fixture = *state;
    fixture_add_job(fixture, "j-1");
    struct catalog_job job;
    get(fixture, "j-1", &job);
    assert_null(job.object);
    assert_null(job.key);
    assert_string_equal(job.params, "{}");
    catalog_job_free(&job);
}

static void test_bad_requests(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *params;
        enum err_code code;
    } cases[] = {{"", ERR_DAMAGED},
                 {"{", ERR_DAMAGED},
                 {"{\"a\":1,\"a\":2}", ERR_DAMAGED},
                 {"{} x", ERR_DAMAGED},
                 {"[]", ERR_INVALID}};
    char *existing = (char *)"unset";
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct request request = {.id = "j-1", .kind = "k", .params = cases[i].params};
        assert_failed(add(fixture, request, &existing, &err), &err, cases[i].code,
                      "parameters of the job");
    }
    assert_string_equal(existing, "unset");
    fixture_add_job(fixture, "j-1");
    struct err err = ERR_INIT;
    struct request taken = {.id = "j-1", .kind = "k"};
    assert_failed(add(fixture, taken, &existing, &err), &err, ERR_EXISTS, "a job j-1 already");
}

static void test_a_key_joins(void **state)
{
    struct fixture *fixture = *state;
    struct request request = {"j-1", "k", "run:r", "key", 1, "{\"a\":1,\"b\":[1,2]}"};
    char *existing = NULL;
    assert_int_equal(add(fixture, request, &existing, NULL), 0);
    assert_null(existing);
    /* The same body, otherwise written; in every state of the first one. */
    request.id = "j-2";
    request.params = " { \"b\" : [1, 2], \"a\" : 1 } ";
    for (int i = 0; i < 3; i++) {
        assert_int_equal(add(fixture, request, &existing, NULL), 0);
        assert_non_null(existing);
        assert_string_equal(existing, "j-1");
        free(existing);
        if (i == 0)
            start(fixture, "j-1");
        else if (i == 1)
            finish(fixture, "j-1", CATALOG_JOB_FAILED);
    }
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM jobs"), 1);
}

static void test_a_key_of_another_request(void **state)
{
    struct fixture *fixture = *state;
    char *existing = (char *)"unset";
    struct request request = {"j-1", "k", NULL, "key", 1, "{\"a\":1}"};
    assert_int_equal(add(fixture, request, &existing, NULL), 0);
    existing = (char *)"unset";
    struct request other_body = {"j-2", "k", NULL, "key", 1, "{\"a\":2}"};
    struct err err = ERR_INIT;
    int rc = add(fixture, other_body, &existing, &err);
    assert_failed(rc, &err, ERR_CONFLICT, "the key key");
    assert_failed(rc, &err, ERR_CONFLICT, "j-1");
    assert_failed(rc, &err, ERR_CONFLICT, "use a new key");
    struct request other_kind = {"j-2", "l", NULL, "key", 1, "{\"a\":1}"};
    err = (struct err)ERR_INIT;
    assert_failed(add(fixture, other_kind, &existing, &err), &err, ERR_CONFLICT, "j-1");
    assert_string_equal(existing, "unset");
    /* Another user has keys of his own. */
    struct request other_uid = {"j-2", "k", NULL, "key", 2, "{\"a\":2}"};
    assert_int_equal(add(fixture, other_uid, &existing, NULL), 0);
    assert_null(existing);
}

static void test_one_unfinished_job_per_object(void **state)
{
    struct fixture *fixture = *state;
    char *existing;
    struct request first = {"j-1", "k", "run:r", NULL, 1, "{}"};
    struct request second = {"j-2", "l", "run:r", NULL, 2, "{}"};
    assert_int_equal(add(fixture, first, &existing, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct err err = ERR_INIT;
        int rc = add(fixture, second, &existing, &err);
        assert_failed(rc, &err, ERR_CONFLICT, "the job j-1 works on run:r");
        assert_failed(rc, &err, ERR_CONFLICT, "varve job wait j-1");
        assert_int_equal(catalog_job_works_on(fixture->catalog, "run:r", NULL), 1);
        if (i == 0)
            start(fixture, "j-1");
    }
    assert_int_equal(catalog_job_works_on(fixture->catalog, "run:q", NULL), 0);
    struct request elsewhere = {"j-3", "k", "run:q", NULL, 1, "{}"};
    assert_int_equal(add(fixture, elsewhere, &existing, NULL), 0);
    finish(fixture, "j-1", CATALOG_JOB_DONE);
    assert_int_equal(catalog_job_works_on(fixture->catalog, "run:r", NULL), 0);
    assert_int_equal(add(fixture, second, &existing, NULL), 0);
    assert_null(existing);
}

/* A running job moves on to another object: the first is free, the second is its own. */
static void test_a_job_moves_on(void **state)
{
    struct fixture *fixture = *state;
    char *existing;
    struct catalog_job row = {0};
    struct request first = {"j-1", "k", "run:r", NULL, 1, "{}"};
    struct request second = {"j-2", "l", "run:r", NULL, 2, "{}"};
    struct request third = {"j-3", "l", "snapshot:s", NULL, 2, "{}"};
    struct err err = ERR_INIT;
    assert_int_equal(add(fixture, first, &existing, NULL), 0);
    assert_failed(catalog_job_move(fixture->catalog, "j-1", "snapshot:s", &err), &err, ERR_CONFLICT,
                  "not running");
    start(fixture, "j-1");
    for (int i = 0; i < 2; i++) /* again changes nothing */
        assert_int_equal(catalog_job_move(fixture->catalog, "j-1", "snapshot:s", NULL), 0);
    assert_int_equal(catalog_job_works_on(fixture->catalog, "run:r", NULL), 0);
    assert_int_equal(catalog_job_works_on(fixture->catalog, "snapshot:s", NULL), 1);
    assert_int_equal(add(fixture, second, &existing, NULL), 0);
    err = (struct err)ERR_INIT;
    assert_failed(add(fixture, third, &existing, &err), &err, ERR_CONFLICT,
                  "the job j-1 works on snapshot:s");
    /* What another one has stays its own. */
    start(fixture, "j-2");
    err = (struct err)ERR_INIT;
    assert_failed(catalog_job_move(fixture->catalog, "j-2", "snapshot:s", &err), &err, ERR_CONFLICT,
                  "the job j-1 works on snapshot:s");
    assert_int_equal(catalog_job_works_on(fixture->catalog, "run:r", NULL), 1);
    /* On nothing alone. */
    assert_int_equal(catalog_job_move(fixture->catalog, "j-1", NULL, NULL), 0);
    assert_int_equal(catalog_job_get(fixture->catalog, "j-1", &row, NULL), 0);
    assert_null(row.object);
    catalog_job_free(&row);
    assert_int_equal(add(fixture, third, &existing, NULL), 0);
    finish(fixture, "j-1", CATALOG_JOB_DONE);
    err = (struct err)ERR_INIT;
    assert_failed(catalog_job_move(fixture->catalog, "j-1", "x:y", &err), &err, ERR_CONFLICT,
                  "not running");
    err = (struct err)ERR_INIT;
    assert_failed(catalog_job_move(fixture->catalog, "j-9", "x:y", &err), &err, ERR_NOT_FOUND,
                  "j-9");
}

/* Twenty equal requests at once: one job, and everybody gets its ID. */
struct racer {
    struct fixture *fixture;
    char id[16];
    char *existing;
    int rc;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    struct request request = {racer->id, "k", "run:r", "key", 1, "{\"a\":1}"};
    racer->rc = add(racer->fixture, request, &racer->existing, NULL);
    return NULL;
}

static void test_equal_requests_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct racer racers[20];
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        racers[i] = (struct racer){.fixture = fixture};
        snprintf(racers[i].id, sizeof racers[i].id, "j-%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    struct catalog_job *jobs;
    size_t count;
    int added = 0;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(racers[i].rc, 0);
        added += racers[i].existing == NULL;
    }
    assert_int_equal(added, 1);
    assert_int_equal(catalog_job_list(fixture->catalog, false, &jobs, &count, NULL), 0);
    assert_int_equal(count, 1);
    for (int i = 0; i < 20; i++) {
        assert_string_equal(racers[i].existing ? racers[i].existing : racers[i].id, jobs[0].id);
        free(racers[i].existing);
    }
    catalog_job_free(&jobs[0]);
    free(jobs);
}

/* Brings a new job into a state. */
static void make(struct fixture *fixture, const char *id, enum catalog_job_state state)
{
    fixture_add_job(fixture, id);
    if (state != CATALOG_JOB_QUEUED)
        start(fixture, id);
    if (catalog_job_state_is_final(state))
        finish(fixture, id, state);
}

/* Every state against every call that moves a job. */
static void test_moves(void **state)
{
    struct fixture *fixture = *state;
    static const bool may_start[] = {true, true, false, false, false};
    static const bool may_work[] = {false, true, false, false, false};
    static const bool may_finish[5][5] = {
        /* to done, failed, cancelled */
        [CATALOG_JOB_QUEUED] = {false, false, false, false, true},
        [CATALOG_JOB_RUNNING] = {false, false, true, true, true},
    };
    struct catalog *catalog = fixture->catalog;
    for (int from = 0; from < 5; from++) {
        const char *name = catalog_job_state_name((enum catalog_job_state)from);
        for (int call = 0; call < 6; call++) {
            char id[32];
            snprintf(id, sizeof id, "j-%d%d", from, call);
            make(fixture, id, (enum catalog_job_state)from);
            struct err err = ERR_INIT;
            int rc;
            bool legal;
            enum catalog_job_state to = (enum catalog_job_state)from;
            if (call == 0) {
                rc = catalog_job_start(catalog, id, &err);
                legal = may_start[from];
                to = CATALOG_JOB_RUNNING;
            } else if (call == 1) {
                rc = catalog_job_step(catalog, id, "s", &err);
                legal = may_work[from];
            } else if (call == 2) {
                rc = catalog_job_progress(catalog, id, 1, 2, "bytes", &err);
                legal = may_work[from];
            } else {
                to = (enum catalog_job_state)(call - 1);
                rc = catalog_job_finish(catalog, id, to, NULL, NULL, &err);
                legal = may_finish[from][to];
            }
            if (legal)
                assert_int_equal(rc, 0);
            else
                assert_failed(rc, &err, ERR_CONFLICT, name);
            assert_int_equal(state_of(fixture, id), legal ? (int)to : from);
        }
    }
}

static void test_a_missing_job(void **state)
{
    struct fixture *fixture = *state;
    struct catalog *catalog = fixture->catalog;
    for (int call = 0; call < 6; call++) {
        struct err err = ERR_INIT;
        struct catalog_job job;
        struct catalog_step *steps;
        size_t count;
        int rc = call == 0   ? catalog_job_get(catalog, "j-9", &job, &err)
                 : call == 1 ? catalog_job_start(catalog, "j-9", &err)
                 : call == 2 ? catalog_job_step(catalog, "j-9", "s", &err)
                 : call == 3 ? catalog_job_progress(catalog, "j-9", 1, 2, NULL, &err)
                 : call == 4
                     ? catalog_job_steps(catalog, "j-9", &steps, &count, &err)
                     : catalog_job_finish(catalog, "j-9", CATALOG_JOB_DONE, NULL, NULL, &err);
        assert_failed(rc, &err, ERR_NOT_FOUND, "no job j-9");
    }
}

static void test_attempts_and_steps(void **state)
{
    struct fixture *fixture = *state;
    fixture_add_job(fixture, "j-1");
    fixture->clock.offset_ns = 10;
    start(fixture, "j-1");
    fixture->clock.offset_ns = 20;
    step(fixture, "j-1", "fetch");
    fixture->clock.offset_ns = 30;
    step(fixture, "j-1", "convert");
    /* The daemon is killed here and starts again. */
    fixture_close(fixture);
    fixture_open(fixture);
    fixture->clock.offset_ns = 40;
    start(fixture, "j-1");
    step(fixture, "j-1", "fetch");
    fixture->clock.offset_ns = 50;
    step(fixture, "j-1", "convert");
    fixture->clock.offset_ns = 60;
    finish(fixture, "j-1", CATALOG_JOB_DONE);
    struct catalog_job job;
    get(fixture, "j-1", &job);
    assert_int_equal(job.attempt, 2);
    assert_int_equal(job.started_ns, 10);
    assert_int_equal(job.finished_ns, 60);
    assert_string_equal(job.step, "convert");
    catalog_job_free(&job);
    static const struct catalog_step expected[] = {{(char *)"fetch", 1, 20, 30},
                                                   {(char *)"convert", 1, 30, 0},
                                                   {(char *)"fetch", 2, 40, 50},
                                                   {(char *)"convert", 2, 50, 60}};
    struct catalog_step *steps;
    size_t count;
    assert_int_equal(catalog_job_steps(fixture->catalog, "j-1", &steps, &count, NULL), 0);
    assert_int_equal(count, ARRAY_SIZE(expected));
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(steps[i].name, expected[i].name);
        assert_int_equal(steps[i].attempt, expected[i].attempt);
        assert_int_equal(steps[i].started_ns, expected[i].started_ns);
        assert_int_equal(steps[i].finished_ns, expected[i].finished_ns);
        catalog_step_free(&steps[i]);
    }
    free(steps);
}

static void test_a_job_without_steps(void **state)
{
    struct fixture *fixture = *state;
    fixture_add_job(fixture, "j-1");
    struct catalog_step *steps = NULL;
    size_t count = 99;
    assert_int_equal(catalog_job_steps(fixture->catalog, "j-1", &steps, &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_null(steps);
}

static void test_progress_belongs_to_a_step(void **state)
{
    struct fixture *fixture = *state;
    fixture_add_job(fixture, "j-1");
    start(fixture, "j-1");
    step(fixture, "j-1", "fetch");
    fixture->clock.offset_ns = 90;
    assert_int_equal(
        catalog_job_progress(fixture->catalog, "j-1", 5, INT64_C(1) << 40, "bytes", NULL), 0);
    struct catalog_job job;
    get(fixture, "j-1", &job);
    assert_int_equal(job.progress_done, 5);
    assert_int_equal(job.progress_total, INT64_C(1) << 40);
    assert_string_equal(job.progress_unit, "bytes");
    catalog_job_free(&job);
    assert_int_equal(fixture_query(fixture, "SELECT heartbeat_ns FROM jobs"), 90);
    step(fixture, "j-1", "record");
    get(fixture, "j-1", &job);
    assert_int_equal(job.progress_done, 0);
    assert_int_equal(job.progress_total, 0);
    assert_null(job.progress_unit);
    catalog_job_free(&job);
}

static void test_results_and_errors(void **state)
{
    struct fixture *fixture = *state;
    struct err failure = ERR_INIT;
    err_fail(&failure, ERR_DIGEST, "the blob is wrong");
    err_hint(&failure, "try again");
    make(fixture, "j-done", CATALOG_JOB_RUNNING);
    make(fixture, "j-failed", CATALOG_JOB_RUNNING);
    make(fixture, "j-bare", CATALOG_JOB_RUNNING);
    make(fixture, "j-cancelled", CATALOG_JOB_QUEUED);
    struct catalog *catalog = fixture->catalog;
    struct catalog_job job;
    assert_int_equal(
        catalog_job_finish(catalog, "j-done", CATALOG_JOB_DONE, "{\"id\":1}", &failure, NULL), 0);
    get(fixture, "j-done", &job);
    assert_string_equal(job.result, "{\"id\":1}");
    assert_null(job.error_code);
    assert_null(job.error_message);
    assert_null(job.error_hint);
    catalog_job_free(&job);
    assert_int_equal(
        catalog_job_finish(catalog, "j-failed", CATALOG_JOB_FAILED, "{}", &failure, NULL), 0);
    get(fixture, "j-failed", &job);
    assert_null(job.result);
    assert_string_equal(job.error_code, "digest_mismatch");
    assert_string_equal(job.error_message, "the blob is wrong");
    assert_string_equal(job.error_hint, "try again");
    catalog_job_free(&job);
    /* A failure that nobody explained is a fault of this program. */
    finish(fixture, "j-bare", CATALOG_JOB_FAILED);
    get(fixture, "j-bare", &job);
    assert_string_equal(job.error_code, "internal");
    assert_non_null(job.error_message);
    assert_null(job.error_hint);
    catalog_job_free(&job);
    finish(fixture, "j-cancelled", CATALOG_JOB_CANCELLED);
    get(fixture, "j-cancelled", &job);
    assert_null(job.error_code);
    assert_int_equal(job.started_ns, 0);
    assert_int_equal(job.finished_ns, 1000);
    catalog_job_free(&job);
}

static void test_the_end_of_a_job_ends_its_leases(void **state)
{
    struct fixture *fixture = *state;
    make(fixture, "j-1", CATALOG_JOB_RUNNING);
    make(fixture, "j-2", CATALOG_JOB_RUNNING);
    for (int i = 1; i <= 2; i++) {
        const char *id = i == 1 ? "j-1" : "j-2";
        assert_int_equal(catalog_lease_add(fixture->catalog, id, fixture_key("blob:", 1), NULL), 0);
    }
    finish(fixture, "j-1", CATALOG_JOB_FAILED);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM leases"), 1);
    finish(fixture, "j-2", CATALOG_JOB_DONE);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM leases"), 0);
}

static void test_lists(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_job *jobs = NULL;
    size_t count = 99;
    assert_int_equal(catalog_job_list(fixture->catalog, false, &jobs, &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_null(jobs);
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof id, "j-%d", i);
        fixture->clock.offset_ns = 1000 - i; /* a clock that goes backwards */
        make(fixture, id, (enum catalog_job_state)i);
    }
    for (int unfinished = 0; unfinished < 2; unfinished++) {
        assert_int_equal(catalog_job_list(fixture->catalog, unfinished, &jobs, &count, NULL), 0);
        assert_int_equal(count, unfinished ? 2 : 5);
        for (size_t i = 0; i < count; i++) {
            char id[32];
            snprintf(id, sizeof id, "j-%zu", count - 1 - i);
            assert_string_equal(jobs[i].id, id);
            catalog_job_free(&jobs[i]);
        }
        free(jobs);
    }
}

static void test_state_names(void **state)
{
    (void)state;
    static const char *const names[] = {"queued", "running", "done", "failed", "cancelled"};
    for (int i = 0; i < 5; i++) {
        assert_string_equal(catalog_job_state_name((enum catalog_job_state)i), names[i]);
        assert_int_equal(catalog_job_state_is_final((enum catalog_job_state)i), i >= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_a_new_job),
        with_fixture(test_missing_parts_of_a_request),
        with_fixture(test_bad_requests),
        with_fixture(test_a_key_joins),
        with_fixture(test_a_key_of_another_request),
        with_fixture(test_one_unfinished_job_per_object),
        with_fixture(test_a_job_moves_on),
        with_fixture(test_equal_requests_at_once),
        with_fixture(test_moves),
        with_fixture(test_a_missing_job),
        with_fixture(test_attempts_and_steps),
        with_fixture(test_a_job_without_steps),
        with_fixture(test_progress_belongs_to_a_step),
        with_fixture(test_results_and_errors),
        with_fixture(test_the_end_of_a_job_ends_its_leases),
        with_fixture(test_lists),
        cmocka_unit_test(test_state_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
