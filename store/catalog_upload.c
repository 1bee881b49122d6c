#include "catalog_upload.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

void catalog_upload_free(struct catalog_upload *upload)
{
    free(upload->location);
    *upload = (struct catalog_upload){.location = NULL};
}

/* Records before this time are forgotten. One of a time to come, as the clock was put back, stays.
 */
static int64_t oldest(const struct catalog *catalog)
{
    return catalog_now(catalog) - CATALOG_UPLOAD_AGE_S * CLOCK_NS_PER_S;
}

int catalog_upload_get(struct catalog *catalog, const struct catalog_upload_key *key,
                       struct catalog_upload *ret, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    cleanup_catalog_upload struct catalog_upload upload = {.location = NULL};
    catalog_scope_read(catalog, &scope);
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                "SELECT location, offset, size FROM uploads WHERE remote = ?"
                                " AND repository = ? AND digest = ? AND updated_ns >= ?",
                                "sssi", key->remote, key->repository, key->digest, oldest(catalog));
    if (rc == 0)
        rc = catalog_stmt_step(&stmt, err);
    if (rc <= 0)
        return rc;
    rc = catalog_stmt_read(&stmt, err, "sii", &upload.location, &upload.offset, &upload.size);
    if (rc < 0)
        return rc;
    *ret = upload;
    upload = (struct catalog_upload){.location = NULL};
    return 1;
}

static int forget_old(struct catalog *catalog, struct err *err)
{
    return catalog_stmt_run(catalog, err, "DELETE FROM uploads WHERE updated_ns < ?", "i",
                            oldest(catalog));
}

int catalog_upload_sweep(struct catalog *catalog, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = forget_old(catalog, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_upload_put(struct catalog *catalog, const struct catalog_upload_key *key,
                       const struct catalog_upload *upload, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = forget_old(catalog, err);
    if (rc >= 0)
        rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO uploads (remote, repository, digest, location, offset,"
                              " size, updated_ns) VALUES (?, ?, ?, ?, ?, ?, ?)"
                              " ON CONFLICT (remote, repository, digest) DO UPDATE SET"
                              " location = excluded.location, offset = excluded.offset,"
                              " size = excluded.size, updated_ns = excluded.updated_ns",
                              "ssssiii", key->remote, key->repository, key->digest,
                              upload->location, upload->offset, upload->size, catalog_now(catalog));
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_upload_remove(struct catalog *catalog, const struct catalog_upload_key *key,
                          struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = forget_old(catalog, err);
    if (rc >= 0)
        rc = catalog_stmt_run(
            catalog, err, "DELETE FROM uploads WHERE remote = ? AND repository = ? AND digest = ?",
            "sss", key->remote, key->repository, key->digest);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
