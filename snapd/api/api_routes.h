/* api_routes.h - every route of the API in one table (docs/openapi.yaml describes them).
 *
 * A route is a method and the parts of a path, one of which may be variable. HEAD is GET without
 * the body. Handlers are in one file per object: api_images.c, api_runs.c and so on.
 */
#pragma once

#include "api_request.h"

/* Fills the reply, or fails; the server makes the error document. */
typedef int (*api_handler)(struct api_request *request, struct api_reply *reply, struct err *err);

enum api_body {
    API_BODY_NONE,
    API_BODY_OPTIONAL, /* an object, or nothing at all */
    API_BODY_JSON,
    API_BODY_UPLOAD, /* raw bytes, streamed to disk by api_uploads.h */
};

struct api_route {
    const char *method;
    const char *path; /* "/v1/runs/{id}"; "{ref...}" is the rest of the path */
    enum api_body body;
    bool takes_wait; /* ?wait=SECONDS */
    api_handler handler;
};

/* Finds the route and puts the variable part into request->arg. ERR_NOT_FOUND for a path that is
 * not known; for a method that the path does not have the status is 405 and `allow` is set. */
int api_routes_find(const char *method, const char *raw_path, struct api_request *request,
                    struct api_reply *reply, const struct api_route **ret, struct err *err);

/* All routes, for tests and documents. */
const struct api_route *api_routes(size_t *ret_count);
