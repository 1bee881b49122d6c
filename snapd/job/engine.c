#include "fault.h"
#include "job.h"
#include "log.h"

#include <string.h>

struct engine {
    struct node *node;
    const struct job_kind *const *kinds;
    size_t kind_count;
    atomic_bool stopping;
    pthread_t threads[ENGINE_THREADS];
    size_t thread_count;

    /* Held over a whole submission: who joins a job finds it in the list. Taken before the
     * catalog's transaction and before `lock`. */
    pthread_mutex_t submit_lock;

    /* Never held over a call of the catalog. */
    pthread_mutex_t lock;
    struct job_class volume_class;    /* jobs that wait, but not for a registry */
    struct job_class *remote_classes; /* of each kind */
    pthread_t *waiters;               /* for jobs that wait; as many as may run, urgent ones too */
    size_t waiter_max;
    size_t waiter_count;
    size_t idle_waiters;
    pthread_cond_t queued;   /* a job is waiting, or the engine stops */
    pthread_cond_t finished; /* a job is final, or the engine stops */
    struct job *jobs;        /* unfinished, oldest first */
    struct job **jobs_end;
    size_t job_count;
};

static void unref(struct job *job)
{
    if (--job->refs == 0)
        job_free(job);
}

static void *waiter(void *arg);

/* Whether it waits for the end of others of its class, which one that is to be undone does not. The
 * lock is held. */
static bool is_full(const struct job *job)
{
    return job->class && job->class->running >= job->class->max && !atomic_load(&job->cancelled);
}

/* Jobs that could run now if there were a thread, those that have threads of their own. The lock is
 * held. */
static size_t count_queued_waits(const struct engine *engine)
{
    size_t count = 0;
    for (const struct job *job = engine->jobs; job; job = job->next)
        count += job->waits && !job->running && !is_full(job);
    return count;
}

/* Without a thread more, what is queued waits for those there are. The lock is held. */
static void need_waiter(struct engine *engine)
{
    if (engine->waiter_count < engine->waiter_max && !atomic_load(&engine->stopping) &&
        count_queued_waits(engine) > engine->idle_waiters &&
        pthread_create(&engine->waiters[engine->waiter_count], NULL, waiter, engine) == 0)
        engine->waiter_count++;
}

static void append(struct engine *engine, struct job *job)
{
    pthread_mutex_lock(&engine->lock);
    *engine->jobs_end = job;
    engine->jobs_end = &job->next;
    engine->job_count++;
    if (job->waits)
        need_waiter(engine);
    pthread_cond_broadcast(&engine->queued); /* to each its kind */
    pthread_mutex_unlock(&engine->lock);
}

/* Takes a job off the list and lets waiters know. The lock is held. */
static void unlink_job(struct engine *engine, struct job *job)
{
    struct job **link = &engine->jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    if (engine->jobs_end == &job->next)
        engine->jobs_end = link;
    engine->job_count--;
    job->final = true;
    if (job->class && job->running)
        job->class->running--;
    pthread_cond_broadcast(&engine->finished);
    if (job->waits)
        pthread_cond_broadcast(&engine->queued); /* a thread may have waited for its place */
    unref(job);
}

static void forget(struct engine *engine, struct job *job)
{
    pthread_mutex_lock(&engine->lock);
    unlink_job(engine, job);
    pthread_mutex_unlock(&engine->lock);
}

/* The oldest job that nobody runs and that is for this thread. The lock is held. */
static struct job *oldest(const struct engine *engine, bool waits)
{
    /* A host that has no thread to give. */
    bool any = !waits && engine->waiter_count == 0;
    struct job *job = engine->jobs;
    while (job && (job->running || (job->waits != waits && !any) || is_full(job)))
        job = job->next;
    return job;
}

/* Waits for a job. NULL when the engine stops. */
static struct job *take(struct engine *engine, bool waits)
{
    struct job *job = NULL;
    pthread_mutex_lock(&engine->lock);
    engine->idle_waiters += waits;
    while (!atomic_load(&engine->stopping) && !(job = oldest(engine, waits)))
        pthread_cond_wait(&engine->queued, &engine->lock);
    engine->idle_waiters -= waits;
    if (atomic_load(&engine->stopping))
        job = NULL;
    if (job) {
        job->running = true;
        if (job->class)
            job->class->running++;
    }
    pthread_mutex_unlock(&engine->lock);
    return job;
}

static void work(struct engine *engine, bool waits)
{
    for (struct job *job; (job = take(engine, waits)) != NULL;) {
        bool final = job_run(job, engine->kinds, engine->kind_count);
        node_reserve_fill(engine->node);
        if (final)
            forget(engine, job);
    }
}

