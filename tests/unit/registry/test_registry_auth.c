#include "registry_auth.h"

#include "auth_fixture.h"
#include "registry_secret.h"
#include "silent_mount.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SECRET "hunter2"
#define BEARER "'auth':'bearer','users':{'bob':'" SECRET "'}"
/* bob:hunter2 */
#define BOB "{'auths':{'%s':{'auth':'Ym9iOmh1bnRlcjI='}}}"

static void nothing_is_sent_before_it_is_asked_for(void **state)
{
    auth_fixture_credentials(*state, BOB);
    auth_fixture_config(*state, "{}");
    assert_int_equal(auth_fixture_pull(*state, "team/app", NULL), 404);
    assert_int_equal(auth_fixture_push(*state, "team/app", NULL, NULL), 202);
    assert_string_equal(auth_fixture_header(*state, NULL, "*", 0, "authorization"), "");
    assert_string_equal(auth_fixture_header(*state, NULL, "*", 1, "authorization"), "");
}

static void basic_is_remembered(void **state)
{
    auth_fixture_credentials(*state, BOB);
    auth_fixture_config(*state, "{'settings':{'auth':'basic','users':{'bob':'" SECRET "'}}}");
    assert_int_equal(auth_fixture_pull(*state, "team/app", NULL), 404);
    assert_int_equal(auth_fixture_count(*state, NULL, "*", 0), 2);
    assert_int_equal(auth_fixture_pull(*state, "team/app", NULL), 404);
    assert_int_equal(auth_fixture_pull(*state, "team/other", NULL), 404);
    assert_int_equal(auth_fixture_count(*state, NULL, "*", 401), 1);
}

static void check_denied(struct auth_fixture *fixture, const char *reason)
{
    struct err err = ERR_INIT;
    assert_int_equal(auth_fixture_pull(fixture, "team/app", &err), -EACCES);
    assert_int_equal(err.code, ERR_DENIED);
    if (!strstr(err.text, reason))
        fail_msg("'%s' is not in: %s", reason, err.text);
    assert_non_null(strstr(err.text, fake_registry_main(fixture->fake)));
    assert_non_null(strstr(err.hint, "docker login 127.0.0.1:"));
    assert_non_null(strstr(err.hint, "auth_file"));
    assert_null(strstr(err.text, SECRET));
    assert_null(strstr(err.text, "Ym9iO"));
}

static void without_credentials_the_file_is_named(void **state)
{
    struct auth_fixture *fixture = *state;
    char reason[200];
    auth_fixture_config(fixture, "{'settings':{'auth':'basic','users':{'bob':'" SECRET "'}}}");
    snprintf(reason, sizeof reason,
             "there are no credentials for %s in %s: ", fake_registry_main(fixture->fake),
             fixture->file);
    check_denied(fixture, reason);
    check_denied(fixture, "answered 401");
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 2);
    auth_fixture_credentials(fixture, "{'auths':{'other.example':{'auth':'dTpw'},'%s':{}}}");
    check_denied(fixture, reason);
}

static void wrong_passwords_are_tried_once(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture, "{'settings':{'auth':'basic','users':{'bob':'other'}}}");
    check_denied(fixture, "is refused");
    check_denied(fixture, fixture->file);
    check_denied(fixture, "answered 401");
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 2 + 1 + 1);
    /* Mended by another file, without a new start. */
    auth_fixture_credentials(fixture, "{'auths':{'%s':{'username':'bob','password':'other'}}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
}

/* The token host's refusal is the failure, with what to do about the registry. */
static void refused_tokens_are_told(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture, "{'settings':{'auth':'bearer','users':{'bob':'other'}}}");
    check_denied(fixture, "no token from 127.0.0.1:");
    check_denied(fixture, "incorrect username or password");
    auth_fixture_credentials(fixture, "{}");
    auth_fixture_config(fixture, "{'settings':{'auth':'bearer','anonymous':false}}");
    check_denied(fixture, "no token from 127.0.0.1:");
}

