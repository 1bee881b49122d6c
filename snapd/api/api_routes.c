#include "api_handlers.h"

#include <string.h>

static const struct api_route routes[] = {
    {"GET", "/healthz", API_BODY_NONE, false, api_healthz},
    {"GET", "/v1/version", API_BODY_NONE, false, api_version},
    {"POST", "/v1/uploads", API_BODY_UPLOAD, false, NULL},
    {"GET", "/v1/exports/{id}", API_BODY_NONE, false, api_exports_get},
    {"POST", "/v1/images/export", API_BODY_JSON, false, api_exports_image},
    {"POST", "/v1/images/import", API_BODY_JSON, false, api_images_import},
    {"POST", "/v1/images/pull", API_BODY_JSON, false, api_images_pull},
    {"GET", "/v1/images", API_BODY_NONE, false, api_images_list},
    {"GET", "/v1/images/{ref...}", API_BODY_NONE, false, api_images_get},
    {"DELETE", "/v1/images/{ref...}", API_BODY_NONE, false, api_images_remove},
    {"POST", "/v1/runs", API_BODY_JSON, false, api_runs_create},
    {"GET", "/v1/runs", API_BODY_NONE, false, api_runs_list},
    {"GET", "/v1/runs/{id}", API_BODY_NONE, false, api_runs_get},
    {"DELETE", "/v1/runs/{id}", API_BODY_NONE, false, api_runs_remove},
    {"POST", "/v1/runs/{id}/mount", API_BODY_OPTIONAL, false, api_run_verbs_mount},
    {"POST", "/v1/runs/{id}/reset", API_BODY_OPTIONAL, false, api_run_verbs_reset},
    {"POST", "/v1/runs/{id}/rollback", API_BODY_JSON, false, api_run_verbs_rollback},
    {"POST", "/v1/runs/{id}/bundle", API_BODY_OPTIONAL, false, api_run_verbs_bundle},
    {"POST", "/v1/runs/{id}/user", API_BODY_OPTIONAL, false, api_run_verbs_user},
    {"POST", "/v1/recover", API_BODY_OPTIONAL, false, api_recover},
    {"POST", "/v1/snapshots", API_BODY_JSON, false, api_snapshots_create},
    {"GET", "/v1/snapshots", API_BODY_NONE, false, api_snapshots_list},
    {"GET", "/v1/snapshots/{ref...}", API_BODY_NONE, false, api_snapshots_get},
    {"POST", "/v1/snapshots/{id}/export", API_BODY_OPTIONAL, false, api_exports_snapshot},
    {"POST", "/v1/snapshots/{id}/push", API_BODY_OPTIONAL, false, api_snapshots_push},
    {"DELETE", "/v1/snapshots/{id}", API_BODY_NONE, false, api_snapshots_remove},
    {"POST", "/v1/workspaces", API_BODY_JSON, false, api_workspaces_create},
    {"GET", "/v1/workspaces", API_BODY_NONE, false, api_workspaces_list},
    {"GET", "/v1/workspaces/{name}", API_BODY_NONE, false, api_workspaces_get},
    {"DELETE", "/v1/workspaces/{name}", API_BODY_OPTIONAL, false, api_workspaces_remove},
    {"POST", "/v1/workspaces/{name}/mount", API_BODY_JSON, false, api_workspaces_mount},
    {"POST", "/v1/workspaces/{name}/view", API_BODY_JSON, false, api_workspaces_view},
    {"POST", "/v1/workspaces/{name}/unmount", API_BODY_OPTIONAL, false, api_workspaces_unmount},
    {"POST", "/v1/workspaces/{name}/resize", API_BODY_JSON, false, api_workspaces_resize},
    {"POST", "/v1/workspaces/{name}/checkpoints", API_BODY_OPTIONAL, false, api_checkpoints_create},
    {"POST", "/v1/workspaces/{name}/rollback", API_BODY_JSON, false, api_workspaces_rollback},
    {"GET", "/v1/workspaces/{name}/checkpoints", API_BODY_NONE, false, api_checkpoints_list},
    {"GET", "/v1/jobs", API_BODY_NONE, false, api_jobs_list},
    {"GET", "/v1/jobs/{id}", API_BODY_NONE, true, api_jobs_get},
    {"POST", "/v1/jobs/{id}/cancel", API_BODY_OPTIONAL, false, api_jobs_cancel},
};

