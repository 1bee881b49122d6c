#include "registry_token.h"

#include "auth_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SECRET "hunter2"

static char user[] = "bob";
static char password[] = SECRET;
static char identity[] = SECRET "-it";

/* Asks {main}/token for two scopes. */
static int fetch(struct auth_fixture *fixture, const char *path,
                 const struct registry_credential *credential, struct registry_token *ret,
                 struct err *err)
{
    static const char *const scopes[] = {"repository:team/app:pull,push", "repository:b:pull"};
    struct registry_repeat_means means = {.http = fixture->registry->http,
                                          .time = &fixture->quick.time};
    char realm[200];
    snprintf(realm, sizeof realm, "%s%s", fixture->base, path);
    struct registry_token_request request = {.means = &means,
                                             .realm = realm,
                                             .service = "a&b service",
                                             .scopes = scopes,
                                             .scope_count = 2,
                                             .credential = credential};
    return registry_token_fetch(&request, ret, err);
}

static int fetch_as_anybody(struct auth_fixture *fixture, struct registry_token *ret,
                            struct err *err)
{
    return fetch(fixture, "/token", NULL, ret, err);
}

static void anybody_asks_by_get(void **state)
{
    cleanup_registry_token struct registry_token token = {0};
    auth_fixture_config(*state, "{'settings':{'auth':'bearer'}}");
    assert_int_equal(fetch(*state, "/token?x=y", NULL, &token, NULL), 0);
    assert_string_equal(token.value, "fake-token-1");
    assert_int_equal(token.life_ns, 300 * CLOCK_NS_PER_S);
    assert_string_equal(auth_fixture_record(*state, "GET", "*", 0, "target"),
                        "/token?x=y&service=a%26b+service&scope=repository%3ateam%2fapp%3apull%2c"
                        "push&scope=repository%3ab%3apull");
    assert_string_equal(auth_fixture_header(*state, "GET", "*", 0, "authorization"), "");
}

static void a_user_asks_by_get_with_basic(void **state)
{
    cleanup_registry_token struct registry_token token = {0};
    struct registry_credential bob = {.username = user, .password = password};
    auth_fixture_config(*state, "{'settings':{'auth':'bearer','users':{'bob':'" SECRET "'}}}");
    assert_int_equal(fetch(*state, "/token", &bob, &token, NULL), 0);
    /* bob:hunter2 */
    assert_string_equal(auth_fixture_header(*state, "GET", "*", 0, "authorization"),
                        "Basic Ym9iOmh1bnRlcjI=");
    assert_null(strstr(auth_fixture_record(*state, "GET", "*", 0, "target"), SECRET));
}

static void an_identity_token_is_exchanged_by_post(void **state)
{
    cleanup_registry_token struct registry_token token = {0};
    struct registry_credential bob = {.identity_token = identity};
    auth_fixture_config(*state, "{'settings':{'auth':'bearer','token_field':'access_token',"
                                "'refresh_tokens':['" SECRET "-it']}}");
    assert_int_equal(fetch(*state, "/token", &bob, &token, NULL), 0);
    assert_string_equal(token.value, "fake-token-1");
    assert_string_equal(auth_fixture_record(*state, "POST", "*", 0, "target"), "/token");
    assert_string_equal(auth_fixture_record(*state, "POST", "*", 0, "body"),
                        "grant_type=refresh_token&service=a%26b%20service&scope=repository%3Ateam"
                        "%2Fapp%3Apull%2Cpush%20repository%3Ab%3Apull&client_id=varve&"
                        "refresh_token=" SECRET "-it");
    assert_string_equal(auth_fixture_header(*state, "POST", "*", 0, "content-type"),
                        "application/x-www-form-urlencoded");
    assert_string_equal(auth_fixture_header(*state, "POST", "*", 0, "authorization"), "");
}

/* Hosts without the OAuth way are asked in the other one. */
static void a_host_that_knows_no_post_is_asked_by_get(void **state)
{
    static const int statuses[] = {404, 405};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char config[200];
        cleanup_registry_token struct registry_token token = {0};
        struct registry_credential bob = {.username = user, .identity_token = identity};
        snprintf(config, sizeof config,
                 "{'settings':{'auth':'bearer','users':{'bob':'" SECRET "-it'}},"
                 "'rules':[{'method':'POST','status':%d}]}",
                 statuses[i]);
        auth_fixture_config(*state, config);
        assert_int_equal(fetch(*state, "/token", &bob, &token, NULL), 0);
        assert_int_equal(auth_fixture_count(*state, "GET", "/token*", 200), 1);
        registry_token_free(&token);
        struct err err = ERR_INIT;
        bob.username = NULL;
        assert_true(fetch(*state, "/token", &bob, &token, &err) < 0);
        assert_int_equal(auth_fixture_count(*state, "GET", "/token*", 0), 1);
    }
}

