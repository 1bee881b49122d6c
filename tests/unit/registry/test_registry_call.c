#include "registry_call.h"

#include "auth_fixture.h"
#include "registry_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define SECRET "hunter2"
#define BEARER "'auth':'bearer','users':{'bob':'" SECRET "'}"
#define BOB    "{'auths':{'%s':{'auth':'Ym9iOmh1bnRlcjI='}}}"

/* Shapes of WWW-Authenticate: what a push comes to. */
static const struct {
    const char *challenge; /* JSON */
    int result;
    const char *says; /* NULL: anything */
} shapes[] = {
    {"['Basic realm=`x`','Bearer realm=`{realm}`,service=`s`,scope=`{scope}`']", 202},
    {"'Basic realm=`x`, Bearer realm=`{realm}`,service=`s`,scope=`a:b:pull,push`'", 202},
    {"'bearer REALM=`{realm}`, Service=`s`, scope=`{scope}`'", 202},
    {"'Bearer service=`a \\\\`b\\\\`, c`,realm=`{realm}`'", 202},
    {"'Bearer realm=`{realm}`'", 202},
    {"'Bearer realm=`{realm}`,service=`s`'", 202},
    {"'Bearer  realm = `{realm}` , service = `s`'", 202},
    {"'Bearer realm={realm}'", 202},
    {"'Bearer realm=`/token`'", 202},
    {"'Negotiate YII=, Bearer realm=`{realm}`'", 202},
    {"''", -EACCES, "does not say how"},
    {"'Negotiate'", -EACCES, "by 'Negotiate'"},
    {"'Bearer service=`s`'", -EACCES, "where to get a token"},
    {"'Bearer realm=`http://auth.example/token`'", -EREMOTEIO},
    {"'Bearer realm=`ftp://x/`'", -EREMOTEIO},
    {"'Digest realm=`x`,nonce=`y`'", -EACCES, "by 'Digest'"},
};

static void challenges_of_all_shapes_are_answered(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        char config[400];
        struct err err = ERR_INIT;
        void *own = NULL;
        assert_int_equal(auth_fixture_setup(&own), 0);
        struct auth_fixture *fixture = own;
        snprintf(config, sizeof config, "{'settings':{" BEARER ",'challenge':%s}}",
                 shapes[i].challenge);
        auth_fixture_credentials(fixture, BOB);
        auth_fixture_config(fixture, config);
        int rc = auth_fixture_push(fixture, "team/app", NULL, &err);
        bool said = !shapes[i].says || strstr(err.text, shapes[i].says);
        if (rc != shapes[i].result || !said)
            fail_msg("%s: %d %s", shapes[i].challenge, rc, err.text);
        assert_true(auth_fixture_count(fixture, NULL, "*", 0) <= 3);
        assert_null(strstr(err.text, SECRET));
        assert_int_equal(auth_fixture_teardown(&own), 0);
    }
    (void)state;
}

/* The scope is the request's, whatever the challenge leaves out. */
static void scopes_are_asked_for(void **state)
{
    auth_fixture_credentials(*state, BOB);
    auth_fixture_config(*state, "{'settings':{" BEARER ",'challenge':'Bearer realm=`{realm}`'}}");
    assert_int_equal(auth_fixture_push(*state, "team/app", NULL, NULL), 202);
    assert_non_null(strstr(auth_fixture_record(*state, "GET", "/token*", 0, "target"),
                           "?scope=repository%3ateam%2fapp%3apull%2cpush"));
    /* What the challenge names besides is added. */
    auth_fixture_config(*state, "{'settings':{" BEARER ",'challenge':'Bearer realm=`{realm}`,"
                                "scope=`repository:real/app:pull repository:team/b:push`'}}");
    assert_int_equal(auth_fixture_push(*state, "team/b", NULL, NULL), 202);
    assert_int_equal(fake_registry_forget(((struct auth_fixture *)*state)->fake, "tokens", NULL),
                     0);
    assert_int_equal(auth_fixture_push(*state, "team/b", NULL, NULL), 202);
    assert_non_null(strstr(auth_fixture_record(*state, "GET", "/token*", 1, "target"),
                           "?scope=repository%3ateam%2fb%3apull%2cpush&scope=repository%3areal%2f"
                           "app%3apull"));
}

