#include "catalog_leftover.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

static int read_leftover(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_leftover *leftover = ret;
    return catalog_stmt_read(stmt, err, "si", &leftover->digest, &leftover->age_ns);
}

static void free_leftover(void *record)
{
    struct catalog_leftover *leftover = record;
    free(leftover->digest);
}

static const struct catalog_rows leftover_rows = {sizeof(struct catalog_leftover), read_leftover,
                                                  free_leftover};

void catalog_leftover_free_list(struct catalog_leftover *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free_leftover(&list[i]);
    free(list);
}

int catalog_leftover_add(struct catalog *catalog, const char *remote, const char *repository,
                         const char *digest, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO remote_leftovers (remote, repository, digest, since_ns)"
                              " VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                              "sssi", remote, repository, digest, catalog_now(catalog));
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_leftover_list(struct catalog *catalog, const char *remote, const char *repository,
                          size_t max, struct catalog_leftover **ret, size_t *ret_count,
                          struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    void *list = NULL;
    catalog_scope_read(catalog, &scope);
    int rc = catalog_stmt_begin(
        catalog, &stmt, err,
        "SELECT digest, ? - since_ns FROM remote_leftovers AS l WHERE remote = ?"
        " AND repository = ? AND NOT EXISTS (SELECT 1 FROM snapshots AS s WHERE s.image = l.digest"
        " AND s.remote = l.remote AND s.repository = l.repository)"
        " ORDER BY since_ns, digest LIMIT ?",
        "issi", catalog_now(catalog), remote, repository, (int64_t)max);
    if (rc == 0)
        rc = catalog_stmt_records(&stmt, &leftover_rows, &list, ret_count, err);
    if (rc == 0)
        *ret = list;
    return rc;
}

int catalog_leftover_remove(struct catalog *catalog, const char *remote, const char *repository,
                            const char *digest, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(
            catalog, err,
            "DELETE FROM remote_leftovers WHERE remote = ? AND repository = ? AND digest = ?",
            "sss", remote, repository, digest);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_leftover_renew(struct catalog *catalog, const char *remote, const char *repository,
                           const char *digest, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE remote_leftovers SET since_ns = ? WHERE remote = ?"
                              " AND repository = ? AND digest = ?",
                              "isss", catalog_now(catalog), remote, repository, digest);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
