#include "catalog_snapshot.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

#include <assert.h>
#include <string.h>

static const char *const level_names[] = {
    [CATALOG_LOCAL] = "local",
    [CATALOG_PUSHED] = "pushed",
    [CATALOG_VERIFIED] = "verified",
};
static const struct catalog_words levels = {"durability", level_names, ARRAY_SIZE(level_names)};

const char *catalog_durability_name(enum catalog_durability durability)
{
    assert(durability < ARRAY_SIZE(level_names));
    return level_names[durability];
}

void catalog_snapshot_free(struct catalog_snapshot *snapshot)
{
    free(snapshot->id);
    free(snapshot->run_id);
    free(snapshot->image);
    free(snapshot->repository);
    free(snapshot->tag);
    free(snapshot->base);
    free(snapshot->comment);
    free(snapshot->labels);
    free(snapshot->skipped);
    free(snapshot->remote);
    *snapshot = (struct catalog_snapshot){0};
}

static void free_snapshot(void *record)
{
    catalog_snapshot_free(record);
}

static int fail_missing(const char *id, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "there is no snapshot %s", id);
    err_hint(err, "`varve snapshot ls` lists the snapshots of this node");
    return rc;
}

#define SNAPSHOT_COLUMNS                                                                           \
    "id, run, image, repository, tag, base, comment, labels, skipped, durability, remote, "        \
    "bytes_new, bytes_total, entries, created_ns, expires_ns, lost_ns"

static int read_snapshot(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_snapshot *snapshot = ret;
    int level = 0;
    int rc = catalog_stmt_read(stmt, err, "ssssssssswsiiiitt", &snapshot->id, &snapshot->run_id,
                               &snapshot->image, &snapshot->repository, &snapshot->tag,
                               &snapshot->base, &snapshot->comment, &snapshot->labels,
                               &snapshot->skipped, &levels, &level, &snapshot->remote,
                               &snapshot->bytes_new, &snapshot->bytes_total, &snapshot->entries,
                               &snapshot->created_ns, &snapshot->expires_ns, &snapshot->lost_ns);
    snapshot->durability = (enum catalog_durability)level;
    return rc;
}

static const struct catalog_rows snapshot_rows = {sizeof(struct catalog_snapshot), read_snapshot,
                                                  free_snapshot};

/* A snapshot that is nowhere else needs its image here; the schema enforces it, this says it. */
static int check_image(struct catalog *catalog, const struct catalog_snapshot *snapshot,
                       struct err *err)
{
    if (snapshot->durability != CATALOG_LOCAL)
        return 0;
    int rc = catalog_stmt_exists(catalog, err, "SELECT 1 FROM images WHERE digest = ?", "s",
                                 snapshot->image);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "the image %s of the snapshot %s is not here",
                        snapshot->image, snapshot->id);
    return rc < 0 ? rc : 0;
}

static int add_snapshot(struct catalog *catalog, const struct catalog_snapshot *snapshot,
                        struct err *err)
{
    int rc = catalog_stmt_exists(catalog, err, "SELECT 1 FROM snapshots WHERE id = ?", "s",
                                 snapshot->id);
    if (rc == 1)
        return err_fail(err, ERR_EXISTS, "there is a snapshot %s already", snapshot->id);
    if (rc == 0)
        rc = check_image(catalog, snapshot, err);
    if (rc < 0)
        return rc;
    int64_t created_ns = snapshot->created_ns ? snapshot->created_ns : catalog_now(catalog);
    rc = catalog_stmt_run(catalog, err,
                          "INSERT INTO snapshots (" SNAPSHOT_COLUMNS
                          ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                          "sssssssssssiiiitt", snapshot->id, snapshot->run_id, snapshot->image,
                          snapshot->repository, snapshot->tag, snapshot->base, snapshot->comment,
                          snapshot->labels ? snapshot->labels : "{}",
                          snapshot->skipped ? snapshot->skipped : "[]",
                          catalog_durability_name(snapshot->durability), snapshot->remote,
                          snapshot->bytes_new, snapshot->bytes_total, snapshot->entries, created_ns,
                          snapshot->expires_ns, snapshot->lost_ns);
    return rc < 0 ? rc : 0;
}

