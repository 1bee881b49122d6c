#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"

static const unsigned layers[] = {0x10};

static int setup(void **state)
{
    if (fixture_setup(state) < 0)
        return -1;
    return fixture_put_image(*state, 1, layers, 1, NULL);
}

#define with_image(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

static enum catalog_run_state state_of(struct fixture *fixture, const char *id)
{
    struct catalog_run run;
    assert_int_equal(catalog_run_get(fixture->catalog, id, &run, NULL), 0);
    enum catalog_run_state state = run.state;
    catalog_run_free(&run);
    return state;
}

static void test_what_was_added_is_got(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 50;
    struct catalog_run added = {.id = (char *)"r-1",
                                .state = CATALOG_RUN_READY, /* not looked at */
                                .image = (char *)fixture_digest(1),
                                .image_name = (char *)"debian:12",
                                .upper = (char *)"plain",
                                .token = 9,
                                .job_id = (char *)"j-7"};
    assert_int_equal(catalog_run_add(fixture->catalog, &added, NULL), 0);
    fixture_close(fixture);
    fixture_open(fixture);
    struct catalog_run run;
    assert_int_equal(catalog_run_get(fixture->catalog, "r-1", &run, NULL), 0);
    assert_string_equal(run.id, "r-1");
    assert_int_equal(run.state, CATALOG_RUN_CREATING);
    assert_string_equal(run.image, fixture_digest(1));
    assert_string_equal(run.image_name, "debian:12");
    assert_string_equal(run.upper, "plain");
    assert_null(run.volume);
    assert_int_equal(run.token, 9);
    assert_string_equal(run.job_id, "j-7");
    assert_int_equal(run.created_ns, 50);
    catalog_run_free(&run);
    catalog_run_free(&run); /* of nothing is fine */
    assert_int_equal(fixture_query(fixture, "SELECT used_ns FROM images"), 50);
}

static void test_what_may_be_missing_is_null(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_run added = {.id = (char *)"r-1",
                                .image = (char *)fixture_digest(1),
                                .upper = (char *)"plain",
                                .created_ns = 8};
    assert_int_equal(catalog_run_add(fixture->catalog, &added, NULL), 0);
    struct catalog_run run;
    assert_int_equal(catalog_run_get(fixture->catalog, "r-1", &run, NULL), 0);
    assert_null(run.image_name);
    assert_null(run.job_id);
    assert_int_equal(run.token, 0);
    assert_int_equal(run.created_ns, 8);
    catalog_run_free(&run);
}

static void test_a_taken_id(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(fixture_add_run(fixture, "r-1", 1, NULL), 0);
    struct err err = ERR_INIT;
    int rc = fixture_add_run(fixture, "r-1", 1, &err);
    assert_failed(rc, &err, ERR_EXISTS, "a run r-1 already");
    assert_failed(rc, &err, ERR_EXISTS, "varve run rm r-1");
}

static void test_an_image_that_is_not_here(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    int rc = fixture_add_run(fixture, "r-1", 9, &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, fixture_digest(9));
    assert_failed(rc, &err, ERR_NOT_FOUND, "run r-1");
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM runs"), 0);
}

static void test_a_missing_run(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_run run = {.token = 3};
    struct err err = ERR_INIT;
    assert_failed(catalog_run_get(fixture->catalog, "r-9", &run, &err), &err, ERR_NOT_FOUND,
                  "no run r-9");
    assert_int_equal(run.token, 3);
    err = (struct err)ERR_INIT;
    assert_failed(catalog_run_set_state(fixture->catalog, "r-9", CATALOG_RUN_READY, &err), &err,
                  ERR_NOT_FOUND, "no run r-9");
    err = (struct err)ERR_INIT;
    assert_failed(catalog_run_remove(fixture->catalog, "r-9", &err), &err, ERR_NOT_FOUND,
                  "no run r-9");
}

/* Every pair of states: the diagram's moves, staying, and nothing else. */
static void test_moves(void **state)
{
    struct fixture *fixture = *state;
    static const bool legal[3][3] = {
        /* to: creating, ready, removing */
        {true, true, true},   /* from creating */
        {false, true, true},  /* from ready */
        {false, false, true}, /* from removing */
    };
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            char id[16];
            snprintf(id, sizeof id, "r-%d%d", from, to);
            assert_int_equal(fixture_add_run(fixture, id, 1, NULL), 0);
            assert_int_equal(
                catalog_run_set_state(fixture->catalog, id, (enum catalog_run_state)from, NULL), 0);
            fixture->clock.offset_ns++;
            struct err err = ERR_INIT;
            int rc = catalog_run_set_state(fixture->catalog, id, (enum catalog_run_state)to, &err);
            if (legal[from][to]) {
                assert_int_equal(rc, 0);
                assert_int_equal(state_of(fixture, id), to);
            } else {
                assert_failed(rc, &err, ERR_CONFLICT,
                              catalog_run_state_name((enum catalog_run_state)from));
                assert_int_equal(state_of(fixture, id), from);
            }
        }
    }
}

