/* job.h - one unfinished job in memory, inside the engine (engine.h is the interface for others).
 *
 * The catalog's row is the truth; what is kept here is small, as thousands may wait: the ID, the
 * object, and for the job that runs its parameters and newest progress.
 *
 * job_run() is a job's whole life on a worker thread: start, work, final state. Whatever the
 * catalog cannot record is tried again with growing pauses until it can or the daemon stops; a
 * stop leaves the row unfinished and the next start goes on with it.
 */
#pragma once

#include "engine.h"
#include "id.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    JOB_UNIT_MAX = 32,
    JOB_RETRY_FIRST_MS = 100,
    JOB_RETRY_LAST_MS = 10000,
};

/* Jobs of which only so many run at once. */
struct job_class {
    size_t running; /* under the engine's lock */
    size_t max;
};

struct job {
    struct node *node;           /* borrowed */
    const atomic_bool *stopping; /* the engine's */
    char *id;
    pid_t peer;   /* who asked for it; 0: not known */
    char *object; /* NULL: nothing exclusive; changed by the worker that runs the job */

    /* Under the engine's lock. */
    struct job *next;
    bool waits;              /* for threads that others do not have */
    struct job_class *class; /* NULL: as many as there are threads; borrowed */
    bool running;            /* a worker has it */
    bool final;              /* no longer the engine's; waiters may still hold it */
    int refs;

    /* Of the worker that runs the job. */
    const struct job_kind *kind;
    json_t *params;
    atomic_bool interrupted; /* the work was told of the stop */
    atomic_bool cancelled;   /* its end was asked for, which the catalog has recorded; by anybody */
    atomic_bool told;        /* and the work was told of that */

    pthread_mutex_t lock; /* on what follows, the newest progress */
    int64_t written_ns;   /* monotonic time of the last progress in the catalog; 0: none */
    bool started;
    bool unwritten; /* the catalog has an older one */
    int64_t done;
    int64_t total;
    char unit[JOB_UNIT_MAX]; /* "" before the first progress of a step */
};

/* One reference is the caller's. NULL without memory. */
struct job *job_new(struct node *node, const atomic_bool *stopping, const char *id,
                    const char *object);
void job_free(struct job *job);

/* Runs a queued or interrupted job. True when its final state is recorded (or its row is gone),
 * false when the daemon's stop leaves it for the next start. */
bool job_run(struct job *job, const struct job_kind *const *kinds, size_t kind_count);

/* engine_overlay() for the job itself. */
void job_overlay(struct job *job, struct catalog_job *row);

/* Fills in the ID of what a job makes: the job's own with another prefix. */
int job_add_made_id(json_t *params, const char *prefix, const char *id, struct err *err);
