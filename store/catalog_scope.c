#include "catalog_internal.h"
#include "catalog_stmt.h"
#include "fault.h"

static void lock(struct catalog *catalog)
{
    pthread_mutex_lock(&catalog->lock);
}

static void unlock(struct catalog *catalog)
{
    pthread_mutex_unlock(&catalog->lock);
}

int catalog_scope_check_alive(struct catalog *catalog, struct err *err)
{
    if (catalog->depth > 0 && sqlite3_get_autocommit(catalog->db))
        return err_fail(err, ERR_INTERNAL,
                        "the transaction on the catalog %s was ended by an earlier failure",
                        catalog->path);
    return 0;
}

/* Whether commits sync the log. Only between transactions. Syncing less is never assumed to have
 * worked, so it is asked for before each. */
static int set_lazy(struct catalog *catalog, bool lazy, struct err *err)
{
    if (catalog->lazy == lazy)
        return 0;
    int rc = catalog_stmt_exec(
        catalog, lazy ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL", err);
    if (rc == 0)
        catalog->lazy = lazy;
    return rc;
}

/* Opens the next scope; the lock is held on success. */
static int open_scope(struct catalog *catalog, bool lazy, struct err *err)
{
    lock(catalog);
    int rc = catalog_scope_check_alive(catalog, err);
    if (rc == 0 && catalog->depth == 0)
        rc = set_lazy(catalog, lazy, err);
    /* IMMEDIATE takes the write lock at once: a transaction that began as a reader could find
     * itself unable to write in its middle. */
    if (rc == 0)
        rc = catalog_stmt_exec(catalog, catalog->depth == 0 ? "BEGIN IMMEDIATE" : "SAVEPOINT scope",
                               err);
    if (rc < 0) {
        unlock(catalog);
        return rc;
    }
    catalog->depth++;
    return 0;
}

static void undo_scope(struct catalog *catalog)
{
    /* sqlite has ended the transaction itself after some failures; then there is none to end. */
    if (!sqlite3_get_autocommit(catalog->db)) {
        const char *sql = catalog->depth == 1 ? "ROLLBACK" : "ROLLBACK TO scope; RELEASE scope";
        (void)catalog_stmt_exec(catalog, sql, NULL);
    }
    catalog->depth--;
    unlock(catalog);
}

static int commit_transaction(struct catalog *catalog, struct err *err)
{
    int rc = FAULT_POINT("catalog.before-commit", err);
    if (rc == 0)
        rc = catalog_stmt_exec(catalog, "COMMIT", err);
    if (rc < 0) {
        undo_scope(catalog);
        return rc;
    }
    catalog->depth--;
    unlock(catalog);
    return FAULT_POINT("catalog.after-commit", err);
}

static int close_scope(struct catalog *catalog, struct err *err)
{
    if (catalog->depth == 1)
        return commit_transaction(catalog, err);
    int rc = catalog_stmt_exec(catalog, "RELEASE scope", err);
    if (rc < 0) {
        undo_scope(catalog);
        return rc;
    }
    catalog->depth--;
    unlock(catalog);
    return 0;
}

int catalog_scope_begin(struct catalog *catalog, struct catalog_scope *ret, struct err *err)
{
    int rc = open_scope(catalog, false, err);
    if (rc == 0)
        *ret = (struct catalog_scope){.catalog = catalog};
    return rc;
}

int catalog_scope_begin_lazy(struct catalog *catalog, struct catalog_scope *ret, struct err *err)
{
    int rc = open_scope(catalog, true, err);
    if (rc == 0)
        *ret = (struct catalog_scope){.catalog = catalog};
    return rc;
}

void catalog_scope_read(struct catalog *catalog, struct catalog_scope *ret)
{
    lock(catalog);
    *ret = (struct catalog_scope){.catalog = catalog, .reads = true};
}

int catalog_scope_commit(struct catalog_scope *scope, struct err *err)
{
    struct catalog *catalog = steal_ptr(scope->catalog);
    return close_scope(catalog, err);
}

void catalog_scope_end(struct catalog_scope *scope)
{
    struct catalog *catalog = steal_ptr(scope->catalog);
    if (!catalog)
        return;
    if (scope->reads)
        unlock(catalog);
    else
        undo_scope(catalog);
}

int catalog_scope_check_open(struct catalog *catalog, struct err *err)
{
    int rc = 0;
    lock(catalog);
    if (catalog->depth == 0)
        rc = err_fail(err, ERR_INTERNAL, "no transaction is open on the catalog %s", catalog->path);
    unlock(catalog);
    return rc;
}

static int begin(struct catalog *catalog, bool lazy, struct err *err)
{
    lock(catalog);
    int rc = 0;
    if (catalog->depth > 0)
        rc = err_fail(err, ERR_INTERNAL, "this thread has a transaction on the catalog %s already",
                      catalog->path);
    if (rc == 0)
        rc = open_scope(catalog, lazy, err);
    unlock(catalog);
    return rc;
}

int catalog_begin(struct catalog *catalog, struct err *err)
{
    return begin(catalog, false, err);
}

int catalog_begin_lazy(struct catalog *catalog, struct err *err)
{
    return begin(catalog, true, err);
}

int catalog_commit(struct catalog *catalog, struct err *err)
{
    int rc = catalog_scope_check_open(catalog, err);
    return rc < 0 ? rc : close_scope(catalog, err);
}

void catalog_rollback(struct catalog *catalog)
{
    /* The lock is held by whoever has a transaction open, so one that is seen here is ours. */
    lock(catalog);
    if (catalog->depth > 0)
        undo_scope(catalog);
    unlock(catalog);
}

int catalog_end(struct catalog *catalog, int rc, struct err *err)
{
    if (rc < 0) {
        catalog_rollback(catalog);
        return rc;
    }
    int committed = catalog_commit(catalog, err);
    return committed < 0 ? committed : rc;
}
