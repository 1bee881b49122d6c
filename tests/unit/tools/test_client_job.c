#include "client_job.h"

#include "cleanup.h"
#include "clock.h"
#include "fake_varved.h"
#include "scratch.h"

#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define QUEUED  "{\"id\":\"j-1\",\"state\":\"queued\",\"progress\":null}"
#define RUNNING "{\"id\":\"j-1\",\"state\":\"running\",\"step\":\"fetch\"}"
#define DONE    "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"id\":\"r\"}}"
#define FAILED                                                                                     \
    "{\"id\":\"j-1\",\"state\":\"failed\",\"error\":{\"code\":\"conflict\",\"message\":\"busy\","  \
    "\"hint\":null}}"

static struct client open_client(void **state)
{
    char host[200];
    struct client client = {0};
    snprintf(host, sizeof host, "unix:%s", scratch_path(*state, "sock"));
    assert_int_equal(client_open(host, &client, NULL), 0);
    return client;
}

static void test_waits_until_the_job_is_final(void **state)
{
    static const struct fake_answer answers[] = {{.status = 200, .body = QUEUED},
                                                 {.status = 200, .body = RUNNING},
                                                 {.status = 200, .body = DONE}};
    struct fake_varved fake;
    fake_varved_start(&fake, scratch_path(*state, "sock"), answers, ARRAY_SIZE(answers));
    cleanup_client struct client client = open_client(state);
    cleanup_json json_t *job = NULL;
    struct client_wait wait = {.id = "j-1"};
    int rc = client_job_wait(&client, &wait, &job, NULL);
    fake_varved_stop(&fake);
    assert_int_equal(rc, 0);
    assert_int_equal(fake.request_count, 3);
    assert_non_null(strstr(fake.requests[0], "GET /v1/jobs/j-1?wait=30 "));
    assert_int_equal(client_job_outcome(job, NULL), 0);
    fake_varved_free(&fake);
}

static void test_failed_job_is_a_failure(void **state)
{
    (void)state;
    static const struct {
        const char *job;
        int rc;
        enum err_code code;
        const char *text;
    } cases[] = {
        {DONE, 0, ERR_NONE, ""},
        {FAILED, -EBUSY, ERR_CONFLICT, "busy"},
        {"{\"id\":\"j-2\",\"state\":\"cancelled\",\"error\":null}", -ECANCELED, ERR_CANCELLED,
         "job j-2 is cancelled"},
        {"{}", -ECANCELED, ERR_CANCELLED, "job - is -"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_json json_t *job = json_loads(cases[i].job, 0, NULL);
        struct err err = ERR_INIT;
        assert_int_equal(client_job_outcome(job, &err), cases[i].rc);
        assert_int_equal(err.code, cases[i].code);
        assert_string_equal(err.text, cases[i].text);
    }
}

static void test_final_states(void **state)
{
    (void)state;
    static const struct {
        const char *job;
        bool final;
    } cases[] = {{QUEUED, false},
                 {RUNNING, false},
                 {DONE, true},
                 {FAILED, true},
                 {"{\"state\":\"cancelled\"}", true},
                 {"{}", false},
                 {"{\"state\":1}", false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_json json_t *job = json_loads(cases[i].job, 0, NULL);
        assert_int_equal(client_job_is_final(job), cases[i].final);
    }
}

/* A daemon that is started again while the client waits. */
static void *start_later(void *arg)
{
    static const struct fake_answer answer = {.status = 200, .body = DONE};
    struct fake_varved *fake = arg;
    char path[100];
    struct timespec pause = {.tv_nsec = 700 * 1000 * 1000};
    snprintf(path, sizeof path, "%s", fake->path);
    nanosleep(&pause, NULL);
    fake_varved_start(fake, path, &answer, 1);
    return NULL;
}

static void test_a_restart_is_outlived(void **state)
{
    struct fake_varved second = {0};
    snprintf(second.path, sizeof second.path, "%s", scratch_path(*state, "sock"));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, start_later, &second), 0);
    cleanup_client struct client client = open_client(state);
    cleanup_json json_t *job = NULL;
    struct client_wait wait = {.id = "j-1", .retry_s = 20};
    struct err err = ERR_INIT;
    int rc = client_job_wait(&client, &wait, &job, &err);
    pthread_join(thread, NULL);
    fake_varved_stop(&second);
    assert_int_equal(rc, 0);
    assert_string_equal(json_string_value(json_object_get(job, "state")), "done");
    fake_varved_free(&second);
}