static void a_secret_in_a_body_goes_to_one_host(void **state)
{
    cleanup_registry_token struct registry_token token = {0};
    struct registry_credential bob = {.identity_token = identity};
    struct err err = ERR_INIT;
    auth_fixture_config(*state, "{'rules':[{'method':'POST','host':'main','status':307,'headers':"
                                "{'Location':'{other}/token'}}]}");
    assert_true(fetch(*state, "/token", &bob, &token, &err) < 0);
    assert_int_equal(auth_fixture_count(*state, "POST", "*", 0), 1);
}

static void refusals_say_what_the_host_said(void **state)
{
    static const int statuses[] = {400, 401, 403};
    struct registry_credential bob = {.username = user, .password = password};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char config[200];
        cleanup_registry_token struct registry_token token = {0};
        struct err err = ERR_INIT;
        snprintf(config, sizeof config,
                 "{'rules':[{'status':%d,'body':{'errors':[{'code':'DENIED','message':"
                 "'" SECRET " is wrong'}]}}]}",
                 statuses[i]);
        auth_fixture_config(*state, config);
        assert_int_equal(fetch(*state, "/token", &bob, &token, &err), -EACCES);
        assert_int_equal(err.code, ERR_DENIED);
        assert_non_null(strstr(err.text, "no token from 127.0.0.1:"));
        assert_non_null(strstr(err.text, "(DENIED: ******* is wrong)"));
        assert_string_equal(err.hint, ""); /* the caller knows what to log in to */
    }
}

/* Whatever spelling the host repeats a secret in. */
static void what_was_sent_is_hidden_in_refusals(void **state)
{
    static char odd[] = "a&b/c\"d\\e<f>";
    struct registry_credential bob = {.username = user, .password = odd};
    struct registry_credential token = {.identity_token = odd};
    /* bob:a&b/c"d\e<f> */
    static const char coded[] = "Ym9iOmEmYi9jImRcZTxmPg==";
    static const char *const bodies[] = {
        "{'errors':[{'code':'DENIED','message':'got a&b/c`d\\\\e<f>'}]}",
        "{'errors':[{'code':'DENIED','message':'got Ym9iOmEmYi9jImRcZTxmPg=='}]}",
        "'got a&b/c`d\\\\e<f>'",
        "'got Basic Ym9iOmEmYi9jImRcZTxmPg=='",
        "'cut {`m`:`a\\\\u0026b/c\\\\`d\\\\\\\\e\\\\u003cf\\\\u003e`'",
        "'cut {`m`:`a&b\\\\/c\\\\`d\\\\\\\\e<f>`'",
        "'form=a%26b%2Fc%22d%5Ce%3Cf%3E&x'",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++)
        for (int kind = 0; kind < 2; kind++) {
            cleanup_free char *config = NULL;
            cleanup_registry_token struct registry_token made = {0};
            struct err err = ERR_INIT;
            assert_true(asprintf(&config, "{'rules':[{'status':403,'body':%s}]}", bodies[i]) > 0);
            auth_fixture_config(*state, config);
            assert_int_equal(fetch(*state, "/token", kind ? &token : &bob, &made, &err), -EACCES);
            if (strstr(err.text, "a&b") || strstr(err.text, "c\"d") || strstr(err.text, "u0026b") ||
                strstr(err.text, "b\\/c") || strstr(err.text, "a%26b") ||
                (kind == 0 && strstr(err.text, coded)))
                fail_msg("%s: %s", bodies[i], err.text);
            bool names_coded = strstr(bodies[i], coded) != NULL;
            if (!strstr(err.text, "***") && !(names_coded && kind == 1))
                fail_msg("%s is not shown: %s", bodies[i], err.text);
        }
}

static void failures_that_pass_are_asked_again(void **state)
{
    struct auth_fixture *fixture = *state;
    cleanup_registry_token struct registry_token token = {0};
    struct registry_credential bob = {.identity_token = identity};
    auth_fixture_config(fixture, "{'settings':{'refresh_tokens':['" SECRET "-it']},'rules':["
                                 "{'status':429,'nth':1,'headers':{'Retry-After':'5'}},"
                                 "{'status':503,'nth':2},{'raw':'','end':'reset','nth':3}]}");
    assert_int_equal(fetch(fixture, "/token", &bob, &token, NULL), 0);
    assert_int_equal(auth_fixture_count(fixture, "POST", "/token", 0), 4);
    assert_in_range(fixture->quick.pause_ms, 5000, 7000);
}

