#include "fault.h"
#include "job.h"
#include "log.h"

#include <string.h>
#include <time.h>

/* The step that marks an attempt as ended by an orderly stop, not by a crash. */
static const char stopped_step[] = "stopped";

/* One thing that the catalog must take; `arg` is its own. */
typedef int (*record_fn)(struct job *job, void *arg, struct err *err);

/* Failures that another try cannot mend: the row is gone, or somebody has ended the job. A
 * conflict alone may only be an operator's shell that keeps the database locked. */
static bool is_permanent(const struct job *job, const struct err *err)
{
    if (err->code == ERR_NOT_FOUND || err->code == ERR_INVALID)
        return true;
    cleanup_catalog_job struct catalog_job row = {0};
    return err->code == ERR_CONFLICT &&
           catalog_job_get(job->node->catalog, job->id, &row, NULL) == 0 &&
           catalog_job_state_is_final(row.state);
}

/* Waits, in pieces, so that a stop is noticed soon. Returns whether the daemon stops. */
static bool pause_ms(const struct job *job, int ms)
{
    for (; ms > 0 && !atomic_load(job->stopping); ms -= 50)
        (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return atomic_load(job->stopping);
}

/* Tries until the catalog has taken it. 0, -ECANCELED when the daemon stops before that, or the
 * failure that no further try would mend. */
static int insist(struct job *job, const char *what, record_fn record, void *arg)
{
    for (int wait = JOB_RETRY_FIRST_MS;; wait *= 2) {
        struct err failure = ERR_INIT;
        int rc = record(job, arg, &failure);
        if (rc >= 0)
            return 0;
        bool permanent = is_permanent(job, &failure);
        log_event(LOG_ERROR, permanent ? "job-record-refused" : "job-record-failed", "job", job->id,
                  "what", what, "error", failure.text, NULL);
        if (permanent)
            return rc;
        if (failure.code == ERR_NO_SPACE && node_reserve_release(job->node))
            continue;
        if (wait > JOB_RETRY_LAST_MS)
            wait = JOB_RETRY_LAST_MS;
        if (pause_ms(job, wait))
            return -ECANCELED;
    }
}

struct loaded {
    struct catalog_job row;
    int64_t crashes; /* attempts that ended neither finally nor by an orderly stop */
};

static int load(struct job *job, void *arg, struct err *err)
{
    struct loaded *loaded = arg;
    struct catalog_job row = {0};
    int rc = catalog_job_get(job->node->catalog, job->id, &row, err);
    if (rc < 0)
        return rc;
    struct catalog_step *steps = NULL;
    size_t count = 0;
    rc = catalog_job_steps(job->node->catalog, job->id, &steps, &count, err);
    if (rc < 0) {
        catalog_job_free(&row);
        return rc;
    }
    loaded->row = row;
    loaded->crashes = row.attempt;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(steps[i].name, stopped_step) == 0)
            loaded->crashes--;
        catalog_step_free(&steps[i]);
    }
    free(steps);
    return 0;
}

/* `arg` is a bool *: somebody has cancelled the job since it was read. */
static int record_start(struct job *job, void *arg, struct err *err)
{
    cleanup_catalog_job struct catalog_job row = {0};
    struct err failure = ERR_INIT;
    bool *ended = arg;
    int rc = catalog_job_start(job->node->catalog, job->id, &failure);
    *ended = rc < 0 && failure.code == ERR_CONFLICT &&
             catalog_job_get(job->node->catalog, job->id, &row, NULL) == 0 &&
             row.state == CATALOG_JOB_CANCELLED;
    return *ended ? 0 : err_pass(err, rc, &failure);
}

struct ending {
    enum catalog_job_state state;
    char *result;              /* NULL: none */
    const struct err *failure; /* of a job that failed or was cancelled */
};

/* A job that had nothing to settle may have come to its end before it heard that it should not. */
static int look_for_wish(const struct job *job, struct ending *ending, struct err *err)
{
    static const struct err why = {
        .num = ECANCELED, .code = ERR_CANCELLED, .text = "it was cancelled, at its end"};
    cleanup_catalog_job struct catalog_job row = {0};
    int rc = catalog_job_get(job->node->catalog, job->id, &row, err);
    if (rc == 0 && row.cancel && ending->state == CATALOG_JOB_DONE)
        *ending = (struct ending){.state = CATALOG_JOB_CANCELLED, .failure = &why};
    return rc;
}

/* The last progress, the final state and with it the end of the leases are one transaction. */
static int record_end(struct job *job, void *arg, struct err *err)
{
    struct ending *ending = arg;
    struct catalog *catalog = job->node->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = look_for_wish(job, ending, err);
    if (rc == 0 && job->unwritten)
        rc = catalog_job_progress(catalog, job->id, job->done, job->total, job->unit, err);
    if (rc >= 0)
        rc = catalog_job_finish(catalog, job->id, ending->state, ending->result, ending->failure,
                                err);
    return catalog_end(catalog, rc, err);
}

