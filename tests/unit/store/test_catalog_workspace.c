#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_run.h"
#include "catalog_workspace.h"

static int add(struct fixture *fixture, const char *name, const char *id, struct err *err)
{
    const struct catalog_volume volume = {
        .id = (char *)id, .lineage = (char *)id, .size = 1 << 20, .job_id = (char *)"j-1"};
    return catalog_workspace_add(fixture->catalog, name, "node", &volume, err);
}

static int mount(struct fixture *fixture, const char *id, const char *path, struct err *err)
{
    const struct catalog_mount mount = {
        .volume = (char *)id, .path = (char *)path, .read_only = true};
    return catalog_mount_add(fixture->catalog, &mount, err);
}

static void test_what_was_added_is_got(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 70;
    assert_int_equal(add(fixture, "w", "0a", NULL), 0);
    fixture_close(fixture);
    fixture_open(fixture);
    struct catalog_workspace workspace = {0};
    assert_int_equal(catalog_workspace_get(fixture->catalog, "w", &workspace, NULL), 0);
    assert_string_equal(workspace.name, "w");
    assert_string_equal(workspace.node, "node");
    assert_int_equal(workspace.created_ns, 70);
    assert_string_equal(workspace.volume.id, "0a");
    assert_int_equal(workspace.volume.state, CATALOG_VOLUME_CREATING);
    assert_false(workspace.wanted);
    assert_null(workspace.mount.path);
    cleanup_free char *name = NULL;
    assert_int_equal(catalog_workspace_name(fixture->catalog, "0b", &name, NULL), 0);
    assert_null(name);
    assert_int_equal(catalog_workspace_name(fixture->catalog, "0a", &name, NULL), 1);
    assert_string_equal(name, "w");
    catalog_workspace_free(&workspace);
    assert_int_equal(mount(fixture, "0a", "/x", NULL), 0);
    assert_int_equal(catalog_workspace_get(fixture->catalog, "w", &workspace, NULL), 0);
    assert_true(workspace.wanted);
    assert_string_equal(workspace.mount.path, "/x");
    assert_string_equal(workspace.mount.volume, "0a");
    assert_true(workspace.mount.read_only);
    assert_int_equal(workspace.mount.state, CATALOG_MOUNT_MOUNTING);
    catalog_workspace_free(&workspace);
    catalog_workspace_free(&workspace); /* of nothing is fine */
}

static void test_who_shows_an_epoch(void **state)
{
    struct fixture *fixture = *state;
    const struct catalog_volume volume = {.id = (char *)"0b",
                                          .lineage = (char *)"0a",
                                          .size = 1 << 20,
                                          .job_id = (char *)"j-2",
                                          .view_of = (char *)"0a"};
    struct catalog_workspace workspace = {0};
    cleanup_free char *name = NULL;
    assert_int_equal(add(fixture, "w", "0a", NULL), 0);
    assert_int_equal(catalog_workspace_view(fixture->catalog, "0a", &name, NULL), 0);
    assert_int_equal(catalog_workspace_add(fixture->catalog, "w@now-1", "node", &volume, NULL), 0);
    assert_int_equal(catalog_workspace_view(fixture->catalog, "0a", &name, NULL), 1);
    assert_string_equal(name, "w@now-1");
    assert_int_equal(catalog_workspace_get(fixture->catalog, "w@now-1", &workspace, NULL), 0);
    assert_string_equal(workspace.volume.view_of, "0a");
    catalog_workspace_free(&workspace);
    assert_int_equal(catalog_workspace_get(fixture->catalog, "w", &workspace, NULL), 0);
    assert_null(workspace.volume.view_of);
    catalog_workspace_free(&workspace);
    assert_int_equal(
        catalog_volume_set_state(fixture->catalog, "0b", CATALOG_VOLUME_REMOVING, NULL), 0);
    cleanup_free char *gone = NULL;
    assert_int_equal(catalog_workspace_view(fixture->catalog, "0a", &gone, NULL), 0);
}

static void test_taken_names_and_ids(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    assert_int_equal(add(fixture, "w", "0a", NULL), 0);
    assert_failed(add(fixture, "w", "0b", &err), &err, ERR_EXISTS, "workspace w already");
    assert_failed(add(fixture, "w", "0b", &err), &err, ERR_EXISTS, "varve workspace rm w");
    err = (struct err)ERR_INIT;
    assert_failed(add(fixture, "v", "0a", &err), &err, ERR_EXISTS, "volume 0a");
    /* A failure leaves nothing behind. */
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM workspaces"), 1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM volumes"), 1);
}

