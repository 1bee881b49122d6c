#include "catalog_image.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

#include <string.h>

static void free_layer(void *record)
{
    struct catalog_layer *layer = record;
    free(layer->digest);
    free(layer->media_type);
    free(layer->diff_id);
    free(layer->chain_id);
    *layer = (struct catalog_layer){0};
}

void catalog_image_free(struct catalog_image *image)
{
    free(image->digest);
    free(image->media_type);
    free(image->config_digest);
    free(image->platform);
    free(image->origin);
    for (size_t i = 0; i < image->layer_count; i++)
        free_layer(&image->layers[i]);
    free(image->layers);
    for (size_t i = 0; i < image->name_count; i++)
        free(image->names[i]);
    free(image->names);
    *image = (struct catalog_image){0};
}

static void free_image(void *record)
{
    catalog_image_free(record);
}

static int fail_missing(const char *digest, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "there is no image %s here", digest);
    err_hint(err, "`varve image ls` lists the images of this node");
    return rc;
}

/* Reading */

static int read_layer(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_layer *layer = ret;
    return catalog_stmt_read(stmt, err, "ssiss", &layer->digest, &layer->media_type, &layer->size,
                             &layer->diff_id, &layer->chain_id);
}

static const struct catalog_rows layer_rows = {sizeof(struct catalog_layer), read_layer,
                                               free_layer};

static int read_layers(struct catalog *catalog, int64_t id, struct catalog_image *ret,
                       struct err *err)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                "SELECT digest, media_type, size, diff_id, chain_id"
                                " FROM image_layers JOIN layers ON layers.id = layer"
                                " WHERE image = ? ORDER BY position",
                                "i", id);
    void *layers = NULL;
    if (rc == 0)
        rc = catalog_stmt_records(&stmt, &layer_rows, &layers, &ret->layer_count, err);
    if (rc == 0)
        ret->layers = layers;
    return rc;
}

static int read_name(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    return catalog_stmt_read(stmt, err, "s", (char **)ret);
}

static void free_name(void *record)
{
    free(*(char **)record);
}

static const struct catalog_rows name_rows = {sizeof(char *), read_name, free_name};

static int read_names(struct catalog *catalog, int64_t id, struct catalog_image *ret,
                      struct err *err)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    int rc = catalog_stmt_begin(
        catalog, &stmt, err, "SELECT name FROM image_names WHERE image = ? ORDER BY name", "i", id);
    void *names = NULL;
    if (rc == 0)
        rc = catalog_stmt_records(&stmt, &name_rows, &names, &ret->name_count, err);
    if (rc == 0)
        ret->names = names;
    return rc;
}

#define IMAGE_COLUMNS                                                                              \
    "id, digest, media_type, size, config_digest, config_size, platform, origin, created_ns"

static int read_image(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_image *image = ret;
    int64_t id;
    int rc = catalog_stmt_read(stmt, err, "issisissi", &id, &image->digest, &image->media_type,
                               &image->size, &image->config_digest, &image->config_size,
                               &image->platform, &image->origin, &image->created_ns);
    if (rc == 0)
        rc = read_layers(stmt->catalog, id, image, err);
    if (rc == 0)
        rc = read_names(stmt->catalog, id, image, err);
    return rc;
}

static const struct catalog_rows image_rows = {sizeof(struct catalog_image), read_image,
                                               free_image};

int catalog_image_get(struct catalog *catalog, const char *digest, struct catalog_image *ret,
                      struct err *err)
{
    int rc =
        catalog_stmt_get(catalog, &image_rows,
                         "SELECT " IMAGE_COLUMNS " FROM images WHERE digest = ?", digest, ret, err);
    return rc == 0 ? fail_missing(digest, err) : rc < 0 ? rc : 0;
}

int catalog_image_list(struct catalog *catalog, struct catalog_image **ret, size_t *ret_count,
                       struct err *err)
{
    return catalog_stmt_list(catalog, &image_rows,
                             "SELECT " IMAGE_COLUMNS
                             " FROM images ORDER BY created_ns DESC, id DESC",
                             ret, ret_count, err);
}

/* Adding */