static void *worker(void *arg)
{
    work(arg, false);
    return NULL;
}

static void *waiter(void *arg)
{
    work(arg, true);
    return NULL;
}

static const struct job_kind *find_kind(const struct engine *engine, const char *name)
{
    for (size_t i = 0; i < engine->kind_count; i++)
        if (strcmp(engine->kinds[i]->name, name) == 0)
            return engine->kinds[i];
    return NULL;
}

static struct job *find(struct engine *engine, const char *id)
{
    struct job *job = engine->jobs;
    while (job && strcmp(job->id, id) != 0)
        job = job->next;
    return job;
}

static void take_class(struct engine *engine, struct job *job, const struct job_kind *kind)
{
    if (!kind)
        return;
    job->waits = kind->waits || kind->remote || kind->urgent;
    for (size_t i = 0; kind->remote && i < engine->kind_count; i++)
        if (engine->kinds[i] == kind)
            job->class = &engine->remote_classes[i];
    if (kind->waits)
        job->class = &engine->volume_class;
}

/* Queues what a former life left unfinished. The list comes newest first. */
static int queue_unfinished(struct engine *engine, struct err *err)
{
    struct catalog_job *rows = NULL;
    size_t count = 0;
    int rc = catalog_job_list(engine->node->catalog, true, &rows, &count, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot read the unfinished jobs");
    rc = 0;
    for (size_t i = count; i-- > 0 && rc == 0;) {
        const struct job_kind *kind = find_kind(engine, rows[i].kind);
        struct job *job = job_new(engine->node, &engine->stopping, rows[i].id, rows[i].object);
        if (job) {
            take_class(engine, job, kind);
            atomic_store(&job->cancelled, rows[i].cancel);
            job->waits = job->waits || rows[i].cancel;
            append(engine, job);
        } else
            rc = err_fail(err, ERR_INTERNAL, "no memory for %zu unfinished jobs", count);
    }
    for (size_t i = 0; i < count; i++)
        catalog_job_free(&rows[i]);
    free(rows);
    if (count > 0 && rc == 0) {
        char text[32];
        snprintf(text, sizeof text, "%zu", count);
        log_event(LOG_INFO, "jobs-resumed", "count", text, NULL);
    }
    return rc;
}

/* Room for the threads of all jobs that wait. False without memory. */
static bool make_classes(struct engine *engine)
{
    engine->volume_class.max = ENGINE_WAITERS_MAX;
    engine->waiter_max = ENGINE_WAITERS_MAX + ENGINE_URGENT_MAX;
    engine->remote_classes = calloc(engine->kind_count + 1, sizeof *engine->remote_classes);
    for (size_t i = 0; engine->remote_classes && i < engine->kind_count; i++) {
        engine->remote_classes[i].max = ENGINE_REMOTE_MAX;
        if (engine->kinds[i]->remote)
            engine->waiter_max += ENGINE_REMOTE_MAX;
    }
    engine->waiters = calloc(engine->waiter_max, sizeof *engine->waiters);
    return engine->remote_classes && engine->waiters;
}

static struct engine *engine_new(struct node *node, const struct job_kind *const *kinds,
                                 size_t kind_count)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return NULL;
    engine->node = node;
    engine->kinds = kinds;
    engine->kind_count = kind_count;
    engine->jobs_end = &engine->jobs;
    if (!make_classes(engine)) {
        free(engine->waiters);
        free(engine->remote_classes);
        free(engine);
        return NULL;
    }
    pthread_mutex_init(&engine->submit_lock, NULL);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->queued, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->finished, &attr);
    pthread_condattr_destroy(&attr);
    return engine;
}

int engine_start(struct node *node, const struct job_kind *const *kinds, size_t kind_count,
                 struct engine **ret, struct err *err)
{
    struct engine *engine = engine_new(node, kinds, kind_count);
    if (!engine)
        return err_fail(err, ERR_INTERNAL, "no memory for the job engine");
    pthread_mutex_lock(&node->engine_lock);
    node->engine = engine;
    pthread_mutex_unlock(&node->engine_lock);
    int rc = queue_unfinished(engine, err);
    while (rc >= 0 && engine->thread_count < ENGINE_THREADS) {
        rc = -pthread_create(&engine->threads[engine->thread_count], NULL, worker, engine);
        if (rc < 0)
            err_errno(err, rc, "cannot start a thread for jobs");
        else
            engine->thread_count++;
    }
    if (rc < 0) {
        engine_stop(engine);
        return rc;
    }
    *ret = engine;
    return 0;
}

