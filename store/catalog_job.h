/* catalog_job.h - jobs and their steps.
 *
 *   queued --> running --> done | failed | cancelled
 *     |           |  ^
 *     |           +--+  after a kill of the daemon: running again, attempt + 1
 *     +--> cancelled
 *
 * The end of a job can be asked for (catalog_job_cancel()) until it is *settled*: from then on it
 * does what was asked. Both are decided by the order of two transactions, so of each job it is
 * known which one came first, and a kill changes nothing about it.
 *
 * A job's row is durable before its first effect (I2). A key joins: a second request with the same
 * key, uid and body gets the first one's job; another body under it is ERR_CONFLICT. Bodies are
 * compared as canonical JSON, so that white space and the order of members do not matter. Keys live
 * as long as the row. Moves that the diagram does not show are ERR_CONFLICT.
 */
#pragma once

#include "catalog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum catalog_job_state {
    CATALOG_JOB_QUEUED,
    CATALOG_JOB_RUNNING,
    CATALOG_JOB_DONE,
    CATALOG_JOB_FAILED,
    CATALOG_JOB_CANCELLED,
};

struct catalog_job {
    char *id;
    char *kind;   /* "image.import", ... */
    char *object; /* what it works on now ("run:ID", "image:NAME"); NULL when nothing exclusive */
    char *key;    /* idempotency key; NULL when none */
    int64_t uid;  /* of the peer that asked */
    char *params; /* JSON object */
    enum catalog_job_state state;
    char *step;   /* current or last step; NULL before the first */
    bool cancel;  /* its end was asked for */
    bool settled; /* it is past the point at which it can be cancelled */
    int64_t attempt;
    int64_t progress_done;  /* in progress_unit */
    int64_t progress_total; /* 0: not known */
    char *progress_unit;    /* "bytes", "entries"; NULL when none */
    char *error_code;
    char *error_message;
    char *error_hint;
    char *result; /* JSON object; NULL until done */
    int64_t created_ns;
    int64_t started_ns;  /* 0 before */
    int64_t finished_ns; /* 0 before */
};

struct catalog_step {
    char *name;
    int64_t attempt;
    int64_t started_ns;
    int64_t finished_ns; /* 0 while it runs or when it was interrupted */
};

const char *catalog_job_state_name(enum catalog_job_state state);
bool catalog_job_state_is_final(enum catalog_job_state state);

void catalog_job_free(struct catalog_job *job);
#define cleanup_catalog_job cleanup_with(catalog_job_free)

/* Adds a queued job (uses id, kind, object, key, uid, params). With a key that is there already:
 * same uid, kind and params give the earlier job's ID in *ret_existing (caller frees) and return
 * 0 without adding; others are ERR_CONFLICT. *ret_existing is NULL when the job was added.
 * ERR_CONFLICT, naming it, when an unfinished job has the same object; ERR_EXISTS when the ID is
 * taken. */
int catalog_job_add(struct catalog *catalog, const struct catalog_job *job, char **ret_existing,
                    struct err *err);
int catalog_job_get(struct catalog *catalog, const char *id, struct catalog_job *ret,
                    struct err *err);
/* Newest first, by order of arrival. `unfinished` leaves out final states. */
int catalog_job_list(struct catalog *catalog, bool unfinished, struct catalog_job **ret,
                     size_t *ret_count, struct err *err);
/* Whether an unfinished job has this object: 1, 0, or -errno. */
int catalog_job_works_on(struct catalog *catalog, const char *object, struct err *err);
/* queued or running -> running, attempt + 1. Lazy (catalog_begin_lazy()). */
int catalog_job_start(struct catalog *catalog, const char *id, struct err *err);
/* A running job works on another object from now on, alone (NULL: on nothing so); the one that it
 * had is free. ERR_CONFLICT when another unfinished job has the new one, naming it. */
int catalog_job_move(struct catalog *catalog, const char *id, const char *object, struct err *err);
/* Notes that a step begins; the one before is finished and the progress begins anew. */
int catalog_job_step(struct catalog *catalog, const char *id, const char *step, struct err *err);
/* The same for a step that nothing is decided by: lazy. */
int catalog_job_mark(struct catalog *catalog, const char *id, const char *step, struct err *err);
/* As catalog_job_step(); from here on the job can be cancelled no more. ERR_CANCELLED when somebody
 * asked for its end before. Repeating it is fine. */
int catalog_job_settle(struct catalog *catalog, const char *id, const char *step, struct err *err);
/* Asks for the end of a job, in the name of a peer. One that is queued is cancelled at once; of one
 * that runs, or did before the daemon was ended, it is noted, and whoever runs it sees to the rest.
 * 1: it is cancelled, which it may have been before; 0: it will be. ERR_CONFLICT, which names the
 * state, for one that has ended otherwise or is settled. Nothing of that is lost by a power cut. */
int catalog_job_cancel(struct catalog *catalog, const char *id, int64_t uid, struct err *err);
/* Lazy; callers write it at most once a second. */
int catalog_job_progress(struct catalog *catalog, const char *id, int64_t done, int64_t total,
                         const char *unit, struct err *err);
/* Final state. `result` is JSON for done; `failure` is the error for failed and cancelled. The
 * job's leases end in the same transaction; of one that is cancelled there is an event. */
int catalog_job_finish(struct catalog *catalog, const char *id, enum catalog_job_state state,
                       const char *result, const struct err *failure, struct err *err);
int catalog_job_steps(struct catalog *catalog, const char *id, struct catalog_step **ret,
                      size_t *ret_count, struct err *err);
void catalog_step_free(struct catalog_step *step);
