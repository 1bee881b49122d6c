/* world.h - an engine on a catalog of its own, with kinds of jobs that do as they are told, for the
 * tests of snapd/job.
 *
 *   test.good    two steps, a lease, progress; result {"given": params.value}
 *   test.bad     fails with a code, a sentence and a hint
 *   test.silent  fails with an errno alone
 *   test.hold    works until world_shared.go_on or the stop of the engine; with "own_words" it
 *                then fails with an error of its own; with "move" it works on that object first,
 *                with "settle" it is settled before; with "deaf" it does not ask while it holds,
 *                and with "late" it settles afterwards; it has a lease
 *   test.wait, .remote, .distant, .urgent  as test.hold, each of a class of its own (engine.h)
 *   test.short   a few milliseconds
 *   test.makes   notes the "id" in its parameters; id_prefix "s"
 *   test.effect  leaves a file named after the job
 */
#pragma once

#include "engine.h"
#include "id.h"
#include "scratch.h"

#include <stdatomic.h>

enum {
    WORLD_KINDS = 11,
};

/* What the kinds and the test share; cleared for each test. */
extern struct world_shared {
    atomic_int runs;    /* of good, hold and short */
    atomic_int working; /* of hold and short, at this moment */
    atomic_int working_max;
    atomic_bool go_on; /* lets "hold" end */
    int fd;            /* of the scratch directory, for "effect" */
    char made_id[ID_LEN_MAX + 1];
} world_shared;

extern const struct job_kind *const world_kinds[WORLD_KINDS];

struct world {
    void *scratch;
    struct node node; /* clock, catalog and engine alone */
    struct engine *engine;
};

/* For cmocka: *state is a struct world with an open catalog; the engine is not started. */
int world_setup(void **state);
int world_teardown(void **state);
const struct scratch *world_scratch(const struct world *world);

void world_open_catalog(struct world *world);
void world_start(struct world *world);
void world_stop(struct world *world);

/* Submits for uid 7. `params` is JSON with single quotes. The ID, which the caller frees, or NULL.
 */
char *world_submit(struct world *world, const char *kind, const char *object, const char *key,
                   const char *params, struct err *err);
/* The same; the test fails when it is refused. */
char *world_submit_ok(struct world *world, const char *kind, const char *object, const char *key,
                      const char *params);
/* Fails the test unless the job becomes final. */
void world_wait_final(struct world *world, const char *id);
struct catalog_job world_get(struct world *world, const char *id);
size_t world_count_jobs(struct world *world, bool unfinished);
/* Waits until so many "hold" jobs are at work. */
void world_wait_until_held(int count);
void world_nap_ms(int ms);
