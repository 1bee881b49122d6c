#include "api_handlers.h"

#include "recover.h"

int api_recover(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"plan", API_BOOL, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    struct job_request job = {.kind = recover_job.name, .object = "recover", .params = params};
    return api_jobs_submit(request, &job, reply, err);
}
