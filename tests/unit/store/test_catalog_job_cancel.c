#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_event.h"
#include "catalog_fixture.h"

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

static int64_t events(struct fixture *fixture, const char *object)
{
    int64_t count = 0;
    assert_int_equal(catalog_event_count(fixture->catalog, object, &count, NULL), 0);
    return count;
}

static void add_job(struct fixture *fixture, const char *id, const char *object)
{
    const struct catalog_job job = {
        .id = (char *)id, .kind = (char *)"k", .object = (char *)object, .params = (char *)"{}"};
    char *existing = NULL;
    assert_int_equal(catalog_job_add(fixture->catalog, &job, &existing, NULL), 0);
}

static void test_a_queued_job_is_cancelled_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct catalog_job job;
    add_job(fixture, "j-1", "run:a");
    assert_int_equal(catalog_job_cancel(fixture->catalog, "j-1", 7, NULL), 1);
    get(fixture, "j-1", &job);
    assert_int_equal(job.state, CATALOG_JOB_CANCELLED);
    assert_true(job.cancel && job.finished_ns > 0);
    assert_string_equal(job.error_code, "cancelled");
    catalog_job_free(&job);
    assert_int_equal(events(fixture, "job:j-1"), 2);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM events WHERE event ="
                                            " 'job-cancel-asked' AND detail = '{\"uid\":7}'"),
                     1);
    assert_int_equal(catalog_job_start(fixture->catalog, "j-1", &err), -EBUSY);
    /* Its object is free, and to repeat it is no failure. */
    add_job(fixture, "j-2", "run:a");
    assert_int_equal(catalog_job_cancel(fixture->catalog, "j-1", 7, NULL), 1);
    assert_int_equal(events(fixture, "job:j-1"), 2);
    err_clear(&err);
    assert_int_equal(catalog_job_cancel(fixture->catalog, "j-3", 7, &err), -ENOENT);
}

/* Wish and settling: who comes second is told. */
static void test_a_wish_and_a_settling(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct catalog_job job;
    add_job(fixture, "j-1", NULL);
    add_job(fixture, "j-2", NULL);
    start(fixture, "j-1");
    start(fixture, "j-2");
    assert_int_equal(catalog_job_cancel(fixture->catalog, "j-1", 7, NULL), 0);
    assert_int_equal(catalog_job_cancel(fixture->catalog, "j-1", 8, NULL), 0);
    assert_int_equal(events(fixture, "job:j-1"), 1);
    assert_int_equal(catalog_job_settle(fixture->catalog, "j-1", "last", &err), -ECANCELED);
    assert_int_equal(err.code, ERR_CANCELLED);
    get(fixture, "j-1", &job);
    assert_int_equal(job.state, CATALOG_JOB_RUNNING);
    assert_true(job.cancel && !job.settled);
    assert_null(job.step);
    catalog_job_free(&job);
    /* An undoing that was cut short is begun again. */
    start(fixture, "j-1");
    assert_int_equal(catalog_job_settle(fixture->catalog, "j-1", "last", NULL), -ECANCELED);

    assert_int_equal(catalog_job_settle(fixture->catalog, "j-2", "last", NULL), 0);
    err_clear(&err);
    assert_int_equal(catalog_job_cancel(fixture->catalog, "j-2", 7, &err), -EBUSY);
    assert_non_null(strstr(err.text, "no more"));
    assert_non_null(strstr(err.hint, "varve job wait j-2"));
    start(fixture, "j-2"); /* after a kill it is settled still */
    assert_int_equal(catalog_job_cancel(fixture->catalog, "j-2", 7, NULL), -EBUSY);
    assert_int_equal(catalog_job_settle(fixture->catalog, "j-2", "last", NULL), 0);
    get(fixture, "j-2", &job);
    assert_true(job.settled && !job.cancel);
    assert_string_equal(job.step, "last");
    catalog_job_free(&job);
    assert_int_equal(events(fixture, "job:j-2"), 0);
}

/* A settling stands and falls with the transaction that it is in. */
static void test_a_settling_is_part_of_a_transaction(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_job job;
    add_job(fixture, "j-1", NULL);
    start(fixture, "j-1");
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    assert_int_equal(catalog_job_settle(fixture->catalog, "j-1", "last", NULL), 0);
    catalog_rollback(fixture->catalog);
    assert_int_equal(catalog_job_cancel(fixture->catalog, "j-1", 7, NULL), 0);
    get(fixture, "j-1", &job);
    assert_true(job.cancel && !job.settled);
    catalog_job_free(&job);
}

static void test_a_job_that_has_ended_is_not_cancelled(void **state)
{
    struct fixture *fixture = *state;
    static const enum catalog_job_state ends[] = {CATALOG_JOB_DONE, CATALOG_JOB_FAILED};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        char id[8];
        struct err err = ERR_INIT;
        snprintf(id, sizeof id, "j-%zu", i);
        add_job(fixture, id, NULL);
        start(fixture, id);
        assert_int_equal(catalog_job_finish(fixture->catalog, id, ends[i], NULL, NULL, NULL), 0);
        assert_int_equal(catalog_job_cancel(fixture->catalog, id, 7, &err), -EBUSY);
        assert_non_null(strstr(err.hint, "varve job show"));
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_non_null(strstr(err.text, catalog_job_state_name(ends[i])));
        assert_int_equal(state_of(fixture, id), ends[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_a_queued_job_is_cancelled_at_once),
        with_fixture(test_a_wish_and_a_settling),
        with_fixture(test_a_settling_is_part_of_a_transaction),
        with_fixture(test_a_job_that_has_ended_is_not_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
