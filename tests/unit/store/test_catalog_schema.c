#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const first[] = {
    "CREATE TABLE parents (id INTEGER PRIMARY KEY) STRICT",
    "CREATE TABLE children (id INTEGER PRIMARY KEY,"
    " parent INTEGER NOT NULL REFERENCES parents) STRICT",
    "INSERT INTO parents VALUES (1), (2)",
    "INSERT INTO children VALUES (10, 1)",
    NULL,
};
/* Rebuilds a table that others refer to, as a change of a constraint needs it. */
static const char *const rebuild[] = {
    "CREATE TABLE new_parents (id INTEGER PRIMARY KEY, word TEXT NOT NULL) STRICT",
    "INSERT INTO new_parents SELECT id, 'old' FROM parents",
    "DROP TABLE parents",
    "ALTER TABLE new_parents RENAME TO parents",
    NULL,
};
static const char *const fails_late[] = {
    "CREATE TABLE extra (id INTEGER PRIMARY KEY) STRICT",
    "DELETE FROM children",
    "INSERT INTO no_such_table VALUES (1)",
    NULL,
};
static const char *const loses_rows[] = {"DELETE FROM parents", NULL};
static const char *const adds[] = {"CREATE TABLE extra (id INTEGER PRIMARY KEY) STRICT", NULL};

static int open_with(struct fixture *fixture, const struct catalog_schema_step *steps, size_t count,
                     struct err *err)
{
    *err = (struct err)ERR_INIT;
    return catalog_open_steps(fixture->path, &fixture->clock, steps, count, &fixture->catalog, err);
}

static void assert_version(struct fixture *fixture, int64_t version)
{
    assert_int_equal(fixture_query(fixture, "PRAGMA user_version"), version);
    assert_int_equal(fixture_query(fixture, "PRAGMA application_id"), CATALOG_APPLICATION_ID);
    assert_int_equal(fixture_query(fixture, "PRAGMA foreign_keys"), 1);
}