static void test_the_time_of_a_state_is_kept(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 10;
    assert_int_equal(fixture_add_run(fixture, "r-1", 1, NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT state_ns FROM runs"), 10);
    fixture->clock.offset_ns = 20;
    assert_int_equal(catalog_run_set_state(fixture->catalog, "r-1", CATALOG_RUN_READY, NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT state_ns FROM runs"), 20);
    fixture->clock.offset_ns = 30;
    assert_int_equal(catalog_run_set_state(fixture->catalog, "r-1", CATALOG_RUN_READY, NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT state_ns FROM runs"), 20);
}

static void test_removal(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(fixture_add_run(fixture, "r-creating", 1, NULL), 0);
    assert_int_equal(catalog_run_remove(fixture->catalog, "r-creating", NULL), 0);
    assert_int_equal(fixture_add_run(fixture, "r-ready", 1, NULL), 0);
    assert_int_equal(catalog_run_set_state(fixture->catalog, "r-ready", CATALOG_RUN_READY, NULL),
                     0);
    struct err err = ERR_INIT;
    assert_failed(catalog_run_remove(fixture->catalog, "r-ready", &err), &err, ERR_CONFLICT,
                  "is ready");
    assert_int_equal(state_of(fixture, "r-ready"), CATALOG_RUN_READY);
    assert_int_equal(catalog_run_set_state(fixture->catalog, "r-ready", CATALOG_RUN_REMOVING, NULL),
                     0);
    assert_int_equal(catalog_run_remove(fixture->catalog, "r-ready", NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM runs"), 0);
    /* The ID is free again. */
    assert_int_equal(fixture_add_run(fixture, "r-ready", 1, NULL), 0);
}

static void test_list_is_newest_first(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_run *runs = NULL;
    size_t count = 99;
    assert_int_equal(catalog_run_list(fixture->catalog, &runs, &count, NULL), 0);
    assert_int_equal(count, 0);
    static const char *const ids[] = {"r-a", "r-b", "r-c"};
    static const int64_t times[] = {10, 30, 30};
    static const char *const expected[] = {"r-c", "r-b", "r-a"};
    for (size_t i = 0; i < 3; i++) {
        fixture->clock.offset_ns = times[i];
        assert_int_equal(fixture_add_run(fixture, ids[i], 1, NULL), 0);
    }
    assert_int_equal(catalog_run_list(fixture->catalog, &runs, &count, NULL), 0);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(runs[i].id, expected[i]);
        catalog_run_free(&runs[i]);
    }
    free(runs);
}

static void test_another_image(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct catalog_run run;
    assert_int_equal(fixture_put_image(fixture, 2, layers, 1, NULL), 0);
    assert_int_equal(fixture_add_run(fixture, "r-1", 1, NULL), 0);
    const char *two = fixture_digest(2);
    assert_true(catalog_run_set_image(fixture->catalog, "r-1", two, "b:2", &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    err_clear(&err);
    assert_int_equal(catalog_run_set_state(fixture->catalog, "r-1", CATALOG_RUN_READY, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(catalog_run_set_image(fixture->catalog, "r-1", two, "b:2", &err), 0);
    assert_true(catalog_run_set_image(fixture->catalog, "r-1", fixture_digest(3), "c", &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    err_clear(&err);
    assert_true(catalog_run_set_image(fixture->catalog, "none", two, "b", &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(catalog_run_get(fixture->catalog, "r-1", &run, NULL), 0);
    assert_string_equal(run.image, two);
    assert_string_equal(run.image_name, "b:2");
    catalog_run_free(&run);
    /* The image that it stands on now is the one that is kept. */
    err_clear(&err);
    assert_true(catalog_image_remove(fixture->catalog, two, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
}

static void test_state_names(void **state)
{
    (void)state;
    assert_string_equal(catalog_run_state_name(CATALOG_RUN_CREATING), "creating");
    assert_string_equal(catalog_run_state_name(CATALOG_RUN_READY), "ready");
    assert_string_equal(catalog_run_state_name(CATALOG_RUN_REMOVING), "removing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_image(test_what_was_added_is_got),
        with_image(test_what_may_be_missing_is_null),
        with_image(test_a_taken_id),
        with_image(test_an_image_that_is_not_here),
        with_image(test_a_missing_run),
        with_image(test_moves),
        with_image(test_the_time_of_a_state_is_kept),
        with_image(test_removal),
        with_image(test_list_is_newest_first),
        with_image(test_another_image),
        cmocka_unit_test(test_state_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
