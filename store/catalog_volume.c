#include "catalog_volume.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

#include <assert.h>

static const char *const state_names[] = {
    [CATALOG_VOLUME_CREATING] = "creating",   [CATALOG_VOLUME_DETACHED] = "detached",
    [CATALOG_VOLUME_ATTACHING] = "attaching", [CATALOG_VOLUME_ATTACHED] = "attached",
    [CATALOG_VOLUME_DETACHING] = "detaching", [CATALOG_VOLUME_FENCED] = "fenced",
    [CATALOG_VOLUME_REMOVING] = "removing",
};
static const uint32_t moves[] = {
    [CATALOG_VOLUME_CREATING] = 1U << CATALOG_VOLUME_DETACHED | 1U << CATALOG_VOLUME_REMOVING,
    [CATALOG_VOLUME_DETACHED] = 1U << CATALOG_VOLUME_ATTACHING | 1U << CATALOG_VOLUME_REMOVING,
    [CATALOG_VOLUME_ATTACHING] = 1U << CATALOG_VOLUME_ATTACHED | 1U << CATALOG_VOLUME_DETACHING |
                                 1U << CATALOG_VOLUME_DETACHED,
    [CATALOG_VOLUME_ATTACHED] = 1U << CATALOG_VOLUME_ATTACHING | 1U << CATALOG_VOLUME_DETACHING |
                                1U << CATALOG_VOLUME_FENCED,
    [CATALOG_VOLUME_DETACHING] =
        1U << CATALOG_VOLUME_DETACHED | 1U << CATALOG_VOLUME_ATTACHED | 1U << CATALOG_VOLUME_FENCED,
    [CATALOG_VOLUME_FENCED] = 1U << CATALOG_VOLUME_DETACHING,
    [CATALOG_VOLUME_REMOVING] = 0,
};
static_assert(ARRAY_SIZE(moves) == ARRAY_SIZE(state_names), "every state needs its row");

const char *catalog_volume_state_name(enum catalog_volume_state state)
{
    assert(state < ARRAY_SIZE(state_names));
    return state_names[state];
}

void catalog_volume_free(struct catalog_volume *volume)
{
    free(volume->id);
    free(volume->lineage);
    free(volume->job_id);
    free(volume->boot);
    free(volume->incident);
    free(volume->view_of);
    *volume = (struct catalog_volume){0};
}

static void free_volume(void *record)
{
    catalog_volume_free(record);
}

static int fail_missing(const char *id, struct err *err)
{
    return err_fail(err, ERR_NOT_FOUND, "there is no volume %s", id);
}

static const struct catalog_states states = {
    "volume",
    {"volume state", state_names, ARRAY_SIZE(state_names)},
    moves,
    "SELECT state FROM volumes WHERE id = ?",
    "UPDATE volumes SET state = ?, state_ns = ? WHERE id = ?",
    fail_missing};

static int read_volume(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_volume *volume = ret;
    int state = 0;
    int rc = catalog_stmt_read(stmt, err, "sswiisstsis", &volume->id, &volume->lineage,
                               &states.words, &state, &volume->state_ns, &volume->size,
                               &volume->job_id, &volume->boot, &volume->incident_ns,
                               &volume->incident, &volume->created_ns, &volume->view_of);
    volume->state = (enum catalog_volume_state)state;
    return rc;
}

static const struct catalog_rows volume_rows = {sizeof(struct catalog_volume), read_volume,
                                                free_volume};

#define COLUMNS                                                                                    \
    "id, lineage, state, state_ns, size, job, boot, incident_ns, incident, created_ns,"            \
    " view_of"