static const struct job_kind *find_kind(const struct job_kind *const *kinds, size_t count,
                                        const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

/* What has to be right before the work: the kind is known, the parameters can be read, and the
 * job has not brought the daemon down too often. */
static int prepare(struct job *job, const struct loaded *loaded, struct err *err)
{
    const struct catalog_job *row = &loaded->row;
    if (!job->kind)
        return err_fail(err, ERR_UNSUPPORTED, "this version of varved knows no jobs of kind '%s'",
                        row->kind);
    if (loaded->crashes > ENGINE_CRASHES_MAX) {
        int rc =
            err_fail(err, ERR_INTERRUPTED, "the daemon ended %lld times in the middle of this job",
                     (long long)loaded->crashes);
        err_hint(err, "look in the daemon's log for the cause before asking for it again");
        return rc;
    }
    const char *text = row->params ? row->params : "{}";
    int rc = json_doc_parse(text, strlen(text), "the job's parameters", &job->params, err);
    if (rc >= 0 && job->kind->id_prefix)
        rc = job_add_made_id(job->params, job->kind->id_prefix, job->id, err);
    return rc;
}

static int work(struct job *job, const struct loaded *loaded, json_t **ret_result, struct err *err)
{
    int rc = prepare(job, loaded, err);
    if (rc >= 0)
        rc = FAULT_POINT("job.started", err);
    if (rc >= 0)
        rc = job->kind->run(job, ret_result, err);
    /* A failure without a sentence would be silence. */
    if (rc < 0 && err->code == ERR_NONE)
        rc = err_errno(err, rc, "job of kind %s", loaded->row.kind);
    return rc < 0 ? rc : 0;
}

/* An interrupted job is left as it is; the mark keeps this attempt from counting as a crash. */
static bool leave(struct job *job)
{
    struct err failure = ERR_INIT;
    if (catalog_job_step(job->node->catalog, job->id, stopped_step, &failure) < 0)
        log_event(LOG_WARN, "job-stop-not-recorded", "job", job->id, "error", failure.text, NULL);
    log_event(LOG_INFO, "job-stopped", "job", job->id, NULL);
    return false;
}

/* Told to end, the work may have failed in words of its own. */
static void tell_cancelled(struct err *failure)
{
    struct err why = *failure;
    if (failure->code == ERR_CANCELLED)
        return;
    err_clear(failure);
    (void)err_fail(failure, ERR_CANCELLED, "it was cancelled: %s", why.text);
    if (why.hint[0])
        err_hint(failure, "%s", why.hint);
}

static bool finish(struct job *job, const char *kind, int rc, const json_t *result,
                   struct err *failure)
{
    cleanup_free char *text = result ? json_doc_dump(result) : NULL;
    bool cancelled = rc < 0 && atomic_load(&job->told);
    struct ending ending = {.state = cancelled ? CATALOG_JOB_CANCELLED
                                     : rc < 0  ? CATALOG_JOB_FAILED
                                               : CATALOG_JOB_DONE,
                            .result = rc < 0 ? NULL : text,
                            .failure = rc < 0 ? failure : NULL};
    if (cancelled)
        tell_cancelled(failure);
    struct err fault = ERR_INIT;
    if (FAULT_POINT("job.before-finish", &fault) < 0)
        log_event(LOG_WARN, "job-fault", "job", job->id, "error", fault.text, NULL);
    if (insist(job, "final state", record_end, &ending) == -ECANCELED)
        return false;
    log_event(ending.state == CATALOG_JOB_FAILED ? LOG_WARN : LOG_INFO, "job-finished", "job",
              job->id, "kind", kind, "state", catalog_job_state_name(ending.state), "error",
              ending.failure ? ending.failure->text : NULL, NULL);
    return true;
}

static bool run_loaded(struct job *job, const struct loaded *loaded)
{
    bool ended = false;
    int rc = insist(job, "start", record_start, &ended);
    if (rc < 0 || ended)
        return rc != -ECANCELED;
    pthread_mutex_lock(&job->lock);
    job->started = true;
    pthread_mutex_unlock(&job->lock);
    log_event(LOG_INFO, "job-started", "job", job->id, "kind", loaded->row.kind, "object",
              job->object, NULL);
    struct err failure = ERR_INIT;
    cleanup_json json_t *result = NULL;
    rc = work(job, loaded, &result, &failure);
    /* Told of the stop, the work may have failed in words of its own. Running it again is always
     * right; recording a failure would not be. */
    if (rc < 0 && (atomic_load(&job->interrupted) ||
                   (failure.code == ERR_INTERRUPTED && atomic_load(job->stopping))))
        return leave(job);
    return finish(job, loaded->row.kind, rc, result, &failure);
}

bool job_run(struct job *job, const struct job_kind *const *kinds, size_t kind_count)
{
    struct loaded loaded = {0};
    int rc = insist(job, "read", load, &loaded);
    if (rc < 0)
        return rc != -ECANCELED;
    bool final = catalog_job_state_is_final(loaded.row.state);
    if (!final) {
        job->kind = find_kind(kinds, kind_count, loaded.row.kind);
        final = run_loaded(job, &loaded);
    }
    catalog_job_free(&loaded.row);
    return final;
}
