#include "catalog_mount.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

#include <assert.h>

static const char *const state_names[] = {
    [CATALOG_MOUNT_MOUNTING] = "mounting",
    [CATALOG_MOUNT_MOUNTED] = "mounted",
    [CATALOG_MOUNT_UNMOUNTING] = "unmounting",
};
static const struct catalog_words states = {"mount state", state_names, ARRAY_SIZE(state_names)};

/* The mounts that this file speaks of: of live volumes, on the host. */
#define OURS "checkpoint IS NULL AND run IS NULL"

const char *catalog_mount_state_name(enum catalog_mount_state state)
{
    assert(state < ARRAY_SIZE(state_names));
    return state_names[state];
}

void catalog_mount_free(struct catalog_mount *mount)
{
    free(mount->volume);
    free(mount->path);
    *mount = (struct catalog_mount){0};
}

static void free_mount(void *record)
{
    catalog_mount_free(record);
}

static int read_mount(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_mount *mount = ret;
    int64_t read_only = 0;
    int state = 0;
    int rc = catalog_stmt_read(stmt, err, "ssiwi", &mount->volume, &mount->path, &read_only,
                               &states, &state, &mount->created_ns);
    mount->read_only = read_only != 0;
    mount->state = (enum catalog_mount_state)state;
    return rc;
}

static const struct catalog_rows mount_rows = {sizeof(struct catalog_mount), read_mount,
                                               free_mount};

/* Who has the path, or one above or below it, as people call it. */
static int check_path(struct catalog *catalog, const char *path, struct err *err)
{
    cleanup_free char *owner = NULL;
    int rc = catalog_stmt_text(catalog, &owner, err,
                               "SELECT CASE path WHEN ?1 THEN 'is the place of the '"
                               " ELSE 'holds or lies in ' || path || ', the place of the ' END"
                               " || coalesce((SELECT 'workspace ' || name FROM workspaces"
                               " WHERE workspaces.volume = mounts.volume),"
                               " (SELECT 'run ' || id FROM runs WHERE runs.volume = mounts.volume),"
                               " 'volume ' || volume)"
                               " FROM mounts WHERE run IS NULL AND (path = ?1"
                               " OR substr(?1, 1, length(path) + 1) = path || '/'"
                               " OR substr(path, 1, length(?1) + 1) = ?1 || '/') LIMIT 1",
                               "s", path);
    return rc == 1 ? err_fail(err, ERR_CONFLICT, "%s %s", path, owner) : rc;
}

static int check_volume(struct catalog *catalog, const char *volume, struct err *err)
{
    cleanup_free char *path = NULL;
    int rc = catalog_stmt_text(catalog, &path, err,
                               "SELECT path FROM mounts WHERE volume = ? AND " OURS, "s", volume);
    if (rc == 1)
        return err_fail(err, ERR_CONFLICT, "the volume %s is mounted at %s", volume, path);
    return rc;
}

static int add_mount(struct catalog *catalog, const struct catalog_mount *mount, struct err *err)
{
    int rc =
        catalog_stmt_exists(catalog, err, "SELECT 1 FROM volumes WHERE id = ?", "s", mount->volume);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no volume %s", mount->volume);
    if (rc == 1)
        rc = check_volume(catalog, mount->volume, err);
    if (rc == 0)
        rc = check_path(catalog, mount->path, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO mounts (volume, path, read_only, state, created_ns)"
                              " VALUES (?, ?, ?, 'mounting', ?)",
                              "ssii", mount->volume, mount->path, (int64_t)mount->read_only,
                              catalog_now(catalog));
    return rc < 0 ? rc : 0;
}

int catalog_mount_add(struct catalog *catalog, const struct catalog_mount *mount, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = add_mount(catalog, mount, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_mount_find(struct catalog *catalog, const char *volume, struct catalog_mount *ret,
                       struct err *err)
{
    return catalog_stmt_get(catalog, &mount_rows,
                            "SELECT volume, path, read_only, state, created_ns FROM mounts"
                            " WHERE volume = ? AND " OURS,
                            volume, ret, err);
}

int catalog_mount_set_state(struct catalog *catalog, const char *volume,
                            enum catalog_mount_state state, struct err *err)
{
    assert(state < ARRAY_SIZE(state_names));
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc =
            catalog_stmt_run(catalog, err, "UPDATE mounts SET state = ? WHERE volume = ? AND " OURS,
                             "ss", state_names[state], volume);
    if (rc == 0)
        rc = err_fail(err, ERR_NOT_FOUND, "the volume %s is to be mounted nowhere", volume);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_mount_remove(struct catalog *catalog, const char *volume, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "DELETE FROM mounts WHERE volume = ? AND " OURS, "s",
                              volume);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