static void one_token_serves_until_shortly_before_its_end(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture, "{'settings':{" BEARER "}}");
    for (int i = 0; i < 3; i++)
        assert_int_equal(auth_fixture_push(fixture, "team/app", NULL, NULL), 202);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 1);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 401), 1);
    /* Other rights are another token, for which no 401 is needed. */
    assert_int_equal(auth_fixture_push(fixture, "team/other", NULL, NULL), 202);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 2);
    /* 300 s less 10 s */
    quick_time_pass(&fixture->quick, 285 * 1000);
    assert_int_equal(auth_fixture_push(fixture, "team/app", NULL, NULL), 202);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 2);
    quick_time_pass(&fixture->quick, 6 * 1000);
    assert_int_equal(auth_fixture_push(fixture, "team/app", NULL, NULL), 202);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 3);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 401), 1);
}

/* Tokens of a few seconds are not used in the last quarter of their life. */
static void short_tokens_are_used_for_most_of_their_life(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'settings':{" BEARER ",'expires_in':8}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    quick_time_pass(&fixture->quick, 4000);
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 1);
    quick_time_pass(&fixture->quick, 2100);
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 2);
}

/* A challenge may name a placeholder for which there is no token. */
static void placeholders_of_challenges_are_left_out(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture, "{'settings':{" BEARER ",'challenge':'Bearer realm=`{realm}`,"
                                 "scope=`repository:user/image:pull`'},"
                                 "'rules':[{'path':'/token*user*image*','status':403}]}");
    assert_int_equal(auth_fixture_push(fixture, "team/app", NULL, NULL), 202);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 2);
}

static void the_old_token_serves_while_there_is_no_new_one(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'settings':{" BEARER "}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    auth_fixture_config(fixture, "{'settings':{" BEARER "},'rules':[{'path':'/token*',"
                                 "'status':403}]}");
    quick_time_pass(&fixture->quick, 292 * 1000);
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 1);
    quick_time_pass(&fixture->quick, 10 * 1000);
    check_denied(fixture, "no token");
}

static void a_token_that_is_refused_is_renewed(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'settings':{" BEARER "}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    assert_int_equal(fake_registry_forget(fixture->fake, "tokens", NULL), 0);
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 2);
    /* But not for ever. */
    auth_fixture_config(fixture, "{'settings':{" BEARER ",'token_ms':0,'expires_in':300}}");
    assert_int_equal(fake_registry_forget(fixture->fake, "tokens", NULL), 0);
    struct err err = ERR_INIT;
    assert_int_equal(auth_fixture_pull(fixture, "team/app", &err), -EACCES);
    assert_int_equal(err.code, ERR_DENIED);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), REGISTRY_AUTH_TRIES);
}

/* A token host that gives the same again gains nothing by being asked more often. */
static void the_same_token_is_not_sent_twice(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'settings':{" BEARER "},'rules':[{'path':'/token*','status':200,"
                                 "'body':{'token':'" SECRET "'}}]}");
    check_denied(fixture, "is refused");
    assert_int_equal(auth_fixture_count(fixture, "HEAD", "*", 0), 2);
}

static void a_token_for_the_registry_is_sent_as_it_is(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, "{'auths':{'%s':{'registrytoken':'" SECRET "'}}}");
    auth_fixture_config(fixture, "{'rules':[{'header':'authorization','status':404},"
                                 "{'status':401,'headers':{'WWW-Authenticate':"
                                 "'Bearer realm=`{main}/token`'}}]}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    assert_string_equal(auth_fixture_header(fixture, NULL, "*", 1, "authorization"),
                        "Bearer " SECRET);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 0);
    auth_fixture_config(fixture, "{'settings':{" BEARER "}}");
    check_denied(fixture, "is refused");
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 0);
}

