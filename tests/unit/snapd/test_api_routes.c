#include "api_routes.h"

#include "cleanup.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_routes_and_their_variables(void **state)
{
    (void)state;
    static const struct {
        const char *method;
        const char *path;
        const char *pattern;
        const char *arg;
    } cases[] = {
        {"GET", "/healthz", "/healthz", NULL},
        {"HEAD", "/v1/version", "/v1/version", NULL},
        {"GET", "/v1/images/debian:12", "/v1/images/{ref...}", "debian:12"},
        {"GET", "/v1/images/h:1/a/b@sha256:0", "/v1/images/{ref...}", "h:1/a/b@sha256:0"},
        {"DELETE", "/v1/images/a%2Fb", "/v1/images/{ref...}", "a/b"},
        {"GET", "/v1/images/import", "/v1/images/{ref...}", "import"},
        {"POST", "/v1/images/import", "/v1/images/import", NULL},
        {"DELETE", "/v1/images/pull", "/v1/images/{ref...}", "pull"},
        {"POST", "/v1/images/export", "/v1/images/export", NULL},
        {"GET", "/v1/exports/j-1", "/v1/exports/{id}", "j-1"},
        {"POST", "/v1/snapshots/s-1/export", "/v1/snapshots/{id}/export", "s-1"},
        {"GET", "/v1/runs/r-1", "/v1/runs/{id}", "r-1"},
        {"GET", "/v1/runs/a%2Fb", "/v1/runs/{id}", "a/b"},
        {"POST", "/v1/snapshots/s-1/push", "/v1/snapshots/{id}/push", "s-1"},
        {"GET", "/v1/snapshots/images/a:1", "/v1/snapshots/{ref...}", "images/a:1"},
        {"GET", "/v1/workspaces/w", "/v1/workspaces/{name}", "w"},
        {"GET", "/v1/workspaces/mount", "/v1/workspaces/{name}", "mount"},
        {"POST", "/v1/workspaces/a%2Fb/mount", "/v1/workspaces/{name}/mount", "a/b"},
        {"GET", "/v1/jobs/j-1", "/v1/jobs/{id}", "j-1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct api_request request = {0};
        struct api_reply reply = {0};
        const struct api_route *route = NULL;
        int rc = api_routes_find(cases[i].method, cases[i].path, &request, &reply, &route, NULL);
        if (rc < 0 || strcmp(route->path, cases[i].pattern) != 0)
            fail_msg("%s %s: %d", cases[i].method, cases[i].path, rc);
        assert_int_equal(request.head, strcmp(cases[i].method, "HEAD") == 0);
        if (cases[i].arg)
            assert_string_equal(request.arg, cases[i].arg);
        else
            assert_null(request.arg);
        api_request_free(&request);
    }
}

static void test_no_route(void **state)
{
    (void)state;
    static const char *const paths[] = {"/",
                                        "/v1",
                                        "/healthz/",
                                        "/v1/images/",
                                        "/v1/runs//",
                                        "/v1/runs/a/b",
                                        "/v2/runs",
                                        "/v1/runsx",
                                        "/v1/run",
                                        "/v1/jobs/",
                                        "/v1/snapshots/s/pusher/x/"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct api_request request = {0};
        struct api_reply reply = {0};
        struct err err = ERR_INIT;
        const struct api_route *route = NULL;
        int rc = api_routes_find("POST", paths[i], &request, &reply, &route, &err);
        if (rc >= 0 || (err.code != ERR_NOT_FOUND && reply.status != 405))
            fail_msg("%s: %d %s", paths[i], rc, err.text);
        assert_null(route);
        assert_null(request.arg);
    }
}

static void test_methods_of_a_path(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *allow;
    } cases[] = {{"/v1/runs", "GET, HEAD, POST"},
                 {"/v1/runs/r", "GET, HEAD, DELETE"},
                 {"/v1/uploads", "POST"},
                 {"/v1/images/import", "GET, HEAD, POST, DELETE"},
                 {"/v1/snapshots/s/push", "GET, HEAD, POST"},
                 {"/v1/workspaces", "GET, HEAD, POST"},
                 {"/v1/workspaces/w", "GET, HEAD, DELETE"},
                 {"/v1/workspaces/w/resize", "POST"},
                 {"/v1/jobs", "GET, HEAD"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct api_request request = {0};
        struct api_reply reply = {0};
        struct err err = ERR_INIT;
        const struct api_route *route = NULL;
        assert_int_equal(api_routes_find("PUT", cases[i].path, &request, &reply, &route, &err),
                         -EINVAL);
        assert_int_equal(reply.status, 405);
        assert_string_equal(reply.allow, cases[i].allow);
        assert_non_null(strstr(err.text, cases[i].allow));
    }
}

/* No two routes take the same request, and each has what its kind of body needs. */
static void test_the_table(void **state)
{
    (void)state;
    size_t count;
    const struct api_route *routes = api_routes(&count);
    assert_true(count > 15);
    for (size_t i = 0; i < count; i++) {
        assert_true(routes[i].path[0] == '/');
        assert_true((routes[i].handler == NULL) == (routes[i].body == API_BODY_UPLOAD));
        if (strcmp(routes[i].method, "GET") == 0)
            assert_int_equal(routes[i].body, API_BODY_NONE);
        else if (strcmp(routes[i].method, "DELETE") == 0) /* how, never what */
            assert_true(routes[i].body == API_BODY_NONE || routes[i].body == API_BODY_OPTIONAL);
        for (size_t k = i + 1; k < count; k++)
            assert_false(strcmp(routes[i].method, routes[k].method) == 0 &&
                         strcmp(routes[i].path, routes[k].path) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes_and_their_variables),
        cmocka_unit_test(test_no_route),
        cmocka_unit_test(test_methods_of_a_path),
        cmocka_unit_test(test_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