void engine_interrupt(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    atomic_store(&engine->stopping, true);
    pthread_cond_broadcast(&engine->queued);
    pthread_cond_broadcast(&engine->finished);
    pthread_mutex_unlock(&engine->lock);
}

void engine_stop(struct engine *engine)
{
    if (!engine)
        return;
    engine_interrupt(engine);
    for (size_t i = 0; i < engine->thread_count; i++)
        pthread_join(engine->threads[i], NULL);
    for (size_t i = 0; i < engine->waiter_count; i++) /* none is added any more */
        pthread_join(engine->waiters[i], NULL);
    for (struct job *job = engine->jobs, *next; job; job = next) {
        next = job->next;
        unref(job);
    }
    pthread_mutex_lock(&engine->node->engine_lock);
    engine->node->engine = NULL;
    pthread_mutex_unlock(&engine->node->engine_lock);
    pthread_cond_destroy(&engine->finished);
    pthread_cond_destroy(&engine->queued);
    pthread_mutex_destroy(&engine->lock);
    pthread_mutex_destroy(&engine->submit_lock);
    free(engine->waiters);
    free(engine->remote_classes);
    free(engine);
}

static int check_room(struct engine *engine, struct err *err)
{
    pthread_mutex_lock(&engine->lock);
    size_t count = engine->job_count;
    pthread_mutex_unlock(&engine->lock);
    if (count < ENGINE_QUEUE_MAX)
        return 0;
    int rc = err_fail(err, ERR_CONFLICT, "%zu jobs are unfinished, no more are taken", count);
    err_hint(err, "wait until some are done");
    return rc;
}

/* A job whose end the catalog cannot take waits for room, and who asked for it too. */
static int check_disk(struct engine *engine, const struct job_kind *kind, struct err *err)
{
    if (kind->frees_space || node_reserve_has_room(engine->node))
        return 0;
    int rc = err_fail(err, ERR_NO_SPACE, "the disk of %s is full, no job is begun on it",
                      engine->node->data_dir);
    err_hint(err, "free some space there and try again");
    return rc;
}

/* Commits the row. A commit that fails may have happened all the same: the row tells. */
static int commit(struct engine *engine, const char *id, struct err *err)
{
    struct catalog *catalog = engine->node->catalog;
    struct err failure = ERR_INIT;
    int rc = catalog_commit(catalog, &failure);
    if (rc >= 0)
        return 0;
    catalog_rollback(catalog);
    cleanup_catalog_job struct catalog_job row = {0};
    return catalog_job_get(catalog, id, &row, NULL) < 0 ? err_pass(err, rc, &failure) : 0;
}

/* Adds the row, or finds the job to join (*ret_existing), in one transaction. The catalog keeps
 * two unfinished jobs from having one object. */
static int record(struct engine *engine, const struct job_request *request,
                  const struct job_kind *kind, const struct catalog_job *row, char **ret_existing,
                  struct err *err)
{
    struct catalog *catalog = engine->node->catalog;
    cleanup_free char *existing = NULL;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_job_add(catalog, row, &existing, err);
    if (rc >= 0 && !existing) {
        rc = check_room(engine, err);
        if (rc >= 0)
            rc = check_disk(engine, kind, err);
        if (rc >= 0 && request->check)
            rc = request->check(request->check_arg, err);
        if (rc >= 0)
            rc = commit(engine, row->id, err);
    }
    if (rc < 0 || existing)
        catalog_rollback(catalog);
    if (rc < 0)
        return rc;
    *ret_existing = steal_ptr(existing);
    return 0;
}

/* The reserve goes to what frees space, for else a full disk could not be emptied. */
static int record_at_any_cost(struct engine *engine, const struct job_request *request,
                              const struct job_kind *kind, const struct catalog_job *row,
                              char **ret_existing, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = record(engine, request, kind, row, ret_existing, &failure);
    if (rc >= 0)
        return rc;
    if (failure.code == ERR_NO_SPACE && kind->frees_space && node_reserve_release(engine->node))
        return record(engine, request, kind, row, ret_existing, err);
    return err_pass(err, rc, &failure);
}

static int submit_locked(struct engine *engine, const struct job_request *request,
                         const struct job_kind *kind, const struct catalog_job *row,
                         char **ret_existing, struct err *err)
{
    struct job *job = job_new(engine->node, &engine->stopping, row->id, row->object);
    if (!job)
        return err_fail(err, ERR_INTERNAL, "no memory for a job");
    job->peer = request->peer;
    take_class(engine, job, kind);
    int rc = record_at_any_cost(engine, request, kind, row, ret_existing, err);
    if (rc < 0 || *ret_existing) {
        job_free(job);
        return rc;
    }
    /* From here on the job exists, whatever the caller is told. */
    rc = FAULT_POINT("job.recorded", err);
    char uid[24];
    snprintf(uid, sizeof uid, "%lld", (long long)row->uid);
    log_event(LOG_INFO, "job-queued", "job", row->id, "kind", row->kind, "object", row->object,
              "uid", uid, NULL);
    append(engine, job);
    return rc;
}

