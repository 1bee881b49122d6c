#include "catalog_place.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

static int add_places(struct catalog *catalog, const char *host, const char *repository,
                      const struct catalog_image *image, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < image->layer_count; i++)
        rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO blob_places (digest, host, repository, seen_ns)"
                              " VALUES (?, ?, ?, ?) ON CONFLICT (digest, host, repository)"
                              " DO UPDATE SET seen_ns = excluded.seen_ns",
                              "sssi", image->layers[i].digest, host, repository,
                              catalog_now(catalog));
    return rc < 0 ? rc : 0;
}

int catalog_place_add_image(struct catalog *catalog, const char *host, const char *repository,
                            const struct catalog_image *image, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    if (host[0] == '\0')
        return 0;
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = add_places(catalog, host, repository, image, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static int read_place(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    return catalog_stmt_read(stmt, err, "s", (char **)ret);
}

static void free_place(void *record)
{
    free(*(char **)record);
}

static const struct catalog_rows place_rows = {sizeof(char *), read_place, free_place};

int catalog_place_list(struct catalog *catalog, const char *host, const char *digest,
                       const char *but, size_t max, char ***ret, size_t *ret_count, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    void *list = NULL;
    catalog_scope_read(catalog, &scope);
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                "SELECT repository FROM blob_places WHERE digest = ? AND host = ?"
                                " AND repository <> ? ORDER BY seen_ns DESC, repository LIMIT ?",
                                "sssi", digest, host, but, (int64_t)max);
    if (rc == 0)
        rc = catalog_stmt_records(&stmt, &place_rows, &list, ret_count, err);
    if (rc == 0)
        *ret = list;
    return rc;
}

void catalog_place_free_list(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i]);
    free(list);
}

int catalog_place_remove(struct catalog *catalog, const char *host, const char *repository,
                         const char *digest, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(
            catalog, err,
            "DELETE FROM blob_places WHERE digest = ? AND host = ? AND repository = ?", "sss",
            digest, host, repository);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