static void identity_tokens_are_exchanged_and_replaced(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, "{'auths':{'%s':{'identitytoken':'it1'}}}");
    auth_fixture_config(fixture,
                        "{'settings':{" BEARER "},'rules':[{'path':'/token','nth':1,'status':200,"
                        "'body':{'access_token':'x','refresh_token':'it2'}}]}");
    struct err err = ERR_INIT;
    assert_true(auth_fixture_push(fixture, "team/app", NULL, &err) < 0);
    assert_non_null(
        strstr(auth_fixture_record(fixture, "POST", "/token", 0, "body"), "refresh_token=it1"));
    assert_non_null(
        strstr(auth_fixture_record(fixture, "POST", "/token", 1, "body"), "refresh_token=it2"));
    /* The file's counts again when it has changed. */
    auth_fixture_credentials(fixture, "{'auths':{'%s':{'identitytoken':'it3'}}}");
    auth_fixture_config(fixture, "{'settings':{" BEARER ",'refresh_tokens':['it3']}}");
    err_clear(&err);
    if (auth_fixture_push(fixture, "team/app", NULL, &err) != 202)
        fail_msg("%s", err.text);
}

/* What came from the old file is not used any more, also when the registry would take it. */
static void a_new_file_ends_what_came_from_the_old_one(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture,
                        "{'settings':{'auth':'basic','users':{'bob':'" SECRET "','eve':'new'}}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/a", NULL), 404);
    assert_int_equal(auth_fixture_pull(fixture, "team/b", NULL), 404);
    auth_fixture_credentials(fixture, "{'auths':{'%s':{'username':'eve','password':'new'}}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/a", NULL), 404);
    assert_int_equal(auth_fixture_pull(fixture, "team/b", NULL), 404);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 401), 1);
    /* eve:new */
    assert_string_equal(auth_fixture_header(fixture, NULL, "*", 3, "authorization"),
                        "Basic ZXZlOm5ldw==");
    assert_string_equal(auth_fixture_header(fixture, NULL, "*", 4, "authorization"),
                        "Basic ZXZlOm5ldw==");
    /* Logged out. */
    auth_fixture_credentials(fixture, "{}");
    struct err err = ERR_INIT;
    assert_int_equal(auth_fixture_pull(fixture, "team/a", &err), -EACCES);
    assert_non_null(strstr(err.text, "there are no credentials"));
    auth_fixture_config(fixture, "{'settings':{" BEARER ",'anonymous':false}}");
    auth_fixture_credentials(fixture, BOB);
    assert_int_equal(auth_fixture_push(fixture, "team/a", NULL, NULL), 202);
    auth_fixture_credentials(fixture, "{}");
    assert_int_equal(auth_fixture_push(fixture, "team/a", NULL, &err), -EACCES);
}

static void credentials_of_a_path_are_its_own(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture,
                             "{'auths':{'%s/team':{'username':'bob','password':'" SECRET "'}}}");
    auth_fixture_config(fixture, "{'settings':{'auth':'basic','users':{'bob':'" SECRET "'}}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    struct err err = ERR_INIT;
    assert_int_equal(auth_fixture_pull(fixture, "other/app", &err), -EACCES);
    assert_non_null(strstr(err.text, "there are no credentials"));
}

static void a_broken_file_is_named(void **state)
{
    struct auth_fixture *fixture = *state;
    struct err err = ERR_INIT;
    auth_fixture_credentials(fixture, "{'auths':{'%s':{'auth':" SECRET "}}}");
    auth_fixture_config(fixture, "{}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404); /* not needed */
    auth_fixture_config(fixture, "{'settings':{" BEARER "}}");
    assert_true(auth_fixture_pull(fixture, "team/app", &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, fixture->file));
    assert_null(strstr(err.text, SECRET));
    auth_fixture_credentials(fixture, BOB);
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
}

/* --- many threads --- */

enum {
    THREADS = 16,
};

struct worker {
    pthread_t thread;
    struct auth_fixture *fixture;
    int result;
    struct err err;
};

static void *pull_once(void *arg)
{
    struct worker *worker = arg;
    worker->result = auth_fixture_pull(worker->fixture, "team/app", &worker->err);
    return NULL;
}

static void run_workers(struct auth_fixture *fixture, struct worker workers[THREADS])
{
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.fixture = fixture};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, pull_once, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
}

