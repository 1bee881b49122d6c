#include "catalog_run.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

#include <assert.h>

static const char *const state_names[] = {
    [CATALOG_RUN_CREATING] = "creating",
    [CATALOG_RUN_READY] = "ready",
    [CATALOG_RUN_REMOVING] = "removing",
};
static const uint32_t moves[] = {
    [CATALOG_RUN_CREATING] = 1U << CATALOG_RUN_READY | 1U << CATALOG_RUN_REMOVING,
    [CATALOG_RUN_READY] = 1U << CATALOG_RUN_REMOVING,
    [CATALOG_RUN_REMOVING] = 0,
};
static_assert(ARRAY_SIZE(moves) == ARRAY_SIZE(state_names), "every state needs its row");

const char *catalog_run_state_name(enum catalog_run_state state)
{
    assert(state < ARRAY_SIZE(state_names));
    return state_names[state];
}

void catalog_run_free(struct catalog_run *run)
{
    free(run->id);
    free(run->image);
    free(run->image_name);
    free(run->upper);
    free(run->volume);
    free(run->job_id);
    *run = (struct catalog_run){0};
}

static void free_run(void *record)
{
    catalog_run_free(record);
}

static int fail_missing(const char *id, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "there is no run %s", id);
    err_hint(err, "`varve run ls` lists the runs of this node");
    return rc;
}

static const struct catalog_states states = {"run",
                                             {"run state", state_names, ARRAY_SIZE(state_names)},
                                             moves,
                                             "SELECT state FROM runs WHERE id = ?",
                                             "UPDATE runs SET state = ?, state_ns = ? WHERE id = ?",
                                             fail_missing};

#define RUN_COLUMNS "id, state, image, image_name, upper, volume, token, job, created_ns"

static int read_run(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_run *run = ret;
    int state = 0;
    int rc = catalog_stmt_read(stmt, err, "swssssisi", &run->id, &states.words, &state, &run->image,
                               &run->image_name, &run->upper, &run->volume, &run->token,
                               &run->job_id, &run->created_ns);
    run->state = (enum catalog_run_state)state;
    return rc;
}

static const struct catalog_rows run_rows = {sizeof(struct catalog_run), read_run, free_run};

static int add_run(struct catalog *catalog, const struct catalog_run *run, struct err *err)
{
    int rc = catalog_stmt_exists(catalog, err, "SELECT 1 FROM runs WHERE id = ?", "s", run->id);
    if (rc == 1) {
        rc = err_fail(err, ERR_EXISTS, "there is a run %s already", run->id);
        err_hint(err, "choose another ID, or remove that one with `varve run rm %s`", run->id);
    }
    if (rc < 0)
        return rc;
    int64_t now = catalog_now(catalog);
    rc = catalog_stmt_run(catalog, err, "UPDATE images SET used_ns = ? WHERE digest = ?", "is", now,
                          run->image);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "the image %s of the run %s is not here", run->image,
                        run->id);
    if (rc < 0)
        return rc;
    rc = catalog_stmt_run(catalog, err,
                          "INSERT INTO runs (id, state, state_ns, image, image_name, upper, volume,"
                          " token, job, created_ns)"
                          " VALUES (?, 'creating', ?, ?, ?, ?, ?, ?, ?, ?)",
                          "sissssisi", run->id, now, run->image, run->image_name, run->upper,
                          run->volume, run->token, run->job_id,
                          run->created_ns ? run->created_ns : now);
    return rc < 0 ? rc : 0;
}

int catalog_run_add(struct catalog *catalog, const struct catalog_run *run, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = add_run(catalog, run, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_run_get(struct catalog *catalog, const char *id, struct catalog_run *ret,
                    struct err *err)
{
    int rc = catalog_stmt_get(catalog, &run_rows, "SELECT " RUN_COLUMNS " FROM runs WHERE id = ?",
                              id, ret, err);
    return rc == 0 ? fail_missing(id, err) : rc < 0 ? rc : 0;
}

int catalog_run_list(struct catalog *catalog, struct catalog_run **ret, size_t *ret_count,
                     struct err *err)
{
    return catalog_stmt_list(catalog, &run_rows,
                             "SELECT " RUN_COLUMNS " FROM runs ORDER BY created_ns DESC, seq DESC",
                             ret, ret_count, err);
}

int catalog_run_set_state(struct catalog *catalog, const char *id, enum catalog_run_state state,
                          struct err *err)
{
    return catalog_stmt_move(catalog, &states, id, (int)state, err);
}

static int set_image(struct catalog *catalog, const char *id, const char *image,
                     const char *image_name, struct err *err)
{
    int state;
    int rc = catalog_stmt_state(catalog, &states, id, &state, err);
    if (rc < 0)
        return rc;
    if (state != CATALOG_RUN_READY)
        return err_fail(err, ERR_CONFLICT, "the run %s is %s and cannot get another image", id,
                        state_names[state]);
    rc = catalog_stmt_run(catalog, err, "UPDATE images SET used_ns = ? WHERE digest = ?", "is",
                          catalog_now(catalog), image);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "the image %s of the run %s is not here", image, id);
    if (rc > 0)
        rc =
            catalog_stmt_run(catalog, err, "UPDATE runs SET image = ?, image_name = ? WHERE id = ?",
                             "sss", image, image_name, id);
    return rc < 0 ? rc : 0;
}

int catalog_run_set_image(struct catalog *catalog, const char *id, const char *image,
                          const char *image_name, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = set_image(catalog, id, image, image_name, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static int remove_run(struct catalog *catalog, const char *id, struct err *err)
{
    int state;
    int rc = catalog_stmt_state(catalog, &states, id, &state, err);
    if (rc < 0)
        return rc;
    if (state == CATALOG_RUN_READY)
        return err_fail(err, ERR_CONFLICT, "the run %s is %s and has to become %s first", id,
                        state_names[state], state_names[CATALOG_RUN_REMOVING]);
    rc = catalog_stmt_run(catalog, err, "DELETE FROM runs WHERE id = ?", "s", id);
    return rc < 0 ? rc : 0;
}

int catalog_run_remove(struct catalog *catalog, const char *id, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = remove_run(catalog, id, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}
