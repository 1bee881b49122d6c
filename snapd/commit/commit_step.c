#include "commit_step.h"

#include <string.h>

int commit_step_reached(struct job *job, const char *step, bool *ret, struct err *err)
{
    struct catalog_step *steps = NULL;
    size_t count = 0;
    int rc = catalog_job_steps(job_node(job)->catalog, job_id(job), &steps, &count, err);
    if (rc < 0)
        return rc;
    bool reached = false;
    for (size_t i = 0; i < count; i++) {
        reached = reached || strcmp(steps[i].name, step) == 0;
        catalog_step_free(&steps[i]);
    }
    free(steps);
    *ret = reached;
    return 0;
}