/* One answer of the token host: a token with this life in seconds, or the failure. */
static void check_answer(struct auth_fixture *fixture, const char *body, double life,
                         enum err_code code)
{
    cleanup_registry_token struct registry_token token = {0};
    struct err err = ERR_INIT;
    cleanup_free char *config = NULL;
    assert_true(asprintf(&config, "{'rules':[{'status':200,'body':%s}]}", body) > 0);
    auth_fixture_config(fixture, config);
    int rc = fetch_as_anybody(fixture, &token, &err);
    if (err.code != code)
        fail_msg("%s: %d %s", body, rc, err.text);
    assert_null(strstr(err.text, SECRET));
    if (rc < 0) {
        assert_null(token.value);
        return;
    }
    assert_string_equal(token.value, "t");
    double seconds = (double)token.life_ns / (double)CLOCK_NS_PER_S;
    if (seconds < life - 1.5 || seconds > life)
        fail_msg("%s: %f s", body, seconds);
}

/* No integer holds it. */
static void lives_that_are_very_long(void **state)
{
    (void)state;
    static const char *const said[] = {"9223372036854775808", "123456789012345678901234567890",
                                       "-9223372036854775809"};
    for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
        cleanup_registry_token struct registry_token token = {0};
        char answer[100];
        int len = snprintf(answer, sizeof answer, "{\"token\":\"t\",\"expires_in\":%s}", said[i]);
        assert_int_equal(registry_token_read(answer, (size_t)len, 0, &token, NULL), 0);
        assert_int_equal(token.life_ns / CLOCK_NS_PER_S,
                         said[i][0] == '-' ? 60 : REGISTRY_TOKEN_LIFE_MAX_S);
    }
}