static void test_steps_follow_each_other(void **state)
{
    struct fixture *fixture = *state;
    const struct catalog_schema_step steps[] = {{first}, {rebuild}, {adds}};
    struct err err;
    for (size_t count = 1; count <= 3; count++) {
        assert_int_equal(open_with(fixture, steps, count, &err), 0);
        assert_version(fixture, (int64_t)count);
        fixture_close(fixture);
    }
    assert_int_equal(open_with(fixture, steps, 3, &err), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM parents WHERE word = 'old'"), 2);
    assert_int_equal(fixture_query(fixture, "SELECT parent FROM children"), 1);
    /* The reference holds on to the table that was rebuilt. */
    int rc = catalog_stmt_exec(fixture->catalog, "DELETE FROM parents WHERE id = 1", &err);
    assert_failed(rc, &err, ERR_INTERNAL, "FOREIGN KEY");
}

static void test_a_new_file_takes_all_steps_at_once(void **state)
{
    struct fixture *fixture = *state;
    const struct catalog_schema_step steps[] = {{first}, {rebuild}, {adds}};
    struct err err;
    assert_int_equal(open_with(fixture, steps, 3, &err), 0);
    assert_version(fixture, 3);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM extra"), 0);
}

static void test_an_older_program_refuses(void **state)
{
    struct fixture *fixture = *state;
    const struct catalog_schema_step steps[] = {{first}, {rebuild}};
    struct err err;
    assert_int_equal(open_with(fixture, steps, 2, &err), 0);
    fixture_close(fixture);
    int rc = open_with(fixture, steps, 1, &err);
    assert_failed(rc, &err, ERR_TOO_NEW, "schema version 2, this program knows versions up to 1");
}

static void test_a_step_that_fails_leaves_the_version_before(void **state)
{
    struct fixture *fixture = *state;
    const struct catalog_schema_step good[] = {{first}};
    const struct catalog_schema_step bad[] = {{first}, {fails_late}};
    const struct catalog_schema_step mended[] = {{first}, {adds}};
    struct err err;
    assert_int_equal(open_with(fixture, good, 1, &err), 0);
    fixture_close(fixture);
    int rc = open_with(fixture, bad, 2, &err);
    assert_failed(rc, &err, ERR_INTERNAL, "no such table");
    assert_failed(rc, &err, ERR_INTERNAL, "from schema version 1 to 2");
    assert_null(fixture->catalog);
    assert_int_equal(open_with(fixture, good, 1, &err), 0);
    assert_version(fixture, 1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM children"), 1);
    assert_int_equal(
        fixture_query(fixture, "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'"), 0);
    fixture_close(fixture);
    assert_int_equal(open_with(fixture, mended, 2, &err), 0);
    assert_version(fixture, 2);
}

static void test_steps_before_the_one_that_fails_stay(void **state)
{
    struct fixture *fixture = *state;
    const struct catalog_schema_step bad[] = {{first}, {rebuild}, {fails_late}};
    struct err err;
    assert_failed(open_with(fixture, bad, 3, &err), &err, ERR_INTERNAL, "from schema version 2");
    assert_int_equal(open_with(fixture, bad, 2, &err), 0);
    assert_version(fixture, 2);
}

static void test_a_step_that_breaks_references_is_undone(void **state)
{
    struct fixture *fixture = *state;
    const struct catalog_schema_step bad[] = {{first}, {loses_rows}};
    struct err err;
    int rc = open_with(fixture, bad, 2, &err);
    assert_failed(rc, &err, ERR_DAMAGED, "row of the table 'children'");
    assert_int_equal(open_with(fixture, bad, 1, &err), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM parents"), 2);
}

/* Runs the migration in a child that the fault point ends. */
static void kill_at(struct fixture *fixture, const struct catalog_schema_step *steps, size_t count,
                    const char *fault)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("VARVE_FAULT", fault, 1);
        open_with(fixture, steps, count, &(struct err)ERR_INIT);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_a_kill_leaves_whole_steps(void **state)
{
    struct fixture *fixture = *state;
    const struct catalog_schema_step steps[] = {{first}, {rebuild}, {adds}};
    static const struct {
        const char *fault;
        int64_t version;
    } cases[] = {{"catalog.before-commit=kill:1", 0},
                 {"catalog.after-commit=kill:1", 1},
                 {"catalog.before-commit=kill:1", 1},
                 {"catalog.before-commit=kill:2", 2},
                 {"catalog.after-commit=kill:1", 3}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        kill_at(fixture, steps, 3, cases[i].fault);
        sqlite3 *db;
        sqlite3_stmt *stmt;
        assert_int_equal(sqlite3_open(fixture->path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &stmt, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
        assert_int_equal(sqlite3_column_int64(stmt, 0), cases[i].version);
        assert_int_equal(sqlite3_finalize(stmt), SQLITE_OK);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    }
    struct err err;
    assert_int_equal(open_with(fixture, steps, 3, &err), 0);
    assert_version(fixture, 3);
}

/* Version 2 */

/* The database of a version 1 with data in it. */
static void make_version_1(struct fixture *fixture)
{
    static const unsigned layers[] = {0x10, 0x20};
    struct err err;
    assert_int_equal(open_with(fixture, catalog_schema_steps, 1, &err), 0);
    assert_version(fixture, 1);
    assert_int_equal(fixture_put_image(fixture, 1, layers, 2, &err), 0);
    assert_int_equal(
        catalog_image_name_set(fixture->catalog, "a:1", fixture_digest(1), false, &err), 0);
    assert_int_equal(fixture_add_run(fixture, "r-1", 1, &err), 0);
    fixture_add_job(fixture, "j-1");
    fixture_close(fixture);
}

static void assert_upgraded(struct fixture *fixture)
{
    fixture_open(fixture);
    assert_version(fixture, CATALOG_SCHEMA_VERSION);
    struct catalog_image image;
    assert_int_equal(catalog_image_get(fixture->catalog, fixture_digest(1), &image, NULL), 0);
    assert_int_equal(image.layer_count, 2);
    assert_string_equal(image.names[0], "a:1");
    catalog_image_free(&image);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM runs"), 1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM jobs"), 1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM layer_images"), 0);
    assert_int_equal(
        fixture_query(fixture, "SELECT count(*) FROM sqlite_schema WHERE name = 'layers_diff'"), 1);
}

static void test_version_1_is_upgraded_with_its_data(void **state)
{
    struct fixture *fixture = *state;
    make_version_1(fixture);
    assert_upgraded(fixture);
    fixture_close(fixture);
    struct err err;
    int rc = open_with(fixture, catalog_schema_steps, 1, &err);
    assert_failed(rc, &err, ERR_TOO_NEW, "schema version 9, this program knows versions up to 1");
}

static void test_an_upgrade_survives_a_kill(void **state)
{
    struct fixture *fixture = *state;
    make_version_1(fixture);
    kill_at(fixture, catalog_schema_steps, CATALOG_SCHEMA_VERSION, "catalog.before-commit=kill:1");
    kill_at(fixture, catalog_schema_steps, CATALOG_SCHEMA_VERSION, "catalog.after-commit=kill:1");
    assert_upgraded(fixture);
}

/* Version 3 */

#define OLD_VOLUME                                                                                 \
    "INSERT INTO volumes (id, lineage, state, state_ns, size, created_ns)"                         \
    " VALUES ('v', 'l', 'detached', 1, 4096, 2);"                                                  \
    "INSERT INTO mounts (volume, path, read_only, state, created_ns)"                              \
    " VALUES ('v', '/a', 0, 'mounted', 1)"

static void test_version_2_is_upgraded_with_its_data(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    assert_int_equal(open_with(fixture, catalog_schema_steps, 2, &err), 0);
    assert_version(fixture, 2);
    assert_int_equal(catalog_begin(fixture->catalog, &err), 0);
    assert_int_equal(catalog_stmt_exec(fixture->catalog, OLD_VOLUME, &err), 0);
    assert_int_equal(catalog_commit(fixture->catalog, &err), 0);
    fixture_close(fixture);
    kill_at(fixture, catalog_schema_steps, CATALOG_SCHEMA_VERSION, "catalog.before-commit=kill:1");
    kill_at(fixture, catalog_schema_steps, CATALOG_SCHEMA_VERSION, "catalog.after-commit=kill:1");
    fixture_open(fixture);
    assert_version(fixture, CATALOG_SCHEMA_VERSION);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM volumes WHERE boot IS NULL AND"
                                            " incident IS NULL AND incident_ns IS NULL AND"
                                            " size = 4096"),
                     1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM mounts"), 1);
    /* The database can be read by those who look into it. */
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM pragma_integrity_check"
                                            " WHERE integrity_check = 'ok'"),
                     1);
}

/* Version 6 */

#define OLD_JOB(id, state, started, finished)                                                      \
    "INSERT INTO jobs (id, kind, uid, params, state, created_ns, started_ns, finished_ns)"         \
    " VALUES ('" id "', 'workspace.rm', 0, '{}', '" state "', 1, " started ", " finished ");"

/* A job that an older varved had begun was past any cancelling. */
static void test_version_5_is_upgraded_with_its_jobs(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    assert_int_equal(open_with(fixture, catalog_schema_steps, 5, &err), 0);
    assert_version(fixture, 5);
    assert_int_equal(catalog_begin(fixture->catalog, &err), 0);
    assert_int_equal(catalog_stmt_exec(fixture->catalog,
                                       OLD_JOB("begun", "running", "2", "NULL")
                                           OLD_JOB("again", "queued", "2", "NULL")
                                               OLD_JOB("new", "queued", "NULL", "NULL")
                                                   OLD_JOB("done", "done", "2", "3"),
                                       &err),
                     0);
    assert_int_equal(catalog_commit(fixture->catalog, &err), 0);
    fixture_close(fixture);
    for (size_t version = 6; version <= CATALOG_SCHEMA_VERSION; version++) {
        kill_at(fixture, catalog_schema_steps, version, "catalog.before-commit=kill:1");
        assert_int_equal(open_with(fixture, catalog_schema_steps, version - 1, &err), 0);
        fixture_close(fixture);
        assert_int_equal(open_with(fixture, catalog_schema_steps, version, &err), 0);
        assert_version(fixture, (int64_t)version);
        assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM jobs"), 4);
        assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM jobs WHERE settled"), 2);
        fixture_close(fixture);
    }
    fixture_open(fixture);
    static const char *const begun[] = {"begun", "again"};
    for (size_t i = 0; i < ARRAY_SIZE(begun); i++) {
        err = (struct err)ERR_INIT;
        int rc = catalog_job_cancel(fixture->catalog, begun[i], 0, &err);
        assert_failed(rc, &err, ERR_CONFLICT, "can be cancelled no more");
    }
    assert_int_equal(catalog_job_cancel(fixture->catalog, "new", 0, NULL), 1);
}

/* The tables */

static void test_every_table_is_strict(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM pragma_table_list"
                                            " WHERE schema = 'main' AND strict = 0"
                                            " AND name NOT LIKE 'sqlite_%'"),
                     0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM pragma_table_list"
                                            " WHERE schema = 'main' AND strict = 1"),
                     26);
}

