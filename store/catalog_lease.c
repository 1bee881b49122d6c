#include "catalog_lease.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"
#include "digest.h"

#include <string.h>

/* The kinds of objects that a key can name. */
enum key_kind {
    KEY_BLOB,
    KEY_LAYER,
    KEY_DIFF,
};

static const char *const key_prefixes[] = {
    [KEY_BLOB] = "blob:", [KEY_LAYER] = "layer:", [KEY_DIFF] = "diff:"};

/* Takes a key apart; the digest is borrowed from it. */
static int parse_key(const char *key, enum key_kind *ret_kind, const char **ret_digest,
                     struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(key_prefixes); i++) {
        size_t len = strlen(key_prefixes[i]);
        if (strncmp(key, key_prefixes[i], len) != 0)
            continue;
        struct digest digest;
        int rc = digest_parse(key + len, &digest, err);
        if (rc < 0)
            return err_wrap(err, rc, "'%.100s' is no key of a stored object", key);
        *ret_kind = (enum key_kind)i;
        *ret_digest = key + len;
        return 0;
    }
    return err_fail(err, ERR_INVALID, "'%.100s' is no key of a stored object", key);
}

static int check_key(const char *key, struct err *err)
{
    enum key_kind kind;
    const char *digest;
    return parse_key(key, &kind, &digest, err);
}

/* Whether an image names the object behind a key: 1, 0 or -errno. */
static int is_named(struct catalog *catalog, const char *key, struct err *err)
{
    enum key_kind kind = KEY_LAYER;
    const char *digest = NULL;
    int rc = parse_key(key, &kind, &digest, err);
    if (rc < 0)
        return rc;
    if (kind == KEY_LAYER)
        return catalog_stmt_exists(catalog, err, "SELECT 1 FROM layers WHERE chain_id = ?", "s",
                                   digest);
    if (kind == KEY_DIFF)
        return catalog_stmt_exists(catalog, err, "SELECT 1 FROM layers WHERE diff_id = ?", "s",
                                   digest);
    return catalog_stmt_exists(catalog, err,
                               "SELECT 1 WHERE EXISTS (SELECT 1 FROM layers WHERE digest = ?1)"
                               " OR EXISTS (SELECT 1 FROM images WHERE digest = ?1)"
                               " OR EXISTS (SELECT 1 FROM images WHERE config_digest = ?1)",
                               "s", digest);
}

static int queue_key(struct catalog *catalog, const char *key, struct err *err)
{
    int rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO deletions (key, queued_ns) VALUES (?, ?)"
                              " ON CONFLICT (key) DO NOTHING",
                              "si", key, catalog_now(catalog));
    return rc < 0 ? rc : 0;
}

int catalog_key_queue_unnamed(struct catalog *catalog, const char *prefix, const char *digest,
                              struct err *err)
{
    char key[16 + DIGEST_TEXT_LEN + 1];
    snprintf(key, sizeof key, "%s%s", prefix, digest);
    int rc = is_named(catalog, key, err);
    return rc == 0 ? queue_key(catalog, key, err) : rc < 0 ? rc : 0;
}

static int add_lease(struct catalog *catalog, const char *job_id, const char *key, struct err *err)
{
    int rc = catalog_stmt_exists(
        catalog, err, "SELECT 1 FROM jobs WHERE id = ? AND finished_ns IS NULL", "s", job_id);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no unfinished job %s to lease %s for", job_id,
                        key);
    if (rc > 0)
        rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO leases (key, job, created_ns)"
                              " SELECT ?, seq, ? FROM jobs WHERE id = ? ON CONFLICT DO NOTHING",
                              "sis", key, catalog_now(catalog), job_id);
    return rc < 0 ? rc : 0;
}

int catalog_lease_add(struct catalog *catalog, const char *job_id, const char *key, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = check_key(key, err);
    if (rc == 0)
        rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = add_lease(catalog, job_id, key, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_lease_drop(struct catalog *catalog, const char *job_id, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "DELETE FROM leases WHERE job = (SELECT seq FROM jobs WHERE id = ?)",
                              "s", job_id);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_deletion_queue(struct catalog *catalog, const char *key, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = check_key(key, err);
    if (rc == 0)
        rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = queue_key(catalog, key, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static int take_off(struct catalog *catalog, const char *key, struct err *err)
{
    return catalog_stmt_run(catalog, err, "DELETE FROM deletions WHERE key = ?", "s", key);
}

/* The oldest object that may go: 1, 0 when there is none, or -errno. Every round takes one off the
 * queue or ends, and nobody else adds to it inside this transaction, so the rounds end. */
static int next_key(struct catalog *catalog, char **ret, struct err *err)
{
    for (;;) {
        cleanup_free char *key = NULL;
        int rc = catalog_stmt_text(catalog, &key, err,
                                   "SELECT key FROM deletions d WHERE NOT EXISTS"
                                   " (SELECT 1 FROM leases WHERE leases.key = d.key)"
                                   " ORDER BY seq LIMIT 1",
                                   "");
        if (rc != 1)
            return rc;
        rc = is_named(catalog, key, err);
        if (rc == 0) {
            *ret = steal_ptr(key);
            return 1;
        }
        if (rc > 0)
            rc = take_off(catalog, key, err);
        if (rc < 0)
            return rc;
    }
}

int catalog_deletion_next(struct catalog *catalog, char **ret_key, struct err *err)
{
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    char *key = NULL;
    rc = next_key(catalog, &key, err);
    if (rc < 0)
        catalog_rollback(catalog);
    else if (rc == 0)
        rc = catalog_commit(catalog, err);
    if (rc < 0)
        return rc;
    *ret_key = key;
    return 0;
}

int catalog_deletion_done(struct catalog *catalog, const char *key, struct err *err)
{
    int rc = catalog_scope_check_open(catalog, err);
    if (rc < 0)
        return rc;
    rc = take_off(catalog, key, err);
    if (rc == 0)
        rc = err_fail(err, ERR_NOT_FOUND, "%.100s is not queued for deletion", key);
    rc = catalog_end(catalog, rc, err);
    return rc < 0 ? rc : 0;
}

int catalog_deletion_postpone(struct catalog *catalog, const char *key, struct err *err)
{
    int rc = catalog_scope_check_open(catalog, err);
    if (rc < 0)
        return rc;
    rc = take_off(catalog, key, err);
    if (rc >= 0)
        rc = queue_key(catalog, key, err);
    rc = catalog_end(catalog, rc, err);
    return rc < 0 ? rc : 0;
}
