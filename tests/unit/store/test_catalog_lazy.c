/* Which transactions wait for the disk. A power cut cannot be made in a test, so durability (I3) is
 * judged by the calls that sync a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_event.h"
#include "catalog_fixture.h"
#include "catalog_layer.h"

#include <sys/syscall.h>
#include <unistd.h>

static int syncs;

/* These take the place of the C library's, for sqlite too. */
int fsync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fdatasync, fd);
}

static int count_since(int *before)
{
    int count = syncs - *before;
    *before = syncs;
    return count;
}

static void add(struct fixture *fixture)
{
    assert_int_equal(catalog_event_add(fixture->catalog, "e", "o", NULL, NULL), 0);
}

static void test_lazy_transactions_do_not_wait(void **state)
{
    struct fixture *fixture = *state;
    int before = syncs;
    add(fixture);
    assert_true(count_since(&before) >= 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(catalog_begin_lazy(fixture->catalog, NULL), 0);
        add(fixture); /* inside it is lazy, too */
        assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    }
    assert_int_equal(count_since(&before), 0);
    assert_int_equal(catalog_begin_lazy(fixture->catalog, NULL), 0);
    catalog_rollback(fixture->catalog);
    add(fixture);
    assert_true(count_since(&before) >= 1);
    add(fixture);
    assert_true(count_since(&before) >= 1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM events"), 6);
}

static void test_inside_a_durable_transaction_nothing_is_lazy(void **state)
{
    struct fixture *fixture = *state;
    const char *const keys[] = {
        "diff-0000000000000000000000000000000000000000000000000000000000000001"};
    struct catalog_layer_image image = {.key = (char *)keys[0]};
    assert_int_equal(catalog_layer_put(fixture->catalog, &image, NULL), 0);
    fixture->clock.offset_ns += 2 * CATALOG_LAYER_TOUCH_S * CLOCK_NS_PER_S;
    int before = syncs;
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    assert_int_equal(catalog_layer_touch(fixture->catalog, keys, 1, NULL), 0);
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    assert_true(count_since(&before) >= 1);
    fixture->clock.offset_ns += 2 * CATALOG_LAYER_TOUCH_S * CLOCK_NS_PER_S;
    assert_int_equal(catalog_layer_touch(fixture->catalog, keys, 1, NULL), 0);
    assert_int_equal(count_since(&before), 0);
}

static void test_the_life_of_a_job(void **state)
{
    struct fixture *fixture = *state;
    struct catalog *catalog = fixture->catalog;
    int before = syncs;
    fixture_add_job(fixture, "j-1"); /* I2 */
    assert_true(count_since(&before) >= 1);
    assert_int_equal(catalog_job_start(catalog, "j-1", NULL), 0);
    assert_int_equal(catalog_job_mark(catalog, "j-1", "seen", NULL), 0);
    assert_int_equal(catalog_job_progress(catalog, "j-1", 1, 2, "bytes", NULL), 0);
    assert_int_equal(count_since(&before), 0);
    assert_int_equal(catalog_job_step(catalog, "j-1", "decides", NULL), 0);
    assert_true(count_since(&before) >= 1);
    assert_int_equal(catalog_job_mark(catalog, "j-1", "last", NULL), 0);
    assert_int_equal(count_since(&before), 0);
    assert_int_equal(catalog_job_finish(catalog, "j-1", CATALOG_JOB_DONE, "{}", NULL, NULL), 0);
    assert_true(count_since(&before) >= 1); /* I3 */
    struct catalog_step *steps = NULL;
    size_t count = 0;
    assert_int_equal(catalog_job_steps(catalog, "j-1", &steps, &count, NULL), 0);
    static const char *const names[] = {"seen", "decides", "last"};
    assert_int_equal(count, ARRAY_SIZE(names));
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(steps[i].name, names[i]);
        assert_true(steps[i].finished_ns > 0);
        catalog_step_free(&steps[i]);
    }
    free(steps);
}

/* What was lazy is there after the process, and the next one begins durably. */
static void test_after_a_restart(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(catalog_begin_lazy(fixture->catalog, NULL), 0);
    add(fixture);
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    fixture_close(fixture);
    fixture_open(fixture);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM events"), 1);
    assert_int_equal(fixture_query(fixture, "PRAGMA synchronous"), 2);
    int before = syncs;
    add(fixture);
    assert_true(count_since(&before) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_lazy_transactions_do_not_wait),
        with_fixture(test_inside_a_durable_transaction_nothing_is_lazy),
        with_fixture(test_the_life_of_a_job),
        with_fixture(test_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