/* A reference to a column without a unique index shows only when rows go. */
static void test_every_reference_is_sound(void **state)
{
    struct fixture *fixture = *state;
    static const char *const tables[] = {
        "images",     "image_names", "layers",     "image_layers", "volumes",      "runs",
        "snapshots",  "workspaces",  "mounts",     "checkpoints",  "pauses",       "pause_volumes",
        "jobs",       "steps",       "holds",      "leases",       "deletions",    "plans",
        "plan_items", "trash",       "trash_keys", "events",       "layer_images",
    };
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "DELETE FROM %s", tables[i]);
        struct err err = ERR_INIT;
        if (catalog_stmt_exec(fixture->catalog, sql, &err) < 0)
            fail_msg("%s: %s", sql, err.text);
    }
}

/* Without one, removing a row reads the whole table that may refer to it. */
static void test_every_reference_has_an_index(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(
        fixture_query(fixture,
                      "SELECT count(*) FROM pragma_table_list t, pragma_foreign_key_list(t.name) f"
                      " WHERE t.schema = 'main' AND NOT EXISTS (SELECT 1 FROM"
                      "  pragma_index_list(t.name) i, pragma_index_info(i.name) c"
                      "  WHERE c.seqno = 0 AND c.name = f.\"from\")"),
        0);
}

