/* Routes of workspaces. The kinds of jobs here note what they are given: what becomes of a volume
 * is tested with the jobs themselves. */
#include "api_handlers.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "site.h"

#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define GIB (INT64_C(1) << 30)

static void expect_job(const struct site *site, const char *method, const char *path,
                       const char *body, const char *params)
{
    cleanup_json json_t *made = site_expect(site, 202, method, path, body);
    cleanup_json json_t *given =
        site_job_params(site, json_string_value(json_object_get(made, "job")));
    cleanup_free char *text = json_doc_dump(given);
    assert_string_equal(text, params);
}

static void test_jobs(void **state)
{
    struct site *site = *state;
    site_add_workspace(site, "one", GIB, NULL, false);
    expect_job(site, "POST", "/v1/workspaces", "{'name':'w'}", "{\"name\":\"w\"}");
    expect_job(site, "POST", "/v1/workspaces", "{'name':'w','size':null}", "{\"name\":\"w\"}");
    expect_job(site, "POST", "/v1/workspaces", "{'name':'w','size':67108864}",
               "{\"name\":\"w\",\"size\":67108864}");
    expect_job(site, "POST", "/v1/workspaces", "{'name':'w','size':1099511627776}",
               "{\"name\":\"w\",\"size\":1099511627776}");
    expect_job(site, "POST", "/v1/workspaces/one/mount", "{'path':'/usr/share'}",
               "{\"name\":\"one\",\"path\":\"/usr/share\"}");
    expect_job(site, "POST", "/v1/workspaces/one/mount", "{'path':'/usr','read_only':true}",
               "{\"name\":\"one\",\"path\":\"/usr\",\"read_only\":true}");
    expect_job(site, "POST", "/v1/workspaces/one/unmount", NULL, "{\"name\":\"one\"}");
    expect_job(site, "POST", "/v1/workspaces/one/unmount", "{'abandon':true}",
               "{\"abandon\":true,\"name\":\"one\"}");
    expect_job(site, "POST", "/v1/workspaces/one/resize", "{'size':2147483648}",
               "{\"name\":\"one\",\"size\":2147483648}");
    expect_job(site, "POST", "/v1/workspaces/one/resize", "{'size':1073741824}",
               "{\"name\":\"one\",\"size\":1073741824}"); /* the size that it has */
    expect_job(site, "DELETE", "/v1/workspaces/one", NULL, "{\"name\":\"one\"}");
}

/* A volume has whole MiB: who asks for the same odd size again asks for the size that it has. */
static void test_a_size_between_two_mib(void **state)
{
    struct site *site = *state;
    site_add_workspace(site, "one", GIB + (1 << 20), NULL, false);
    expect_job(site, "POST", "/v1/workspaces/one/resize", "{'size':1073741825}",
               "{\"name\":\"one\",\"size\":1073741825}");
    site_refused(site, 400, "invalid", "cannot become smaller", "POST", "/v1/workspaces/one/resize",
                 "{'size':1073741824}");
}

static void test_key(void **state)
{
    struct site *site = *state;
    static const char header[] = "Idempotency-Key: k\r\n";
    cleanup_site_reply struct site_reply first =
        site_ask_with(site, "POST", "/v1/workspaces", header, "{\"name\":\"w\"}");
    assert_int_equal(first.status, 202);
    json_decref(site_job_params(site, json_string_value(json_object_get(first.json, "job"))));
    site_add_workspace(site, "w", GIB, NULL, false); /* what the job would have done */
    cleanup_site_reply struct site_reply again =
        site_ask_with(site, "POST", "/v1/workspaces", header, "{\"name\":\"w\"}");
    assert_string_equal(first.body, again.body);
    cleanup_site_reply struct site_reply other =
        site_ask_with(site, "POST", "/v1/workspaces", header, "{\"name\":\"v\"}");
    assert_int_equal(other.status, 409);
    site_refused(site, 409, "exists", "workspace w exists", "POST", "/v1/workspaces",
                 "{'name':'w'}");
}

static void test_one_job_at_a_time(void **state)
{
    struct site *site = *state;
    site_add_workspace(site, "one", GIB, NULL, false);
    site_add_workspace(site, "two", GIB, NULL, false);
    atomic_store(&site_shared.hold, true);
    json_decref(site_expect(site, 202, "POST", "/v1/workspaces/one/mount", "{'path':'/usr'}"));
    site_refused(site, 409, "conflict", "workspace:one", "POST", "/v1/workspaces/one/unmount",
                 NULL);
    site_refused(site, 409, "conflict", "workspace:one", "DELETE", "/v1/workspaces/one", NULL);
    json_decref(site_expect(site, 202, "POST", "/v1/workspaces/two/mount", "{'path':'/etc'}"));
}

