#include "catalog_workspace.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

void catalog_workspace_free(struct catalog_workspace *workspace)
{
    free(workspace->name);
    free(workspace->node);
    catalog_volume_free(&workspace->volume);
    catalog_mount_free(&workspace->mount);
    *workspace = (struct catalog_workspace){0};
}

static void free_workspace(void *record)
{
    catalog_workspace_free(record);
}

static int fail_missing(const char *name, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "there is no workspace %s", name);
    err_hint(err, "`varve workspace ls` lists the workspaces of this node");
    return rc;
}

/* The name's own row; volume and mount follow when the statement is over. */
static int read_name(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_workspace *workspace = ret;
    return catalog_stmt_read(stmt, err, "sssi", &workspace->name, &workspace->volume.id,
                             &workspace->node, &workspace->created_ns);
}

static const struct catalog_rows name_rows = {sizeof(struct catalog_workspace), read_name,
                                              free_workspace};

#define NAMED "SELECT name, volume, node, created_ns FROM workspaces"
#define OF_RUNS                                                                                    \
    "SELECT '" CATALOG_WORKSPACE_OF_RUN "' || id, volume, '', created_ns FROM runs"                \
    " WHERE volume IS NOT NULL"

static int read_rest(struct catalog *catalog, struct catalog_workspace *workspace, struct err *err)
{
    cleanup_free char *id = steal_ptr(workspace->volume.id);
    int rc = catalog_volume_get(catalog, id, &workspace->volume, err);
    if (rc == 0)
        rc = catalog_mount_find(catalog, id, &workspace->mount, err);
    workspace->wanted = rc == 1;
    return rc < 0 ? rc : 0;
}

int catalog_workspace_get(struct catalog *catalog, const char *name, struct catalog_workspace *ret,
                          struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    struct catalog_workspace workspace = {0};
    catalog_scope_read(catalog, &scope);
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                NAMED " WHERE name = ?1 UNION ALL " OF_RUNS
                                      " AND id = substr(?1, length('" CATALOG_WORKSPACE_OF_RUN
                                      "') + 1) AND substr(?1, 1, length('" CATALOG_WORKSPACE_OF_RUN
                                      "')) = '" CATALOG_WORKSPACE_OF_RUN "'",
                                "s", name);
    if (rc == 0)
        rc = catalog_stmt_record(&stmt, &name_rows, &workspace, err);
    if (rc == 0)
        return fail_missing(name, err);
    if (rc == 1)
        rc = read_rest(catalog, &workspace, err);
    if (rc < 0) {
        catalog_workspace_free(&workspace);
        return rc;
    }
    *ret = workspace;
    return 0;
}

int catalog_workspace_name(struct catalog *catalog, const char *volume, char **ret, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    return catalog_stmt_text(catalog, ret, err,
                             "SELECT name FROM workspaces WHERE volume = ?1 UNION ALL"
                             " SELECT '" CATALOG_WORKSPACE_OF_RUN
                             "' || id FROM runs WHERE volume = ?1",
                             "s", volume);
}

int catalog_workspace_view(struct catalog *catalog, const char *volume, char **ret, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    return catalog_stmt_text(catalog, ret, err,
                             "SELECT w.name FROM workspaces w JOIN volumes v ON v.id = w.volume"
                             " WHERE v.view_of = ? AND v.state != 'removing' ORDER BY w.name",
                             "s", volume);
}

static int list(struct catalog *catalog, const char *sql, struct catalog_workspace **ret,
                size_t *ret_count, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    void *rows = NULL;
    size_t count = 0;
    catalog_scope_read(catalog, &scope);
    int rc = catalog_stmt_begin(catalog, &stmt, err, sql, "");
    if (rc == 0)
        rc = catalog_stmt_records(&stmt, &name_rows, &rows, &count, err);
    struct catalog_workspace *workspaces = rows;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = read_rest(catalog, &workspaces[i], err);
    if (rc == 0) {
        *ret = workspaces;
        *ret_count = count;
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        catalog_workspace_free(&workspaces[i]);
    free(workspaces);
    return rc;
}

int catalog_workspace_list(struct catalog *catalog, struct catalog_workspace **ret,
                           size_t *ret_count, struct err *err)
{
    return list(catalog, NAMED " ORDER BY name", ret, ret_count, err);
}

int catalog_workspace_list_all(struct catalog *catalog, struct catalog_workspace **ret,
                               size_t *ret_count, struct err *err)
{
    return list(catalog,
                "SELECT * FROM (" NAMED " ORDER BY name) UNION ALL SELECT * FROM (" OF_RUNS
                " ORDER BY id)",
                ret, ret_count, err);
}

static int add_workspace(struct catalog *catalog, const char *name, const char *node,
                         const struct catalog_volume *volume, struct err *err)
{
    int rc =
        catalog_stmt_exists(catalog, err, "SELECT 1 FROM workspaces WHERE name = ?", "s", name);
    if (rc == 1) {
        rc = err_fail(err, ERR_EXISTS, "there is a workspace %s already", name);
        err_hint(err, "choose another name, or remove that one with `varve workspace rm %s`", name);
    }
    if (rc == 0)
        rc = catalog_volume_add(catalog, volume, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO workspaces (name, volume, node, labels, created_ns)"
                              " VALUES (?, ?, ?, '{}', ?)",
                              "sssi", name, volume->id, node, catalog_now(catalog));
    return rc < 0 ? rc : 0;
}

int catalog_workspace_add(struct catalog *catalog, const char *name, const char *node,
                          const struct catalog_volume *volume, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = add_workspace(catalog, name, node, volume, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static int remove_workspace(struct catalog *catalog, const char *name, struct err *err)
{
    cleanup_free char *volume = NULL;
    int rc = catalog_stmt_text(catalog, &volume, err,
                               "SELECT volume FROM workspaces WHERE name = ?", "s", name);
    if (rc <= 0)
        return rc < 0 ? rc : fail_missing(name, err);
    rc = catalog_stmt_run(catalog, err, "DELETE FROM workspaces WHERE name = ?", "s", name);
    if (rc >= 0)
        rc = catalog_mount_remove(catalog, volume, err);
    return rc < 0 ? rc : catalog_volume_remove(catalog, volume, err);
}

int catalog_workspace_remove(struct catalog *catalog, const char *name, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = remove_workspace(catalog, name, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
