#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_snapshot.h"

static const unsigned layers[] = {0x10};

static int setup(void **state)
{
    if (fixture_setup(state) < 0)
        return -1;
    return fixture_put_image(*state, 1, layers, 1, NULL);
}

#define with_image(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

static int add(struct fixture *fixture, const char *id, struct err *err)
{
    struct catalog_snapshot snapshot = {.id = (char *)id,
                                        .run_id = (char *)"r-1",
                                        .image = (char *)fixture_digest(1),
                                        .repository = (char *)"images/n",
                                        .tag = (char *)"t"};
    return catalog_snapshot_add(fixture->catalog, &snapshot, err);
}

static void test_what_was_added_is_got(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_snapshot added = {.id = (char *)"s-1",
                                     .run_id = (char *)"r-1",
                                     .image = (char *)fixture_digest(9),
                                     .repository = (char *)"images/name",
                                     .tag = (char *)"v1",
                                     .base = (char *)fixture_digest(3),
                                     .comment = (char *)"l'\xc3\xa9t\xc3\xa9\n2",
                                     .labels = (char *)"{\"a\":\"b\"}",
                                     .skipped = (char *)"[{\"path\":\"/s\",\"reason\":\"socket\"}]",
                                     .durability = CATALOG_VERIFIED,
                                     .remote = (char *)"https://host/prefix",
                                     .bytes_new = 11,
                                     .bytes_total = INT64_C(5) << 40,
                                     .entries = 13,
                                     .created_ns = 17,
                                     .expires_ns = 19};
    assert_int_equal(catalog_snapshot_add(fixture->catalog, &added, NULL), 0);
    fixture_close(fixture);
    fixture_open(fixture);
    struct catalog_snapshot got;
    assert_int_equal(catalog_snapshot_get(fixture->catalog, "s-1", &got, NULL), 0);
    assert_string_equal(got.id, "s-1");
    assert_string_equal(got.run_id, "r-1");
    assert_string_equal(got.image, fixture_digest(9));
    assert_string_equal(got.repository, "images/name");
    assert_string_equal(got.tag, "v1");
    assert_string_equal(got.base, fixture_digest(3));
    assert_string_equal(got.comment, added.comment);
    assert_string_equal(got.labels, added.labels);
    assert_string_equal(got.skipped, added.skipped);
    assert_int_equal(got.durability, CATALOG_VERIFIED);
    assert_string_equal(got.remote, "https://host/prefix");
    assert_int_equal(got.bytes_new, 11);
    assert_int_equal(got.bytes_total, INT64_C(5) << 40);
    assert_int_equal(got.entries, 13);
    assert_int_equal(got.created_ns, 17);
    assert_int_equal(got.expires_ns, 19);
    catalog_snapshot_free(&got);
    catalog_snapshot_free(&got); /* of nothing is fine */
}

static void test_what_may_be_missing(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 70;
    struct catalog_snapshot added = {.id = (char *)"s-1",
                                     .image = (char *)fixture_digest(1),
                                     .repository = (char *)"r",
                                     .tag = (char *)"t"};
    assert_int_equal(catalog_snapshot_add(fixture->catalog, &added, NULL), 0);
    struct catalog_snapshot got;
    assert_int_equal(catalog_snapshot_get(fixture->catalog, "s-1", &got, NULL), 0);
    assert_null(got.run_id);
    assert_null(got.base);
    assert_null(got.comment);
    assert_null(got.remote);
    assert_string_equal(got.labels, "{}");
    assert_string_equal(got.skipped, "[]");
    assert_int_equal(got.durability, CATALOG_LOCAL);
    assert_int_equal(got.created_ns, 70);
    assert_int_equal(got.expires_ns, 0);
    catalog_snapshot_free(&got);
}

static void test_refused(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(add(fixture, "s-1", NULL), 0);
    struct err err = ERR_INIT;
    assert_failed(add(fixture, "s-1", &err), &err, ERR_EXISTS, "a snapshot s-1 already");
    /* A local snapshot is nothing without its image. */
    struct catalog_snapshot lost = {.id = (char *)"s-2",
                                    .image = (char *)fixture_digest(9),
                                    .repository = (char *)"r",
                                    .tag = (char *)"t"};
    err = (struct err)ERR_INIT;
    int rc = catalog_snapshot_add(fixture->catalog, &lost, &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, fixture_digest(9));
    /* A pushed one is nothing without the place it was pushed to. */
    lost.durability = CATALOG_PUSHED;
    err = (struct err)ERR_INIT;
    rc = catalog_snapshot_add(fixture->catalog, &lost, &err);
    assert_failed(rc, &err, ERR_INTERNAL, "remote IS NOT NULL");
    lost.remote = (char *)"oci:/r";
    assert_int_equal(catalog_snapshot_add(fixture->catalog, &lost, NULL), 0);
}