static void add_run(struct fixture *fixture, const char *id, const char *volume)
{
    static const unsigned layers[] = {0x10};
    const struct catalog_volume row = {
        .id = (char *)volume, .lineage = (char *)volume, .size = 1 << 20, .job_id = (char *)"j-1"};
    const struct catalog_run run = {.id = (char *)id,
                                    .image = (char *)fixture_digest(1),
                                    .image_name = (char *)"a:1",
                                    .upper = (char *)"volume",
                                    .volume = (char *)volume,
                                    .job_id = (char *)"j-1"};
    assert_int_equal(fixture_put_image(fixture, 1, layers, 1, NULL), 0);
    assert_int_equal(catalog_volume_add(fixture->catalog, &row, NULL), 0);
    assert_int_equal(catalog_run_add(fixture->catalog, &run, NULL), 0);
}

/* The volume of a run is read as a workspace whose name nobody can choose, and listed apart. */
static void test_volumes_of_runs(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_workspace row = {0};
    struct catalog_workspace *rows = NULL;
    size_t count = 0;
    struct err err = ERR_INIT;
    cleanup_free char *name = NULL;
    assert_int_equal(add(fixture, "w", "0a", NULL), 0);
    add_run(fixture, "r-1", "0b");
    assert_int_equal(mount(fixture, "0b", "/run/x", NULL), 0);
    assert_int_equal(catalog_workspace_get(fixture->catalog, "run:r-1", &row, NULL), 0);
    assert_string_equal(row.name, "run:r-1");
    assert_string_equal(row.node, "");
    assert_string_equal(row.volume.id, "0b");
    assert_string_equal(row.mount.path, "/run/x");
    catalog_workspace_free(&row);
    static const char *const others[] = {"r-1", "run:", "run:r", "run:r-11", "0b", "xrun:r-1"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        err_clear(&err);
        assert_failed(catalog_workspace_get(fixture->catalog, others[i], &row, &err), &err,
                      ERR_NOT_FOUND, others[i]);
    }
    assert_int_equal(catalog_workspace_name(fixture->catalog, "0b", &name, NULL), 1);
    assert_string_equal(name, "run:r-1");
    assert_int_equal(catalog_workspace_list(fixture->catalog, &rows, &count, NULL), 0);
    assert_int_equal(count, 1);
    catalog_workspace_free(&rows[0]);
    free(rows);
    assert_int_equal(catalog_workspace_list_all(fixture->catalog, &rows, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_string_equal(rows[0].name, "w");
    assert_string_equal(rows[1].name, "run:r-1");
    assert_true(rows[1].wanted);
    for (size_t i = 0; i < count; i++)
        catalog_workspace_free(&rows[i]);
    free(rows);
    err_clear(&err);
    assert_failed(mount(fixture, "0a", "/run/x/y", &err), &err, ERR_CONFLICT, "run r-1");
}

static void test_a_missing_workspace(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_workspace workspace = {.created_ns = 3};
    struct err err = ERR_INIT;
    int rc = catalog_workspace_get(fixture->catalog, "w", &workspace, &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, "no workspace w");
    assert_int_equal(workspace.created_ns, 3);
    err = (struct err)ERR_INIT;
    assert_failed(catalog_workspace_remove(fixture->catalog, "w", &err), &err, ERR_NOT_FOUND,
                  "no workspace w");
}

static void test_the_list_is_in_the_order_of_names(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_workspace *rows = (void *)1;
    size_t count = 7;
    assert_int_equal(catalog_workspace_list(fixture->catalog, &rows, &count, NULL), 0);
    assert_null(rows);
    assert_int_equal(count, 0);
    assert_int_equal(add(fixture, "b", "01", NULL), 0);
    assert_int_equal(add(fixture, "c", "02", NULL), 0);
    assert_int_equal(add(fixture, "a", "03", NULL), 0);
    assert_int_equal(mount(fixture, "01", "/x", NULL), 0);
    assert_int_equal(catalog_workspace_list(fixture->catalog, &rows, &count, NULL), 0);
    assert_int_equal(count, 3);
    assert_string_equal(rows[0].name, "a");
    assert_string_equal(rows[1].name, "b");
    assert_string_equal(rows[2].name, "c");
    assert_string_equal(rows[0].volume.id, "03");
    assert_false(rows[0].wanted);
    assert_true(rows[1].wanted);
    for (size_t i = 0; i < count; i++)
        catalog_workspace_free(&rows[i]);
    free(rows);
}

static void test_a_removal_takes_all_rows_or_none(void **state)
{
    struct fixture *fixture = *state;
    struct catalog *catalog = fixture->catalog;
    struct err err = ERR_INIT;
    assert_int_equal(add(fixture, "w", "0a", NULL), 0);
    assert_int_equal(mount(fixture, "0a", "/x", NULL), 0);
    assert_int_equal(catalog_volume_set_state(catalog, "0a", CATALOG_VOLUME_DETACHED, NULL), 0);
    assert_failed(catalog_workspace_remove(catalog, "w", &err), &err, ERR_CONFLICT, "detached");
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM workspaces, mounts"), 1);
    assert_int_equal(catalog_volume_set_state(catalog, "0a", CATALOG_VOLUME_REMOVING, NULL), 0);
    assert_int_equal(catalog_workspace_remove(catalog, "w", NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT (SELECT count(*) FROM workspaces) +"
                                            " (SELECT count(*) FROM volumes) +"
                                            " (SELECT count(*) FROM mounts)"),
                     0);
}

/* Mounts */

static void test_one_path_for_one_volume(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    assert_int_equal(add(fixture, "w", "0a", NULL), 0);
    assert_int_equal(add(fixture, "v", "0b", NULL), 0);
    assert_int_equal(mount(fixture, "0a", "/x", NULL), 0);
    assert_failed(mount(fixture, "0b", "/x", &err), &err, ERR_CONFLICT,
                  "/x is the place of the workspace w");
    err = (struct err)ERR_INIT;
    assert_failed(mount(fixture, "0a", "/y", &err), &err, ERR_CONFLICT, "mounted at /x");
    err = (struct err)ERR_INIT;
    assert_failed(mount(fixture, "0c", "/y", &err), &err, ERR_NOT_FOUND, "no volume 0c");
    assert_int_equal(catalog_mount_remove(fixture->catalog, "0a", NULL), 0);
    assert_int_equal(catalog_mount_remove(fixture->catalog, "0a", NULL), 0);
    assert_int_equal(mount(fixture, "0b", "/x", NULL), 0);
}

static void test_how_far_a_mount_has_come(void **state)
{
    struct fixture *fixture = *state;
    struct catalog *catalog = fixture->catalog;
    struct catalog_mount row = {0};
    struct err err = ERR_INIT;
    assert_int_equal(add(fixture, "w", "0a", NULL), 0);
    assert_int_equal(catalog_mount_find(catalog, "0a", &row, NULL), 0);
    assert_failed(catalog_mount_set_state(catalog, "0a", CATALOG_MOUNT_MOUNTED, &err), &err,
                  ERR_NOT_FOUND, "mounted nowhere");
    assert_int_equal(mount(fixture, "0a", "/x", NULL), 0);
    static const enum catalog_mount_state states[] = {
        CATALOG_MOUNT_MOUNTED, CATALOG_MOUNT_MOUNTED, CATALOG_MOUNT_UNMOUNTING,
        CATALOG_MOUNT_MOUNTED, CATALOG_MOUNT_MOUNTING};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        assert_int_equal(catalog_mount_set_state(catalog, "0a", states[i], NULL), 0);
        assert_int_equal(catalog_mount_find(catalog, "0a", &row, NULL), 1);
        assert_int_equal(row.state, states[i]);
        catalog_mount_free(&row);
    }
}

/* What shows a checkpoint, or lies in a run, is not spoken of here. */
static void test_other_mounts_are_left_alone(void **state)
{
    struct fixture *fixture = *state;
    struct catalog *catalog = fixture->catalog;
    struct catalog_mount row = {0};
    struct err err = ERR_INIT;
    assert_int_equal(add(fixture, "w", "0a", NULL), 0);
    assert_int_equal(catalog_begin(catalog, NULL), 0);
    assert_int_equal(catalog_stmt_exec(catalog,
                                       "INSERT INTO mounts (volume, checkpoint, path, read_only,"
                                       " state, created_ns) VALUES ('0a', 'c', '/c', 1, 'mounted',"
                                       " 1)",
                                       &err),
                     0);
    assert_int_equal(catalog_commit(catalog, NULL), 0);
    assert_int_equal(catalog_mount_find(catalog, "0a", &row, NULL), 0);
    assert_int_equal(mount(fixture, "0a", "/x", NULL), 0);
    assert_int_equal(catalog_mount_remove(catalog, "0a", NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM mounts WHERE path = '/c'"), 1);
    assert_failed(mount(fixture, "0a", "/c", &err), &err, ERR_CONFLICT, "/c is the place of");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_what_was_added_is_got),
        with_fixture(test_who_shows_an_epoch),
        with_fixture(test_taken_names_and_ids),
        with_fixture(test_volumes_of_runs),
        with_fixture(test_a_missing_workspace),
        with_fixture(test_the_list_is_in_the_order_of_names),
        with_fixture(test_a_removal_takes_all_rows_or_none),
        with_fixture(test_one_path_for_one_volume),
        with_fixture(test_how_far_a_mount_has_come),
        with_fixture(test_other_mounts_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
