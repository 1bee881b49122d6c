#include "run_rollback.h"

#include "commit_blobs.h"
#include "fault.h"
#include "fdio.h"
#include "id.h"
#include "image_ref.h"
#include "layers.h"
#include "log.h"
#include "run.h"
#include "run_change.h"
#include "run_kill.h"
#include "snapshot.h"

#include <string.h>

struct rollback {
    struct job *job;
    struct node *node;
    const char *id;   /* of the run; borrowed from the parameters */
    const char *word; /* the snapshot or image; the same */
    bool kill;
    int killed;
    struct id safety; /* ID that the safety snapshot has when it is made */
    bool is_safe;     /* it was made */
};

static int read_params(struct rollback *ret, struct err *err)
{
    static const char what[] = "the request to roll a run back";
    const json_t *params = job_params(ret->job);
    int rc = json_doc_get_str(params, "id", what, &ret->id, err);
    if (rc == 0)
        rc = id_check(ret->id, "run ID", err);
    if (rc == 0)
        rc = json_doc_get_str(params, "snapshot", what, &ret->word, err);
    if (rc == 0)
        rc = json_doc_opt_bool(params, "kill", what, &ret->kill, err);
    return rc;
}

/* The job's own ID with another prefix, as everything that jobs make (engine.h). */
static void choose_safety_id(struct rollback *rollback)
{
    const char *dash = strchr(job_id(rollback->job), '-');
    snprintf(rollback->safety.s, sizeof rollback->safety.s, "s%s",
             dash ? dash : job_id(rollback->job));
}

/* Whether an earlier attempt, or this one, has made the safety snapshot. */
static int find_safety(struct rollback *rollback, struct err *err)
{
    cleanup_catalog_snapshot struct catalog_snapshot row = {0};
    struct err failure = ERR_INIT;
    int rc = catalog_snapshot_get(rollback->node->catalog, rollback->safety.s, &row, &failure);
    rc = err_found(err, rc, &failure);
    rollback->is_safe = rc == 1;
    return rc < 0 ? rc : 0;
}

/* 1 when the writable layer holds anything, 0 when not. */
static int is_changed(struct node *node, const char *id, struct err *err)
{
    cleanup_fd int fd = run_open_upper(node, id, err);
    if (fd < 0)
        return fd;
    cleanup_dir DIR *dir = fdio_list(fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list the writable layer of run %s", id);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list the writable layer of run %s", id)
                         : 0;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return 1;
    }
}

/* The only copy of what the run has written since its image was made (I4). */
static int make_safe(struct rollback *rollback, struct err *err)
{
    struct node *node = rollback->node;
    int changed = is_changed(node, rollback->id, err);
    if (changed <= 0)
        return changed;
    cleanup_json json_t *labels = json_pack("{s:s}", RUN_ROLLBACK_LABEL, "rollback");
    if (!labels)
        return err_errno(err, ENOMEM, "cannot describe the safety snapshot");
    const struct snapshot_wanted wanted = {.id = rollback->safety.s,
                                           .run = rollback->id,
                                           .labels = labels,
                                           .expires_ns = clock_wall_ns(&node->clock) +
                                                         RUN_ROLLBACK_SAFETY_S * CLOCK_NS_PER_S};
    int rc = snapshot_take_locked(rollback->job, &wanted, err);
    rollback->is_safe = rc == 0;
    return rc == 0 ? FAULT_POINT("run.rollback-safe", err) : rc;
}

/* The row, leased until the run's own names the image: nothing else keeps its layers (I5). Looked
 * up once more under the lease, as it may have been removed a moment before. */
static int get_image(struct rollback *rollback, const char *digest, struct catalog_image *ret,
                     struct err *err)
{
    struct catalog *catalog = rollback->node->catalog;
    cleanup_catalog_image struct catalog_image seen = {0};
    int rc = catalog_image_get(catalog, digest, &seen, err);
    if (rc == 0)
        rc = commit_blobs_lease_layers(rollback->job, &seen, err);
    return rc == 0 ? catalog_image_get(catalog, digest, ret, err) : rc;
}

static int change(struct rollback *rollback, const struct catalog_run *run, const char *digest,
                  struct err *err)
{
    struct node *node = rollback->node;
    cleanup_catalog_image struct catalog_image image = {0};
    int rc = get_image(rollback, digest, &image, err);
    if (rc == 0)
        rc = job_step(rollback->job, "layers", err);
    if (rc == 0)
        rc = layers_ensure(node, &image, NULL, job_stop, rollback->job, err);
    const struct run_switch wanted = {
        .id = run->id, .image = &image, .image_name = rollback->word, .job = job_id(rollback->job)};
    return rc == 0 ? run_change(rollback->job, &wanted, run, err) : rc;
}

