/* workspace_fixture.h - a real node with a real engine on volumes that are none (fake_volumes.h),
 * for the tests of snapd/workspace.
 *
 * workspace_world_stop() and workspace_world_start() are a restart of the daemon, with what it does
 * at its start.
 */
#pragma once

#include "fake_volumes.h"
#include "job_fixture.h"
#include "node.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct workspace_world {
    void *scratch;
    struct node *node;
    struct engine *engine;
    struct workspace_settings settings; /* of the next start */
};

/* For cmocka; *state is a struct workspace_world with everything started and an empty directory
 * "at" to mount at. */
int workspace_world_setup(void **state);
int workspace_world_teardown(void **state);
#define with_workspaces(test)                                                                      \
    cmocka_unit_test_setup_teardown(test, workspace_world_setup, workspace_world_teardown)
/* The same with a workspace "w"; mounted at "at". */
int workspace_world_setup_one(void **state);
int workspace_world_setup_mounted(void **state);
#define with_one(test)                                                                             \
    cmocka_unit_test_setup_teardown(test, workspace_world_setup_one, workspace_world_teardown)
#define with_mounted(test)                                                                         \
    cmocka_unit_test_setup_teardown(test, workspace_world_setup_mounted, workspace_world_teardown)

void workspace_world_open(struct workspace_world *world); /* the node alone */
void workspace_world_start(struct workspace_world *world);
void workspace_world_stop(struct workspace_world *world);

/* "<scratch>/<name>", resolved; in one of a few static buffers. */
const char *workspace_world_path(const struct workspace_world *world, const char *name);

/* Submits a job for the workspace (params, JSON with single quotes, get its name and may hold %s:
 * the path of "at"), waits for its end and returns its row; the caller frees it. */
struct catalog_job workspace_world_job(struct workspace_world *world, const char *kind,
                                       const char *name, const char *params);
/* The same; the test fails unless it is done. Its result; the caller owns it. */
json_t *workspace_world_ok(struct workspace_world *world, const char *kind, const char *name,
                           const char *params);
/* The same for one whose result nobody wants. */
void workspace_world_do(struct workspace_world *world, const char *kind, const char *name,
                        const char *params);
/* The same for a job that has to fail with this code and these words. */
void workspace_world_fails(struct workspace_world *world, const char *kind, const char *name,
                           const char *params, enum err_code code, const char *words);
/* Begins a job, has it at work for a moment, cancels it, and waits for its end, which has to be
 * that, and soon. */
void workspace_world_cancelled(struct workspace_world *world, const char *kind, const char *name,
                               const char *params);
/* In a process of its own: starts everything, submits the job with the fault point armed
 * ("workspace.mounted=kill") and ends. The node is closed before and afterwards. Whether the point
 * was hit. */
bool workspace_world_killed(struct workspace_world *world, const char *kind, const char *name,
                            const char *params, const char *fault);

/* "detached at nowhere", "attached at PATH mounted": what the rows say, or "none". */
const char *workspace_world_rows(struct workspace_world *world, const char *name);
/* The member "state" of the document. */
const char *workspace_world_state(struct workspace_world *world, const char *name);
/* What the last incident was; "" when there was none. */
const char *workspace_world_incident(struct workspace_world *world, const char *name);
/* How many events of this kind the workspace has. */
int workspace_world_events(struct workspace_world *world, const char *name, const char *event);
