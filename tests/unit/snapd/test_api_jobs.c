#include "api_handlers.h"

#include "cleanup.h"
#include "site.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void nap_ms(int ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Submits a pull and returns the job's ID; caller frees. */
static char *submit(const struct site *site, const char *reference)
{
    char body[128];
    snprintf(body, sizeof body, "{'reference':'%s'}", reference);
    cleanup_json json_t *json = site_expect(site, 202, "POST", "/v1/images/pull", body);
    assert_int_equal(json_object_size(json), 1);
    return strdup(json_string_value(json_object_get(json, "job")));
}

static json_t *get_job(const struct site *site, const char *id, const char *query)
{
    char path[128];
    snprintf(path, sizeof path, "/v1/jobs/%s%s", id, query);
    return site_expect(site, 200, "GET", path, NULL);
}

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    if (!text)
        fail_msg("no string %s", key);
    return text;
}

static void test_the_document(void **state)
{
    const struct site *site = *state;
    cleanup_free char *id = submit(site, "a:1");
    cleanup_json json_t *job = get_job(site, id, "?wait=20");
    static const char *const keys[] = {"id",      "kind",     "object",  "state",   "step",
                                       "error",   "result",   "attempt", "created", "progress",
                                       "started", "finished", "steps",   "cancel"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        assert_non_null(json_object_get(job, keys[i]));
    assert_int_equal(json_object_size(job), ARRAY_SIZE(keys));
    assert_string_equal(text_of(job, "id"), id);
    assert_string_equal(text_of(job, "kind"), "image.pull");
    assert_true(json_is_null(json_object_get(job, "object"))); /* pulls share their work */
    assert_string_equal(text_of(job, "state"), "done");
    assert_string_equal(text_of(job, "step"), "note");
    assert_int_equal(json_integer_value(json_object_get(job, "attempt")), 1);
    assert_true(json_is_null(json_object_get(job, "error")));
    assert_string_equal(text_of(json_object_get(job, "result"), "reference"), "a:1");
    assert_int_equal(strlen(text_of(job, "finished")), strlen("2026-11-29T16:38:56Z"));
    const json_t *steps = json_object_get(job, "steps");
    assert_int_equal(json_array_size(steps), 1);
    assert_string_equal(text_of(json_array_get(steps, 0), "name"), "note");
    assert_int_equal(json_object_size(json_array_get(steps, 0)), 4);
}

static void test_running_and_failed_jobs(void **state)
{
    struct site *site = *state;
    atomic_store(&site_shared.hold, true);
    cleanup_free char *id = submit(site, "a:1");
    cleanup_json json_t *running = NULL;
    for (int i = 0; i < 1000; i++) {
        json_decref(running);
        running = get_job(site, id, "");
        if (json_is_object(json_object_get(running, "progress")))
            break;
        nap_ms(10);
    }
    const json_t *progress = json_object_get(running, "progress");
    assert_int_equal(json_integer_value(json_object_get(progress, "done")), 1);
    assert_int_equal(json_integer_value(json_object_get(progress, "total")), 2);
    assert_string_equal(text_of(progress, "unit"), "bytes");
    assert_string_equal(text_of(running, "state"), "running");
    assert_true(json_is_null(json_object_get(running, "finished")));
    atomic_store(&site_shared.hold, false);
    struct catalog_job row = {
        .id = (char *)"j-failed", .kind = (char *)"image.pull", .params = (char *)"{}"};
    struct err failure = ERR_INIT;
    char *existing = NULL;
    err_fail(&failure, ERR_UNREACHABLE, "no answer from \xff");
    err_hint(&failure, "try again");
    assert_int_equal(catalog_job_add(site->node.catalog, &row, &existing, NULL), 0);
    assert_int_equal(catalog_job_start(site->node.catalog, "j-failed", NULL), 0);
    assert_int_equal(catalog_job_finish(site->node.catalog, "j-failed", CATALOG_JOB_FAILED, NULL,
                                        &failure, NULL),
                     0);
    cleanup_json json_t *failed = get_job(site, "j-failed", "?wait=20");
    const json_t *error = json_object_get(failed, "error");
    assert_string_equal(text_of(error, "code"), "unreachable");
    assert_string_equal(text_of(error, "message"), "no answer from ?");
    assert_string_equal(text_of(error, "hint"), "try again");
    assert_true(json_is_null(json_object_get(failed, "result")));
}

static void test_list_is_newest_first(void **state)
{
    const struct site *site = *state;
    char *ids[5];
    for (int i = 0; i < 5; i++) {
        char reference[16];
        snprintf(reference, sizeof reference, "a:%d", i);
        ids[i] = submit(site, reference);
    }
    cleanup_json json_t *json = site_expect(site, 200, "GET", "/v1/jobs", NULL);
    const json_t *jobs = json_object_get(json, "jobs");
    assert_int_equal(json_array_size(jobs), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(text_of(json_array_get(jobs, i), "id"), ids[4 - i]);
        assert_null(json_object_get(json_array_get(jobs, i), "steps"));
        free(ids[4 - i]);
    }
}

static void test_unknown_jobs(void **state)
{
    const struct site *site = *state;
    site_refused(site, 404, "not_found", "j-none", "GET", "/v1/jobs/j-none", NULL);
    site_refused(site, 404, "not_found", "j-none", "GET", "/v1/jobs/j-none?wait=5", NULL);
    site_refused(site, 400, "invalid", "J", "GET", "/v1/jobs/J", NULL);
}

static void test_cancel(void **state)
{
    struct site *site = *state;
    char path[128];
    atomic_store(&site_shared.hold, true);
    cleanup_free char *id = submit(site, "a:1");
    cleanup_free char *other = submit(site, "a:2");
    for (int i = 0; i < 1000; i++) {
        cleanup_json json_t *job = get_job(site, id, "");
        if (strcmp(text_of(job, "state"), "running") == 0)
            break;
        nap_ms(10);
    }
    snprintf(path, sizeof path, "/v1/jobs/%s/cancel", id);
    site_refused(site, 400, "invalid", "hard", "POST", path, "{'hard':true}");
    cleanup_json json_t *asked = site_expect(site, 202, "POST", path, NULL);
    assert_string_equal(text_of(asked, "id"), id);
    assert_true(json_is_true(json_object_get(asked, "cancel")));
    cleanup_json json_t *ended = get_job(site, id, "?wait=20");
    assert_string_equal(text_of(ended, "state"), "cancelled");
    assert_string_equal(text_of(json_object_get(ended, "error"), "code"), "cancelled");
    assert_true(json_is_null(json_object_get(ended, "result")));
    /* Again is no failure, and says what it is now. */
    cleanup_json json_t *again = site_expect(site, 200, "POST", path, "{}");
    assert_string_equal(text_of(again, "state"), "cancelled");

    atomic_store(&site_shared.hold, false);
    cleanup_json json_t *done = get_job(site, other, "?wait=20");
    assert_true(json_is_false(json_object_get(done, "cancel")));
    snprintf(path, sizeof path, "/v1/jobs/%s/cancel", other);
    site_refused(site, 409, "conflict", "is done already", "POST", path, NULL);
    site_refused(site, 404, "not_found", "j-none", "POST", "/v1/jobs/j-none/cancel", NULL);
    site_refused(site, 400, "invalid", "J", "POST", "/v1/jobs/J/cancel", NULL);
}

static void test_long_poll(void **state)
{
    struct site *site = *state;
    atomic_store(&site_shared.hold, true);
    cleanup_free char *id = submit(site, "a:1");
    int64_t start = now_ms();
    cleanup_json json_t *early = get_job(site, id, "?wait=1");
    assert_true(now_ms() - start >= 900 && now_ms() - start < 8000);
    assert_string_not_equal(text_of(early, "state"), "done");
    /* It ends with the job, not with the time. */
    cleanup_fd int fd = site_connect(site);
    char request[128];
    snprintf(request, sizeof request, "GET /v1/jobs/%s?wait=30 HTTP/1.1\r\nHost: x\r\n\r\n", id);
    assert_true(site_send_text(fd, request));
    nap_ms(300);
    start = now_ms();
    atomic_store(&site_shared.hold, false);
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_int_equal(reply.status, 200);
    assert_string_equal(text_of(reply.json, "state"), "done");
    assert_true(now_ms() - start < 5000);
}

/* Far more waiting clients than threads for jobs: others are served, and those beyond the limit of
 * waiters are answered at once. */
static void test_many_long_polls_block_nobody(void **state)
{
    struct site *site = *state;
    atomic_store(&site_shared.hold, true);
    cleanup_free char *id = submit(site, "a:1");
    static int fds[API_WAITERS_MAX];
    char request[128];
    snprintf(request, sizeof request, "GET /v1/jobs/%s?wait=30 HTTP/1.1\r\nHost: x\r\n\r\n", id);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = site_connect(site);
        assert_true(site_send_text(fds[i], request));
    }
    nap_ms(500);
    int64_t start = now_ms();
    for (int i = 0; i < 10; i++)
        json_decref(site_expect(site, 200, "GET", "/healthz", NULL));
    cleanup_json json_t *beyond = get_job(site, id, "?wait=30");
    assert_string_equal(text_of(beyond, "state"), "running");
    assert_true(now_ms() - start < 10000);
    /* Clients that go away free their places. */
    for (size_t i = 0; i < ARRAY_SIZE(fds) / 2; i++)
        close(fds[i]);
    nap_ms(2500);
    start = now_ms();
    cleanup_json json_t *waited = get_job(site, id, "?wait=2");
    assert_true(now_ms() - start >= 1900);
    assert_string_equal(text_of(waited, "state"), "running");
    atomic_store(&site_shared.hold, false);
    for (size_t i = ARRAY_SIZE(fds) / 2; i < ARRAY_SIZE(fds); i++) {
        cleanup_site_reply struct site_reply reply = site_read(fds[i], false);
        assert_string_equal(text_of(reply.json, "state"), "done");
        close(fds[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_document),
        TEST(test_running_and_failed_jobs),
        TEST(test_list_is_newest_first),
        TEST(test_unknown_jobs),
        TEST(test_cancel),
        TEST(test_long_poll),
        TEST(test_many_long_polls_block_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
