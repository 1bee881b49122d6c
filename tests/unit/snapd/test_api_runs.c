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

/* Asks for a run and returns the parameters that the job sees; caller owns. */
static json_t *create(const struct site *site, const char *body, char ret_job[64])
{
    cleanup_json json_t *made = site_expect(site, 202, "POST", "/v1/runs", body);
    snprintf(ret_job, 64, "%s", json_string_value(json_object_get(made, "job")));
    return site_job_params(site, ret_job);
}

static void test_create(void **state)
{
    struct site *site = *state;
    char job[64];
    cleanup_json json_t *given =
        create(site, "{'image':'base:1','id':'mine','plain_upper':true,'token':7}", job);
    cleanup_free char *text = json_doc_dump(given);
    assert_string_equal(text, "{\"id\":\"mine\",\"image\":\"base:1\",\"plain_upper\":true,"
                              "\"token\":7}");
    cleanup_json json_t *chosen = create(site, "{'image':'base:1'}", job);
    const char *id = json_string_value(json_object_get(chosen, "id"));
    assert_memory_equal(id, "r-", 2);
    assert_string_equal(id + 2, job + 2);
    assert_true(json_is_false(json_object_get(chosen, "plain_upper")));
    cleanup_json json_t *sized = create(site, "{'image':'base:1','size':67108864}", job);
    assert_int_equal(json_integer_value(json_object_get(sized, "size")), 67108864);
}

static void test_create_by_key(void **state)
{
    struct site *site = *state;
    static const char header[] = "Idempotency-Key: k\r\n";
    cleanup_site_reply struct site_reply first =
        site_ask_with(site, "POST", "/v1/runs", header, "{\"image\":\"base:1\"}");
    cleanup_site_reply struct site_reply again =
        site_ask_with(site, "POST", "/v1/runs", header,
                      "{\"plain_upper\":false,\"image\":\"base:1\",\"id\":null}");
    assert_int_equal(first.status, 202);
    assert_string_equal(first.body, again.body);
    cleanup_site_reply struct site_reply other =
        site_ask_with(site, "POST", "/v1/runs", header, "{\"image\":\"base:2\"}");
    assert_int_equal(other.status, 409);
}

static void test_create_refusals(void **state)
{
    struct site *site = *state;
    static const struct {
        int status;
        const char *code;
        const char *word;
        const char *body;
    } cases[] = {
        {400, "invalid", "'image'", "{}"},
        {400, "invalid", "", "{'image':''}"},
        {400, "invalid", "Upper", "{'image':'Upper'}"},
        {400, "invalid", "sha512", "{'image':'a@sha512:00'}"},
        {400, "invalid", "../../etc", "{'image':'a:1','id':'../../etc'}"},
        {400, "invalid", "run ID", "{'image':'a:1','id':''}"},
        {400, "invalid", "'token'", "{'image':'a:1','token':-1}"},
        {400, "invalid", "'token'", "{'image':'a:1','token':'7'}"},
        {400, "invalid", "'plain_upper'", "{'image':'a:1','plain_upper':'yes'}"},
        {400, "invalid", "'workspace'", "{'image':'a:1','workspace':'w:/w'}"},
        {400, "invalid", "67108863", "{'image':'a:1','size':67108863}"},
        {400, "invalid", "1099511627777", "{'image':'a:1','size':1099511627777}"},
        {400, "invalid", "'size'", "{'image':'a:1','size':-1}"},
        {400, "invalid", "'size'", "{'image':'a:1','size':'10G'}"},
        {400, "invalid", "plain upper", "{'image':'a:1','size':67108864,'plain_upper':true}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        site_refused(site, cases[i].status, cases[i].code, cases[i].word, "POST", "/v1/runs",
                     cases[i].body);
    char longest[128] = "{'image':'a:1','id':'";
    memset(longest + strlen(longest), 'x', 64);
    snprintf(longest + strlen(longest), 8, "'}");
    site_refused(site, 400, "invalid", "run ID", "POST", "/v1/runs", longest);
    assert_int_equal(atomic_load(&site_shared.runs), 0);
}

static void test_an_id_that_is_taken(void **state)
{
    struct site *site = *state;
    char digest[80];
    snprintf(digest, sizeof digest, "%s", site_add_image(site, "base:1", "one"));
    site_add_image(site, "other:1", "two");
    site_add_run(site, "r", digest);
    site_refused(site, 409, "exists", "run r", "POST", "/v1/runs", "{'image':'other:1','id':'r'}");
    char job[64];
    json_decref(create(site, "{'image':'base:1','id':'r'}", job)); /* a repeat */
}

static void test_list_and_get(void **state)
{
    struct site *site = *state;
    cleanup_json json_t *none = site_expect(site, 200, "GET", "/v1/runs", NULL);
    assert_int_equal(json_array_size(json_object_get(none, "runs")), 0);
    site_add_run(site, "one", site_add_image(site, "base:1", "one"));
    cleanup_json json_t *list = site_expect(site, 200, "GET", "/v1/runs", NULL);
    const json_t *runs = json_object_get(list, "runs");
    assert_int_equal(json_array_size(runs), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 0), "id")), "one");
    cleanup_json json_t *run = site_expect(site, 200, "GET", "/v1/runs/one", NULL);
    assert_string_equal(json_string_value(json_object_get(run, "id")), "one");
    site_refused(site, 404, "not_found", "two", "GET", "/v1/runs/two", NULL);
    site_refused(site, 400, "invalid", "Two", "GET", "/v1/runs/Two", NULL);
}

