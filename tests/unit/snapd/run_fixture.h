/* run_fixture.h - a real node with a real engine and images, for the tests of snapd/run.
 *
 * Everything is as in the daemon: catalog, blobs, jobs, layers that are converted and mounted,
 * overlay mounts. run_world_stop() and
 * run_world_start() are a restart, run_world_reboot() in between what a reboot does to RUN.
 */
#pragma once

#include "job_fixture.h"
#include "node.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct run_world {
    void *scratch;
    struct node *node;
    struct engine *engine;
};

/* For cmocka; *state is a struct run_world with everything started. */
int run_world_setup(void **state);
/* With the image "base:latest" and a run r1 of it, in whose root the file "work" says "done". */
int run_world_setup_run(void **state);
int run_world_teardown(void **state);
const struct scratch *run_world_scratch(const struct run_world *world);

void run_world_open(struct run_world *world);  /* the node alone */
void run_world_start(struct run_world *world); /* node, if it is not open, and engine */
void run_world_stop(struct run_world *world);
/* Unmounts everything below RUN and empties it. The node is closed. */
void run_world_reboot(struct run_world *world);

/* Makes an image of `layer_count` layers under a name (NULL: none) and returns its digest, which
 * the caller frees. Each layer holds "which" with its number from the top and "only-<number>"; the
 * root of the topmost one has mode 2751, owner 7:8, an attribute and an old time. Images of
 * different `salt` share nothing. */
char *run_world_image(struct run_world *world, const char *name, const char *salt,
                      size_t layer_count);
/* Puts it into this node's remote alone: what a pull needs. */
void run_world_remote_image(struct run_world *world, const char *repository, const char *tag,
                            const char *salt, size_t layer_count);

/* Submits a job for run `id` ("run.create", "run.rm"; params are JSON with single quotes), waits
 * for its end and returns its row, which the caller frees with catalog_job_free(). `id` NULL: as
 * the engine chooses. */
struct catalog_job run_world_job(struct run_world *world, const char *kind, const char *id,
                                 const char *params);
/* The same; the test fails unless the job is done. Its result; the caller owns it. */
json_t *run_world_job_ok(struct run_world *world, const char *kind, const char *id,
                         const char *params);
/* The same for a job that has to fail with this code and these words. */
void run_world_job_fails(struct run_world *world, const char *kind, const char *id,
                         const char *params, enum err_code code, const char *words);
/* Creates run `id` from the image that is named "base". */
void run_world_create(struct run_world *world, const char *id);
void run_world_unmount(struct run_world *world, const char *id);
void run_world_remove(struct run_world *world, const char *id);

/* Stops, and in a process of its own starts everything and submits the job, which the process must
 * not survive: it is killed at the fault point ("run.mounted"). Then the host reboots, if told, and
 * the node is opened. */
void run_world_killed_job(struct run_world *world, const char *kind, const char *id,
                          const char *params, const char *point, bool reboot);
/* A process that works in the run, or holds its lock as `run exec` does; SIGTERM does not end it.
 * run_world_end() kills it. */
pid_t run_world_process(const struct run_world *world, const char *id, bool lock);
void run_world_end(pid_t pid);

/* An image in which every second layer from the top is the same empty one, the others hold
 * "only-<number>" with "odd" in it, and no layer lists its root directory. Caller frees. */
char *run_world_odd_image(struct run_world *world, const char *name, size_t layer_count);
/* What an operator does who deletes every layer image. */
void run_world_delete_layers(const struct run_world *world);
/* Number of entries of a directory below the scratch directory. */
int run_world_count(const struct run_world *world, const char *name);
bool run_world_exists(const struct run_world *world, const char *name);
bool run_world_is_mounted(const struct run_world *world, const char *id);
/* Content of a file below the scratch directory. */
void run_world_assert_file(const struct run_world *world, const char *name, const char *expected);
void run_world_write(const struct run_world *world, const char *name, const char *text);
/* "creating", "ready", "removing", or "none" without a row. */
const char *run_world_state(const struct run_world *world, const char *id);
/* Nothing of a run is left: no row, no mount, no directory, nothing in DATA/tmp. */
void run_world_assert_gone(const struct run_world *world, const char *id);
/* Row ready, mounted, directories, content of its image. */
void run_world_assert_ready(const struct run_world *world, const char *id);
