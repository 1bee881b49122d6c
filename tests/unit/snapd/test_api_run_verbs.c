/* Routes of runs that are there. The daemon of these tests mounts nothing: what a bundle and a user
 * are is test_run_bundle.c. */
#include "api_handlers.h"

#include "cleanup.h"
#include "site.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect_job(const struct site *site, const char *path, const char *body,
                       const char *params)
{
    cleanup_json json_t *made = site_expect(site, 202, "POST", path, body);
    cleanup_json json_t *given =
        site_job_params(site, json_string_value(json_object_get(made, "job")));
    cleanup_free char *text = json_doc_dump(given);
    assert_string_equal(text, params);
}

static void test_jobs(void **state)
{
    struct site *site = *state;
    site_add_run(site, "one", site_add_image(site, "base:1", "a"));
    expect_job(site, "/v1/runs/one/mount", NULL, "{\"id\":\"one\"}");
    expect_job(site, "/v1/runs/one/mount", "{}", "{\"id\":\"one\"}");
    expect_job(site, "/v1/runs/one/reset", NULL, "{\"id\":\"one\"}");
    expect_job(site, "/v1/runs/one/rollback", "{'snapshot':'base:1'}",
               "{\"id\":\"one\",\"snapshot\":\"base:1\"}");
    expect_job(site, "/v1/runs/one/rollback", "{'kill':true,'snapshot':'base:1'}",
               "{\"id\":\"one\",\"kill\":true,\"snapshot\":\"base:1\"}");
}

static void test_one_job_at_a_time(void **state)
{
    struct site *site = *state;
    site_add_run(site, "one", site_add_image(site, "base:1", "a"));
    atomic_store(&site_shared.hold, true);
    json_decref(site_expect(site, 202, "POST", "/v1/runs/one/reset", NULL));
    site_refused(site, 409, "conflict", "run:one", "POST", "/v1/runs/one/mount", NULL);
    site_refused(site, 409, "conflict", "run:one", "POST", "/v1/runs/one/rollback",
                 "{'snapshot':'base:1'}");
}

static void test_refusals(void **state)
{
    struct site *site = *state;
    static const struct {
        int status;
        const char *code;
        const char *word;
        const char *path;
        const char *body;
    } cases[] = {
        {404, "not_found", "two", "/v1/runs/two/mount", NULL},
        {404, "not_found", "two", "/v1/runs/two/reset", NULL},
        {404, "not_found", "two", "/v1/runs/two/rollback", "{'snapshot':'base:1'}"},
        {404, "not_found", "two", "/v1/runs/two/bundle", "{'args':['sh']}"},
        {404, "not_found", "two", "/v1/runs/two/user", NULL},
        {404, "not_found", "other:1", "/v1/runs/one/rollback", "{'snapshot':'other:1'}"},
        {400, "invalid", "run ID", "/v1/runs/../reset", NULL},
        {400, "invalid", "run ID", "/v1/runs/../bundle", NULL},
        {400, "invalid", "Upper", "/v1/runs/one/rollback", "{'snapshot':'Upper'}"},
        {400, "invalid", "lacks 'snapshot'", "/v1/runs/one/rollback", "{}"},
        {400, "invalid", "'kill'", "/v1/runs/one/rollback", "{'snapshot':'base:1','kill':1}"},
        {400, "invalid", "'force'", "/v1/runs/one/reset", "{'force':true}"},
        {400, "invalid", "'args' is not an array", "/v1/runs/one/bundle", "{'args':'sh'}"},
        {400, "invalid", "member 1 of 'args'", "/v1/runs/one/bundle", "{'args':['sh',7]}"},
        {400, "invalid", "member 0 of 'env'", "/v1/runs/one/bundle", "{'env':[null]}"},
        {400, "invalid", "'terminal'", "/v1/runs/one/bundle", "{'terminal':'yes'}"},
        {400, "invalid", "'user'", "/v1/runs/one/user", "{'user':1000}"},
        {409, "conflict", "not mounted", "/v1/runs/one/bundle", "{'args':['sh']}"},
        {409, "conflict", "not mounted", "/v1/runs/one/user", "{'user':'root'}"},
    };
    site_add_run(site, "one", site_add_image(site, "base:1", "a"));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        site_refused(site, cases[i].status, cases[i].code, cases[i].word, "POST", cases[i].path,
                     cases[i].body);
}

static void test_lists_are_bounded(void **state)
{
    struct site *site = *state;
    site_add_run(site, "one", site_add_image(site, "base:1", "a"));
    for (int more = 0; more <= 1; more++) {
        cleanup_json json_t *args = json_array();
        for (int i = 0; i < API_STRINGS_MAX + more; i++)
            json_array_append_new(args, json_string("a"));
        cleanup_json json_t *body = json_pack("{s:O}", "args", args);
        cleanup_free char *text = json_doc_dump(body);
        if (more)
            site_refused(site, 400, "invalid", "more than 4096", "POST", "/v1/runs/one/bundle",
                         text);
        else
            site_refused(site, 409, "conflict", "not mounted", "POST", "/v1/runs/one/bundle", text);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_jobs),
        TEST(test_one_job_at_a_time),
        TEST(test_refusals),
        TEST(test_lists_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
