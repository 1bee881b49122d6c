#include "catalog_checkpoint.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

#include <assert.h>

static const char *const reason_names[] = {
    [CATALOG_CHECKPOINT_MANUAL] = "manual", [CATALOG_CHECKPOINT_INTERVAL] = "interval",
    [CATALOG_CHECKPOINT_PAUSE] = "pause",   [CATALOG_CHECKPOINT_DETACH] = "detach",
    [CATALOG_CHECKPOINT_FORK] = "fork",     [CATALOG_CHECKPOINT_PRE_ROLLBACK] = "pre-rollback",
};
static const struct catalog_words reasons = {"reason of a checkpoint", reason_names,
                                             ARRAY_SIZE(reason_names)};
static const char *const level_names[] = {
    [CATALOG_LOCAL] = "local", [CATALOG_PUSHED] = "pushed", [CATALOG_VERIFIED] = "verified"};
static const struct catalog_words levels = {"durability", level_names, ARRAY_SIZE(level_names)};

const char *catalog_checkpoint_reason_name(enum catalog_checkpoint_reason reason)
{
    assert(reason < ARRAY_SIZE(reason_names));
    return reason_names[reason];
}

void catalog_checkpoint_free(struct catalog_checkpoint *checkpoint)
{
    free(checkpoint->digest);
    free(checkpoint->volume);
    free(checkpoint->lineage);
    free(checkpoint->node);
    free(checkpoint->parent);
    free(checkpoint->tag);
    free(checkpoint->remote);
    *checkpoint = (struct catalog_checkpoint){0};
}

static void free_checkpoint(void *record)
{
    catalog_checkpoint_free(record);
}

void catalog_line_free(struct catalog_line *line)
{
    free(line->lineage);
    free(line->head);
    free(line->parent);
    free(line->storing);
    *line = (struct catalog_line){0};
}

static int read_checkpoint(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_checkpoint *row = ret;
    int64_t diverged = 0;
    int reason = 0;
    int level = 0;
    int rc =
        catalog_stmt_read(stmt, err, "sssisisiwswsiiii", &row->digest, &row->volume, &row->lineage,
                          &row->generation, &row->node, &row->token, &row->parent, &diverged,
                          &reasons, &reason, &row->tag, &levels, &level, &row->remote,
                          &row->bytes_new, &row->bytes_total, &row->verified_ns, &row->created_ns);
    row->diverged = diverged != 0;
    row->reason = (enum catalog_checkpoint_reason)reason;
    row->durability = (enum catalog_durability)level;
    return rc;
}

static const struct catalog_rows rows = {sizeof(struct catalog_checkpoint), read_checkpoint,
                                         free_checkpoint};

#define SELECT                                                                                     \
    "SELECT digest, volume, lineage, generation, node, token, parent, diverged, reason, tag,"      \
    " durability, remote, bytes_new, bytes_total, coalesce(verified_ns, 0), created_ns"            \
    " FROM checkpoints "

static int fail_missing(const char *what, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "there is no checkpoint %s", what);
    err_hint(err, "`varve workspace history NAME` lists those of a workspace");
    return rc;
}

int catalog_line_get(struct catalog *catalog, const char *volume, struct catalog_line *ret,
                     struct err *err)
{
    struct catalog_line line = {0};
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                "SELECT lineage, head, parent, generation, token, storing"
                                " FROM volumes"
                                " WHERE id = ?",
                                "s", volume);
    if (rc == 0)
        rc = catalog_stmt_step(&stmt, err);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no volume %s", volume);
    if (rc > 0)
        rc = catalog_stmt_read(&stmt, err, "sssiis", &line.lineage, &line.head, &line.parent,
                               &line.generation, &line.token, &line.storing);
    if (rc < 0) {
        catalog_line_free(&line);
        return rc;
    }
    *ret = line;
    return 0;
}

int catalog_line_set_parent(struct catalog *catalog, const char *volume, const char *digest,
                            struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "UPDATE volumes SET parent = ? WHERE id = ?", "ss",
                              digest, volume);
    if (rc <= 0)
        return rc < 0 ? rc : err_fail(err, ERR_NOT_FOUND, "there is no volume %s", volume);
    return catalog_scope_commit(&scope, err);
}

int catalog_line_put_back_begin(struct catalog *catalog, const char *volume, struct err *err)
{
    return catalog_line_set_parent(catalog, volume, "", err);
}

bool catalog_line_is_open(const struct catalog_line *line)
{
    return line->parent && line->parent[0] == '\0';
}

int catalog_line_put_back(struct catalog *catalog, const char *volume, const char *digest,
                          int64_t size, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE volumes SET parent = ?1, head = ?1, size = ?2, storing = NULL"
                              " WHERE id = ?3",
                              "sis", digest, size, volume);
    if (rc <= 0)
        return rc < 0 ? rc : err_fail(err, ERR_NOT_FOUND, "there is no volume %s", volume);
    return catalog_scope_commit(&scope, err);
}

