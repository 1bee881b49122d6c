#include "workspace_fixture.h"

#include "catalog_job.h"
#include "catalog_workspace.h"
#include "cleanup.h"
#include "id.h"
#include "recover.h"
#include "workspace.h"
#include "workspace_now.h"
#include "workspace_recover.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct job_kind *const kinds[] = {
    &workspace_create_job, &workspace_mount_job, &workspace_unmount_job, &workspace_abandon_job,
    &workspace_resize_job, &workspace_rm_job,    &workspace_now_job,     &recover_job};

void workspace_world_open(struct workspace_world *world)
{
    const struct scratch *scratch = world->scratch;
    cleanup_free char *data = strdup(scratch_path(scratch, "data"));
    cleanup_free char *run = strdup(scratch_path(scratch, "run"));
    struct node_options options = {.data_dir = data,
                                   .run_dir = run,
                                   .id = "node-1",
                                   .volume = world->settings,
                                   .allow_other_mount_namespace = true};
    struct err err = ERR_INIT;
    int rc = node_open(&options, &world->node, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
}

void workspace_world_start(struct workspace_world *world)
{
    struct err err = ERR_INIT;
    if (!world->node)
        workspace_world_open(world);
    workspace_recover(world->node, NULL, NULL);
    int rc = engine_start(world->node, kinds, ARRAY_SIZE(kinds), &world->engine, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
}

void workspace_world_stop(struct workspace_world *world)
{
    engine_stop(steal_ptr(world->engine));
    node_close(steal_ptr(world->node));
}

int workspace_world_setup(void **state)
{
    struct workspace_world *world = calloc(1, sizeof *world);
    if (!world || scratch_setup(&world->scratch) != 0)
        return -1;
    *state = world;
    fake_volumes_reset();
    const struct scratch *scratch = world->scratch;
    if (mkdirat(scratch->fd, "at", 0755) < 0)
        return -1;
    world->settings = (struct workspace_settings){.size = 64 << 20, .overcommit = 1000};
    workspace_world_start(world);
    return 0;
}

int workspace_world_setup_one(void **state)
{
    int rc = workspace_world_setup(state);
    if (rc == 0)
        workspace_world_do(*state, "workspace.create", "w", "{}");
    return rc;
}

int workspace_world_setup_mounted(void **state)
{
    int rc = workspace_world_setup_one(state);
    if (rc == 0)
        workspace_world_do(*state, "workspace.mount", "w", "{'path': '%s'}");
    return rc;
}

int workspace_world_teardown(void **state)
{
    struct workspace_world *world = *state;
    unsetenv("VARVE_FAULT");
    workspace_world_stop(world);
    int rc = scratch_teardown(&world->scratch);
    free(world);
    return rc;
}

const char *workspace_world_path(const struct workspace_world *world, const char *name)
{
    static char paths[4][4096];
    static unsigned turn;
    const struct scratch *scratch = world->scratch;
    char *path = paths[turn++ % 4];
    cleanup_free char *real = realpath(scratch->path, NULL);
    assert_non_null(real);
    snprintf(path, sizeof paths[0], "%s/%s", real, name);
    return path;
}

struct catalog_job workspace_world_job(struct workspace_world *world, const char *kind,
                                       const char *name, const char *params)
{
    char text[8192];
    char object[ID_LEN_MAX + 16];
    snprintf(text, sizeof text, params, workspace_world_path(world, "at"));
    snprintf(object, sizeof object, "workspace:%s", name);
    cleanup_json json_t *json = job_fixture_json(text);
    assert_int_equal(json_object_set_new(json, "name", json_string(name)), 0);
    return job_fixture_run(world->node,
                           &(struct job_request){.kind = kind, .object = object, .params = json});
}

json_t *workspace_world_ok(struct workspace_world *world, const char *kind, const char *name,
                           const char *params)
{
    return job_fixture_done(workspace_world_job(world, kind, name, params));
}

void workspace_world_do(struct workspace_world *world, const char *kind, const char *name,
                        const char *params)
{
    json_decref(workspace_world_ok(world, kind, name, params));
}

void workspace_world_fails(struct workspace_world *world, const char *kind, const char *name,
                           const char *params, enum err_code code, const char *words)
{
    job_fixture_failed(workspace_world_job(world, kind, name, params), err_code_name(code), words);
}

void workspace_world_cancelled(struct workspace_world *world, const char *kind, const char *name,
                               const char *params)
{
    char text[8192];
    char object[ID_LEN_MAX + 16];
    struct catalog_job row = {0};
    cleanup_free char *id = NULL;
    snprintf(text, sizeof text, params, workspace_world_path(world, "at"));
    snprintf(object, sizeof object, "workspace:%s", name);
    cleanup_json json_t *json = job_fixture_json(text);
    assert_int_equal(json_object_set_new(json, "name", json_string(name)), 0);
    const struct job_request request = {.kind = kind, .object = object, .params = json};
    assert_int_equal(engine_submit(world->engine, &request, &id, NULL), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    assert_int_equal(engine_cancel(world->engine, id, 0, NULL), 0);
    assert_int_equal(engine_wait(world->engine, id, 5, NULL), 1);
    assert_int_equal(catalog_job_get(world->node->catalog, id, &row, NULL), 0);
    assert_int_equal(row.state, CATALOG_JOB_CANCELLED);
    catalog_job_free(&row);
}

bool workspace_world_killed(struct workspace_world *world, const char *kind, const char *name,
                            const char *params, const char *fault)
{
    workspace_world_stop(world);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("VARVE_FAULT", fault, 1);
        workspace_world_start(world);
        struct catalog_job row = workspace_world_job(world, kind, name, params);
        catalog_job_free(&row);
        workspace_world_stop(world);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return killed;
}

const char *workspace_world_rows(struct workspace_world *world, const char *name)
{
    static char text[4300];
    struct catalog_workspace row = {0};
    if (catalog_workspace_get(world->node->catalog, name, &row, NULL) < 0)
        return "none";
    const char *base = row.wanted ? strrchr(row.mount.path, '/') + 1 : "nowhere";
    snprintf(text, sizeof text, "%s at %s%s%s%s", catalog_volume_state_name(row.volume.state), base,
             row.wanted ? " " : "", row.wanted ? catalog_mount_state_name(row.mount.state) : "",
             row.wanted && row.mount.read_only ? " read-only" : "");
    catalog_workspace_free(&row);
    return text;
}

const char *workspace_world_state(struct workspace_world *world, const char *name)
{
    static char text[40];
    struct catalog_workspace row = {0};
    assert_int_equal(catalog_workspace_get(world->node->catalog, name, &row, NULL), 0);
    cleanup_json json_t *json = workspace_json(world->node, &row, NULL);
    catalog_workspace_free(&row);
    assert_non_null(json);
    snprintf(text, sizeof text, "%s", json_string_value(json_object_get(json, "state")));
    return text;
}

const char *workspace_world_incident(struct workspace_world *world, const char *name)
{
    static char text[4096];
    struct catalog_workspace row = {0};
    assert_int_equal(catalog_workspace_get(world->node->catalog, name, &row, NULL), 0);
    snprintf(text, sizeof text, "%s", row.volume.incident ? row.volume.incident : "");
    catalog_workspace_free(&row);
    return text;
}

int workspace_world_events(struct workspace_world *world, const char *name, const char *event)
{
    const struct scratch *scratch = world->scratch;
    sqlite3 *db;
    sqlite3_stmt *stmt;
    char object[ID_LEN_MAX + 16];
    snprintf(object, sizeof object, "workspace:%s", name);
    assert_int_equal(sqlite3_open(scratch_path(scratch, "data/catalog.db"), &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT count(*) FROM events WHERE object = ? AND event = ?", -1,
                           &stmt, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_bind_text(stmt, 1, object, -1, SQLITE_STATIC), SQLITE_OK);
    assert_int_equal(sqlite3_bind_text(stmt, 2, event, -1, SQLITE_STATIC), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int count = sqlite3_column_int(stmt, 0);
    assert_int_equal(sqlite3_finalize(stmt), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return count;
}