const struct api_route *api_routes(size_t *ret_count)
{
    *ret_count = ARRAY_SIZE(routes);
    return routes;
}

/* Whether the parts of a path fit a pattern. *ret_var is the index of the variable part, or -1;
 * *ret_rest says that it goes on to the end. An empty part fits no variable. */
static bool matches(const char *pattern, const struct api_path *path, int *ret_var, bool *ret_rest)
{
    int var = -1;
    bool rest = false;
    size_t i = 0;
    for (const char *at = pattern + 1; at; i++) {
        size_t len = strcspn(at, "/");
        if (i >= path->count)
            return false;
        const char *segment = path->segments[i];
        if (at[0] == '{') {
            if (segment[0] == '\0')
                return false;
            var = (int)i;
            rest = memcmp(at + len - 4, "...}", 4) == 0;
        } else if (strlen(segment) != len || memcmp(segment, at, len) != 0) {
            return false;
        }
        at = at[len] == '/' ? at + len + 1 : NULL;
    }
    if (i != path->count && !rest)
        return false;
    *ret_var = var;
    *ret_rest = rest;
    return true;
}

/* The variable part of a path, with its slashes when it goes on to the end. */
static int take_arg(const struct api_path *path, int var, bool rest, char **ret, struct err *err)
{
    if (var < 0)
        return 0;
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    size_t end = rest ? path->count : (size_t)var + 1;
    for (size_t i = (size_t)var; i < end; i++) {
        int rc = buf_addf(&text, err, "%s%s", i > (size_t)var ? "/" : "", path->segments[i]);
        if (rc < 0)
            return rc;
    }
    char *arg = buf_steal(&text);
    if (!arg)
        return err_fail(err, ERR_INTERNAL, "no memory for the path");
    free(*ret);
    *ret = arg;
    return 0;
}

/* All methods that a path has, as the Allow header wants them. Static, as the table is. */
static const char *allowed(const struct api_path *path)
{
    static const struct {
        const char *method;
        unsigned bit;
    } methods[] = {{"GET", 1}, {"POST", 2}, {"DELETE", 4}};
    static const char *const lists[] = {
        NULL,     "GET, HEAD",         "POST",         "GET, HEAD, POST",
        "DELETE", "GET, HEAD, DELETE", "POST, DELETE", "GET, HEAD, POST, DELETE"};
    unsigned bits = 0;
    int var;
    bool rest;
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        for (size_t m = 0; m < ARRAY_SIZE(methods); m++)
            if (matches(routes[i].path, path, &var, &rest) &&
                strcmp(routes[i].method, methods[m].method) == 0)
                bits |= methods[m].bit;
    }
    return lists[bits];
}

int api_routes_find(const char *method, const char *raw_path, struct api_request *request,
                    struct api_reply *reply, const struct api_route **ret, struct err *err)
{
    request->head = strcmp(method, "HEAD") == 0;
    if (request->head)
        method = "GET";
    cleanup_api_path struct api_path path = {0};
    int rc = api_path_parse(raw_path, &path, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        int var;
        bool rest;
        if (strcmp(routes[i].method, method) != 0 || !matches(routes[i].path, &path, &var, &rest))
            continue;
        rc = take_arg(&path, var, rest, &request->arg, err);
        if (rc < 0)
            return rc;
        *ret = &routes[i];
        return 0;
    }
    reply->allow = allowed(&path);
    if (!reply->allow)
        return err_fail(err, ERR_NOT_FOUND, "there is nothing at %.200s", raw_path);
    reply->status = 405;
    return err_fail(err, ERR_INVALID, "%.200s cannot be asked with %.20s, only with %s", raw_path,
                    method, reply->allow);
}
