#include "catalog_layer.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"
#include "digest.h"

#include <string.h>

static int check_key(const char *key, struct err *err)
{
    static const char *const prefixes[] = {"diff-", "chain-"};
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        struct digest digest;
        size_t len = strlen(prefixes[i]);
        if (strncmp(key, prefixes[i], len) == 0 && digest_parse_hex(key + len, &digest, NULL) == 0)
            return 0;
    }
    return err_fail(err, ERR_INVALID, "'%.100s' is no key of a layer image", key);
}

void catalog_layer_image_free(struct catalog_layer_image *image)
{
    free(image->key);
    free(image->dropped_first);
    *image = (struct catalog_layer_image){0};
}

static void free_row(void *record)
{
    catalog_layer_image_free(record);
}

static int read_row(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_layer_image *image = ret;
    return catalog_stmt_read(stmt, err, "siiisii", &image->key, &image->bytes, &image->entries,
                             &image->dropped, &image->dropped_first, &image->created_ns,
                             &image->used_ns);
}

static const struct catalog_rows rows = {sizeof(struct catalog_layer_image), read_row, free_row};

#define COLUMNS "key, bytes, entries, dropped, dropped_first, created_ns, used_ns"

static int put_row(struct catalog *catalog, const struct catalog_layer_image *image,
                   struct err *err)
{
    int64_t now = catalog_now(catalog);
    int rc = catalog_stmt_run(
        catalog, err,
        "INSERT OR REPLACE INTO layer_images (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?)", "siiisii",
        image->key, image->bytes, image->entries, image->dropped,
        image->dropped_first ? image->dropped_first : "",
        image->created_ns ? image->created_ns : now, image->used_ns ? image->used_ns : now);
    return rc < 0 ? rc : 0;
}

int catalog_layer_put(struct catalog *catalog, const struct catalog_layer_image *image,
                      struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = check_key(image->key, err);
    if (rc == 0)
        rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = put_row(catalog, image, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

/* Whether one of the images was last used before `limit`: 1, 0 or -errno. */
static int any_older(struct catalog *catalog, const char *const *keys, size_t count, int64_t limit,
                     struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = catalog_stmt_exists(catalog, err,
                                 "SELECT 1 FROM layer_images WHERE key = ? AND used_ns <= ?", "si",
                                 keys[i], limit);
    return rc;
}

int catalog_layer_touch(struct catalog *catalog, const char *const *keys, size_t count,
                        struct err *err)
{
    int64_t now = catalog_now(catalog);
    int rc = any_older(catalog, keys, count, now - CATALOG_LAYER_TOUCH_S * CLOCK_NS_PER_S, err);
    if (rc <= 0)
        return rc;
    cleanup_catalog_scope struct catalog_scope scope = {0};
    rc = catalog_scope_begin_lazy(catalog, &scope, err);
    for (size_t i = 0; rc >= 0 && i < count; i++)
        rc = catalog_stmt_run(
            catalog, err, "UPDATE layer_images SET used_ns = ?1 WHERE key = ?2 AND used_ns < ?1",
            "is", now, keys[i]);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_layer_get(struct catalog *catalog, const char *key, struct catalog_layer_image *ret,
                      struct err *err)
{
    int rc = catalog_stmt_get(catalog, &rows, "SELECT " COLUMNS " FROM layer_images WHERE key = ?",
                              key, ret, err);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no layer image %.100s here", key);
    return rc < 0 ? rc : 0;
}

int catalog_layer_list(struct catalog *catalog, struct catalog_layer_image **ret, size_t *ret_count,
                       struct err *err)
{
    return catalog_stmt_list(catalog, &rows,
                             "SELECT " COLUMNS " FROM layer_images ORDER BY used_ns, key", ret,
                             ret_count, err);
}

int catalog_layer_remove(struct catalog *catalog, const char *key, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "DELETE FROM layer_images WHERE key = ?", "s", key);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
