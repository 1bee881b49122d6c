#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_event.h"
#include "catalog_fixture.h"
#include "catalog_lease.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned layers[] = {0x10};

static int setup(void **state)
{
    if (fixture_setup(state) < 0)
        return -1;
    fixture_add_job(*state, "j-1");
    return 0;
}

#define with_job(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

static void lease(struct fixture *fixture, const char *job, const char *key)
{
    struct err err = ERR_INIT;
    if (catalog_lease_add(fixture->catalog, job, key, &err) < 0)
        fail_msg("%s", err.text);
}

static void queue(struct fixture *fixture, const char *key)
{
    struct err err = ERR_INIT;
    if (catalog_deletion_queue(fixture->catalog, key, &err) < 0)
        fail_msg("%s", err.text);
}

/* The next object, NULL when there is none. Caller frees. */
static char *next(struct fixture *fixture)
{
    char *key = (char *)"unset";
    struct err err = ERR_INIT;
    if (catalog_deletion_next(fixture->catalog, &key, &err) < 0)
        fail_msg("%s", err.text);
    return key;
}

/* Expects this object as the next and is done with it. */
static void assert_next(struct fixture *fixture, const char *expected)
{
    char *key = next(fixture);
    assert_non_null(key);
    assert_string_equal(key, expected);
    assert_int_equal(catalog_deletion_done(fixture->catalog, key, NULL), 0);
    free(key);
}

static void assert_none(struct fixture *fixture)
{
    assert_null(next(fixture));
    /* No transaction is open afterwards. */
    struct err err = ERR_INIT;
    assert_failed(catalog_commit(fixture->catalog, &err), &err, ERR_INTERNAL, "no transaction");
}

static int64_t queued(struct fixture *fixture)
{
    return fixture_query(fixture, "SELECT count(*) FROM deletions");
}

static void test_keys_of_another_form(void **state)
{
    struct fixture *fixture = *state;
    static const char *const keys[] = {
        "",
        "blob:",
        "sha256:0000000000000000000000000000000000000000000000000000000000000001",
        "blob:0000000000000000000000000000000000000000000000000000000000000001",
        "blob:sha256:000000000000000000000000000000000000000000000000000000000000001",
        "blob:sha256:00000000000000000000000000000000000000000000000000000000000000011",
        "blob:sha256:000000000000000000000000000000000000000000000000000000000000000G",
        "layer:sha256:../../../../../../etc/passwd",
        "diff:0000000000000000000000000000000000000000000000000000000000000001",
        "diff-sha256:0000000000000000000000000000000000000000000000000000000000000001",
        "volume:sha256:0000000000000000000000000000000000000000000000000000000000000001",
    };
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        struct err err = ERR_INIT;
        assert_failed(catalog_lease_add(fixture->catalog, "j-1", keys[i], &err), &err, ERR_INVALID,
                      "no key of a stored object");
        err = (struct err)ERR_INIT;
        assert_failed(catalog_deletion_queue(fixture->catalog, keys[i], &err), &err, ERR_INVALID,
                      "no key of a stored object");
    }
    assert_int_equal(queued(fixture), 0);
}

static void test_leases_belong_to_unfinished_jobs(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    int rc = catalog_lease_add(fixture->catalog, "j-9", fixture_key("blob:", 1), &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, "no unfinished job j-9");
    assert_int_equal(
        catalog_job_finish(fixture->catalog, "j-1", CATALOG_JOB_CANCELLED, NULL, NULL, NULL), 0);
    err = (struct err)ERR_INIT;
    rc = catalog_lease_add(fixture->catalog, "j-1", fixture_key("blob:", 1), &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, "no unfinished job j-1");
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM leases"), 0);
}

