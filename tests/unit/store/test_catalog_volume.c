#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_volume.h"

static int add(struct fixture *fixture, const char *id, struct err *err)
{
    const struct catalog_volume volume = {
        .id = (char *)id, .lineage = (char *)"lin", .size = 1 << 20, .job_id = (char *)"j-1"};
    return catalog_volume_add(fixture->catalog, &volume, err);
}

static struct catalog_volume get(struct fixture *fixture, const char *id)
{
    struct catalog_volume volume = {0};
    assert_int_equal(catalog_volume_get(fixture->catalog, id, &volume, NULL), 0);
    return volume;
}

static void test_what_was_added_is_got(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 70;
    assert_int_equal(add(fixture, "000000000001", NULL), 0);
    fixture_close(fixture);
    fixture_open(fixture);
    struct catalog_volume volume = get(fixture, "000000000001");
    assert_string_equal(volume.id, "000000000001");
    assert_string_equal(volume.lineage, "lin");
    assert_int_equal(volume.state, CATALOG_VOLUME_CREATING);
    assert_int_equal(volume.state_ns, 70);
    assert_int_equal(volume.size, 1 << 20);
    assert_string_equal(volume.job_id, "j-1");
    assert_null(volume.boot);
    assert_null(volume.incident);
    assert_int_equal(volume.incident_ns, 0);
    assert_int_equal(volume.created_ns, 70);
    catalog_volume_free(&volume);
    catalog_volume_free(&volume); /* of nothing is fine */
}

static void test_a_taken_id(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    assert_int_equal(add(fixture, "000000000001", NULL), 0);
    assert_failed(add(fixture, "000000000001", &err), &err, ERR_EXISTS, "volume 000000000001");
}

static void test_a_missing_volume(void **state)
{
    struct fixture *fixture = *state;
    struct catalog *catalog = fixture->catalog;
    struct catalog_volume volume = {.size = 3};
    struct err err = ERR_INIT;
    int rc = catalog_volume_get(catalog, "x", &volume, &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, "no volume x");
    assert_int_equal(volume.size, 3);
    err = (struct err)ERR_INIT;
    rc = catalog_volume_set_state(catalog, "x", CATALOG_VOLUME_DETACHED, &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, "no volume x");
    err = (struct err)ERR_INIT;
    assert_failed(catalog_volume_set_size(catalog, "x", 5, &err), &err, ERR_NOT_FOUND, "volume x");
    err = (struct err)ERR_INIT;
    assert_failed(catalog_volume_set_boot(catalog, "x", "b", &err), &err, ERR_NOT_FOUND,
                  "volume x");
    err = (struct err)ERR_INIT;
    rc = catalog_volume_set_incident(catalog, "x", "it fell", &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, "volume x");
    err = (struct err)ERR_INIT;
    assert_failed(catalog_volume_remove(catalog, "x", &err), &err, ERR_NOT_FOUND, "volume x");
}

enum {
    STATES = CATALOG_VOLUME_REMOVING + 1,
};