/* One run that cannot be described does not take the others off the list. */
static void test_a_run_that_cannot_be_read(void **state)
{
    struct site *site = *state;
    char bad[80];
    snprintf(bad, sizeof bad, "%s", site_add_image(site, "bad:1", "bad"));
    site_add_run(site, "bad", bad);
    site_add_run(site, "good", site_add_image(site, "good:1", "good"));
    cleanup_json json_t *image = site_expect(site, 200, "GET", "/v1/images/bad:1", NULL);
    /* Its config blob goes. */
    struct catalog_image row = {0};
    struct digest config;
    assert_int_equal(catalog_image_get(site->node.catalog, bad, &row, NULL), 0);
    assert_int_equal(digest_parse(row.config_digest, &config, NULL), 0);
    assert_int_equal(blobs_remove(site->node.blobs, &config, NULL), 0);
    catalog_image_free(&row);
    cleanup_json json_t *list = site_expect(site, 200, "GET", "/v1/runs", NULL);
    const json_t *runs = json_object_get(list, "runs");
    assert_int_equal(json_array_size(runs), 2);
    int with_error = 0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *run = json_array_get(runs, i);
        const char *id = json_string_value(json_object_get(run, "id"));
        const json_t *error = json_object_get(run, "error");
        with_error += error != NULL;
        assert_true((error != NULL) == (strcmp(id, "bad") == 0));
        if (error)
            assert_true(json_string_length(json_object_get(error, "message")) > 0);
    }
    assert_int_equal(with_error, 1);
}

static void test_remove(void **state)
{
    struct site *site = *state;
    site_add_run(site, "one", site_add_image(site, "base:1", "one"));
    atomic_store(&site_shared.hold, true);
    cleanup_json json_t *made = site_expect(site, 202, "DELETE", "/v1/runs/one", NULL);
    site_refused(site, 409, "conflict", "run:one", "DELETE", "/v1/runs/one", NULL);
    site_refused(site, 409, "conflict", "run:one", "POST", "/v1/snapshots", "{'run':'one'}");
    site_refused(site, 409, "conflict", "run:one", "POST", "/v1/runs",
                 "{'image':'base:1','id':'one'}");
    atomic_store(&site_shared.hold, false);
    cleanup_json json_t *params =
        site_job_params(site, json_string_value(json_object_get(made, "job")));
    cleanup_free char *text = json_doc_dump(params);
    assert_string_equal(text, "{\"id\":\"one\"}");
    site_refused(site, 404, "not_found", "two", "DELETE", "/v1/runs/two", NULL);
    site_refused(site, 400, "invalid", "..", "DELETE", "/v1/runs/..", NULL);
}

/* A run whose ID the daemon chooses is taken from the moment the job is there. */
static void test_the_chosen_id_is_exclusive(void **state)
{
    struct site *site = *state;
    atomic_store(&site_shared.hold, true);
    cleanup_json json_t *made = site_expect(site, 202, "POST", "/v1/runs", "{'image':'base:1'}");
    char body[96];
    snprintf(body, sizeof body, "{'image':'base:1','id':'r%s'}",
             strchr(json_string_value(json_object_get(made, "job")), '-'));
    site_refused(site, 409, "conflict", "run:r-", "POST", "/v1/runs", body);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_create),          TEST(test_create_by_key),
        TEST(test_create_refusals), TEST(test_an_id_that_is_taken),
        TEST(test_list_and_get),    TEST(test_a_run_that_cannot_be_read),
        TEST(test_remove),          TEST(test_the_chosen_id_is_exclusive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