static int put_layer(struct catalog *catalog, int64_t image, int64_t position,
                     const struct catalog_layer *layer, struct err *err)
{
    int rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO layers (digest, media_type, size, diff_id, chain_id)"
                              " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                              "ssiss", layer->digest, layer->media_type, layer->size,
                              layer->diff_id, layer->chain_id);
    if (rc >= 0)
        rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO image_layers (image, position, layer)"
                              " SELECT ?, ?, id FROM layers WHERE digest = ? AND media_type = ?"
                              " AND size = ? AND diff_id = ? AND chain_id = ?",
                              "iississ", image, position, layer->digest, layer->media_type,
                              layer->size, layer->diff_id, layer->chain_id);
    if (rc == 0)
        return err_fail(err, ERR_DAMAGED,
                        "the layer %s is known with another size or content digest than %lld bytes "
                        "and %s",
                        layer->digest, (long long)layer->size, layer->diff_id);
    return rc < 0 ? rc : 0;
}

static int put_image(struct catalog *catalog, const struct catalog_image *image, struct err *err)
{
    int64_t created_ns = image->created_ns ? image->created_ns : catalog_now(catalog);
    int rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO images (digest, media_type, size, config_digest,"
                              " config_size, platform, origin, created_ns)"
                              " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
                              " ON CONFLICT (digest) DO NOTHING",
                              "ssisissi", image->digest, image->media_type, image->size,
                              image->config_digest, image->config_size, image->platform,
                              image->origin, created_ns);
    if (rc <= 0)
        return rc;
    int64_t id = sqlite3_last_insert_rowid(catalog->db);
    for (size_t i = 0; i < image->layer_count; i++) {
        rc = put_layer(catalog, id, (int64_t)i, &image->layers[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int catalog_image_put(struct catalog *catalog, const struct catalog_image *image, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = put_image(catalog, image, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

/* Names */

static int find_image(struct catalog *catalog, const char *digest, int64_t *ret, struct err *err)
{
    int rc =
        catalog_stmt_int(catalog, ret, err, "SELECT id FROM images WHERE digest = ?", "s", digest);
    if (rc < 0)
        return rc;
    return rc == 1 ? 0 : fail_missing(digest, err);
}

/* The digest behind a name: 1, 0 when there is no such name, or -errno. */
static int find_name(struct catalog *catalog, const char *name, char **ret, struct err *err)
{
    return catalog_stmt_text(catalog, ret, err,
                             "SELECT digest FROM image_names JOIN images ON images.id = image"
                             " WHERE name = ?",
                             "s", name);
}

static int fail_name_missing(const char *name, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "no image is named %s here", name);
    err_hint(err, "`varve image ls` lists the images of this node");
    return rc;
}

static int set_name(struct catalog *catalog, const char *name, const char *digest, bool replace,
                    struct err *err)
{
    int64_t image = 0;
    int rc = find_image(catalog, digest, &image, err);
    if (rc < 0)
        return rc;
    cleanup_free char *old = NULL;
    rc = find_name(catalog, name, &old, err);
    if (rc < 0 || (rc == 1 && strcmp(old, digest) == 0))
        return rc < 0 ? rc : 0;
    if (rc == 1 && !replace) {
        rc = err_fail(err, ERR_EXISTS, "the name %s belongs to the image %s already", name, old);
        err_hint(err, "choose another name, or remove that one with `varve image rm %s`", name);
        return rc;
    }
    rc = catalog_stmt_run(catalog, err,
                          "INSERT INTO image_names (name, image, set_ns) VALUES (?, ?, ?)"
                          " ON CONFLICT (name) DO UPDATE"
                          " SET image = excluded.image, set_ns = excluded.set_ns",
                          "sii", name, image, catalog_now(catalog));
    return rc < 0 ? rc : 0;
}

int catalog_image_name_set(struct catalog *catalog, const char *name, const char *digest,
                           bool replace, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = set_name(catalog, name, digest, replace, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_image_name_get(struct catalog *catalog, const char *name, char **ret_digest,
                           struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    int rc = find_name(catalog, name, ret_digest, err);
    if (rc < 0)
        return rc;
    return rc == 1 ? 0 : fail_name_missing(name, err);
}

int catalog_image_name_remove(struct catalog *catalog, const char *name, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "DELETE FROM image_names WHERE name = ?", "s", name);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return fail_name_missing(name, err);
    return catalog_scope_commit(&scope, err);
}

/* Removing */

static int check_runs(struct catalog *catalog, const char *digest, struct err *err)
{
    cleanup_free char *run = NULL;
    int rc = catalog_stmt_text(catalog, &run, err,
                               "SELECT id FROM runs WHERE image_needed = ? ORDER BY seq LIMIT 1",
                               "s", digest);
    if (rc != 1)
        return rc;
    rc = err_fail(err, ERR_CONFLICT, "the image %s is in use by the run %s", digest, run);
    err_hint(err, "remove the run first: `varve run rm %s`", run);
    return rc;
}

static int check_snapshots(struct catalog *catalog, const char *digest, struct err *err)
{
    cleanup_free char *snapshot = NULL;
    int rc = catalog_stmt_text(
        catalog, &snapshot, err,
        "SELECT id FROM snapshots WHERE image_needed = ? ORDER BY seq LIMIT 1", "s", digest);
    if (rc != 1)
        return rc;
    rc = err_fail(err, ERR_CONFLICT, "the image %s is the only copy of the snapshot %s", digest,
                  snapshot);
    err_hint(err,
             "push the snapshot (`varve snapshot push %s`) or remove it (`varve snapshot rm "
             "%s`)",
             snapshot, snapshot);
    return rc;
}

/* After the image's rows are gone: what no other image names is queued. */
static int queue_bytes(struct catalog *catalog, const struct catalog_image *image, struct err *err)
{
    int rc = catalog_key_queue_unnamed(catalog, "blob:", image->digest, err);
    if (rc == 0)
        rc = catalog_key_queue_unnamed(catalog, "blob:", image->config_digest, err);
    for (size_t i = 0; rc == 0 && i < image->layer_count; i++) {
        rc = catalog_key_queue_unnamed(catalog, "blob:", image->layers[i].digest, err);
        if (rc == 0)
            rc = catalog_key_queue_unnamed(catalog, "layer:", image->layers[i].chain_id, err);
        if (rc == 0)
            rc = catalog_key_queue_unnamed(catalog, "diff:", image->layers[i].diff_id, err);
    }
    return rc;
}

static int remove_rows(struct catalog *catalog, const struct catalog_image *image, struct err *err)
{
    int rc =
        catalog_stmt_run(catalog, err, "DELETE FROM images WHERE digest = ?", "s", image->digest);
    for (size_t i = 0; rc >= 0 && i < image->layer_count; i++)
        rc = catalog_stmt_run(catalog, err,
                              "DELETE FROM layers WHERE digest = ? AND NOT EXISTS"
                              " (SELECT 1 FROM image_layers WHERE layer = layers.id)",
                              "s", image->layers[i].digest);
    for (size_t i = 0; rc >= 0 && i < image->layer_count; i++)
        rc = catalog_stmt_run(catalog, err,
                              "DELETE FROM blob_places WHERE digest = ?1 AND NOT EXISTS"
                              " (SELECT 1 FROM layers WHERE digest = ?1)",
                              "s", image->layers[i].digest);
    for (size_t i = 0; rc >= 0 && i < image->layer_count; i++)
        rc = catalog_stmt_run(catalog, err,
                              "DELETE FROM uploads WHERE digest = ?1 AND NOT EXISTS"
                              " (SELECT 1 FROM layers WHERE digest = ?1)",
                              "s", image->layers[i].digest);
    return rc < 0 ? rc : 0;
}

static int remove_image(struct catalog *catalog, const char *digest, struct err *err)
{
    struct catalog_image image;
    int rc = catalog_image_get(catalog, digest, &image, err);
    if (rc < 0)
        return rc;
    rc = check_runs(catalog, digest, err);
    if (rc == 0)
        rc = check_snapshots(catalog, digest, err);
    if (rc == 0)
        rc = remove_rows(catalog, &image, err);
    if (rc == 0)
        rc = queue_bytes(catalog, &image, err);
    catalog_image_free(&image);
    return rc;
}

int catalog_image_remove(struct catalog *catalog, const char *digest, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = remove_image(catalog, digest, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