/* With the lock, what the run is shows; an earlier attempt of this job may have made it that. */
static int roll_back_locked(struct rollback *rollback, const char *digest, struct err *err)
{
    struct node *node = rollback->node;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = run_settle(node, rollback->id, true, job_stop, rollback->job, err);
    if (rc == 0)
        rc = catalog_run_get(node->catalog, rollback->id, &run, err);
    if (rc == 0)
        rc = run_switch_is_done(node, run.id, job_id(rollback->job), err);
    if (rc != 0)
        return rc < 0 ? rc : run_mount_again(node, &run, job_stop, rollback->job, err);
    rc = make_safe(rollback, err);
    if (rc < 0)
        return err_wrap(err, rc, "the run is as it was, as its state could not be saved");
    return change(rollback, &run, digest, err);
}

/* The lock is held until the run is what it shall be. */
static int roll_back(struct rollback *rollback, struct err *err)
{
    cleanup_free char *digest = NULL;
    int rc = image_ref_local(rollback->node, rollback->word, &digest, err);
    if (rc < 0)
        return rc;
    cleanup_fd int lock = rollback->kill
                              ? run_kill_idle(rollback->node, rollback->id, &rollback->killed, err)
                              : run_lock_idle(rollback->node, rollback->id, err);
    return lock < 0 ? lock : roll_back_locked(rollback, digest, err);
}

static int check_ready(struct rollback *rollback, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = catalog_run_get(rollback->node->catalog, rollback->id, &run, err);
    if (rc == 0 && run.state != CATALOG_RUN_READY)
        rc = err_fail(err, ERR_CONFLICT, "run %s is %s", run.id, catalog_run_state_name(run.state));
    return rc;
}

static bool has_layer(const struct rollback *rollback)
{
    cleanup_fd int upper = run_open_upper(rollback->node, rollback->id, NULL);
    return upper >= 0;
}

/* The run is as it was, so what was saved of it is in it. */
static void drop_safety(const struct rollback *rollback)
{
    struct err failure = ERR_INIT;
    if (snapshot_drop(rollback->node, rollback->safety.s, &failure) < 0)
        log_event(LOG_WARN, "snapshot-not-taken-back", "snapshot", rollback->safety.s, "error",
                  failure.text, NULL);
}

static int go_on(struct rollback *rollback, struct err *err)
{
    struct job *job = rollback->job;
    int rc = find_safety(rollback, err);
    if (rc == 0)
        rc = job_step(job, "check", err);
    if (rc == 0)
        rc = check_ready(rollback, err);
    /* Of one whose volume is not mounted that shows later, under the lock. */
    int done = rc < 0 || !has_layer(rollback)
                   ? rc
                   : run_switch_is_done(rollback->node, rollback->id, job_id(job), err);
    if (done == 0)
        rc = roll_back(rollback, err);
    else
        rc = done < 0 ? done : run_mount_idle(rollback->node, rollback->id, job_stop, job, err);
    if (rc < 0 && err->code != ERR_INTERRUPTED && job_is_cancelled(job) && rollback->is_safe)
        drop_safety(rollback);
    return commit_blobs_end(job, rc, err);
}

static int run_rollback(struct job *job, json_t **ret_result, struct err *err)
{
    struct rollback rollback = {.job = job, .node = job_node(job)};
    cleanup_catalog_run struct catalog_run after = {0};
    int rc = read_params(&rollback, err);
    if (rc < 0)
        return rc;
    choose_safety_id(&rollback);
    rc = go_on(&rollback, err);
    if (rc == 0)
        rc = catalog_run_get(rollback.node->catalog, rollback.id, &after, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot roll run %s back", rollback.id);
    *ret_result =
        json_pack("{s:s, s:s, s:s?, s:i}", "id", after.id, "image", after.image, "safety_snapshot",
                  rollback.is_safe ? rollback.safety.s : NULL, "killed", rollback.killed);
    return *ret_result ? 0 : err_errno(err, ENOMEM, "cannot describe the result");
}

const struct job_kind run_rollback_job = {
    .name = "run.rollback", .run = run_rollback, .waits = true};