static void a_mount_asks_for_both_rights(void **state)
{
    auth_fixture_credentials(*state, BOB);
    auth_fixture_config(*state, "{'settings':{" BEARER "}}");
    assert_int_equal(auth_fixture_push(*state, "team/app", "other/app", NULL), 202);
    assert_non_null(strstr(auth_fixture_record(*state, "GET", "/token*", 0, "target"),
                           "scope=repository%3aother%2fapp%3apull&scope=repository%3ateam%2fapp%3a"
                           "pull%2cpush"));
    assert_int_equal(auth_fixture_push(*state, "team/app", "team/app", NULL), 202);
}

/* A token host that does not give the right to read the other repository gives the other one. */
static void a_mount_goes_on_without_the_second_right(void **state)
{
    static const int statuses[] = {400, 401, 403, 404, 405, 500, 503};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char config[300];
        snprintf(config, sizeof config,
                 "{'settings':{" BEARER ",'challenge':'Bearer realm=`{realm}`,service=`s`'},"
                 "'rules':[{'path':'/token*other*','status':%d},"
                 "{'path':'*from=*','header':'authorization','status':202}]}",
                 statuses[i]);
        auth_fixture_credentials(*state, BOB);
        auth_fixture_config(*state, config);
        struct err err = ERR_INIT;
        if (auth_fixture_push(*state, "team/app", "other/app", &err) != 202)
            fail_msg("%s", err.text);
        /* A right that is missing altogether is a failure. */
        snprintf(config, sizeof config,
                 "{'settings':{" BEARER "},'rules':[{'path':'/token*','status':%d}]}", statuses[i]);
        auth_fixture_config(*state, config);
        int rc = auth_fixture_push(*state, "team/none", "other/app", &err);
        assert_true(statuses[i] <= 404 ? rc == -EACCES : rc < 0 && rc != -EACCES);
    }
}

/* The registry insists on the second right, for which there is no token: no mount. What the
 * repository's own right is good for goes on with its own token. */
static void a_second_right_that_is_not_had_is_not_asked_for_again(void **state)
{
    static const int statuses[] = {401, 404, 500};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char config[200];
        snprintf(config, sizeof config,
                 "{'settings':{" BEARER "},'rules':[{'path':'/token*other*','status':%d}]}",
                 statuses[i]);
        auth_fixture_credentials(*state, BOB);
        auth_fixture_config(*state, config);
        struct err err = ERR_INIT;
        assert_int_equal(auth_fixture_push(*state, "team/app", "other/app", &err), -EACCES);
        if (auth_fixture_push(*state, "team/app", NULL, &err) != 202)
            fail_msg("%d: %s", statuses[i], err.text);
    }
}

/* Of a repository that is not there yet nobody may have the right to pull; and who may only read
 * has none to push. Tags and blobs are looked for either way. */
