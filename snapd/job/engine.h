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
 * Cancelling: engine_cancel() has the catalog record the wish, then makes job_step(),
 * job_progress() and job_stop() of a running job fail with ERR_CANCELLED; so its function undoes
 * what it made, and the job is `cancelled`. One that nobody has begun ends at once. A job that a
 * former life had begun is run once more for its undoing alone, with a thread of its own. So that
 * `cancelled` means that nothing was done, and nobody is told that a job will be cancelled that is
 * done in the end, a function says where the point is behind which it goes on to its end: by
 * job_settle(), in the transaction that is its effect or directly before an effect that is none.
 * What an earlier attempt has settled is not cancelled any more; what it had only begun the
 * function has to find and undo also when its first step fails.
 *
 * Orderly stop: engine_stop() makes job_step() and job_progress() of running jobs fail with
 * ERR_INTERRUPTED; such a job stays `running` in the catalog and goes on at the next start.
 *
 * Exclusive objects: while a job with an object ("run:ID") is unfinished, another one for the same
 * object is ERR_CONFLICT, naming the first; equal keys join instead. A job whose last part, which
 * may be long, works on something else moves on to that (job_move()), and others may have the
 * first.
 *
 * IDs of what jobs make: a kind with an `id_prefix` makes an object whose ID is the job's own with
 * another prefix ("j-0123456789ab" makes "s-0123456789ab") unless the request names one. So a
 * repeat under the same key compares what the user sent, and a job that runs again makes the same
 * object.
 *
 * A job that ended the daemon more than ENGINE_CRASHES_MAX times fails, so that it cannot keep the
 * daemon down; the step "stopped" marks the attempts that an orderly stop ended.
 *
 * The final state and the end of the job's leases are one transaction. While the catalog cannot
 * record it (a full disk) the engine tries again and the object stays taken; a full disk gets the
 * node's reserve first, and so does a new job whose work frees space.
 *
 * What it does not do: priorities, removing old records.
 */
#pragma once

#include "catalog_job.h"
#include "json_doc.h"
#include "node.h"

#include <stdint.h>
#include <sys/types.h>

struct engine;
struct job;

struct job_kind {
    const char *name; /* "run.create" */
    /* Does the work. *ret_result (an object, may stay NULL) becomes the job's result. */
    int (*run)(struct job *job, json_t **ret_result, struct err *err);
    /* "r": job_params() of every job holds "id", see above. NULL: params are as they were sent. */
    const char *id_prefix;
    /* Its work frees space, so it may be recorded at the expense of the node's reserve. */
    bool frees_space;
    /* It may wait long for something that does not answer (the disk under a volume, its worker).
     * Such jobs have threads of their own, so that others, above all those that free space, are
     * never behind them. */
    bool waits;
    /* It may wait long for a registry: as above, and only so many of one kind at once, so that
     * neither other kinds nor those that wait for volumes are ever behind them. */
    bool remote;
    /* It waits too, and ends what others of these wait for: it is never behind them. */
    bool urgent;
};

enum {
    ENGINE_THREADS = 4,
    ENGINE_WAITERS_MAX = 16,  /* jobs that wait at once; threads are started when they are needed */
    ENGINE_REMOTE_MAX = 8,    /* jobs of one kind that wait for a registry at once, likewise */
    ENGINE_URGENT_MAX = 4,    /* threads more for urgent ones */
    ENGINE_QUEUE_MAX = 10000, /* unfinished jobs; more are ERR_CONFLICT */
    ENGINE_CRASHES_MAX = 20,
};

/* Starts the threads and queues what a former life left unfinished, oldest first. `kinds` is
 * borrowed. Sets node->engine. */
int engine_start(struct node *node, const struct job_kind *const *kinds, size_t kind_count,
                 struct engine **ret, struct err *err);
/* Jobs that run end soon; no other one begins. For who has to end what they wait for before the
 * stop. */
void engine_interrupt(struct engine *engine);
/* Interrupts, waits for the threads, frees. Nobody may be in another call. NULL is fine. */
void engine_stop(struct engine *engine);

