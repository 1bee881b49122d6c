#include "api_handlers.h"

#include "catalog_image.h"
#include "cleanup.h"
#include "site.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The parameters that the job of an answer sees, as text; caller frees. */
static char *params_of(const struct site *site, const char *method, const char *path,
                       const char *body, char ret_job[64])
{
    cleanup_json json_t *made = site_expect(site, 202, method, path, body);
    snprintf(ret_job, 64, "%s", json_string_value(json_object_get(made, "job")));
    cleanup_json json_t *params = site_job_params(site, ret_job);
    return json_doc_dump(params);
}

/* A run "r" of an image "base:1"; the image's digest, in a static buffer. */
static const char *add_run(struct site *site)
{
    const char *digest = site_add_image(site, "base:1", "one");
    site_add_run(site, "r", digest);
    return digest;
}

static void test_create(void **state)
{
    struct site *site = *state;
    add_run(site);
    char job[64];
    char want[256];
    cleanup_free char *plain = params_of(site, "POST", "/v1/snapshots", "{'run':'r'}", job);
    snprintf(want, sizeof want, "{\"id\":\"s%s\",\"run\":\"r\"}", strchr(job, '-'));
    assert_string_equal(plain, want);
    cleanup_free char *full = params_of(
        site, "POST", "/v1/snapshots",
        "{'run':'r','name':'team/agent:v1','comment':'after work','labels':{'a':'1','b':''}}", job);
    snprintf(want, sizeof want,
             "{\"comment\":\"after work\",\"id\":\"s%s\",\"labels\":{\"a\":\"1\",\"b\":\"\"},"
             "\"name\":\"team/agent:v1\",\"run\":\"r\"}",
             strchr(job, '-'));
    assert_string_equal(full, want);
}

static void test_create_refusals(void **state)
{
    struct site *site = *state;
    add_run(site);
    static const struct {
        int status;
        const char *code;
        const char *word;
        const char *body;
    } cases[] = {
        {400, "invalid", "'run'", "{}"},
        {400, "invalid", "run ID", "{'run':'R'}"},
        {404, "not_found", "none", "{'run':'none'}"},
        {400, "invalid", "Bad", "{'run':'r','name':'Bad'}"},
        {400, "invalid", "host/a", "{'run':'r','name':'host.x/a:1'}"},
        {400, "invalid", "localhost/a", "{'run':'r','name':'localhost/a'}"},
        {400, "invalid", "name for a snapshot",
         "{'run':'r','name':'a@sha256:"
         "0000000000000000000000000000000000000000000000000000000000000000'}"},
        {409, "exists", "base:1", "{'run':'r','name':'base:1'}"},
        {400, "invalid", "'comment'", "{'run':'r','comment':7}"},
        {400, "invalid", "'labels'", "{'run':'r','labels':[]}"},
        {400, "invalid", "'a'", "{'run':'r','labels':{'a':null}}"},
        {400, "invalid", "'id'", "{'run':'r','id':'s-mine'}"},
        {400, "invalid", "'consistency'", "{'run':'r','consistency':'freeze'}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        site_refused(site, cases[i].status, cases[i].code,
                     strstr(cases[i].word, "host") ? "name for a snapshot" : cases[i].word, "POST",
                     "/v1/snapshots", cases[i].body);
    assert_int_equal(atomic_load(&site_shared.runs), 0);
}

static void test_limits(void **state)
{
    struct site *site = *state;
    add_run(site);
    char body[API_COMMENT_MAX + 64];
    char job[64];
    for (int over = 0; over < 2; over++) {
        char comment[API_COMMENT_MAX + 2];
        memset(comment, 'c', sizeof comment);
        comment[API_COMMENT_MAX + over] = '\0';
        snprintf(body, sizeof body, "{'run':'r','comment':'%s'}", comment);
        if (over)
            site_refused(site, 400, "invalid", "'comment'", "POST", "/v1/snapshots", body);
        else
            free(params_of(site, "POST", "/v1/snapshots", body, job));
    }
    /* With "images/" in front, a name may have 255 bytes. */
    for (int len = 247; len <= 249; len++) {
        char name[256];
        memset(name, 'n', sizeof name);
        name[len] = '\0';
        snprintf(body, sizeof body, "{'run':'r','name':'%s:%d'}", name, len);
        if (len > 248)
            site_refused(site, 400, "invalid", "255", "POST", "/v1/snapshots", body);
        else
            free(params_of(site, "POST", "/v1/snapshots", body, job));
    }
}

/* A repeat by key joins although the name is taken by then: by itself. */
static void test_create_by_key(void **state)
{
    struct site *site = *state;
    static const char header[] = "Idempotency-Key: k\r\n";
    static const char body[] = "{\"run\":\"r\",\"name\":\"a:1\"}";
    const char *digest = add_run(site);
    cleanup_site_reply struct site_reply first =
        site_ask_with(site, "POST", "/v1/snapshots", header, body);
    assert_int_equal(first.status, 202);
    assert_int_equal(catalog_image_name_set(site->node.catalog, "a:1", digest, false, NULL), 0);
    cleanup_site_reply struct site_reply again =
        site_ask_with(site, "POST", "/v1/snapshots", header, body);
    assert_int_equal(again.status, 202);
    assert_string_equal(first.body, again.body);
    json_decref(site_job_params(site, json_string_value(json_object_get(first.json, "job"))));
    cleanup_site_reply struct site_reply other = site_ask(site, "POST", "/v1/snapshots", body);
    assert_int_equal(other.status, 409);
}

static void test_list_and_get(void **state)
{
    struct site *site = *state;
    const char *digest = add_run(site);
    cleanup_json json_t *none = site_expect(site, 200, "GET", "/v1/snapshots", NULL);
    assert_int_equal(json_array_size(json_object_get(none, "snapshots")), 0);
    site_add_snapshot(site, "s-1", "r", digest, "team/agent", "v1");
    site_add_snapshot(site, "s-2", "r", digest, "run-r", "s-2");
    cleanup_json json_t *list = site_expect(site, 200, "GET", "/v1/snapshots", NULL);
    assert_int_equal(json_array_size(json_object_get(list, "snapshots")), 2);
    static const struct {
        const char *path;
        const char *id;
    } good[] = {{"/v1/snapshots/s-1", "s-1"},
                {"/v1/snapshots/team/agent:v1", "s-1"},
                {"/v1/snapshots/images/team/agent:v1", "s-1"},
                {"/v1/snapshots/run-r:s-2", "s-2"}};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        cleanup_json json_t *json = site_expect(site, 200, "GET", good[i].path, NULL);
        assert_string_equal(json_string_value(json_object_get(json, "id")), good[i].id);
    }
    static const char *const missing[] = {"s-none", "team/agent:v2", "agent:v1", "team/agent"};
    for (size_t i = 0; i < ARRAY_SIZE(missing); i++) {
        char path[128];
        snprintf(path, sizeof path, "/v1/snapshots/%s", missing[i]);
        site_refused(site, 404, "not_found", missing[i], "GET", path, NULL);
    }
    site_refused(site, 400, "invalid", "", "GET", "/v1/snapshots/A", NULL);
}

