#include "api_handlers.h"

#include <poll.h>

static json_t *progress_json(const struct catalog_job *job)
{
    if (!job->progress_unit)
        return json_null();
    return json_pack("{s:I, s:I, s:o}", "done", (json_int_t)job->progress_done, "total",
                     (json_int_t)job->progress_total, "unit", api_text(job->progress_unit));
}

/* The result was written by this program; if it cannot be read all the same, that is shown. */
static json_t *result_json(const struct catalog_job *job)
{
    if (!job->result)
        return json_null();
    json_t *result = json_loads(job->result, JSON_REJECT_DUPLICATES, NULL);
    return result ? result : json_pack("{s:s}", "unreadable", "the recorded result is damaged");
}

static json_t *error_json(const struct catalog_job *job)
{
    return job->error_code ? api_error(job->error_code, job->error_message, job->error_hint)
                           : json_null();
}

static json_t *job_json(const struct catalog_job *job)
{
    return json_pack("{s:o, s:o, s:o, s:s, s:b, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "id",
                     api_text(job->id), "kind", api_text(job->kind), "object",
                     api_text(job->object), "state", catalog_job_state_name(job->state), "cancel",
                     job->cancel, "step", api_text(job->step), "progress", progress_json(job),
                     "error", error_json(job), "result", result_json(job), "attempt",
                     (json_int_t)job->attempt, "created", api_time(job->created_ns), "started",
                     api_time(job->started_ns), "finished", api_time(job->finished_ns));
}

int api_jobs_list(struct api_request *request, struct api_reply *reply, struct err *err)
{
    struct catalog_job *jobs = NULL;
    size_t count = 0;
    int rc = catalog_job_list(request->node->catalog, false, &jobs, &count, err);
    if (rc < 0)
        return rc;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        engine_overlay(request->node->engine, &jobs[i]);
        (void)json_array_append_new(list, job_json(&jobs[i]));
        catalog_job_free(&jobs[i]);
    }
    free(jobs);
    return api_reply_set(reply, 200, json_pack("{s:o}", "jobs", list), err);
}

/* A client that has closed its end is not waited for. */
static bool client_is_gone(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* In pieces of a second, so that the end of the daemon or of the client is noticed. A bounded
 * number of clients is waited for; the others are answered at once and may ask again. */
static int wait_for(struct api_request *request, struct err *err)
{
    struct api_context *context = request->context;
    bool admitted = atomic_fetch_add(&context->waiters, 1) < API_WAITERS_MAX;
    int rc = 0;
    for (int i = 0; admitted && rc == 0 && i < request->wait_s; i++) {
        if (atomic_load(&context->stopping) || client_is_gone(request->fd))
            break;
        rc = engine_wait(request->node->engine, request->arg, 1, err);
    }
    atomic_fetch_sub(&context->waiters, 1);
    return rc < 0 ? rc : 0;
}

static int add_steps(struct node *node, const char *id, json_t *job, struct err *err)
{
    struct catalog_step *steps = NULL;
    size_t count = 0;
    int rc = catalog_job_steps(node->catalog, id, &steps, &count, err);
    if (rc < 0)
        return rc;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *step =
            json_pack("{s:o, s:I, s:o, s:o}", "name", api_text(steps[i].name), "attempt",
                      (json_int_t)steps[i].attempt, "started", api_time(steps[i].started_ns),
                      "finished", api_time(steps[i].finished_ns));
        (void)json_array_append_new(list, step);
        catalog_step_free(&steps[i]);
    }
    free(steps);
    if (json_object_set_new(job, "steps", list) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for the answer");
    return 0;
}

static int reply_job(struct api_request *request, int status, struct api_reply *reply,
                     struct err *err)
{
    cleanup_catalog_job struct catalog_job job = {0};
    int rc = catalog_job_get(request->node->catalog, request->arg, &job, err);
    if (rc < 0)
        return rc;
    engine_overlay(request->node->engine, &job);
    cleanup_json json_t *body = job_json(&job);
    if (!body)
        return err_fail(err, ERR_INTERNAL, "no memory for the answer");
    rc = add_steps(request->node, request->arg, body, err);
    return rc < 0 ? rc : api_reply_set(reply, status, steal_ptr(body), err);
}

int api_jobs_get(struct api_request *request, struct api_reply *reply, struct err *err)
{
    int rc = id_check(request->arg, "job ID", err);
    if (rc >= 0 && request->wait_s > 0)
        rc = wait_for(request, err);
    return rc < 0 ? rc : reply_job(request, 200, reply, err);
}

int api_jobs_cancel(struct api_request *request, struct api_reply *reply, struct err *err)
{
    cleanup_json json_t *params = NULL;
    int rc = id_check(request->arg, "job ID", err);
    if (rc >= 0)
        rc = api_request_params(request, NULL, 0, &params, err);
    if (rc >= 0)
        rc = engine_cancel(request->node->engine, request->arg, request->uid, err);
    return rc < 0 ? rc : reply_job(request, rc == 1 ? 200 : 202, reply, err);
}

int api_jobs_submit(struct api_request *request, struct job_request *job, struct api_reply *reply,
                    struct err *err)
{
    job->key = request->key;
    job->uid = request->uid;
    job->peer = request->pid;
    cleanup_free char *id = NULL;
    int rc = engine_submit(request->node->engine, job, &id, err);
    if (rc < 0)
        return rc;
    return api_reply_set(reply, 202, json_pack("{s:s}", "job", id), err);
}
