#include "api_handlers.h"

#include "cleanup.h"
#include "site.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Submits and returns the parameters that the job sees, as text; caller frees. */
static char *params_of(const struct site *site, const char *method, const char *path,
                       const char *body)
{
    cleanup_json json_t *made = site_expect(site, 202, method, path, body);
    cleanup_json json_t *params =
        site_job_params(site, json_string_value(json_object_get(made, "job")));
    return json_doc_dump(params);
}

static void test_import(void **state)
{
    struct site *site = *state;
    cleanup_free char *plain =
        params_of(site, "POST", "/v1/images/import", "{'path':'/etc/passwd'}");
    assert_string_equal(plain, "{\"path\":\"/etc/passwd\"}");
    cleanup_free char *named = params_of(site, "POST", "/v1/images/import",
                                         "{'path':'/etc','name':'host:5/a/b:1','upload':null}");
    assert_string_equal(named, "{\"name\":\"host:5/a/b:1\",\"path\":\"/etc\"}");
    cleanup_site_reply struct site_reply upload = site_ask(site, "POST", "/v1/uploads", "abc");
    char body[96];
    snprintf(body, sizeof body, "{'upload':'%s','name':'debian'}",
             json_string_value(json_object_get(upload.json, "upload")));
    cleanup_free char *uploaded = params_of(site, "POST", "/v1/images/import", body);
    assert_non_null(strstr(uploaded, "\"upload\":\"u-"));
}