#define D "'sha256:0000000000000000000000000000000000000000000000000000000000000001'"
#define IMAGE                                                                                      \
    "INSERT INTO images (digest, media_type, size, config_digest, config_size, origin, "           \
    "created_ns) VALUES (" D ", 'm', 1, " D ", 1, 'import', 1);"
#define LAYER_IMAGE(key) "INSERT INTO layer_images VALUES (" key ", 1, 1, 0, '', 1, 1)"
#define VOLUME                                                                                     \
    "INSERT INTO volumes (id, lineage, state, state_ns, size, created_ns)"                         \
    " VALUES ('v', 'l', 'attached', 1, 1, 1);"

static void test_bad_rows_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static const char *const statements[] = {
        /* digests, origins, sizes, types */
        "INSERT INTO images (digest, media_type, size, config_digest, config_size, origin,"
        " created_ns) VALUES ('sha256:1', 'm', 1, " D ", 1, 'import', 1)",
        "INSERT INTO images (digest, media_type, size, config_digest, config_size, origin,"
        " created_ns) VALUES (" D ", 'm', 1, " D ", 1, 'stolen', 1)",
        "INSERT INTO images (digest, media_type, size, config_digest, config_size, origin,"
        " created_ns) VALUES (" D ", 'm', -1, " D ", 1, 'import', 1)",
        "INSERT INTO images (digest, media_type, size, config_digest, config_size, origin,"
        " created_ns) VALUES (" D ", 'm', 'big', " D ", 1, 'import', 1)",
        /* runs: states, kinds of uppers, the image they need */
        IMAGE "INSERT INTO runs (id, state, state_ns, image, upper, created_ns)"
              " VALUES ('r', 'flying', 1, " D ", 'plain', 1)",
        IMAGE "INSERT INTO runs (id, state, state_ns, image, upper, created_ns)"
              " VALUES ('r', 'ready', 1, " D ", 'volume', 1)",
        "INSERT INTO runs (id, state, state_ns, image, upper, created_ns)"
        " VALUES ('r', 'ready', 1, " D ", 'plain', 1)",
        IMAGE "INSERT INTO runs (id, state, state_ns, image, upper, created_ns)"
              " VALUES ('r', 'ready', 1, " D ", 'plain', 1); DELETE FROM images",
        /* snapshots: a local one needs its image, a pushed one a remote */
        "INSERT INTO snapshots (id, image, repository, tag, labels, skipped, durability,"
        " bytes_new, bytes_total, entries, created_ns)"
        " VALUES ('s', " D ", 'r', 't', '{}', '[]', 'local', 1, 1, 1, 1)",
        "INSERT INTO snapshots (id, image, repository, tag, labels, skipped, durability,"
        " bytes_new, bytes_total, entries, created_ns)"
        " VALUES ('s', " D ", 'r', 't', '{}', '[]', 'pushed', 1, 1, 1, 1)",
        /* one writer per volume, one use of a path, checkpoints read-only */
        VOLUME "INSERT INTO mounts (volume, path, read_only, state, created_ns)"
               " VALUES ('v', '/a', 0, 'mounted', 1), ('v', '/b', 0, 'mounted', 1)",
        VOLUME "INSERT INTO mounts (volume, path, read_only, state, created_ns)"
               " VALUES ('v', '/a', 1, 'mounted', 1), ('v', '/a', 1, 'mounted', 1)",
        VOLUME "INSERT INTO mounts (volume, checkpoint, path, read_only, state, created_ns)"
               " VALUES ('v', 'c', '/a', 0, 'mounted', 1)",
        /* layer images: keys are names of files */
        LAYER_IMAGE("'diff-../../../../../../../../../../../../../../../../../../../../etc/x'"),
        LAYER_IMAGE("'diff-000000000000000000000000000000000000000000000000000000000000000g'"),
        LAYER_IMAGE("'diff-00000000000000000000000000000000000000000000000000000000000000001'"),
        LAYER_IMAGE("'chain-000000000000000000000000000000000000000000000000000000000000001'"),
        LAYER_IMAGE("'layer-0000000000000000000000000000000000000000000000000000000000000001'"),
        LAYER_IMAGE("'0000000000000000000000000000000000000000000000000000000000000001'"),
        /* incidents: what and when belong together */
        VOLUME "UPDATE volumes SET incident = 'it fell'",
        VOLUME "UPDATE volumes SET incident_ns = 1",
        /* jobs: states with their times and codes, one per object */
        "INSERT INTO jobs (id, kind, uid, params, state, created_ns)"
        " VALUES ('j', 'k', 0, '{}', 'done', 1)",
        "INSERT INTO jobs (id, kind, uid, params, state, created_ns, finished_ns)"
        " VALUES ('j', 'k', 0, '{}', 'running', 1, 1)",
        "INSERT INTO jobs (id, kind, uid, params, state, created_ns, finished_ns)"
        " VALUES ('j', 'k', 0, '{}', 'failed', 1, 1)",
        "INSERT INTO jobs (id, kind, object, uid, params, state, created_ns) VALUES"
        " ('j', 'k', 'o', 0, '{}', 'queued', 1), ('i', 'k', 'o', 0, '{}', 'running', 1)",
        "INSERT INTO jobs (id, kind, key, uid, params, state, created_ns) VALUES"
        " ('j', 'k', 'x', 0, '{}', 'queued', 1), ('i', 'k', 'x', 0, '{}', 'queued', 1)",
    };
    for (size_t i = 0; i < ARRAY_SIZE(statements); i++) {
        assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
        struct err err = ERR_INIT;
        int rc = catalog_stmt_exec(fixture->catalog, statements[i], &err);
        if (rc == 0)
            fail_msg("accepted: %s", statements[i]);
        if (!strstr(err.text, "constraint failed") && !strstr(err.text, "cannot store TEXT"))
            fail_msg("%s: %s", statements[i], err.text);
        catalog_rollback(fixture->catalog);
    }
}