static void test_a_missing_snapshot(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_snapshot got = {.entries = 4};
    struct err err = ERR_INIT;
    assert_failed(catalog_snapshot_get(fixture->catalog, "s-9", &got, &err), &err, ERR_NOT_FOUND,
                  "no snapshot s-9");
    assert_int_equal(got.entries, 4);
    err = (struct err)ERR_INIT;
    assert_failed(catalog_snapshot_remove(fixture->catalog, "s-9", &err), &err, ERR_NOT_FOUND,
                  "no snapshot s-9");
    err = (struct err)ERR_INIT;
    int rc = catalog_snapshot_set_durability(fixture->catalog, "s-9", CATALOG_PUSHED, "x", &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, "no snapshot s-9");
}

/* Every pair of levels in one remote: the higher one stays. What is in one remote says nothing of
 * another. */
static void test_durability_only_grows(void **state)
{
    struct fixture *fixture = *state;
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            char id[16];
            snprintf(id, sizeof id, "s-%d%d", from, to);
            assert_int_equal(add(fixture, id, NULL), 0);
            assert_int_equal(catalog_snapshot_set_durability(fixture->catalog, id,
                                                             (enum catalog_durability)from,
                                                             from ? "first" : NULL, NULL),
                             0);
            assert_int_equal(catalog_snapshot_set_durability(
                                 fixture->catalog, id, (enum catalog_durability)to, "second", NULL),
                             0);
            struct catalog_snapshot got;
            assert_int_equal(catalog_snapshot_get(fixture->catalog, id, &got, NULL), 0);
            assert_int_equal(got.durability, to);
            assert_string_equal(got.remote, "second");
            catalog_snapshot_free(&got);
            assert_int_equal(catalog_snapshot_set_durability(fixture->catalog, id,
                                                             (enum catalog_durability)from,
                                                             from ? "second" : NULL, NULL),
                             0);
            assert_int_equal(catalog_snapshot_get(fixture->catalog, id, &got, NULL), 0);
            assert_int_equal(got.durability, to > from ? to : from);
            assert_string_equal(got.remote, "second");
            catalog_snapshot_free(&got);
        }
    }
}

static void test_the_remote_stays_unless_another_is_named(void **state)
{
    struct fixture *fixture = *state;
    struct catalog *catalog = fixture->catalog;
    assert_int_equal(add(fixture, "s-1", NULL), 0);
    struct err err = ERR_INIT;
    int rc = catalog_snapshot_set_durability(catalog, "s-1", CATALOG_PUSHED, NULL, &err);
    assert_failed(rc, &err, ERR_INTERNAL, "remote IS NOT NULL");
    assert_int_equal(
        catalog_snapshot_set_durability(catalog, "s-1", CATALOG_PUSHED, "oci:/r", NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT verified_ns IS NULL FROM snapshots"), 1);
    fixture->clock.offset_ns = 80;
    assert_int_equal(catalog_snapshot_set_durability(catalog, "s-1", CATALOG_VERIFIED, NULL, NULL),
                     0);
    assert_int_equal(fixture_query(fixture, "SELECT verified_ns FROM snapshots"), 80);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM snapshots WHERE"
                                            " durability = 'verified' AND remote = 'oci:/r'"),
                     1);
}

static void test_list_is_newest_first(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_snapshot *snapshots = NULL;
    size_t count = 99;
    assert_int_equal(catalog_snapshot_list(fixture->catalog, &snapshots, &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_null(snapshots);
    static const char *const ids[] = {"s-a", "s-b", "s-c"};
    static const int64_t times[] = {20, 40, 20};
    static const char *const expected[] = {"s-b", "s-c", "s-a"};
    for (size_t i = 0; i < 3; i++) {
        fixture->clock.offset_ns = times[i];
        assert_int_equal(add(fixture, ids[i], NULL), 0);
    }
    assert_int_equal(catalog_snapshot_list(fixture->catalog, &snapshots, &count, NULL), 0);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(snapshots[i].id, expected[i]);
        catalog_snapshot_free(&snapshots[i]);
    }
    free(snapshots);
}

static void test_removal(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(add(fixture, "s-1", NULL), 0);
    assert_int_equal(add(fixture, "s-2", NULL), 0);
    assert_int_equal(catalog_snapshot_remove(fixture->catalog, "s-1", NULL), 0);
    struct catalog_snapshot got;
    assert_int_equal(catalog_snapshot_get(fixture->catalog, "s-1", &got, NULL), -2);
    assert_int_equal(catalog_snapshot_get(fixture->catalog, "s-2", &got, NULL), 0);
    catalog_snapshot_free(&got);
}

static void test_level_names(void **state)
{
    (void)state;
    assert_string_equal(catalog_durability_name(CATALOG_LOCAL), "local");
    assert_string_equal(catalog_durability_name(CATALOG_PUSHED), "pushed");
    assert_string_equal(catalog_durability_name(CATALOG_VERIFIED), "verified");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_image(test_what_was_added_is_got),
        with_image(test_what_may_be_missing),
        with_image(test_refused),
        with_image(test_a_missing_snapshot),
        with_image(test_durability_only_grows),
        with_image(test_the_remote_stays_unless_another_is_named),
        with_image(test_list_is_newest_first),
        with_image(test_removal),
        cmocka_unit_test(test_level_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