static void test_import_refusals(void **state)
{
    struct site *site = *state;
    static const struct {
        int status;
        const char *code;
        const char *word;
        const char *body;
    } cases[] = {
        {400, "invalid", "'path' or 'upload'", "{}"},
        {400, "invalid", "'path' or 'upload'", "{'name':'a:1'}"},
        {400, "invalid", "'path' or 'upload'", "{'path':'/etc','upload':'u-1'}"},
        {400, "invalid", "'name'", "{'upload':'u-1'}"},
        {400, "invalid", "absolute", "{'path':'etc/passwd'}"},
        {400, "invalid", "absolute", "{'path':''}"},
        {400, "invalid", "'path'", "{'path':7}"},
        {400, "invalid", "Bad Name", "{'path':'/etc','name':'Bad Name'}"},
        {400, "invalid", "empty", "{'path':'/etc','name':''}"},
        {400, "invalid", "digest",
         "{'path':'/etc','name':'a@sha256:"
         "0000000000000000000000000000000000000000000000000000000000000000'}"},
        {400, "invalid", "'nam'", "{'path':'/etc','nam':'a:1'}"},
        {404, "not_found", "/no/such/file", "{'path':'/no/such/file'}"},
        {404, "not_found", "/etc/passwd/x", "{'path':'/etc/passwd/x'}"},
        {404, "not_found", "/no/such/dir:v1", "{'path':'/no/such/dir:v1'}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        site_refused(site, cases[i].status, cases[i].code, cases[i].word, "POST",
                     "/v1/images/import", cases[i].body);
    cleanup_json json_t *jobs = site_expect(site, 200, "GET", "/v1/jobs", NULL);
    assert_int_equal(json_array_size(json_object_get(jobs, "jobs")), 0);
}

static void test_pull(void **state)
{
    struct site *site = *state;
    cleanup_free char *params =
        params_of(site, "POST", "/v1/images/pull", "{'reference':'localhost:5000/a/b:1'}");
    assert_string_equal(params, "{\"reference\":\"localhost:5000/a/b:1\"}");
    static const char *const wrong[] = {"UPPER/n", "n:", "a//b", "n@sha256:12", "n:-x", "a/../b",
                                        "n m",     "",   "@"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        char body[64];
        snprintf(body, sizeof body, "{'reference':'%s'}", wrong[i]);
        site_refused(site, 400, "invalid", wrong[i], "POST", "/v1/images/pull", body);
    }
}

/* Two spellings of one name are one object: "a" and "a:latest". Pulls have none. */
static void test_jobs_on_one_image_exclude_each_other(void **state)
{
    struct site *site = *state;
    atomic_store(&site_shared.hold, true);
    json_decref(
        site_expect(site, 202, "POST", "/v1/images/import", "{'path':'/etc','name':'a:latest'}"));
    site_refused(site, 409, "conflict", "image:a:latest", "POST", "/v1/images/import",
                 "{'path':'/etc','name':'a'}");
    json_decref(site_expect(site, 202, "POST", "/v1/images/pull", "{'reference':'a'}"));
    json_decref(site_expect(site, 202, "POST", "/v1/images/pull", "{'reference':'a:latest'}"));
    /* Without a name, the path makes one. */
    json_decref(site_expect(site, 202, "POST", "/v1/images/import", "{'path':'/etc:v1'}"));
    site_refused(site, 409, "conflict", "image:etc:v1", "POST", "/v1/images/import",
                 "{'path':'/etc','name':'etc:v1'}");
    json_decref(site_expect(site, 202, "POST", "/v1/images/import", "{'path':'/etc'}"));
}

/* "image" is a place with the digest, and is found as it stands. */
static void check_reference(const struct site *site, const char *path, const char *place,
                            const char *digest)
{
    char want[256];
    snprintf(want, sizeof want, "%s@%s", place, digest);
    cleanup_json json_t *image = site_expect(site, 200, "GET", path, NULL);
    assert_string_equal(json_string_value(json_object_get(image, "image")), want);
    snprintf(want, sizeof want, "/v1/images/%s@%s", place, digest);
    cleanup_json json_t *again = site_expect(site, 200, "GET", want, NULL);
    assert_true(json_equal(image, again));
}

static void test_list_and_get(void **state)
{
    struct site *site = *state;
    cleanup_json json_t *none = site_expect(site, 200, "GET", "/v1/images", NULL);
    assert_int_equal(json_array_size(json_object_get(none, "images")), 0);
    const char *digest = site_add_image(site, "team/debian:12", "one");
    cleanup_json json_t *list = site_expect(site, 200, "GET", "/v1/images", NULL);
    const json_t *images = json_object_get(list, "images");
    assert_int_equal(json_array_size(images), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(images, 0), "id")),
                        digest);
    static const char *const paths[] = {"/v1/images/team/debian:12",
                                        "/v1/images/team%2Fdebian%3A12"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        cleanup_json json_t *image = site_expect(site, 200, "GET", paths[i], NULL);
        assert_string_equal(json_string_value(json_object_get(image, "id")), digest);
    }
    site_refused(site, 404, "not_found", "team/debian:13", "GET", "/v1/images/team/debian:13",
                 NULL);
    check_reference(site, "/v1/images/team/debian:12", "images/team/debian", digest);
    check_reference(site, "/v1/images/h:5/a/b:1", "h:5/a/b",
                    site_add_image(site, "h:5/a/b:1", "x"));
    site_refused(site, 400, "invalid", "", "GET", "/v1/images/Team/debian", NULL);
    site_refused(site, 400, "invalid", "", "GET", "/v1/images/a%20b", NULL);
    site_refused(site, 400, "invalid", "sha512", "GET", "/v1/images/a@sha512:00", NULL);
    site_refused(site, 400, "invalid", "sha512", "DELETE", "/v1/images/a@sha512:00", NULL);
}

static void test_remove(void **state)
{
    struct site *site = *state;
    site_add_image(site, "a/b:1", "one");
    cleanup_free char *params = params_of(site, "DELETE", "/v1/images/a/b:1", NULL);
    assert_string_equal(params, "{\"reference\":\"a/b:1\"}");
    site_refused(site, 404, "not_found", "none:1", "DELETE", "/v1/images/none:1", NULL);
    site_refused(site, 400, "invalid", "", "DELETE", "/v1/images/A", NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_import),       TEST(test_import_refusals),
        TEST(test_pull),         TEST(test_jobs_on_one_image_exclude_each_other),
        TEST(test_list_and_get), TEST(test_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
