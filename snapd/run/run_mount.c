#include "run.h"

#include "id.h"
#include "run_internal.h"

static int mount_run(struct job *job, json_t **ret_result, struct err *err)
{
    struct node *node = job_node(job);
    const char *id = NULL;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = json_doc_get_str(job_params(job), "id", "the request to mount a run", &id, err);
    if (rc == 0)
        rc = id_check(id, "run ID", err);
    if (rc == 0)
        rc = job_step(job, "mount", err);
    if (rc == 0)
        rc = run_mount_idle(node, id, job_stop, job, err);
    if (rc == 0)
        rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc < 0)
        return rc;
    *ret_result = run_json(node, &run, err);
    return *ret_result ? 0 : err_wrap(err, err->num ? -err->num : -ENOMEM, "cannot describe it");
}

const struct job_kind run_mount_job = {.name = "run.mount", .run = mount_run, .waits = true};