static void test_rows_that_later_parts_need_are_accepted(void **state)
{
    struct fixture *fixture = *state;
    static const char *const statements[] = {
        /* a paused run and a pushed snapshot can do without their image here */
        "INSERT INTO runs (id, state, state_ns, image, upper, created_ns)"
        " VALUES ('r', 'paused', 1, " D ", 'plain', 1)",
        "INSERT INTO snapshots (id, image, repository, tag, labels, skipped, durability, remote,"
        " bytes_new, bytes_total, entries, created_ns)"
        " VALUES ('s', " D ", 'r', 't', '{}', '[]', 'pushed', 'oci:/r', 1, 1, 1, 1)",
        VOLUME "INSERT INTO mounts (volume, checkpoint, path, read_only, state, created_ns)"
               " VALUES ('v', NULL, '/a', 0, 'mounted', 1), ('v', 'c', '/b', 1, 'mounted', 1),"
               " ('v', 'c', '/c', 1, 'mounted', 1)",
        LAYER_IMAGE("'diff-000000000000000000000000000000000000000000000000000000000000000f'"),
        LAYER_IMAGE("'chain-000000000000000000000000000000000000000000000000000000000000000f'"),
        /* the same key of two users; a new job for an object whose last one has ended */
        "INSERT INTO jobs (id, kind, object, key, uid, params, state, created_ns, finished_ns)"
        " VALUES ('j', 'k', 'o', 'x', 0, '{}', 'done', 1, 2),"
        " ('i', 'k', 'o', 'x', 1, '{}', 'queued', 1, NULL)",
    };
    for (size_t i = 0; i < ARRAY_SIZE(statements); i++) {
        struct err err = ERR_INIT;
        if (catalog_stmt_exec(fixture->catalog, statements[i], &err) < 0)
            fail_msg("%s: %s", statements[i], err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch_only(test_steps_follow_each_other),
        with_scratch_only(test_a_new_file_takes_all_steps_at_once),
        with_scratch_only(test_an_older_program_refuses),
        with_scratch_only(test_a_step_that_fails_leaves_the_version_before),
        with_scratch_only(test_steps_before_the_one_that_fails_stay),
        with_scratch_only(test_a_step_that_breaks_references_is_undone),
        with_scratch_only(test_a_kill_leaves_whole_steps),
        with_scratch_only(test_version_1_is_upgraded_with_its_data),
        with_scratch_only(test_an_upgrade_survives_a_kill),
        with_scratch_only(test_version_2_is_upgraded_with_its_data),
        with_scratch_only(test_version_5_is_upgraded_with_its_jobs),
        with_fixture(test_every_table_is_strict),
        with_fixture(test_every_reference_is_sound),
        with_fixture(test_every_reference_has_an_index),
        with_fixture(test_bad_rows_are_refused),
        with_fixture(test_rows_that_later_parts_need_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
