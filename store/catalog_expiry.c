#include "catalog_expiry.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

int catalog_expiry_set(struct catalog *catalog, const char *volume, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int64_t now = catalog_now(catalog);
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc < 0)
        return rc;
    int count = catalog_stmt_run(
        catalog, err,
        "UPDATE checkpoints SET expires_ns = coalesce(expires_ns, ?) WHERE volume = ?", "is", now,
        volume);
    if (count < 0)
        return count;
    rc = catalog_scope_commit(&scope, err);
    return rc < 0 ? rc : count;
}

int catalog_expiry_clear(struct catalog *catalog, const char *volume, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(
            catalog, err, "UPDATE checkpoints SET expires_ns = NULL WHERE volume = ?", "s", volume);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static void free_expired(void *record)
{
    struct catalog_expired *expired = record;
    free(expired->volume);
    free(expired->lineage);
}

void catalog_expired_free_list(struct catalog_expired *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free_expired(&list[i]);
    free(list);
}

static int read_expired(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_expired *expired = ret;
    return catalog_stmt_read(stmt, err, "ss", &expired->volume, &expired->lineage);
}

static const struct catalog_rows expired_rows = {sizeof(struct catalog_expired), read_expired,
                                                 free_expired};

int catalog_expiry_list(struct catalog *catalog, const char *remote, struct catalog_expired **ret,
                        size_t *ret_count, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    void *list = NULL;
    catalog_scope_read(catalog, &scope);
    int rc = catalog_stmt_begin(
        catalog, &stmt, err,
        "SELECT DISTINCT volume, lineage FROM checkpoints AS c WHERE expires_ns IS NOT NULL"
        " AND expires_ns <= ? AND remote = ?"
        " AND NOT EXISTS (SELECT 1 FROM volumes AS v WHERE v.id = c.volume) ORDER BY volume",
        "is", catalog_now(catalog), remote);
    if (rc == 0)
        rc = catalog_stmt_records(&stmt, &expired_rows, &list, ret_count, err);
    if (rc == 0)
        *ret = list;
    return rc;
}

int catalog_expiry_done(struct catalog *catalog, const char *volume, const char *remote,
                        struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "DELETE FROM checkpoints WHERE volume = ? AND remote = ?"
                              " AND expires_ns IS NOT NULL"
                              " AND NOT EXISTS (SELECT 1 FROM volumes WHERE head = digest)",
                              "ss", volume, remote);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
