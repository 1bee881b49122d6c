#include "catalog_job.h"

#include "catalog_event.h"
#include "catalog_internal.h"
#include "catalog_stmt.h"
#include "id.h"
#include "json_doc.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const char *const state_names[] = {
    [CATALOG_JOB_QUEUED] = "queued",       [CATALOG_JOB_RUNNING] = "running",
    [CATALOG_JOB_DONE] = "done",           [CATALOG_JOB_FAILED] = "failed",
    [CATALOG_JOB_CANCELLED] = "cancelled",
};
static const struct catalog_words states = {"job state", state_names, ARRAY_SIZE(state_names)};

const char *catalog_job_state_name(enum catalog_job_state state)
{
    assert(state < ARRAY_SIZE(state_names));
    return state_names[state];
}

bool catalog_job_state_is_final(enum catalog_job_state state)
{
    return state != CATALOG_JOB_QUEUED && state != CATALOG_JOB_RUNNING;
}

void catalog_job_free(struct catalog_job *job)
{
    free(job->id);
    free(job->kind);
    free(job->object);
    free(job->key);
    free(job->params);
    free(job->step);
    free(job->progress_unit);
    free(job->error_code);
    free(job->error_message);
    free(job->error_hint);
    free(job->result);
    *job = (struct catalog_job){0};
}

static void free_job(void *record)
{
    catalog_job_free(record);
}

void catalog_step_free(struct catalog_step *step)
{
    free(step->name);
    *step = (struct catalog_step){0};
}

static void free_step(void *record)
{
    catalog_step_free(record);
}

static int fail_missing(const char *id, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "there is no job %s", id);
    err_hint(err, "`varve job ls` lists the jobs of this node");
    return rc;
}

#define JOB_COLUMNS                                                                                \
    "id, kind, object, key, uid, params, state, step, cancel, settled, attempt, progress_done, "   \
    "progress_total, progress_unit, error_code, error_message, error_hint, result, created_ns, "   \
    "started_ns, finished_ns"

static int read_job(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_job *job = ret;
    int state = 0;
    int64_t cancel = 0;
    int64_t settled = 0;
    int rc = catalog_stmt_read(stmt, err, "ssssiswsiiiiisssssitt", &job->id, &job->kind,
                               &job->object, &job->key, &job->uid, &job->params, &states, &state,
                               &job->step, &cancel, &settled, &job->attempt, &job->progress_done,
                               &job->progress_total, &job->progress_unit, &job->error_code,
                               &job->error_message, &job->error_hint, &job->result,
                               &job->created_ns, &job->started_ns, &job->finished_ns);
    job->state = (enum catalog_job_state)state;
    job->cancel = cancel != 0;
    job->settled = settled != 0;
    return rc;
}

static const struct catalog_rows job_rows = {sizeof(struct catalog_job), read_job, free_job};

int catalog_job_get(struct catalog *catalog, const char *id, struct catalog_job *ret,
                    struct err *err)
{
    int rc = catalog_stmt_get(catalog, &job_rows, "SELECT " JOB_COLUMNS " FROM jobs WHERE id = ?",
                              id, ret, err);
    return rc == 0 ? fail_missing(id, err) : rc < 0 ? rc : 0;
}

int catalog_job_list(struct catalog *catalog, bool unfinished, struct catalog_job **ret,
                     size_t *ret_count, struct err *err)
{
    /* By order of arrival, which a clock that was set back does not change. */
    const char *sql = unfinished ? "SELECT " JOB_COLUMNS
                                   " FROM jobs WHERE finished_ns IS NULL ORDER BY seq DESC"
                                 : "SELECT " JOB_COLUMNS " FROM jobs ORDER BY seq DESC";
    return catalog_stmt_list(catalog, &job_rows, sql, ret, ret_count, err);
}

int catalog_job_works_on(struct catalog *catalog, const char *object, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    return catalog_stmt_exists(
        catalog, err, "SELECT 1 FROM jobs WHERE object = ? AND finished_ns IS NULL", "s", object);
}

/* The one text of the parameters, so that equal requests compare equal. Caller frees. */
static int canonical(const char *params, char **ret, struct err *err)
{
    cleanup_json json_t *json = NULL;
    int rc = json_doc_parse(params, strlen(params), "the parameters of the job", &json, err);
    if (rc < 0)
        return rc;
    if (!json_is_object(json))
        return err_fail(err, ERR_INVALID, "the parameters of the job are not a JSON object");
    char *text = json_doc_dump(json);
    if (!text)
        return err_errno(err, ENOMEM, "cannot record the job");
    *ret = text;
    return 0;
}

/* Looks for a job with the same key: 1 and its ID when this request is the same, 0 when there is
 * none, ERR_CONFLICT when it is another request. */