int catalog_snapshot_add(struct catalog *catalog, const struct catalog_snapshot *snapshot,
                         struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = add_snapshot(catalog, snapshot, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_snapshot_get(struct catalog *catalog, const char *id, struct catalog_snapshot *ret,
                         struct err *err)
{
    int rc =
        catalog_stmt_get(catalog, &snapshot_rows,
                         "SELECT " SNAPSHOT_COLUMNS " FROM snapshots WHERE id = ?", id, ret, err);
    return rc == 0 ? fail_missing(id, err) : rc < 0 ? rc : 0;
}

int catalog_snapshot_list(struct catalog *catalog, struct catalog_snapshot **ret, size_t *ret_count,
                          struct err *err)
{
    return catalog_stmt_list(catalog, &snapshot_rows,
                             "SELECT " SNAPSHOT_COLUMNS
                             " FROM snapshots ORDER BY created_ns DESC, seq DESC",
                             ret, ret_count, err);
}

/* Records the level and the remote unless the row has a higher level there. */
static int raise_level(struct catalog *catalog, const char *id, enum catalog_durability level,
                       const char *remote, struct err *err)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                "SELECT durability, ?2 IS NULL OR remote IS ?2 FROM snapshots"
                                " WHERE id = ?1",
                                "ss", id, remote);
    if (rc == 0)
        rc = catalog_stmt_step(&stmt, err);
    if (rc <= 0)
        return rc < 0 ? rc : fail_missing(id, err);
    int old;
    int64_t same;
    rc = catalog_stmt_read(&stmt, err, "wi", &levels, &old, &same);
    if (rc < 0 || (same && (int)level < old))
        return rc;
    catalog_stmt_end(&stmt);
    rc = catalog_stmt_run(catalog, err,
                          "UPDATE snapshots SET durability = ?1, lost_ns = NULL,"
                          " verified_ns = CASE WHEN ?3 IS NOT NULL THEN ?3"
                          "   WHEN ?2 IS NULL OR remote IS ?2 THEN verified_ns END,"
                          " remote = coalesce(?2, remote) WHERE id = ?4",
                          "ssts", level_names[level], remote,
                          level == CATALOG_VERIFIED ? catalog_now(catalog) : INT64_C(0), id);
    return rc < 0 ? rc : 0;
}

int catalog_snapshot_set_durability(struct catalog *catalog, const char *id,
                                    enum catalog_durability durability, const char *remote,
                                    struct err *err)
{
    assert(durability < ARRAY_SIZE(level_names));
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = raise_level(catalog, id, durability, remote, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

#define IMAGE_IS_HERE "EXISTS (SELECT 1 FROM images WHERE digest = snapshots.image)"

int catalog_snapshot_set_lost(struct catalog *catalog, const char *id, const char *remote,
                              struct err *err)
{
    return catalog_stmt_run(catalog, err,
                            "UPDATE snapshots SET verified_ns = NULL, lost_ns = ?1,"
                            " durability = CASE WHEN " IMAGE_IS_HERE
                            " THEN 'local' ELSE 'pushed' END"
                            " WHERE id = ?2 AND remote = ?3 AND durability <> 'local'"
                            " AND (lost_ns IS NULL OR " IMAGE_IS_HERE ")",
                            "iss", catalog_now(catalog), id, remote);
}

int catalog_snapshot_set_remote(struct catalog *catalog, const char *id, const char *remote,
                                struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE snapshots SET remote = ? WHERE id = ?"
                              " AND durability = 'local'",
                              "ss", remote, id);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_snapshot_set_local(struct catalog *catalog, const char *id, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE snapshots SET durability = 'local', verified_ns = NULL"
                              " WHERE id = ? AND " IMAGE_IS_HERE,
                              "s", id);
    if (rc < 0)
        return rc;
    int done = catalog_scope_commit(&scope, err);
    return done < 0 ? done : rc;
}

int catalog_snapshot_remove(struct catalog *catalog, const char *id, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "DELETE FROM snapshots WHERE id = ?", "s", id);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return fail_missing(id, err);
    return catalog_scope_commit(&scope, err);
}
