#include "run.h"

#include "id.h"
#include "layers.h"
#include "run_change.h"

static int reset(struct job *job, const struct catalog_run *run, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_image struct catalog_image image = {0};
    int rc = job_step(job, "layers", err);
    if (rc == 0)
        rc = catalog_image_get(node->catalog, run->image, &image, err);
    if (rc == 0)
        rc = layers_ensure(node, &image, NULL, job_stop, job, err);
    const struct run_switch wanted = {
        .id = run->id, .image = &image, .image_name = run->image_name, .job = job_id(job)};
    return rc == 0 ? run_change(job, &wanted, run, err) : rc;
}

static int check_ready(struct node *node, const char *id, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc == 0 && run.state != CATALOG_RUN_READY)
        rc = err_fail(err, ERR_CONFLICT, "run %s is %s", id, catalog_run_state_name(run.state));
    return rc;
}

/* With the lock, what the run is shows; an earlier attempt of this job may have made it that. */
static int reset_locked(struct job *job, const char *id, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_run struct catalog_run run = {0};
    cleanup_fd int lock = run_lock_idle(node, id, err);
    int rc = lock < 0 ? lock : run_settle(node, id, true, job_stop, job, err);
    if (rc == 0)
        rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc == 0)
        rc = run_switch_is_done(node, id, job_id(job), err);
    if (rc < 0)
        return rc;
    return rc == 1 ? run_mount_again(node, &run, job_stop, job, err) : reset(job, &run, err);
}

static bool has_layer(struct node *node, const char *id)
{
    cleanup_fd int upper = run_open_upper(node, id, NULL);
    return upper >= 0;
}

static int run_reset(struct job *job, json_t **ret_result, struct err *err)
{
    struct node *node = job_node(job);
    const char *id = NULL;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = json_doc_get_str(job_params(job), "id", "the request to reset a run", &id, err);
    if (rc == 0)
        rc = id_check(id, "run ID", err);
    if (rc == 0)
        rc = job_step(job, "check", err);
    if (rc == 0)
        rc = check_ready(node, id, err);
    if (rc < 0)
        return rc;
    /* Of one whose volume is not mounted that shows later, under the lock. */
    rc = has_layer(node, id) ? run_switch_is_done(node, id, job_id(job), err) : 0;
    if (rc == 0)
        rc = reset_locked(job, id, err);
    else if (rc == 1)
        rc = run_mount_idle(node, id, job_stop, job, err);
    if (rc == 0)
        rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot reset run %s", id);
    *ret_result = run_json(node, &run, err);
    return *ret_result ? 0 : err_wrap(err, err->num ? -err->num : -ENOMEM, "cannot describe it");
}

const struct job_kind run_reset_job = {
    .name = "run.reset", .run = run_reset, .frees_space = true, .waits = true};