static void put_state(struct fixture *fixture, int state)
{
    char sql[100];
    struct err err = ERR_INIT;
    snprintf(sql, sizeof sql, "UPDATE volumes SET state = '%s'",
             catalog_volume_state_name((enum catalog_volume_state)state));
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    if (catalog_stmt_exec(fixture->catalog, sql, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
}

/* Every pair of states: the diagram's moves, staying, and nothing else. */
static void test_moves(void **state)
{
    struct fixture *fixture = *state;
    static const char *const legal[STATES] = {
        /* to: creating, detached, attaching, attached, detaching, fenced, removing */
        "yy....y", /* from creating */
        ".yy...y", /* from detached */
        ".yyyy..", /* from attaching */
        "..yyyy.", /* from attached */
        ".y.yyy.", /* from detaching */
        "....yy.", /* from fenced */
        "......y", /* from removing */
    };
    assert_int_equal(add(fixture, "v", NULL), 0);
    for (int from = 0; from < STATES; from++) {
        for (int to = 0; to < STATES; to++) {
            put_state(fixture, from);
            struct err err = ERR_INIT;
            int rc = catalog_volume_set_state(fixture->catalog, "v", (enum catalog_volume_state)to,
                                              &err);
            bool is_legal = legal[from][to] == 'y';
            if ((rc == 0) != is_legal)
                fail_msg("%d to %d: %d", from, to, rc);
            if (!is_legal)
                assert_failed(rc, &err, ERR_CONFLICT, "cannot become");
            struct catalog_volume volume = get(fixture, "v");
            assert_int_equal(volume.state, is_legal ? to : from);
            catalog_volume_free(&volume);
        }
    }
}

static void test_a_move_has_its_time(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(add(fixture, "v", NULL), 0);
    fixture->clock.offset_ns = 5000;
    assert_int_equal(catalog_volume_set_state(fixture->catalog, "v", CATALOG_VOLUME_DETACHED, NULL),
                     0);
    fixture->clock.offset_ns = 6000;
    assert_int_equal(catalog_volume_set_state(fixture->catalog, "v", CATALOG_VOLUME_DETACHED, NULL),
                     0);
    assert_int_equal(fixture_query(fixture, "SELECT state_ns FROM volumes"), 5000);
}

static void test_volumes_only_grow(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    assert_int_equal(add(fixture, "v", NULL), 0);
    assert_int_equal(catalog_volume_set_size(fixture->catalog, "v", 2 << 20, NULL), 0);
    assert_int_equal(catalog_volume_set_size(fixture->catalog, "v", 2 << 20, NULL), 0);
    int rc = catalog_volume_set_size(fixture->catalog, "v", (2 << 20) - 1, &err);
    assert_failed(rc, &err, ERR_CONFLICT, "cannot shrink to 2097151");
    assert_int_equal(fixture_query(fixture, "SELECT size FROM volumes"), 2 << 20);
}

static void test_boots_and_incidents(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(add(fixture, "v", NULL), 0);
    assert_int_equal(catalog_volume_set_boot(fixture->catalog, "v", "boot-1", NULL), 0);
    fixture->clock.offset_ns = 8000;
    assert_int_equal(catalog_volume_set_incident(fixture->catalog, "v", "it fell", NULL), 0);
    struct catalog_volume volume = get(fixture, "v");
    assert_string_equal(volume.boot, "boot-1");
    assert_string_equal(volume.incident, "it fell");
    assert_int_equal(volume.incident_ns, 8000);
    catalog_volume_free(&volume);
    assert_int_equal(catalog_volume_set_incident(fixture->catalog, "v", NULL, NULL), 0);
    volume = get(fixture, "v");
    assert_null(volume.incident);
    assert_int_equal(volume.incident_ns, 0);
    catalog_volume_free(&volume);
}

static void test_only_what_is_on_its_way_out_is_removed(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(add(fixture, "v", NULL), 0);
    for (int i = 0; i < STATES; i++) {
        bool may = i == CATALOG_VOLUME_CREATING || i == CATALOG_VOLUME_REMOVING;
        put_state(fixture, i);
        struct err err = ERR_INIT;
        int rc = catalog_volume_remove(fixture->catalog, "v", &err);
        assert_int_equal(rc == 0, may);
        if (!may)
            assert_failed(rc, &err, ERR_CONFLICT, "has to become removing");
        if (may)
            assert_int_equal(add(fixture, "v", NULL), 0);
    }
}

static void test_the_list(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_volume *volumes = (void *)1;
    size_t count = 9;
    assert_int_equal(catalog_volume_list(fixture->catalog, &volumes, &count, NULL), 0);
    assert_null(volumes);
    assert_int_equal(count, 0);
    assert_int_equal(add(fixture, "b", NULL), 0);
    fixture->clock.offset_ns = 9000;
    assert_int_equal(add(fixture, "a", NULL), 0);
    assert_int_equal(catalog_volume_list(fixture->catalog, &volumes, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_string_equal(volumes[0].id, "b");
    assert_string_equal(volumes[1].id, "a");
    for (size_t i = 0; i < count; i++)
        catalog_volume_free(&volumes[i]);
    free(volumes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_what_was_added_is_got),
        with_fixture(test_a_taken_id),
        with_fixture(test_a_missing_volume),
        with_fixture(test_moves),
        with_fixture(test_a_move_has_its_time),
        with_fixture(test_volumes_only_grow),
        with_fixture(test_boots_and_incidents),
        with_fixture(test_only_what_is_on_its_way_out_is_removed),
        with_fixture(test_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
