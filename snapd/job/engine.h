/* engine.h - runs jobs: record first, then work, on a fixed number of threads.
 *
 * Life of a job: engine_submit() writes its row (I2) and answers; a worker thread takes it, calls
 * its kind's function, and writes the final state. The work belongs to no request: a client that
 * goes away changes nothing.
 *
 * After a kill, engine_start() queues every unfinished job again, and its function runs from the
 * beginning. So every kind's function can be repeated: a step whose effect is there already does
 * nothing. A function that fails undoes what it made, unless the failure is ERR_INTERRUPTED.
 *
 * Orderly stop: engine_stop() makes job_step() and job_progress() of running jobs fail with
 * ERR_INTERRUPTED; such a job stays `running` in the catalog and goes on at the next start.
 *
 * Exclusive objects: while a job with an object ("run:ID") is unfinished, another one for the same
 * object is ERR_CONFLICT, naming the first; equal keys join instead.
 */
#pragma once

#include "json_doc.h"
#include "node.h"

#include <stdint.h>

struct engine;
struct job;

struct job_kind {
    const char *name; /* "run.create" */
    /* Does the work. *ret_result (an object, may stay NULL) becomes the job's result. */
    int (*run)(struct job *job, json_t **ret_result, struct err *err);
};

enum {
    ENGINE_THREADS = 4,
    ENGINE_QUEUE_MAX = 10000, /* unfinished jobs; more are ERR_CONFLICT */
};

/* Starts the threads and queues what a former life left unfinished. `kinds` is borrowed. */
int engine_start(struct node *node, const struct job_kind *const *kinds, size_t kind_count,
                 struct engine **ret, struct err *err);
/* Interrupts, waits for the threads, frees. */
void engine_stop(struct engine *engine);

struct job_request {
    const char *kind;
    const char *object; /* NULL: not exclusive */
    const char *key;    /* idempotency key or NULL */
    int64_t uid;        /* of the peer */
    const json_t *params;
};
/* Records and queues a job, or joins the one with the same key. Caller frees the ID. */
int engine_submit(struct engine *engine, const struct job_request *request, char **ret_id,
                  struct err *err);
/* Waits until the job is in a final state, at most `seconds`. 1 final, 0 not yet, or -errno. */
int engine_wait(struct engine *engine, const char *id, int seconds, struct err *err);

/* For the functions of kinds. */
struct node *job_node(const struct job *job);
const char *job_id(const struct job *job);
const json_t *job_params(const struct job *job);
/* Notes durably that a step begins. Fails with ERR_INTERRUPTED when the daemon stops. */
int job_step(struct job *job, const char *step, struct err *err);
/* Notes progress (written at most once a second). Same failure as job_step(). */
int job_progress(struct job *job, uint64_t done, uint64_t total, const char *unit,
                 struct err *err);