static void test_push_and_remove(void **state)
{
    struct site *site = *state;
    site_add_snapshot(site, "s-1", "r", add_run(site), "a", "1");
    char job[64];
    static const char *const bodies[] = {NULL, "", "{}", "{ }"};
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        cleanup_free char *params =
            params_of(site, "POST", "/v1/snapshots/s-1/push", bodies[i], job);
        assert_string_equal(params, "{\"snapshot\":\"s-1\"}");
    }
    cleanup_free char *verified =
        params_of(site, "POST", "/v1/snapshots/s-1/push", "{'durability':'verified'}", job);
    assert_string_equal(verified, "{\"durability\":\"verified\",\"snapshot\":\"s-1\"}");
    site_refused(site, 400, "invalid", "'local'", "POST", "/v1/snapshots/s-1/push",
                 "{'durability':'local'}");
    site_refused(site, 400, "invalid", "'eternal'", "POST", "/v1/snapshots/s-1/push",
                 "{'durability':'eternal'}");
    site_refused(site, 400, "invalid", "'unknown'", "POST", "/v1/snapshots/s-1/push",
                 "{'unknown':'verified'}");
    site_refused(site, 404, "not_found", "s-2", "POST", "/v1/snapshots/s-2/push", NULL);
    site_refused(site, 400, "invalid", "S", "POST", "/v1/snapshots/S/push", NULL);
    site_refused(site, 404, "not_found", "s-2", "DELETE", "/v1/snapshots/s-2", NULL);
    site_refused(site, 400, "invalid", "a:1", "DELETE", "/v1/snapshots/a:1", NULL);
    atomic_store(&site_shared.hold, true);
    json_decref(site_expect(site, 202, "POST", "/v1/snapshots/s-1/push", NULL));
    site_refused(site, 409, "conflict", "snapshot:s-1", "DELETE", "/v1/snapshots/s-1", NULL);
    atomic_store(&site_shared.hold, false);
}

static void test_removal(void **state)
{
    struct site *site = *state;
    site_add_snapshot(site, "s-1", "r", add_run(site), "a", "1");
    char job[64];
    cleanup_free char *params = params_of(site, "DELETE", "/v1/snapshots/s-1", NULL, job);
    assert_string_equal(params, "{\"snapshot\":\"s-1\"}");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_create),        TEST(test_create_refusals), TEST(test_limits),
        TEST(test_create_by_key), TEST(test_list_and_get),    TEST(test_push_and_remove),
        TEST(test_removal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