static void answers_of_all_shapes(void **state)
{
    static const struct {
        const char *body;
        double life;
        enum err_code code;
    } cases[] = {
        {"{'token':'t'}", 60, ERR_NONE},
        {"{'access_token':'t'}", 60, ERR_NONE},
        {"{'token':'t','access_token':'other'}", 60, ERR_NONE},
        {"{'token':'','access_token':'t'}", 60, ERR_NONE},
        {"{'token':null,'access_token':'t','expires_in':3600}", 3600, ERR_NONE},
        {"{'token':'t','expires_in':5}", 5, ERR_NONE},
        {"{'token':'t','expires_in':2.5}", 2.5, ERR_NONE},
        {"{'token':'t','expires_in':0}", 60, ERR_NONE},
        {"{'token':'t','expires_in':-7}", 60, ERR_NONE},
        {"{'token':'t','expires_in':'300'}", 60, ERR_NONE},
        {"{'token':'t','expires_in':1e300}", REGISTRY_TOKEN_LIFE_MAX_S, ERR_NONE},
        {"{'token':'t','expires_in':9223372036854775807}", REGISTRY_TOKEN_LIFE_MAX_S, ERR_NONE},
        {"{'token':'t','expires_in':300,'issued_at':'2009-11-10T23:00:00Z'}", 300, ERR_NONE},
        {"{'token':'t','expires_in':300,'issued_at':'2109-11-10T23:00:00Z'}", 300, ERR_NONE},
        {"{'token':'t','expires_in':300,'issued_at':'yesterday'}", 300, ERR_NONE},
        {"{'token':'t','expires_in':300,'issued_at':7}", 300, ERR_NONE},
        {"{}", 0, ERR_DAMAGED},
        {"{'token':''}", 0, ERR_DAMAGED},
        {"{'token':7}", 0, ERR_DAMAGED},
        {"{'token':'" SECRET "\\r\\nX: y'}", 0, ERR_DAMAGED},
        {"{'token':'" SECRET " x'}", 0, ERR_DAMAGED},
        {"{'token':'\\u00e4" SECRET "'}", 0, ERR_DAMAGED},
        {"['" SECRET "']", 0, ERR_DAMAGED},
        {"'" SECRET "'", 0, ERR_DAMAGED},
        {"''", 0, ERR_DAMAGED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check_answer(*state, cases[i].body, cases[i].life, cases[i].code);
}

/* A token that the host had made before lives shorter, as far as both clocks can be right. */
static void age_counts(void **state)
{
    char body[200];
    static const int ages[][2] = {{100, 200}, {290, 10}, {301, 300}, {-100, 300}};
    for (size_t i = 0; i < ARRAY_SIZE(ages); i++)
        for (int zone = 0; zone < 3; zone++) {
            static const char *const zones[] = {"Z", ".123456789+01:30", "-02:00"};
            static const int offsets[] = {0, 5400, -7200};
            time_t made = time(NULL) - ages[i][0] + offsets[zone];
            struct tm tm;
            char text[40];
            assert_non_null(gmtime_r(&made, &tm));
            strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
            snprintf(body, sizeof body, "{'token':'t','expires_in':300,'issued_at':'%s%s'}", text,
                     zones[zone]);
            check_answer(*state, body, ages[i][1], ERR_NONE);
        }
}

static void answers_are_bounded(void **state)
{
    cleanup_registry_token struct registry_token token = {0};
    struct err err = ERR_INIT;
    char config[100];
    snprintf(config, sizeof config, "{'rules':[{'status':200,'body':' ','repeat':%d}]}",
             REGISTRY_TOKEN_ANSWER_MAX + 1);
    auth_fixture_config(*state, config);
    assert_true(fetch_as_anybody(*state, &token, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    for (int more = 0; more < 2; more++) {
        cleanup_free char *text = malloc(REGISTRY_TOKEN_MAX + 200);
        assert_non_null(text);
        int n = snprintf(text, 100, "{'rules':[{'status':200,'body':{'token':'");
        memset(text + n, 'x', (size_t)(REGISTRY_TOKEN_MAX + more));
        memcpy(text + n + REGISTRY_TOKEN_MAX + more, "'}}]}", 6);
        auth_fixture_config(*state, text);
        err_clear(&err);
        int rc = fetch_as_anybody(*state, &token, &err);
        assert_int_equal(rc == 0, more == 0);
        assert_int_equal(err.code, more ? ERR_TOO_LARGE : ERR_NONE);
        registry_token_free(&token);
    }
}

static void a_new_identity_token_is_taken_over(void **state)
{
    cleanup_registry_token struct registry_token token = {0};
    struct registry_credential bob = {.identity_token = identity};
    auth_fixture_config(*state, "{'rules':[{'status':200,'body':{'access_token':'t',"
                                "'refresh_token':'newer'}}]}");
    assert_int_equal(fetch(*state, "/token", &bob, &token, NULL), 0);
    assert_string_equal(token.refresh_token, "newer");
}

static void realms_are_checked(void **state)
{
    struct auth_fixture *fixture = *state;
    static const struct {
        const char *from;
        const char *realm;
        const char *url; /* NULL: refused */
    } cases[] = {
        {"https://r.example/v2/", "https://auth.example/token", "https://auth.example/token"},
        {"https://r.example/v2/", "http://auth.example/token", NULL},
        {"https://r.example/v2/", "http://r.example/token", NULL},
        {"https://r.example/v2/", "http://127.0.0.1/token", NULL},
        {"https://r.example/v2/", "https://u:p@auth.example/token", NULL},
        {"https://r.example/v2/", "ftp://auth.example/token", NULL},
        {"https://r.example/v2/", "file:///etc/passwd", NULL},
        {"https://r.example/v2/", "/token", "https://r.example/token"},
        {"https://r.example/v2/", "https://169.254.169.254/token", NULL},
        {"https://r.example/v2/", "https://[fe80::1]/token", NULL},
        {"http://127.0.0.1:5000/v2/", "http://127.0.0.1:5001/token?a=b",
         "http://127.0.0.1:5001/token?a=b"},
        {"http://127.0.0.1:5000/v2/", "http://auth.example/token", NULL},
        {"http://127.0.0.1:5000/v2/", "https://auth.example/token", "https://auth.example/token"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *url = NULL;
        struct err err = ERR_INIT;
        int rc = registry_token_realm(fixture->registry->http, cases[i].from, cases[i].realm, &url,
                                      &err);
        if ((rc == 0) != (cases[i].url != NULL) || (url && strcmp(url, cases[i].url) != 0))
            fail_msg("%s: %d %s %s", cases[i].realm, rc, url ? url : "", err.text);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, auth_fixture_setup, auth_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(anybody_asks_by_get),
        TEST(a_user_asks_by_get_with_basic),
        TEST(an_identity_token_is_exchanged_by_post),
        TEST(a_host_that_knows_no_post_is_asked_by_get),
        TEST(a_secret_in_a_body_goes_to_one_host),
        TEST(refusals_say_what_the_host_said),
        TEST(what_was_sent_is_hidden_in_refusals),
        TEST(failures_that_pass_are_asked_again),
        TEST(answers_of_all_shapes),
        TEST(lives_that_are_very_long),
        TEST(age_counts),
        TEST(answers_are_bounded),
        TEST(a_new_identity_token_is_taken_over),
        TEST(realms_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