static int add_volume(struct catalog *catalog, const struct catalog_volume *volume, struct err *err)
{
    int rc =
        catalog_stmt_exists(catalog, err, "SELECT 1 FROM volumes WHERE id = ?", "s", volume->id);
    if (rc == 1)
        return err_fail(err, ERR_EXISTS, "there is a volume %s already", volume->id);
    if (rc < 0)
        return rc;
    int64_t now = catalog_now(catalog);
    rc = catalog_stmt_run(catalog, err,
                          "INSERT INTO volumes (id, lineage, state, state_ns, size, job,"
                          " created_ns, view_of) VALUES (?, ?, 'creating', ?, ?, ?, ?, ?)",
                          "ssiisis", volume->id, volume->lineage, now, volume->size, volume->job_id,
                          volume->created_ns ? volume->created_ns : now, volume->view_of);
    return rc < 0 ? rc : 0;
}

int catalog_volume_add(struct catalog *catalog, const struct catalog_volume *volume,
                       struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = add_volume(catalog, volume, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_volume_get(struct catalog *catalog, const char *id, struct catalog_volume *ret,
                       struct err *err)
{
    int rc = catalog_stmt_get(catalog, &volume_rows, "SELECT " COLUMNS " FROM volumes WHERE id = ?",
                              id, ret, err);
    return rc == 0 ? fail_missing(id, err) : rc < 0 ? rc : 0;
}

int catalog_volume_list(struct catalog *catalog, struct catalog_volume **ret, size_t *ret_count,
                        struct err *err)
{
    return catalog_stmt_list(catalog, &volume_rows,
                             "SELECT " COLUMNS " FROM volumes ORDER BY created_ns, id", ret,
                             ret_count, err);
}

int catalog_volume_set_state(struct catalog *catalog, const char *id,
                             enum catalog_volume_state state, struct err *err)
{
    return catalog_stmt_move(catalog, &states, id, (int)state, err);
}

static int set_size(struct catalog *catalog, const char *id, int64_t size, struct err *err)
{
    int64_t old = 0;
    int rc = catalog_stmt_int(catalog, &old, err, "SELECT size FROM volumes WHERE id = ?", "s", id);
    if (rc <= 0)
        return rc < 0 ? rc : fail_missing(id, err);
    if (size < old)
        return err_fail(err, ERR_CONFLICT,
                        "the volume %s has %lld bytes and cannot shrink to %lld bytes", id,
                        (long long)old, (long long)size);
    rc = catalog_stmt_run(catalog, err, "UPDATE volumes SET size = ? WHERE id = ?", "is", size, id);
    return rc < 0 ? rc : 0;
}

int catalog_volume_set_size(struct catalog *catalog, const char *id, int64_t size, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = set_size(catalog, id, size, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_volume_set_boot(struct catalog *catalog, const char *id, const char *boot,
                            struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "UPDATE volumes SET boot = ? WHERE id = ?", "ss", boot,
                              id);
    if (rc <= 0)
        return rc < 0 ? rc : fail_missing(id, err);
    return catalog_scope_commit(&scope, err);
}

int catalog_volume_set_incident(struct catalog *catalog, const char *id, const char *incident,
                                struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE volumes SET incident = ?1, incident_ns = CASE WHEN ?1 IS"
                              " NULL THEN NULL ELSE ?2 END WHERE id = ?3",
                              "sis", incident, catalog_now(catalog), id);
    if (rc <= 0)
        return rc < 0 ? rc : fail_missing(id, err);
    return catalog_scope_commit(&scope, err);
}

static int remove_volume(struct catalog *catalog, const char *id, struct err *err)
{
    int state;
    int rc = catalog_stmt_state(catalog, &states, id, &state, err);
    if (rc < 0)
        return rc;
    if (state != CATALOG_VOLUME_REMOVING && state != CATALOG_VOLUME_CREATING)
        return err_fail(err, ERR_CONFLICT, "the volume %s is %s and has to become %s first", id,
                        state_names[state], state_names[CATALOG_VOLUME_REMOVING]);
    rc = catalog_stmt_run(catalog, err, "DELETE FROM volumes WHERE id = ?", "s", id);
    return rc < 0 ? rc : 0;
}

int catalog_volume_remove(struct catalog *catalog, const char *id, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = remove_volume(catalog, id, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