static void who_pushes_looks_with_either_right(void **state)
{
    struct auth_fixture *fixture = *state;
    static const char *const denied[] = {"*pull", "*push"};
    struct remote *remote = &fixture->registry->remote;
    struct digest digest;
    assert_int_equal(digest_bytes("x", 1, &digest, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(denied); i++) {
        char config[300];
        snprintf(config, sizeof config,
                 "{'settings':{" BEARER ",'challenge':'Bearer realm=`{realm}`,service=`s`'},"
                 "'rules':[{'path':'/token%s','status':401}]}",
                 denied[i]);
        auth_fixture_credentials(fixture, BOB);
        auth_fixture_config(fixture, config);
        const char *repository = i == 0 ? "team/new" : "team/read";
        struct err err = ERR_INIT;
        struct remote_manifest_stat stat;
        assert_true(remote_manifest_stat(remote, repository, "v1", NULL, NULL, &stat, &err) < 0);
        if (err.code != ERR_NOT_FOUND)
            fail_msg("%s: %s", denied[i], err.text);
        err_clear(&err);
        assert_true(remote_confirm_blob(remote, repository, &digest, 1, NULL, NULL, &err) < 0);
        if (err.code != ERR_NOT_FOUND)
            fail_msg("%s: %s", denied[i], err.text);
    }
}

static void a_token_that_ends_in_between_costs_one_more_request(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture, "{'settings':{" BEARER ",'token_uses':1}}");
    for (int i = 0; i < 3; i++)
        assert_int_equal(auth_fixture_push(fixture, "team/app", NULL, NULL), 202);
    assert_int_equal(auth_fixture_count(fixture, "POST", "*", 401), 3);
    assert_int_equal(auth_fixture_count(fixture, "POST", "*", 202), 3);
    assert_int_equal(auth_fixture_count(fixture, NULL, "/token*", 200), 3);
}

/* The body of a request that met a 401 is sent again whole. */
static void bodies_survive_a_401(void **state)
{
    struct auth_fixture *fixture = *state;
    char url[200];
    snprintf(url, sizeof url, "%s/v2/team/app/blobs/uploads/x", fixture->base);
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture,
                        "{'settings':{" BEARER "},'rules':[{'method':'PATCH','status':401,"
                        "'headers':{'WWW-Authenticate':'Bearer realm=`{main}/token`'},'nth':1},"
                        "{'method':'PATCH','header':'authorization','status':202}]}");
    struct registry_call call = {.request = {.method = REGISTRY_HTTP_PATCH,
                                             .url = url,
                                             .body = "0123456789",
                                             .body_fd = -1,
                                             .body_size = 10},
                                 .repeat = REGISTRY_REPEAT_NEVER,
                                 .repository = "team/app",
                                 .actions = "pull,push"};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_call_perform(fixture->registry, &call, &response, NULL), 0);
    assert_int_equal(response.status, 202);
    assert_string_equal(auth_fixture_record(fixture, "PATCH", "*", 1, "body"), "0123456789");
}

/* A download that is redirected shows the object store nothing, and its 401 is no challenge. */
static void other_origins_see_no_authorization(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture, "{'settings':{'auth':'basic','users':{'bob':'" SECRET "'}},'rules'"
                                 ":[{'host':'main','method':'HEAD','header':'authorization',"
                                 "'status':307,'headers':{'Location':'{other}/store'}},"
                                 "{'host':'other','status':401,'headers':{'WWW-Authenticate':"
                                 "'Basic realm=`store`'}}]}");
    assert_int_equal(auth_fixture_pull(fixture, "team/app", NULL), 401);
    assert_string_equal(auth_fixture_header(fixture, "HEAD", "/store", 0, "authorization"), "");
    assert_int_equal(auth_fixture_count(fixture, "HEAD", "/store", 0), 1);
    char url[200];
    snprintf(url, sizeof url, "http://%s/upload", fake_registry_other(fixture->fake));
    struct registry_call call = {.request = {.method = REGISTRY_HTTP_POST, .url = url},
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .repository = "team/app",
                                 .actions = "pull,push"};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_call_perform(fixture->registry, &call, &response, NULL), 0);
    assert_int_equal(response.status, 401);
    assert_string_equal(auth_fixture_header(fixture, "POST", "/upload", 0, "authorization"), "");
    assert_int_equal(auth_fixture_count(fixture, "POST", "/upload", 0), 1);
}