struct job_request {
    const char *kind;
    const char *id;     /* of the job, from id_new("j"), when `object` was made of it; or NULL */
    const char *object; /* NULL: not exclusive */
    const char *key;    /* idempotency key or NULL */
    int64_t uid;        /* of the peer */
    pid_t peer;         /* the process; 0: not known */
    const json_t *params;
    /* Called when the request joins no earlier job, before it is recorded, inside the catalog's
     * transaction: what the state of this node refuses at once. May be NULL. */
    int (*check)(void *arg, struct err *err);
    void *check_arg;
};
/* Records and queues a job, or joins the one with the same key. Caller frees the ID. */
int engine_submit(struct engine *engine, const struct job_request *request, char **ret_id,
                  struct err *err);
/* Waits until the job is in a final state, at most `seconds`. 1 final, 0 not yet, or -errno. */
int engine_wait(struct engine *engine, const char *id, int seconds, struct err *err);
/* Asks for the end of a job, durably. 1: it is cancelled, also when it was before; 0: it will be.
 * ERR_NOT_FOUND; ERR_CONFLICT for one that has ended otherwise or is settled. `uid` is the peer's.
 */
int engine_cancel(struct engine *engine, const char *id, int64_t uid, struct err *err);
/* Puts the newest progress of a running job, which the catalog hears of once a second, into its
 * row. Other rows stay as they are. */
void engine_overlay(struct engine *engine, struct catalog_job *row);

/* For the functions of kinds. job_stop() and job_progress() may be called by several threads of one
 * job at once, the others by the job's own. */
struct node *job_node(const struct job *job);
const char *job_id(const struct job *job);
const json_t *job_params(const struct job *job);
/* The process that asked for it, in this life of the daemon; 0: not known. */
pid_t job_peer(const struct job *job);
/* Whether an earlier attempt of this job may have done some of its work. */
bool job_is_repeated(const struct job *job);
/* Notes durably that a step begins. Fails with ERR_INTERRUPTED when the daemon stops, and with
 * ERR_CANCELLED when somebody asked for the end of the job. */
int job_step(struct job *job, const char *step, struct err *err);
/* The same for the step from which on the job can be cancelled no more: what it has asked for is
 * done then, or begins. In a transaction that is open, which has to be given up when this fails, or
 * in one of its own. What follows fails for a stop of the daemon alone. */
int job_settle(struct job *job, const char *step, struct err *err);
/* Whether the work was told that somebody asked for its end. */
bool job_is_cancelled(const struct job *job);
/* Works on another object from now on (NULL: on nothing alone), durably: what it had is free, and
 * an attempt after a kill has the new one from its beginning. ERR_CONFLICT when another job has it.
 */
int job_move(struct job *job, const char *object, struct err *err);
/* 0, ERR_INTERRUPTED when the daemon stops, or ERR_CANCELLED. `job` is a struct job; the type is
 * that of convert_stop (restore/convert.h). */
int job_stop(void *job, struct err *err);
/* The same for a stop of the daemon alone, for what a job has to undo. */
int job_stop_undo(void *job, struct err *err);
/* Asks job_stop() for what can only be told yes or no, such as a remote (remote_progress), and
 * keeps why. */
struct job_asker {
    struct job *job;
    struct err stop; /* ERR_NONE while the job goes on */
};
int job_asker_ask(void *asker, uint64_t done, uint64_t total);
/* The failure of what was asked that way: the job's own where that was the cause. Returns it, or
 * `rc` when there was none. */
int job_asker_end(const struct job_asker *asker, int rc, struct err *err);
/* The same for a step that is for people to see and decides nothing: it survives a kill, and costs
 * no wait for the disk. */
int job_mark(struct job *job, const char *step, struct err *err);
/* Notes progress (written at most once a second). Fails only as job_stop(). */
int job_progress(struct job *job, uint64_t done, uint64_t total, const char *unit, struct err *err);
