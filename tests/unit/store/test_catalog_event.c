#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_event.h"
#include "catalog_fixture.h"

static void test_events_are_counted_per_object(void **state)
{
    struct fixture *fixture = *state;
    struct catalog *catalog = fixture->catalog;
    int64_t count = -1;
    assert_int_equal(catalog_event_count(catalog, "run:a", &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_int_equal(catalog_event_add(catalog, "run-created", "run:a", NULL, NULL), 0);
    assert_int_equal(catalog_event_add(catalog, "run-ready", "run:a", "{\"x\":1}", NULL), 0);
    assert_int_equal(catalog_event_add(catalog, "run-created", "run:b", NULL, NULL), 0);
    assert_int_equal(catalog_event_count(catalog, "run:a", &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_int_equal(catalog_event_count(catalog, "run:b", &count, NULL), 0);
    assert_int_equal(count, 1);
}

static void test_an_event_keeps_what_it_was_given(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 42;
    assert_int_equal(catalog_event_add(fixture->catalog, "e", "o", "{\"x\":1}", NULL), 0);
    assert_int_equal(fixture_query(fixture,
                                   "SELECT count(*) FROM events WHERE id = 1 AND time_ns = 42 AND "
                                   "event = 'e' AND object = 'o' AND detail = '{\"x\":1}'"),
                     1);
}

/* Listeners go on from the last ID they saw, so none is used twice. */
static void test_ids_are_never_used_again(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(catalog_event_add(fixture->catalog, "e", "o", NULL, NULL), 0);
    assert_int_equal(catalog_stmt_exec(fixture->catalog, "DELETE FROM events", NULL), 0);
    fixture_close(fixture);
    fixture_open(fixture);
    assert_int_equal(catalog_event_add(fixture->catalog, "e", "o", NULL, NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT id FROM events"), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_events_are_counted_per_object),
        with_fixture(test_an_event_keeps_what_it_was_given),
        with_fixture(test_ids_are_never_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