static int find_key(struct catalog *catalog, const struct catalog_job *job, const char *params,
                    char **ret_existing, struct err *err)
{
    if (!job->key)
        return 0;
    cleanup_free char *id = NULL;
    int rc = catalog_stmt_text(catalog, &id, err, "SELECT id FROM jobs WHERE uid = ? AND key = ?",
                               "is", job->uid, job->key);
    if (rc != 1)
        return rc;
    rc = catalog_stmt_exists(catalog, err,
                             "SELECT 1 FROM jobs WHERE id = ? AND kind = ? AND params = ?", "sss",
                             id, job->kind, params);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        rc = err_fail(err, ERR_CONFLICT,
                      "the key %s belongs to another request, that of the job %s", job->key, id);
        err_hint(err, "use a new key for a new request");
        return rc;
    }
    *ret_existing = steal_ptr(id);
    return 1;
}

/* The schema allows one unfinished job per object; this says which it is. `seq` is that of a job
 * that may have it, 0: none. */
static int check_object(struct catalog *catalog, const char *object, int64_t seq, struct err *err)
{
    if (!object)
        return 0;
    cleanup_free char *id = NULL;
    int rc = catalog_stmt_text(catalog, &id, err,
                               "SELECT id FROM jobs WHERE object = ? AND finished_ns IS NULL"
                               " AND seq <> ?",
                               "si", object, seq);
    if (rc != 1)
        return rc;
    rc = err_fail(err, ERR_CONFLICT, "the job %s works on %s", id, object);
    err_hint(err, "wait for it with `varve job wait %s`", id);
    return rc;
}

static int insert_job(struct catalog *catalog, const struct catalog_job *job, const char *params,
                      struct err *err)
{
    int rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO jobs (id, kind, object, key, uid, params, state,"
                              " created_ns) VALUES (?, ?, ?, ?, ?, ?, 'queued', ?)"
                              " ON CONFLICT (id) DO NOTHING",
                              "ssssisi", job->id, job->kind, job->object, job->key, job->uid,
                              params, catalog_now(catalog));
    if (rc == 0)
        return err_fail(err, ERR_EXISTS, "there is a job %s already", job->id);
    return rc < 0 ? rc : 0;
}

int catalog_job_add(struct catalog *catalog, const struct catalog_job *job, char **ret_existing,
                    struct err *err)
{
    cleanup_free char *params = NULL;
    cleanup_free char *existing = NULL;
    int rc = canonical(job->params ? job->params : "{}", &params, err);
    if (rc < 0)
        return rc;
    cleanup_catalog_scope struct catalog_scope scope = {0};
    rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = find_key(catalog, job, params, &existing, err);
    if (rc == 0)
        rc = check_object(catalog, job->object, 0, err);
    if (rc == 0)
        rc = insert_job(catalog, job, params, err);
    if (rc >= 0)
        rc = catalog_scope_commit(&scope, err);
    if (rc == 0)
        *ret_existing = steal_ptr(existing);
    return rc;
}

/* What a change of a job starts from. */
struct job_row {
    int64_t seq;
    int64_t attempt;
    enum catalog_job_state state;
    bool cancel;
    bool settled;
};

static int find_job(struct catalog *catalog, const char *id, struct job_row *ret, struct err *err)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    int rc = catalog_stmt_begin(catalog, &stmt, err,
                                "SELECT seq, attempt, state, cancel, settled FROM jobs"
                                " WHERE id = ?",
                                "s", id);
    if (rc == 0)
        rc = catalog_stmt_step(&stmt, err);
    if (rc <= 0)
        return rc < 0 ? rc : fail_missing(id, err);
    int state;
    int64_t cancel;
    int64_t settled;
    rc = catalog_stmt_read(&stmt, err, "iiwii", &ret->seq, &ret->attempt, &states, &state, &cancel,
                           &settled);
    if (rc < 0)
        return rc;
    ret->state = (enum catalog_job_state)state;
    ret->cancel = cancel != 0;
    ret->settled = settled != 0;
    return 0;
}

static int find_running(struct catalog *catalog, const char *id, struct job_row *ret,
                        struct err *err)
{
    int rc = find_job(catalog, id, ret, err);
    if (rc == 0 && ret->state != CATALOG_JOB_RUNNING)
        return err_fail(err, ERR_CONFLICT, "the job %s is %s, not running", id,
                        state_names[ret->state]);
    return rc;
}