static void many_threads_ask_for_one_token(void **state)
{
    struct auth_fixture *fixture = *state;
    struct worker workers[THREADS];
    auth_fixture_config(fixture, "{'settings':{" BEARER "},'rules':[{'path':'/token*',"
                                 "'delay_ms':100}]}");
    run_workers(fixture, workers);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(workers[i].result, 404);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 1);
    quick_time_pass(&fixture->quick, 300 * 1000);
    run_workers(fixture, workers);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 0), 2);
}

static void who_waits_gets_the_failure(void **state)
{
    struct auth_fixture *fixture = *state;
    struct worker workers[THREADS];
    auth_fixture_config(fixture, "{'settings':{" BEARER "}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    quick_time_pass(&fixture->quick, 300 * 1000);
    auth_fixture_config(fixture, "{'settings':{" BEARER "},'rules':[{'path':'/token*',"
                                 "'delay_ms':300,'status':403}]}");
    run_workers(fixture, workers);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].result, -EACCES);
        assert_non_null(strstr(workers[i].err.text, "no token"));
    }
    assert_true(auth_fixture_count(fixture, NULL, "/token*", 0) < THREADS / 2);
}

static int stop_at_once(void *arg, uint64_t done, uint64_t total)
{
    (void)arg, (void)done, (void)total;
    return 1;
}

struct stopped {
    struct auth_fixture *fixture;
    int result;
    struct err err;
    atomic_bool ends; /* asks for it */
    atomic_bool over;
};

static void *ask_and_stop(void *arg)
{
    struct stopped *stopped = arg;
    struct registry *registry = stopped->fixture->registry;
    static const char *const scopes[] = {"repository:team/app:pull"};
    struct registry_waiter waiter = {.progress = stop_at_once};
    struct registry_need need = {.http = registry->http,
                                 .base = registry->base,
                                 .host = registry->remote.host,
                                 .repository = "team/app",
                                 .scopes = scopes,
                                 .scope_count = 1,
                                 .waiter = &waiter};
    cleanup_secret char *value = NULL;
    stopped->result = registry_auth_value(registry_pool_auth(stopped->fixture->pool), &need, &value,
                                          &stopped->err);
    return NULL;
}

/* One who gives up does not take the others along. */
static void a_cancelled_fetch_is_nobody_elses_failure(void **state)
{
    struct auth_fixture *fixture = *state;
    struct worker workers[THREADS];
    struct stopped stopped = {.fixture = fixture};
    pthread_t thread;
    auth_fixture_config(fixture, "{'settings':{" BEARER "}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    quick_time_pass(&fixture->quick, 300 * 1000);
    auth_fixture_config(fixture, "{'settings':{" BEARER "},'rules':[{'path':'/token*',"
                                 "'delay_ms':400}]}");
    assert_int_equal(pthread_create(&thread, NULL, ask_and_stop, &stopped), 0);
    run_workers(fixture, workers);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(stopped.result, -ECANCELED);
    assert_int_equal(stopped.err.code, ERR_CANCELLED);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(workers[i].result, 404);
}

/* A token that was asked for with the old file is nobody's once the new one was seen: whoever asked
 * gets one for the new user. */
static void a_fetch_does_not_outlive_its_file(void **state)
{
    struct auth_fixture *fixture = *state;
    struct worker worker = {.fixture = fixture};
    static const char *const config =
        "{'settings':{'auth':'bearer','anonymous':false,'users':{'bob':'" SECRET
        "','eve':'new'}},'rules':[{'path':'/token*team*app*','nth':1,'delay_ms':600%s}]}";
    static const char *const answers[] = {"", ",'status':403"};
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        char text[500];
        snprintf(text, sizeof text, config, answers[i]);
        auth_fixture_credentials(fixture, BOB);
        auth_fixture_config(fixture, text);
        (void)auth_fixture_pull(fixture, "team/other", NULL);
        size_t before = auth_fixture_count(fixture, NULL, "/token*team*app*", 0);
        assert_int_equal(pthread_create(&worker.thread, NULL, pull_once, &worker), 0);
        while (fake_registry_count(fixture->fake, "GET", "/token*team*app*") == 0)
            (void)usleep(1000);
        auth_fixture_credentials(fixture, "{'auths':{'%s':{'username':'eve','password':'new'}}}");
        assert_int_equal(auth_fixture_pull(fixture, "team/other", NULL), 404);
        assert_int_equal(pthread_join(worker.thread, NULL), 0);
        if (worker.result != 404)
            fail_msg("%s", worker.err.text);
        assert_int_equal(before, 0);
        assert_int_equal(auth_fixture_count(fixture, "GET", "/token*team*app*", 0), 2);
        assert_string_equal(
            auth_fixture_header(fixture, "GET", "/token*team*app*", 1, "authorization"),
            "Basic ZXZlOm5ldw==");
    }
}