int catalog_line_set_token(struct catalog *catalog, const char *volume, int64_t token,
                           struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE volumes SET token = ?1 WHERE id = ?2 AND token <= ?1", "is",
                              token, volume);
    if (rc == 0)
        return err_fail(err, ERR_CONFLICT,
                        "volume %s has a higher fencing token than %lld, or has gone", volume,
                        (long long)token);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_line_set_storing(struct catalog *catalog, const char *volume, const char *digest,
                             struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "UPDATE volumes SET storing = ? WHERE id = ?", "ss",
                              digest, volume);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no volume %s", volume);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static int insert(struct catalog *catalog, const struct catalog_checkpoint *row, struct err *err)
{
    int64_t now = catalog_now(catalog);
    return catalog_stmt_run(
        catalog, err,
        "INSERT INTO checkpoints (digest, volume, lineage, generation, node, token, parent,"
        " diverged, reason, tag, durability, remote, bytes_new, bytes_total, created_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (digest) DO NOTHING",
        "sssisisissssiii", row->digest, row->volume, row->lineage, row->generation, row->node,
        row->token, row->parent, (int64_t)row->diverged, reason_names[row->reason], row->tag,
        level_names[row->durability], row->remote, row->bytes_new, row->bytes_total,
        row->created_ns ? row->created_ns : now);
}

static int set_head(struct catalog *catalog, const struct catalog_checkpoint *row,
                    const struct catalog_line *line, struct err *err)
{
    int rc =
        catalog_stmt_exists(catalog, err, "SELECT 1 FROM volumes WHERE id = ?", "s", row->volume);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no volume %s", row->volume);
    if (rc > 0)
        rc = catalog_stmt_run(
            catalog, err,
            "UPDATE volumes SET head = ?, generation = ?, checkpointed_ns = ?,"
            " storing = NULL WHERE id = ? AND head IS ? AND parent IS ? AND generation = ?",
            "siisssi", row->digest, row->generation, catalog_now(catalog), row->volume, line->head,
            line->parent, line->generation);
    return rc == 0
               ? err_fail(err, ERR_CONFLICT, "volume %s has another checkpoint by now", row->volume)
               : rc;
}

int catalog_checkpoint_add(struct catalog *catalog, const struct catalog_checkpoint *checkpoint,
                           const struct catalog_line *line, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = insert(catalog, checkpoint, err);
    if (rc >= 0 && line)
        rc = set_head(catalog, checkpoint, line, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_checkpoint_list(struct catalog *catalog, const char *volume,
                            struct catalog_checkpoint **ret, size_t *ret_count, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                SELECT "WHERE volume = ? ORDER BY generation DESC, created_ns DESC",
                                "s", volume);
    return rc < 0 ? rc : catalog_stmt_records(&stmt, &rows, (void **)ret, ret_count, err);
}

int catalog_checkpoint_get(struct catalog *catalog, const char *digest,
                           struct catalog_checkpoint *ret, struct err *err)
{
    int rc = catalog_stmt_get(catalog, &rows, SELECT "WHERE digest = ?", digest, ret, err);
    return rc == 0 ? fail_missing(digest, err) : rc < 0 ? rc : 0;
}

int catalog_checkpoint_find(struct catalog *catalog, const char *volume, int64_t generation,
                            struct catalog_checkpoint *ret, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                SELECT "WHERE volume = ? AND generation = ?"
                                       " ORDER BY created_ns DESC LIMIT 1",
                                "si", volume, generation);
    if (rc == 0)
        rc = catalog_stmt_record(&stmt, &rows, ret, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = err_fail(err, ERR_NOT_FOUND, "there is no checkpoint %lld of it", (long long)generation);
    err_hint(err, "`varve workspace history NAME` lists those that there are");
    return rc;
}

int catalog_checkpoint_set_lost(struct catalog *catalog, const char *digest, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE checkpoints SET durability = 'local', verified_ns = NULL"
                              " WHERE digest = ?",
                              "s", digest);
    if (rc == 0)
        return fail_missing(digest, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_checkpoint_set_verified(struct catalog *catalog, const char *digest, const char *remote,
                                    struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE checkpoints SET durability = 'verified', verified_ns = ?,"
                              " remote = ? WHERE digest = ?",
                              "iss", catalog_now(catalog), remote, digest);
    if (rc == 0)
        return fail_missing(digest, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static int remove_checkpoint(struct catalog *catalog, const char *digest, struct err *err)
{
    int rc = catalog_stmt_exists(catalog, err, "SELECT 1 FROM volumes WHERE head = ?", "s", digest);
    if (rc == 1)
        return err_fail(err, ERR_CONFLICT, "checkpoint %s is the head of a volume", digest);
    if (rc == 0)
        rc =
            catalog_stmt_run(catalog, err, "DELETE FROM checkpoints WHERE digest = ?", "s", digest);
    return rc == 0 ? fail_missing(digest, err) : rc < 0 ? rc : 0;
}

int catalog_checkpoint_remove(struct catalog *catalog, const char *digest, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = remove_checkpoint(catalog, digest, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