static void test_refused_names_and_bodies(void **state)
{
    struct site *site = *state;
    static const struct {
        const char *word;
        const char *path;
        const char *body;
    } cases[] = {
        {"lacks 'name'", "/v1/workspaces", "{}"},
        {"'name' is not a string", "/v1/workspaces", "{'name':7}"},
        {"'form'", "/v1/workspaces", "{'name':'w','form':'v'}"},
        {"as large as", "/v1/workspaces", "{'name':'w','from':'v','size':1073741824}"},
        {"workspace name", "/v1/workspaces", "{'name':''}"},
        {"workspace name", "/v1/workspaces", "{'name':'../x'}"},
        {"workspace name", "/v1/workspaces", "{'name':'A'}"},
        {"workspace name", "/v1/workspaces", "{'name':'a b'}"},
        {"workspace name", "/v1/workspaces", "{'name':'-a'}"},
        {"workspace name", "/v1/workspaces",
         "{'name':'0123456789012345678901234567890123456789012345678901234567890123'}"},
        {"workspace name", "/v1/workspaces/../mount", "{'path':'/usr'}"},
        {"workspace name", "/v1/workspaces/a%2Fb/unmount", NULL},
        {"workspace name", "/v1/workspaces/A/resize", "{'size':1073741824}"},
        {"lacks 'path'", "/v1/workspaces/one/mount", "{}"},
        {"'path' is not a string", "/v1/workspaces/one/mount", "{'path':['/usr']}"},
        {"'read_only'", "/v1/workspaces/one/mount", "{'path':'/usr','read_only':'yes'}"},
        {"'lazy'", "/v1/workspaces/one/mount", "{'path':'/usr','lazy':true}"},
        {"'abandon'", "/v1/workspaces/one/unmount", "{'abandon':1}"},
        {"'force'", "/v1/workspaces/one/unmount", "{'force':true}"},
        {"lacks 'size'", "/v1/workspaces/one/resize", "{}"},
        {"'size'", "/v1/workspaces/one/resize", "{'size':'2G'}"},
        {"lacks 'checkpoint'", "/v1/workspaces/one/rollback", "{'kill':true}"},
        {"'kill'", "/v1/workspaces/one/rollback", "{'checkpoint':'1','kill':1}"},
        {"'signal'", "/v1/workspaces/one/rollback", "{'checkpoint':'1','signal':9}"},
        {"is a view", "/v1/workspaces/one@now-0123ab/checkpoints", NULL},
        {"is a view", "/v1/workspaces/one@3/checkpoints", NULL},
        {"JSON", "/v1/workspaces", "{'name':"},
        {"", "/v1/workspaces", "[]"},
        {"", "/v1/workspaces/one/mount", NULL},
    };
    site_add_workspace(site, "one", GIB, NULL, false);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        site_refused(site, 400, "invalid", cases[i].word, "POST", cases[i].path, cases[i].body);
    assert_int_equal(atomic_load(&site_shared.runs), 0);
}

static void test_refused_sizes(void **state)
{
    struct site *site = *state;
    static const char *const sizes[] = {"0",  "1",   "67108863",           "1099511627777",
                                        "-1", "1.5", "9223372036854775807"};
    site_add_workspace(site, "one", GIB, NULL, false);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        char body[100];
        snprintf(body, sizeof body, "{'name':'w','size':%s}", sizes[i]);
        site_refused(site, 400, "invalid", "", "POST", "/v1/workspaces", body);
        snprintf(body, sizeof body, "{'size':%s}", sizes[i]);
        site_refused(site, 400, "invalid", "", "POST", "/v1/workspaces/one/resize", body);
    }
    site_refused(site, 400, "invalid", "cannot become smaller", "POST", "/v1/workspaces/one/resize",
                 "{'size':1072693248}");
}

static void test_paths(void **state)
{
    struct site *site = *state;
    struct scratch *elsewhere = NULL;
    assert_int_equal(scratch_setup((void **)&elsewhere), 0);
    char body[6000];
    char params[6000];
    char real[200];
    site_add_workspace(site, "one", GIB, NULL, false);
    assert_int_equal(mkdirat(elsewhere->fd, "dir", 0700), 0);
    assert_int_equal(symlinkat("dir", elsewhere->fd, "link"), 0);
    scratch_write(elsewhere, "file", "x", 1);
    snprintf(real, sizeof real, "%s", scratch_path(elsewhere, "dir"));
    /* The job gets one spelling. */
    static const char *const same[] = {"dir", "link", "dir/", "./dir/../link/."};
    snprintf(params, sizeof params, "{\"name\":\"one\",\"path\":\"%s\"}", real);
    for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
        snprintf(body, sizeof body, "{'path':'%s/%s'}", elsewhere->path, same[i]);
        expect_job(site, "POST", "/v1/workspaces/one/mount", body, params);
    }
    const struct {
        const char *path;
        const char *below; /* what is put behind it */
        int status;
        const char *code;
    } cases[] = {
        {"", "", 400, "invalid"},
        {"dir", "", 400, "invalid"},
        {"./dir", "", 400, "invalid"},
        {"~", "", 400, "invalid"},
        {"/", "", 400, "invalid"},
        {elsewhere->path, "/file", 400, "invalid"},
        {elsewhere->path, "/none", 404, "not_found"},
        {elsewhere->path, "/none/../dir", 404, "not_found"},
        {site->node.data_dir, "", 400, "invalid"},
        {site->node.data_dir, "/volumes-data", 400, "invalid"},
        {site->node.data_dir, "/..", 400, "invalid"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(body, sizeof body, "{'path':'%s%s'}", cases[i].path, cases[i].below);
        site_refused(site, cases[i].status, cases[i].code, "", "POST", "/v1/workspaces/one/mount",
                     body);
    }
    char path[4098] = "/";
    memset(path + 1, 'x', 4095);
    snprintf(body, sizeof body, "{'path':'%s'}", path);
    site_refused(site, 400, "invalid", "4095", "POST", "/v1/workspaces/one/mount", body);
    assert_int_equal(scratch_teardown((void **)&elsewhere), 0);
}