int engine_submit(struct engine *engine, const struct job_request *request, char **ret_id,
                  struct err *err)
{
    const struct job_kind *kind = find_kind(engine, request->kind);
    if (!kind)
        return err_fail(err, ERR_UNSUPPORTED, "this version of varved knows no jobs of kind '%s'",
                        request->kind);
    if (atomic_load(&engine->stopping))
        return err_fail(err, ERR_CONFLICT, "the daemon is stopping and takes no more jobs");
    struct id made;
    int rc = request->id ? 0 : id_new("j", &made, err);
    if (rc < 0)
        return rc;
    cleanup_free char *id = strdup(request->id ? request->id : made.s);
    cleanup_free char *params = json_doc_dump(request->params);
    if (!id || !params)
        return err_fail(err, ERR_INTERNAL, "no memory for a job");
    struct catalog_job row = {.id = id,
                              .kind = (char *)request->kind,
                              .object = (char *)request->object,
                              .key = (char *)request->key,
                              .uid = request->uid,
                              .params = params};
    cleanup_free char *existing = NULL;
    pthread_mutex_lock(&engine->submit_lock);
    rc = submit_locked(engine, request, kind, &row, &existing, err);
    pthread_mutex_unlock(&engine->submit_lock);
    if (rc < 0)
        return rc;
    *ret_id = existing ? steal_ptr(existing) : steal_ptr(id);
    return 0;
}

/* The wish, at the expense of the reserve where the disk is full. As engine_cancel(). */
static int record_cancel(struct engine *engine, const char *id, int64_t uid, struct err *err)
{
    struct err failure = ERR_INIT;
    struct catalog *catalog = engine->node->catalog;
    int rc = catalog_job_cancel(catalog, id, uid, &failure);
    if (rc < 0 && failure.code == ERR_NO_SPACE && node_reserve_release(engine->node))
        return catalog_job_cancel(catalog, id, uid, err);
    return err_pass(err, rc, &failure);
}

int engine_cancel(struct engine *engine, const char *id, int64_t uid, struct err *err)
{
    /* Nothing is queued that is not in the list. */
    pthread_mutex_lock(&engine->submit_lock);
    int rc = record_cancel(engine, id, uid, err);
    pthread_mutex_unlock(&engine->submit_lock);
    if (rc < 0)
        return rc;
    log_event(LOG_INFO, "job-cancel-asked", "job", id, NULL);
    pthread_mutex_lock(&engine->lock);
    struct job *job = find(engine, id);
    if (job)
        atomic_store(&job->cancelled, true);
    if (job && !job->running && rc == 1) {
        unlink_job(engine, job);
    } else if (job && !job->running) {
        job->waits = true;
        need_waiter(engine);
        pthread_cond_broadcast(&engine->queued);
    }
    pthread_mutex_unlock(&engine->lock);
    return rc;
}

/* Waits on the job's own flag; the reference keeps it alive when the engine forgets it. */
static int wait_for(struct engine *engine, struct job *job, int seconds)
{
    const struct timespec until = clock_in_ms(seconds * INT64_C(1000));
    int rc = 0;
    while (!job->final && !atomic_load(&engine->stopping) && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&engine->finished, &engine->lock, &until);
    return job->final ? 1 : 0;
}

int engine_wait(struct engine *engine, const char *id, int seconds, struct err *err)
{
    pthread_mutex_lock(&engine->lock);
    struct job *job = find(engine, id);
    int rc = 0;
    if (job) {
        job->refs++;
        rc = wait_for(engine, job, seconds);
        unref(job);
    }
    pthread_mutex_unlock(&engine->lock);
    if (job)
        return rc;
    cleanup_catalog_job struct catalog_job row = {0};
    rc = catalog_job_get(engine->node->catalog, id, &row, err);
    return rc < 0 ? rc : catalog_job_state_is_final(row.state);
}

void engine_overlay(struct engine *engine, struct catalog_job *row)
{
    pthread_mutex_lock(&engine->lock);
    struct job *job = find(engine, row->id);
    if (job)
        job_overlay(job, row);
    pthread_mutex_unlock(&engine->lock);
}