static void test_leases_can_be_repeated_and_dropped(void **state)
{
    struct fixture *fixture = *state;
    fixture_add_job(fixture, "j-2");
    for (int i = 0; i < 2; i++) {
        lease(fixture, "j-1", fixture_key("blob:", 1));
        lease(fixture, "j-1", fixture_key("layer:", 1));
        lease(fixture, "j-2", fixture_key("blob:", 1));
    }
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM leases"), 3);
    fixture_close(fixture);
    fixture_open(fixture); /* they survive the daemon, as its jobs do */
    for (int i = 0; i < 2; i++)
        assert_int_equal(catalog_lease_drop(fixture->catalog, "j-1", NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM leases"), 1);
    assert_int_equal(catalog_lease_drop(fixture->catalog, "j-9", NULL), 0);
}

static void test_deletions_come_in_order_once(void **state)
{
    struct fixture *fixture = *state;
    assert_none(fixture);
    queue(fixture, fixture_key("blob:", 3));
    queue(fixture, fixture_key("layer:", 1));
    queue(fixture, fixture_key("blob:", 3));
    queue(fixture, fixture_key("blob:", 2));
    assert_int_equal(queued(fixture), 3);
    fixture_close(fixture);
    fixture_open(fixture);
    assert_next(fixture, fixture_key("blob:", 3));
    assert_next(fixture, fixture_key("layer:", 1));
    assert_next(fixture, fixture_key("blob:", 2));
    assert_none(fixture);
}

static void test_a_failed_removal_stays_queued(void **state)
{
    struct fixture *fixture = *state;
    queue(fixture, fixture_key("blob:", 1));
    for (int i = 0; i < 2; i++) {
        char *key = next(fixture);
        assert_string_equal(key, fixture_key("blob:", 1));
        free(key);
        catalog_rollback(fixture->catalog);
    }
    assert_next(fixture, fixture_key("blob:", 1));
    assert_none(fixture);
}

static void test_a_postponed_object_comes_last(void **state)
{
    struct fixture *fixture = *state;
    queue(fixture, fixture_key("blob:", 1));
    queue(fixture, fixture_key("blob:", 2));
    assert_true(catalog_deletion_postpone(fixture->catalog, fixture_key("blob:", 1), NULL) < 0);
    char *key = next(fixture);
    assert_string_equal(key, fixture_key("blob:", 1));
    assert_int_equal(catalog_deletion_postpone(fixture->catalog, key, NULL), 0);
    free(key);
    assert_next(fixture, fixture_key("blob:", 2));
    assert_next(fixture, fixture_key("blob:", 1));
    assert_none(fixture);
}

static void test_done_needs_its_transaction(void **state)
{
    struct fixture *fixture = *state;
    queue(fixture, fixture_key("blob:", 1));
    struct err err = ERR_INIT;
    int rc = catalog_deletion_done(fixture->catalog, fixture_key("blob:", 1), &err);
    assert_failed(rc, &err, ERR_INTERNAL, "no transaction");
    assert_int_equal(queued(fixture), 1);
    char *key = next(fixture);
    err = (struct err)ERR_INIT;
    rc = catalog_deletion_done(fixture->catalog, fixture_key("blob:", 2), &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, "not queued");
    free(key);
    assert_next(fixture, fixture_key("blob:", 1));
}

static void test_next_inside_a_transaction_is_refused(void **state)
{
    struct fixture *fixture = *state;
    queue(fixture, fixture_key("blob:", 1));
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    char *key = (char *)"unset";
    struct err err = ERR_INIT;
    assert_failed(catalog_deletion_next(fixture->catalog, &key, &err), &err, ERR_INTERNAL,
                  "already");
    assert_string_equal(key, "unset");
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
}

/* A reference that came after the object was queued wins, for each way to refer to it. */
static void test_a_reference_wins(void **state)
{
    struct fixture *fixture = *state;
    queue(fixture, fixture_key("blob:", 1));     /* a manifest */
    queue(fixture, fixture_key("blob:", 2));     /* a config */
    queue(fixture, fixture_key("blob:", 0x10));  /* a layer's blob */
    queue(fixture, fixture_key("layer:", 0x12)); /* an image of its chain */
    queue(fixture, fixture_key("blob:", 0x12));  /* the same digest as a blob: nobody's */
    queue(fixture, fixture_key("layer:", 0x10)); /* the same digest as a chain ID: nobody's */
    queue(fixture, fixture_key("blob:", 0x11));  /* a diff ID is no blob */
    queue(fixture, fixture_key("diff:", 0x11));  /* an image of the layer alone */
    queue(fixture, fixture_key("diff:", 0x12));  /* a chain ID is no diff ID */
    assert_int_equal(fixture_put_image(fixture, 1, layers, 1, NULL), 0);
    assert_next(fixture, fixture_key("blob:", 0x12));
    assert_next(fixture, fixture_key("layer:", 0x10));
    assert_next(fixture, fixture_key("blob:", 0x11));
    assert_next(fixture, fixture_key("diff:", 0x12));
    assert_none(fixture);
    assert_int_equal(queued(fixture), 0);
}

/* A leased object is passed over and comes when the lease has ended without a reference. */
static void test_a_lease_wins_while_it_lasts(void **state)
{
    struct fixture *fixture = *state;
    queue(fixture, fixture_key("blob:", 1));
    queue(fixture, fixture_key("layer:", 1));
    queue(fixture, fixture_key("blob:", 2));
    lease(fixture, "j-1", fixture_key("blob:", 1));
    assert_next(fixture, fixture_key("layer:", 1));
    assert_next(fixture, fixture_key("blob:", 2));
    assert_none(fixture);
    assert_int_equal(catalog_lease_drop(fixture->catalog, "j-1", NULL), 0);
    assert_next(fixture, fixture_key("blob:", 1));
    assert_none(fixture);
}

static void test_a_lease_that_ends_in_a_reference(void **state)
{
    struct fixture *fixture = *state;
    queue(fixture, fixture_key("blob:", 0x10));
    lease(fixture, "j-1", fixture_key("blob:", 0x10));
    assert_none(fixture);
    assert_int_equal(fixture_put_image(fixture, 1, layers, 1, NULL), 0);
    assert_int_equal(
        catalog_job_finish(fixture->catalog, "j-1", CATALOG_JOB_CANCELLED, NULL, NULL, NULL), 0);
    assert_none(fixture);
    assert_int_equal(queued(fixture), 0);
}

static void test_a_long_queue_of_referenced_objects_ends(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    for (unsigned i = 0; i < 500; i++) {
        const unsigned layer[] = {0x100000 + 16 * i};
        queue(fixture, fixture_key("blob:", layer[0]));
        assert_int_equal(fixture_put_image(fixture, 0x10 * (i + 1), layer, 1, NULL), 0);
    }
    queue(fixture, fixture_key("blob:", 5));
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    assert_next(fixture, fixture_key("blob:", 5));
    assert_none(fixture);
    assert_int_equal(queued(fixture), 0);
}

/* A file of the store, for the races below: whether blob 1's bytes are there. */
struct race {
    struct fixture *fixture;
    atomic_bool present;
    atomic_bool stop;
    int lost; /* times a reference was recorded without bytes */
    atomic_int failures;
};

static void *delete_all(void *arg)
{
    struct race *race = arg;
    while (!atomic_load(&race->stop)) {
        char *key = NULL;
        race->failures += catalog_deletion_next(race->fixture->catalog, &key, NULL) < 0;
        if (!key)
            continue;
        if (strcmp(key, fixture_key("blob:", 0x10)) == 0)
            atomic_store(&race->present, false);
        race->failures += catalog_deletion_done(race->fixture->catalog, key, NULL) < 0;
        free(key);
    }
    return NULL;
}

/* What a pull does: lease, look, fetch when absent, record, end the lease; and then image rm. While
 * the lease or the record stands, the bytes are there (I5). */
static void *pull_and_remove(void *arg)
{
    struct race *race = arg;
    struct catalog *catalog = race->fixture->catalog;
    for (int i = 0; i < 150; i++) {
        race->failures += catalog_lease_add(catalog, "j-1", fixture_key("blob:", 0x10), NULL) < 0;
        if (!atomic_load(&race->present))
            atomic_store(&race->present, true);
        race->lost += !atomic_load(&race->present);
        race->failures += fixture_put_image(race->fixture, 1, layers, 1, NULL) < 0;
        race->failures += catalog_lease_drop(catalog, "j-1", NULL) < 0;
        race->lost += !atomic_load(&race->present);
        race->failures += catalog_image_remove(catalog, fixture_digest(1), NULL) < 0;
    }
    atomic_store(&race->stop, true);
    return NULL;
}

static void test_deleter_and_puller_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct race race = {.fixture = fixture};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, delete_all, &race), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, pull_and_remove, &race), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(race.failures, 0);
    assert_int_equal(race.lost, 0);
}