/* The answer is cut off, as by kill -9 in its middle; then the daemon is there again. */
static void test_a_broken_answer_is_asked_for_again(void **state)
{
    static const struct fake_answer answers[] = {
        {.raw = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"},
        {.status = 0},
        {.status = 200, .body = DONE}};
    struct fake_varved fake;
    fake_varved_start(&fake, scratch_path(*state, "sock"), answers, ARRAY_SIZE(answers));
    cleanup_client struct client client = open_client(state);
    cleanup_json json_t *job = NULL;
    struct client_wait wait = {.id = "j-1"};
    int rc = client_job_wait(&client, &wait, &job, NULL);
    fake_varved_stop(&fake);
    assert_int_equal(rc, 0);
    assert_int_equal(fake.request_count, 3);
    fake_varved_free(&fake);
}

static void test_a_daemon_that_stays_away_is_given_up(void **state)
{
    cleanup_client struct client client = open_client(state);
    json_t *job = NULL;
    struct client_wait wait = {.id = "j-1", .retry_s = 1};
    struct err err = ERR_INIT;
    struct clock clock = clock_system();
    int64_t start = clock_mono_ns(&clock);
    assert_int_equal(client_job_wait(&client, &wait, &job, &err), -EHOSTUNREACH);
    int64_t elapsed = clock_mono_ns(&clock) - start;
    assert_true(elapsed >= CLOCK_NS_PER_S && elapsed < 20 * CLOCK_NS_PER_S);
    assert_true(client.absent);
    assert_null(job);
    assert_non_null(strstr(err.hint, "varve job wait j-1"));
}

static void test_an_unknown_job_is_not_waited_for(void **state)
{
    static const struct fake_answer answer = {
        .status = 404,
        .body = "{\"error\":{\"code\":\"not_found\",\"message\":\"no job\",\"hint\":\"job ls\"}}"};
    struct fake_varved fake;
    fake_varved_start(&fake, scratch_path(*state, "sock"), &answer, 1);
    cleanup_client struct client client = open_client(state);
    json_t *job = NULL;
    struct client_wait wait = {.id = "j-1"};
    struct err err = ERR_INIT;
    int rc = client_job_wait(&client, &wait, &job, &err);
    fake_varved_stop(&fake);
    assert_int_equal(rc, -ENOENT);
    assert_string_equal(err.text, "no job");
    assert_string_equal(err.hint, "job ls");
    assert_int_equal(fake.request_count, 1);
    fake_varved_free(&fake);
}

/* A daemon with too many waiting clients answers at once; it is not asked in a tight loop. */
static void test_quick_answers_are_not_hammered(void **state)
{
    static const struct fake_answer answers[] = {{.status = 200, .body = RUNNING},
                                                 {.status = 200, .body = RUNNING},
                                                 {.status = 200, .body = RUNNING},
                                                 {.status = 200, .body = DONE}};
    struct fake_varved fake;
    fake_varved_start(&fake, scratch_path(*state, "sock"), answers, ARRAY_SIZE(answers));
    cleanup_client struct client client = open_client(state);
    cleanup_json json_t *job = NULL;
    struct client_wait wait = {.id = "j-1"};
    struct clock clock = clock_system();
    int64_t start = clock_mono_ns(&clock);
    int rc = client_job_wait(&client, &wait, &job, NULL);
    int64_t elapsed = clock_mono_ns(&clock) - start;
    fake_varved_stop(&fake);
    assert_int_equal(rc, 0);
    assert_true(elapsed >= CLOCK_NS_PER_S / 2);
    fake_varved_free(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_waits_until_the_job_is_final, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_failed_job_is_a_failure),
        cmocka_unit_test(test_final_states),
        cmocka_unit_test_setup_teardown(test_a_restart_is_outlived, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_broken_answer_is_asked_for_again, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_daemon_that_stays_away_is_given_up, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_an_unknown_job_is_not_waited_for, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_quick_answers_are_not_hammered, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
