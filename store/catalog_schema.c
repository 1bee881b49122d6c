#include "catalog_internal.h"
#include "catalog_stmt.h"

#include <stdio.h>

/* A step is never changed once a release has it; the next version gets a step of its own. */
const struct catalog_schema_step catalog_schema_steps[CATALOG_SCHEMA_VERSION] = {
    {.statements = catalog_schema_v1}, {.statements = catalog_schema_v2},
    {.statements = catalog_schema_v3}, {.statements = catalog_schema_v4},
    {.statements = catalog_schema_v5}, {.statements = catalog_schema_v6},
    {.statements = catalog_schema_v7}, {.statements = catalog_schema_v8},
    {.statements = catalog_schema_v9},
};

static int refuse_foreign(const struct catalog *catalog, struct err *err)
{
    int rc = err_fail(err, ERR_INVALID, "%s is the database of another program, not a catalog",
                      catalog->path);
    err_hint(err, "give varved a data directory of its own, or move the file away");
    return rc;
}

static int refuse_newer(const struct catalog *catalog, int64_t version, size_t count,
                        struct err *err)
{
    int rc = err_fail(err, ERR_TOO_NEW,
                      "the catalog %s has schema version %lld, this program knows versions up to "
                      "%zu",
                      catalog->path, (long long)version, count);
    err_hint(err,
             "start the varved that wrote it, or a newer one; an older one would lose records");
    return rc;
}

/* The version of the database; 0 for a new one. */
static int read_version(struct catalog *catalog, size_t count, int64_t *ret, struct err *err)
{
    int64_t application;
    int64_t version;
    int64_t tables;
    int rc = catalog_stmt_int(catalog, &application, err, "PRAGMA application_id", "");
    if (rc >= 0)
        rc = catalog_stmt_int(catalog, &version, err, "PRAGMA user_version", "");
    if (rc >= 0)
        rc = catalog_stmt_int(catalog, &tables, err, "SELECT count(*) FROM sqlite_schema", "");
    if (rc < 0)
        return rc;
    bool is_new = application == 0 && version == 0 && tables == 0;
    if (!is_new && application != CATALOG_APPLICATION_ID)
        return refuse_foreign(catalog, err);
    if (!is_new && version <= 0)
        return catalog_stmt_damaged(catalog, "it has no schema version", err);
    if (version > (int64_t)count)
        return refuse_newer(catalog, version, count, err);
    *ret = version;
    return 0;
}

int catalog_schema_check(struct catalog *catalog, size_t count, struct err *err)
{
    int64_t version;
    return read_version(catalog, count, &version, err);
}

/* Rows that refer to nothing are looked for here, as the references are not enforced during a
 * step: one that rebuilds a table has to drop what others refer to. */
static int check_references(struct catalog *catalog, struct err *err)
{
    cleanup_free char *table = NULL;
    int rc = catalog_stmt_text(catalog, &table, err, "PRAGMA foreign_key_check", "");
    if (rc == 1)
        return err_fail(err, ERR_DAMAGED, "a row of the table '%s' refers to a row that is missing",
                        table);
    return rc;
}

static int run_statements(struct catalog *catalog, const char *const *statements, struct err *err)
{
    for (; *statements; statements++) {
        int rc = catalog_stmt_exec(catalog, *statements, err);
        if (rc < 0)
            return rc;
    }
    return check_references(catalog, err);
}

static int set_version(struct catalog *catalog, int64_t version, struct err *err)
{
    char sql[128];
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %lld",
             CATALOG_APPLICATION_ID, (long long)version);
    return catalog_stmt_exec(catalog, sql, err);
}

/* Takes one step. 1 when it was taken, 0 when none was left. */
static int take_step(struct catalog *catalog, const struct catalog_schema_step *steps, size_t count,
                     struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int64_t version = 0;
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = read_version(catalog, count, &version, err);
    if (rc < 0 || version == (int64_t)count)
        return rc;
    rc = run_statements(catalog, steps[version].statements, err);
    if (rc == 0)
        rc = set_version(catalog, version + 1, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot bring the catalog %s from schema version %lld to %lld",
                        catalog->path, (long long)version, (long long)version + 1);
    rc = catalog_scope_commit(&scope, err);
    return rc < 0 ? rc : 1;
}

int catalog_schema_migrate(struct catalog *catalog, const struct catalog_schema_step *steps,
                           size_t count, struct err *err)
{
    /* The pragma has no effect inside a transaction. */
    int rc = catalog_stmt_exec(catalog, "PRAGMA foreign_keys = OFF", err);
    if (rc < 0)
        return rc;
    do
        rc = take_step(catalog, steps, count, err);
    while (rc == 1);
    if (rc == 0)
        rc = catalog_stmt_exec(catalog, "PRAGMA foreign_keys = ON", err);
    return rc;
}