static void test_unknown_workspaces(void **state)
{
    struct site *site = *state;
    site_refused(site, 404, "not_found", "two", "GET", "/v1/workspaces/two", NULL);
    site_refused(site, 404, "not_found", "two", "DELETE", "/v1/workspaces/two", NULL);
    site_refused(site, 404, "not_found", "two", "POST", "/v1/workspaces/two/mount",
                 "{'path':'/usr'}");
    site_refused(site, 404, "not_found", "two", "POST", "/v1/workspaces/two/unmount", NULL);
    site_refused(site, 404, "not_found", "two", "POST", "/v1/workspaces/two/resize",
                 "{'size':1073741824}");
    site_refused(site, 400, "invalid", "Two", "GET", "/v1/workspaces/Two", NULL);
    site_refused(site, 405, "invalid", "POST", "GET", "/v1/workspaces/two/mount", NULL);
    site_refused(site, 405, "invalid", "GET", "POST", "/v1/workspaces/two", "{}");
}

static void test_what_is_mounted(void **state)
{
    struct site *site = *state;
    site_add_workspace(site, "one", GIB, "/usr", false);
    site_add_workspace(site, "ro", GIB, "/etc", true);
    site_add_workspace(site, "two", GIB, NULL, false);
    expect_job(site, "POST", "/v1/workspaces/one/mount", "{'path':'/usr'}",
               "{\"name\":\"one\",\"path\":\"/usr\"}"); /* a repeat */
    expect_job(site, "POST", "/v1/workspaces/ro/mount", "{'path':'/etc','read_only':true}",
               "{\"name\":\"ro\",\"path\":\"/etc\",\"read_only\":true}");
    site_refused(site, 409, "conflict", "is mounted at /usr", "POST", "/v1/workspaces/one/mount",
                 "{'path':'/var'}");
    site_refused(site, 409, "conflict", "is mounted at /usr for writing", "POST",
                 "/v1/workspaces/one/mount", "{'path':'/usr','read_only':true}");
    site_refused(site, 409, "conflict", "read-only", "POST", "/v1/workspaces/ro/mount",
                 "{'path':'/etc'}");
    site_refused(site, 409, "conflict",
                 "workspace two cannot be mounted at /usr: workspace one is mounted at /usr",
                 "POST", "/v1/workspaces/two/mount", "{'path':'/usr'}");
    site_refused(site, 409, "conflict", "is mounted at /usr", "DELETE", "/v1/workspaces/one", NULL);
    expect_job(site, "POST", "/v1/workspaces/one/unmount", NULL, "{\"name\":\"one\"}");
}

static void test_list_and_get(void **state)
{
    struct site *site = *state;
    cleanup_json json_t *none = site_expect(site, 200, "GET", "/v1/workspaces", NULL);
    assert_int_equal(json_array_size(json_object_get(none, "workspaces")), 0);
    site_add_workspace(site, "b", GIB, NULL, false);
    site_add_workspace(site, "a", 2 * GIB, NULL, false);
    cleanup_json json_t *list = site_expect(site, 200, "GET", "/v1/workspaces", NULL);
    const json_t *workspaces = json_object_get(list, "workspaces");
    assert_int_equal(json_array_size(workspaces), 2);
    cleanup_json json_t *one = site_expect(site, 200, "GET", "/v1/workspaces/a", NULL);
    assert_true(json_equal(one, json_array_get(workspaces, 0)));
    assert_int_equal(json_integer_value(json_object_get(one, "size")), 2 * GIB);
    static const char *const members[] = {"name",       "id",    "state",     "size",   "stored",
                                          "filesystem", "path",  "read_only", "device", "worker",
                                          "waiting",    "lazy",  "fetch",     "signed", "incident",
                                          "created",    "token", "view_of"};
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        assert_non_null(json_object_get(one, members[i]));
    assert_int_equal(json_object_size(one), ARRAY_SIZE(members));
    assert_string_equal(json_string_value(json_object_get(one, "state")), "detached");
    assert_true(json_is_null(json_object_get(one, "path")));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_jobs),
        TEST(test_a_size_between_two_mib),
        TEST(test_key),
        TEST(test_one_job_at_a_time),
        TEST(test_refused_names_and_bodies),
        TEST(test_refused_sizes),
        TEST(test_paths),
        TEST(test_unknown_workspaces),
        TEST(test_what_is_mounted),
        TEST(test_list_and_get),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