static void refusals_hide_what_was_sent(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_credentials(fixture, BOB);
    auth_fixture_config(fixture, "{'settings':{'auth':'basic','users':{'bob':'" SECRET "'}},'rules'"
                                 ":[{'header':'authorization','status':403,'body':'you sent Basic "
                                 "Ym9iOmh1bnRlcjI= to us'}]}");
    char url[200];
    snprintf(url, sizeof url, "%s/v2/team/app/tags/list", fixture->base);
    struct registry_call call = {.request = {.method = REGISTRY_HTTP_GET, .url = url},
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .repository = "team/app",
                                 .actions = "pull"};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_call_perform(fixture->registry, &call, &response, NULL), 0);
    assert_int_equal(response.status, 403);
    struct err err = ERR_INIT;
    assert_int_equal(registry_error_refusal(&response, &err), -EPERM);
    assert_non_null(strstr(err.text, "you sent Basic **************** to us"));
    assert_non_null(strstr(err.hint, "docker login 127.0.0.1:"));
    /* The password alone, within JSON. */
    auth_fixture_config(
        fixture, "{'settings':{'auth':'basic','users':{'bob':'" SECRET "'}},'rules'"
                 ":[{'header':'authorization','status':403,'headers':{'Content-Type':"
                 "'x/" SECRET "'},'body':{'errors':[{'code':'" SECRET "','message':'h\\u0075nter2'"
                 "}]}}]}");
    registry_http_response_free(&response);
    err_clear(&err);
    assert_int_equal(registry_call_perform(fixture->registry, &call, &response, NULL), 0);
    assert_int_equal(registry_error_refusal(&response, &err), -EPERM);
    assert_non_null(strstr(err.text, "(*******: *******)"));
    assert_string_equal(response.content_type, "x/*******");
}

/* An object store that refuses a signed address repeats parts of it. */
static void refusals_hide_signed_addresses(void **state)
{
    struct auth_fixture *fixture = *state;
    static const char *const hosts[] = {"main", "other"};
    char config[500];
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        struct registry_call call = {.request.method = REGISTRY_HTTP_GET,
                                     .repeat = REGISTRY_REPEAT_SAFE,
                                     .repository = "team/app",
                                     .actions = "pull"};
        cleanup_http_response struct registry_http_response response = {0};
        struct err err = ERR_INIT;
        char url[200];
        snprintf(config, sizeof config,
                 "{'rules':[{'path':'/v2/*','status':307,'headers':{'Location':'{%s}/store?"
                 "sig=c2lnbmF0dXJlIQ%%3D%%3D'}},{'path':'/store*','status':403,'body':"
                 "'<Error>c2lnbmF0dXJlIQ== of c2lnbmF0dXJlIQ%%3D%%3D</Error>'}]}",
                 hosts[i]);
        auth_fixture_config(fixture, config);
        snprintf(url, sizeof url, "%s/v2/team/app/blobs/x", fixture->base);
        call.request.url = url;
        assert_int_equal(registry_call_perform(fixture->registry, &call, &response, NULL), 0);
        (void)registry_error_refusal(&response, &err);
        if (!strstr(err.text, "(<Error>**************** of ********************</Error>)"))
            fail_msg("%s", err.text);
    }
}

static void loops_of_callers_wait_by_the_same_rules(void **state)
{
    struct auth_fixture *fixture = *state;
    struct registry_retry retry = {0};
    struct registry_waiter waiter = {0};
    for (int i = 1; i < REGISTRY_RETRY_MAX; i++)
        assert_int_equal(registry_call_wait(fixture->registry, &retry, NULL, &waiter, NULL), 1);
    assert_int_equal(fixture->quick.sleeps, REGISTRY_RETRY_MAX - 1);
    assert_int_equal(registry_call_wait(fixture->registry, &retry, NULL, &waiter, NULL), 0);
}