static int stop_when_told(void *arg, uint64_t done, uint64_t total)
{
    const struct stopped *stopped = arg;
    (void)done, (void)total;
    return atomic_load(&stopped->ends);
}

/* One who has to log in and cannot, as the file's file system hangs. */
static void *ask_for_more(void *arg)
{
    struct stopped *stopped = arg;
    struct registry *registry = stopped->fixture->registry;
    static const char *const scopes[] = {"repository:team/app:pull,push"};
    struct registry_waiter waiter = {.progress = stop_when_told, .arg = stopped};
    struct registry_need need = {.http = registry->http,
                                 .base = registry->base,
                                 .host = registry->remote.host,
                                 .repository = "team/app",
                                 .scopes = scopes,
                                 .scope_count = 1,
                                 .waiter = &waiter};
    cleanup_secret char *value = NULL;
    stopped->result = registry_auth_value(registry_pool_auth(stopped->fixture->pool), &need, &value,
                                          &stopped->err);
    atomic_store(&stopped->over, true);
    return NULL;
}

/* It holds up nobody who needs nothing from it, and who needs it can be stopped. */
static void a_file_that_hangs_holds_nobody_up(void **state)
{
    struct auth_fixture *fixture = *state;
    struct stopped stopped = {.fixture = fixture};
    pthread_t thread;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture, "{'settings':{" BEARER "}}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    fixture->silent = silent_mount_begin(fixture->scratch->path);
    assert_true(fixture->silent >= 0);
    assert_int_equal(pthread_create(&thread, NULL, ask_for_more, &stopped), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 404);
    assert_false(atomic_load(&stopped.over));
    atomic_store(&stopped.ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(stopped.err.code, ERR_CANCELLED);
    silent_mount_end(fixture->scratch->path, fixture->silent);
    fixture->silent = -1;
    assert_int_equal(auth_fixture_push(fixture, "team/app", NULL, NULL), 202);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, auth_fixture_setup, auth_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_sent_before_it_is_asked_for),
        TEST(basic_is_remembered),
        TEST(without_credentials_the_file_is_named),
        TEST(wrong_passwords_are_tried_once),
        TEST(refused_tokens_are_told),
        TEST(one_token_serves_until_shortly_before_its_end),
        TEST(short_tokens_are_used_for_most_of_their_life),
        TEST(the_old_token_serves_while_there_is_no_new_one),
        TEST(placeholders_of_challenges_are_left_out),
        TEST(a_token_that_is_refused_is_renewed),
        TEST(the_same_token_is_not_sent_twice),
        TEST(a_token_for_the_registry_is_sent_as_it_is),
        TEST(identity_tokens_are_exchanged_and_replaced),
        TEST(a_new_file_ends_what_came_from_the_old_one),
        TEST(credentials_of_a_path_are_its_own),
        TEST(a_broken_file_is_named),
        TEST(many_threads_ask_for_one_token),
        TEST(who_waits_gets_the_failure),
        TEST(a_cancelled_fetch_is_nobody_elses_failure),
        TEST(a_fetch_does_not_outlive_its_file),
        TEST(a_file_that_hangs_holds_nobody_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