static int start_job(struct catalog *catalog, const char *id, struct err *err)
{
    struct job_row row;
    int rc = find_job(catalog, id, &row, err);
    if (rc < 0)
        return rc;
    if (catalog_job_state_is_final(row.state))
        return err_fail(err, ERR_CONFLICT, "the job %s is %s and cannot run again", id,
                        state_names[row.state]);
    int64_t now = catalog_now(catalog);
    rc = catalog_stmt_run(catalog, err,
                          "UPDATE jobs SET state = 'running', attempt = attempt + 1,"
                          " started_ns = coalesce(started_ns, ?), heartbeat_ns = ? WHERE seq = ?",
                          "iii", now, now, row.seq);
    return rc < 0 ? rc : 0;
}

int catalog_job_start(struct catalog *catalog, const char *id, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = start_job(catalog, id, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_job_move(struct catalog *catalog, const char *id, const char *object, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    struct job_row row;
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = find_running(catalog, id, &row, err);
    if (rc == 0)
        rc = check_object(catalog, object, row.seq, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "UPDATE jobs SET object = ? WHERE seq = ?", "si",
                              object, row.seq);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

/* Steps of earlier attempts that never ended stay so: they were interrupted. */
static int end_step(struct catalog *catalog, const struct job_row *row, struct err *err)
{
    int rc = catalog_stmt_run(catalog, err,
                              "UPDATE steps SET finished_ns = ?"
                              " WHERE job = ? AND attempt = ? AND finished_ns IS NULL",
                              "iii", catalog_now(catalog), row->seq, row->attempt);
    return rc < 0 ? rc : 0;
}

static int begin_step(struct catalog *catalog, const char *id, const char *step, struct err *err)
{
    struct job_row row;
    int rc = find_running(catalog, id, &row, err);
    if (rc == 0)
        rc = end_step(catalog, &row, err);
    if (rc < 0)
        return rc;
    int64_t now = catalog_now(catalog);
    rc = catalog_stmt_run(catalog, err,
                          "INSERT INTO steps (job, position, name, attempt, started_ns)"
                          " VALUES (?1, (SELECT count(*) FROM steps WHERE job = ?1), ?2, ?3, ?4)",
                          "isii", row.seq, step, row.attempt, now);
    if (rc >= 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE jobs SET step = ?, heartbeat_ns = ?, progress_done = 0,"
                              " progress_total = 0, progress_unit = NULL WHERE seq = ?",
                              "sii", step, now, row.seq);
    return rc < 0 ? rc : 0;
}

int catalog_job_step(struct catalog *catalog, const char *id, const char *step, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = begin_step(catalog, id, step, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_job_mark(struct catalog *catalog, const char *id, const char *step, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = begin_step(catalog, id, step, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static int settle_job(struct catalog *catalog, const char *id, const char *step, struct err *err)
{
    struct job_row row;
    int rc = find_running(catalog, id, &row, err);
    if (rc == 0 && row.cancel)
        return err_fail(err, ERR_CANCELLED, "it was cancelled");
    if (rc == 0)
        rc = begin_step(catalog, id, step, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "UPDATE jobs SET settled = 1 WHERE seq = ?", "i",
                              row.seq);
    return rc < 0 ? rc : 0;
}

int catalog_job_settle(struct catalog *catalog, const char *id, const char *step, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = settle_job(catalog, id, step, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_job_progress(struct catalog *catalog, const char *id, int64_t done, int64_t total,
                         const char *unit, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    struct job_row row;
    int rc = catalog_scope_begin_lazy(catalog, &scope, err);
    if (rc == 0)
        rc = find_running(catalog, id, &row, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "UPDATE jobs SET progress_done = ?, progress_total = ?,"
                              " progress_unit = ?, heartbeat_ns = ? WHERE seq = ?",
                              "iisii", done, total, unit, catalog_now(catalog), row.seq);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

static bool may_finish(enum catalog_job_state from, enum catalog_job_state to)
{
    return from == CATALOG_JOB_RUNNING ||
           (from == CATALOG_JOB_QUEUED && to == CATALOG_JOB_CANCELLED);
}

static int write_end(struct catalog *catalog, const struct job_row *row,
                     enum catalog_job_state state, const char *result, const struct err *failure,
                     struct err *err)
{
    bool done = state == CATALOG_JOB_DONE;
    struct err unexplained = ERR_INIT;
    if (state == CATALOG_JOB_FAILED && !failure) {
        err_fail(&unexplained, ERR_INTERNAL, "the job failed without saying why");
        failure = &unexplained;
    }
    const struct err *cause = done ? NULL : failure;
    const char *code = cause ? err_code_name(cause->code) : NULL;
    const char *message = cause ? cause->text : NULL;
    const char *hint = cause && cause->hint[0] != '\0' ? cause->hint : NULL;
    int rc = catalog_stmt_run(catalog, err,
                              "UPDATE jobs SET state = ?, result = ?, error_code = ?,"
                              " error_message = ?, error_hint = ?, finished_ns = ? WHERE seq = ?",
                              "sssssii", state_names[state], done ? result : NULL, code, message,
                              hint, catalog_now(catalog), row->seq);
    return rc < 0 ? rc : 0;
}

static int add_event(struct catalog *catalog, const char *event, const char *id, const char *detail,
                     struct err *err)
{
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "job:%.*s", ID_LEN_MAX, id);
    return catalog_event_add(catalog, event, object, detail, err);
}

static int finish_job(struct catalog *catalog, const char *id, enum catalog_job_state state,
                      const char *result, const struct err *failure, struct err *err)
{
    struct job_row row;
    int rc = find_job(catalog, id, &row, err);
    if (rc < 0)
        return rc;
    if (!may_finish(row.state, state))
        return err_fail(err, ERR_CONFLICT, "the job %s is %s and cannot become %s", id,
                        state_names[row.state], state_names[state]);
    rc = end_step(catalog, &row, err);
    if (rc == 0)
        rc = write_end(catalog, &row, state, result, failure, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err, "DELETE FROM leases WHERE job = ?", "i", row.seq);
    if (rc >= 0 && state == CATALOG_JOB_CANCELLED)
        rc = add_event(catalog, "job-cancelled", id, NULL, err);
    return rc < 0 ? rc : 0;
}

int catalog_job_finish(struct catalog *catalog, const char *id, enum catalog_job_state state,
                       const char *result, const struct err *failure, struct err *err)
{
    assert(catalog_job_state_is_final(state) && state < ARRAY_SIZE(state_names));
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = finish_job(catalog, id, state, result, failure, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

/* What stands against it. */
static int check_cancel(const char *id, const struct job_row *row, struct err *err)
{
    int rc = 0;
    if (row->state == CATALOG_JOB_DONE || row->state == CATALOG_JOB_FAILED) {
        rc = err_fail(err, ERR_CONFLICT, "the job %s is %s already", id, state_names[row->state]);
        err_hint(err, "see what came of it with `varve job show %s`", id);
    } else if (row->settled) {
        rc = err_fail(err, ERR_CONFLICT,
                      "the job %s can be cancelled no more: it does its last part, and ends by "
                      "itself",
                      id);
        err_hint(err, "wait for it with `varve job wait %s`", id);
    }
    return rc;
}

static int cancel_job(struct catalog *catalog, const char *id, int64_t uid, struct err *err)
{
    struct job_row row;
    char detail[48];
    struct err why = ERR_INIT;
    int rc = find_job(catalog, id, &row, err);
    if (rc == 0)
        rc = check_cancel(id, &row, err);
    if (rc < 0 || row.state == CATALOG_JOB_CANCELLED || row.cancel)
        return rc < 0 ? rc : row.state == CATALOG_JOB_CANCELLED;
    snprintf(detail, sizeof detail, "{\"uid\":%lld}", (long long)uid);
    rc = catalog_stmt_run(catalog, err, "UPDATE jobs SET cancel = 1 WHERE seq = ?", "i", row.seq);
    if (rc >= 0)
        rc = add_event(catalog, "job-cancel-asked", id, detail, err);
    if (rc < 0 || row.state == CATALOG_JOB_RUNNING)
        return rc < 0 ? rc : 0;
    (void)err_fail(&why, ERR_CANCELLED, "it was cancelled before it began");
    rc = finish_job(catalog, id, CATALOG_JOB_CANCELLED, NULL, &why, err);
    return rc < 0 ? rc : 1;
}

int catalog_job_cancel(struct catalog *catalog, const char *id, int64_t uid, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = cancel_job(catalog, id, uid, err);
    int committed = rc < 0 ? rc : catalog_scope_commit(&scope, err);
    return committed < 0 ? committed : rc;
}

static int read_step(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct catalog_step *step = ret;
    return catalog_stmt_read(stmt, err, "siit", &step->name, &step->attempt, &step->started_ns,
                             &step->finished_ns);
}

static const struct catalog_rows step_rows = {sizeof(struct catalog_step), read_step, free_step};

int catalog_job_steps(struct catalog *catalog, const char *id, struct catalog_step **ret,
                      size_t *ret_count, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    catalog_scope_read(catalog, &scope);
    struct job_row row;
    void *steps = NULL;
    int rc = find_job(catalog, id, &row, err);
    if (rc == 0)
        rc = catalog_stmt_begin(catalog, &stmt, err,
                                "SELECT name, attempt, started_ns, finished_ns FROM steps"
                                " WHERE job = ? ORDER BY position",
                                "i", row.seq);
    if (rc == 0)
        rc = catalog_stmt_records(&stmt, &step_rows, &steps, ret_count, err);
    if (rc == 0)
        *ret = steps;
    return rc;
}