/* Two requests of one piece of work: what the first needed is not there for the second. */
static void parts_of_one_work_share_its_patience(void **state)
{
    struct auth_fixture *fixture = *state;
    char url[128];
    snprintf(url, sizeof url, "%s/v2/a/tags/list", fixture->base);
    struct registry_retry retry = {0};
    struct registry_call call = {.request = {.method = REGISTRY_HTTP_GET, .url = url},
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .retry = &retry,
                                 .repository = "a",
                                 .actions = "pull"};
    auth_fixture_config(fixture, "{'rules':[{'status':500,'times':3},{'status':404,'nth':4},"
                                 "{'status':502}]}");
    const long wanted[] = {404, 502};
    for (size_t i = 0; i < 2; i++) {
        cleanup_http_response struct registry_http_response response = {0};
        assert_int_equal(registry_call_perform(fixture->registry, &call, &response, NULL), 0);
        assert_int_equal(response.status, wanted[i]);
    }
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 1 + REGISTRY_RETRY_MAX);
}

/* An upload ends when nothing has moved for so long, whatever of it the registry puts off or
 * refuses to answer: no request of it has a patience of its own. */
static void an_upload_has_one_patience(void **state)
{
    struct auth_fixture *fixture = *state;
    static const size_t size = 20 << 20; /* in chunks */
    static const struct {
        const char *config;
        bool counted; /* by attempts, not by time */
        int halves;   /* bodies of other sizes, which are tried too */
    } cases[] = {
        {"{'rules':[{'method':'PATCH','status':503,'headers':{'Retry-After':'60'}}]}", false},
        {"{'rules':[{'method':['PATCH','GET'],'status':429,'headers':{'Retry-After':'60'}}]}",
         false},
        {"{'rules':[{'method':['PATCH','PUT'],'status':429}]}", true},
        {"{'rules':[{'method':'PATCH','work':false,'send_head':0}]}", true, 4},
        {"{'rules':[{'method':'PATCH','nth':2,'times':99,'status':500},"
         "{'method':'GET','status':502}]}",
         true},
    };
    cleanup_fd int fd = memfd_create("blob", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    struct digest digest = {{1}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auth_fixture_config(fixture, cases[i].config);
        struct remote *remote = &fixture->registry->remote;
        struct remote_upload upload = {.sent = 0};
        struct err err = ERR_INIT;
        int64_t from = fixture->quick.ahead_ms;
        assert_true(
            remote->ops->blob_put(remote, "a", &digest, fd, size, NULL, NULL, &upload, &err) < 0);
        int64_t passed_s = (fixture->quick.ahead_ms - from) / 1000;
        size_t bodies = auth_fixture_count(fixture, "PATCH", "*", 0) +
                        auth_fixture_count(fixture, "PUT", "*", 0);
        if (passed_s > REGISTRY_RETRY_TIME_MAX_S ||
            (cases[i].counted && bodies > (size_t)(1 + REGISTRY_RETRY_MAX + cases[i].halves)))
            fail_msg("%s: %lld s, %zu bodies: %s", cases[i].config, (long long)passed_s, bodies,
                     err.text);
        if (!cases[i].counted)
            assert_non_null(strstr(err.text, "asks not to come back for 60 s"));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, auth_fixture_setup, auth_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(challenges_of_all_shapes_are_answered),
        TEST(scopes_are_asked_for),
        TEST(a_mount_asks_for_both_rights),
        TEST(a_mount_goes_on_without_the_second_right),
        TEST(a_second_right_that_is_not_had_is_not_asked_for_again),
        TEST(who_pushes_looks_with_either_right),
        TEST(a_token_that_ends_in_between_costs_one_more_request),
        TEST(bodies_survive_a_401),
        TEST(other_origins_see_no_authorization),
        TEST(refusals_hide_what_was_sent),
        TEST(refusals_hide_signed_addresses),
        TEST(loops_of_callers_wait_by_the_same_rules),
        TEST(parts_of_one_work_share_its_patience),
        TEST(an_upload_has_one_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