/* A kill after the bytes went and before the queue knows repeats the removal. */
static void test_a_kill_repeats_the_removal(void **state)
{
    struct fixture *fixture = *state;
    queue(fixture, fixture_key("blob:", 1));
    fixture_close(fixture);
    static const char *const faults[] = {"catalog.before-commit=kill", "catalog.after-commit=kill"};
    for (size_t i = 0; i < 2; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            fixture_open(fixture);
            char *key;
            catalog_deletion_next(fixture->catalog, &key, NULL);
            setenv("VARVE_FAULT", faults[i], 1);
            catalog_deletion_done(fixture->catalog, key, NULL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        fixture_open(fixture);
        assert_int_equal(queued(fixture), i == 0);
        fixture_close(fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_job(test_keys_of_another_form),
        with_job(test_leases_belong_to_unfinished_jobs),
        with_job(test_leases_can_be_repeated_and_dropped),
        with_job(test_deletions_come_in_order_once),
        with_job(test_a_failed_removal_stays_queued),
        with_job(test_a_postponed_object_comes_last),
        with_job(test_done_needs_its_transaction),
        with_job(test_next_inside_a_transaction_is_refused),
        with_job(test_a_reference_wins),
        with_job(test_a_lease_wins_while_it_lasts),
        with_job(test_a_lease_that_ends_in_a_reference),
        with_job(test_a_long_queue_of_referenced_objects_ends),
        with_job(test_deleter_and_puller_at_once),
        with_job(test_a_kill_repeats_the_removal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
