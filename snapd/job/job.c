#include "job.h"

#include "log.h"

#include <string.h>

struct job *job_new(struct node *node, const atomic_bool *stopping, const char *id,
                    const char *object)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->node = node;
    job->stopping = stopping;
    job->refs = 1;
    job->id = strdup(id);
    job->object = object ? strdup(object) : NULL;
    pthread_mutex_init(&job->lock, NULL);
    if (!job->id || (object && !job->object)) {
        job_free(job);
        return NULL;
    }
    return job;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    json_decref(job->params);
    pthread_mutex_destroy(&job->lock);
    free(job->object);
    free(job->id);
    free(job);
}

struct node *job_node(const struct job *job)
{
    return job->node;
}

const char *job_id(const struct job *job)
{
    return job->id;
}

const json_t *job_params(const struct job *job)
{
    return job->params;
}

pid_t job_peer(const struct job *job)
{
    return job->peer;
}

bool job_is_repeated(const struct job *job)
{
    cleanup_catalog_job struct catalog_job row = {0};
    return catalog_job_get(job->node->catalog, job->id, &row, NULL) == 0 && row.attempt > 1;
}

int job_stop_undo(void *arg, struct err *err)
{
    struct job *job = arg;
    if (!atomic_load(job->stopping))
        return 0;
    atomic_store(&job->interrupted, true);
    return err_fail(err, ERR_INTERRUPTED, "the daemon is stopping");
}

int job_stop(void *arg, struct err *err)
{
    struct job *job = arg;
    int rc = job_stop_undo(job, err);
    if (rc < 0 || !atomic_load(&job->cancelled))
        return rc;
    atomic_store(&job->told, true);
    return err_fail(err, ERR_CANCELLED, "it was cancelled");
}

bool job_is_cancelled(const struct job *job)
{
    return atomic_load(&job->told);
}

int job_asker_ask(void *arg, uint64_t done, uint64_t total)
{
    struct job_asker *asker = arg;
    (void)done, (void)total;
    return job_stop(asker->job, &asker->stop) < 0;
}

int job_asker_end(const struct job_asker *asker, int rc, struct err *err)
{
    if (rc >= 0 || asker->stop.code == ERR_NONE)
        return rc;
    err_clear(err);
    return err_pass(err, -asker->stop.num, &asker->stop);
}

static int begin_step(struct job *job, struct err *err)
{
    int rc = job_stop(job, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&job->lock);
    job->unit[0] = '\0';
    job->unwritten = false;
    pthread_mutex_unlock(&job->lock);
    return 0;
}

int job_step(struct job *job, const char *step, struct err *err)
{
    int rc = begin_step(job, err);
    return rc < 0 ? rc : catalog_job_step(job->node->catalog, job->id, step, err);
}

int job_settle(struct job *job, const char *step, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = begin_step(job, err);
    if (rc < 0)
        return rc;
    rc = catalog_job_settle(job->node->catalog, job->id, step, &why);
    /* Asked for before anybody here heard of it. */
    if (rc < 0 && why.code == ERR_CANCELLED)
        atomic_store(&job->told, true);
    return err_pass(err, rc, &why);
}

int job_mark(struct job *job, const char *step, struct err *err)
{
    int rc = begin_step(job, err);
    return rc < 0 ? rc : catalog_job_mark(job->node->catalog, job->id, step, err);
}

int job_move(struct job *job, const char *object, struct err *err)
{
    cleanup_free char *copy = object ? strdup(object) : NULL;
    int rc = job_stop(job, err);
    if (rc < 0)
        return rc;
    if (object && !copy)
        return err_fail(err, ERR_INTERNAL, "no memory for job %s", job->id);
    rc = catalog_job_move(job->node->catalog, job->id, object, err);
    if (rc < 0)
        return rc;
    log_event(LOG_INFO, "job-moved", "job", job->id, "from", job->object, "object", object, NULL);
    free(job->object);
    job->object = steal_ptr(copy);
    return 0;
}

static int64_t clamp(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

int job_progress(struct job *job, uint64_t done, uint64_t total, const char *unit, struct err *err)
{
    int rc = job_stop(job, err);
    if (rc < 0)
        return rc;
    int64_t now = clock_mono_ns(&job->node->clock);
    pthread_mutex_lock(&job->lock);
    bool write = job->written_ns == 0 || now - job->written_ns >= CLOCK_NS_PER_S;
    if (write)
        job->written_ns = now;
    job->done = clamp(done);
    job->total = clamp(total);
    snprintf(job->unit, sizeof job->unit, "%s", unit);
    job->unwritten = !write;
    pthread_mutex_unlock(&job->lock);
    if (!write)
        return 0;
    /* Lost progress is no reason to fail a job; what matters has its own step. */
    struct err failure = ERR_INIT;
    if (catalog_job_progress(job->node->catalog, job->id, clamp(done), clamp(total), unit,
                             &failure) < 0)
        log_event(LOG_WARN, "job-progress-lost", "job", job->id, "error", failure.text, NULL);
    return 0;
}

void job_overlay(struct job *job, struct catalog_job *row)
{
    if (row->state != CATALOG_JOB_RUNNING)
        return;
    pthread_mutex_lock(&job->lock);
    if (job->started) {
        free(row->progress_unit);
        row->progress_unit = job->unit[0] ? strdup(job->unit) : NULL;
        row->progress_done = job->unit[0] ? job->done : 0;
        row->progress_total = job->unit[0] ? job->total : 0;
    }
    pthread_mutex_unlock(&job->lock);
}

int job_add_made_id(json_t *params, const char *prefix, const char *id, struct err *err)
{
    if (json_object_get(params, "id"))
        return 0;
    const char *dash = strchr(id, '-');
    char made[ID_LEN_MAX + 1];
    snprintf(made, sizeof made, "%s%s", prefix, dash ? dash : id);
    if (json_object_set_new(params, "id", json_string(made)) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for the parameters of job %s", id);
    return 0;
}
