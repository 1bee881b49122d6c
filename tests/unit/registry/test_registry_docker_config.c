#include "registry_docker_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SECRET "hunter2"

static void config_freep(struct registry_docker_config **config)
{
    registry_docker_config_free(*config);
}
#define cleanup_config cleanup_with(config_freep)

static struct registry_docker_config *parse(const char *text)
{
    struct registry_docker_config *config = NULL;
    struct err err = ERR_INIT;
    if (registry_docker_config_parse(text, strlen(text), "/etc/auth", &config, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return config;
}

/* The user that a file has for a repository of a host; "-" for none. */
static void check(const struct registry_docker_config *config, const char *host,
                  const char *repository, const char *user)
{
    cleanup_registry_credential struct registry_credential credential = {0};
    struct err err = ERR_INIT;
    int rc = registry_docker_config_find(config, host, repository, &credential, &err);
    const char *have = rc == 0 ? "-" : rc == 1 ? credential.username : err.text;
    if (!have || strcmp(have, user) != 0)
        fail_msg("%s %s: '%s' is not '%s'", host, repository ? repository : "", have ? have : "",
                 user);
    if (rc == 1)
        assert_string_equal(credential.source, "/etc/auth");
}

static void keys_of_all_spellings_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        const char *host;
        bool fits;
    } cases[] = {
        {"reg.example", "reg.example", true},
        {"reg.example:5000", "reg.example:5000", true},
        {"reg.example", "reg.example:5000", false},
        {"reg.example:5000", "reg.example", false},
        {"https://reg.example:5000", "reg.example:5000", true},
        {"http://reg.example:5000/", "reg.example:5000", true},
        {"HTTPS://REG.example/v2/", "reg.example", true},
        {"https://reg.example/v1/", "reg.example", true},
        {"https://reg.example/any/path", "reg.example", true},
        {"reg.example/v1/", "reg.example", true},
        {"reg.example/v2", "reg.example", true},
        {"reg.example/", "reg.example", true},
        {"reg.example/v3", "reg.example", false},
        {"reg.example:443", "reg.example", true},
        {"reg.example", "reg.example:443", true},
        {"[::1]:5000", "[::1]:5000", true},
        {"[0:0::1]:5000", "[::1]:5000", true},
        {"https://index.docker.io/v1/", "docker.io", true},
        {"https://index.docker.io/v1/", "registry-1.docker.io", true},
        {"docker.io", "index.docker.io", true},
        {"index.docker.io", "docker.io", true},
        {"hub.docker.io", "docker.io", false},
        {"evil-reg.example", "reg.example", false},
        {"user@reg.example", "reg.example", false},
        {"", "reg.example", false},
        {"https://", "reg.example", false},
        {"/", "reg.example", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"auths\":{\"%s\":{\"auth\":\"dTpw\"}}}", cases[i].key);
        cleanup_config struct registry_docker_config *config = parse(text);
        check(config, cases[i].host, NULL, cases[i].fits ? "u" : "-");
        check(config, cases[i].host, "any/thing", cases[i].fits ? "u" : "-");
    }
}

static void the_longest_path_counts(void **state)
{
    (void)state;
    cleanup_config struct registry_docker_config *config =
        parse("{\"auths\":{\"h/a/b\":{\"username\":\"ab\"},\"h\":{\"username\":\"h\"},"
              "\"h/a\":{\"username\":\"a\"},\"h/empty\":{},\"g/a\":{\"username\":\"g\"}}}");
    check(config, "h", NULL, "h");
    check(config, "h", "x", "h");
    check(config, "h", "a", "a");
    check(config, "h", "a/bc", "a");
    check(config, "h", "a/b", "ab");
    check(config, "h", "a/b/c", "ab");
    check(config, "h", "ab", "h");
    check(config, "h", "empty", "h");
    check(config, "g", "a/b", "g");
    check(config, "g", "b", "-");
    check(config, "g", NULL, "-");
}

static void of_two_spellings_the_callers_counts(void **state)
{
    (void)state;
    cleanup_config struct registry_docker_config *config =
        parse("{\"auths\":{\"https://h/v1/\":{\"username\":\"old\"},\"h\":{\"username\":\"new\"},"
              "\"http://h\":{\"username\":\"other\"}}}");
    check(config, "h", "a", "new");
}

static void all_kinds_of_secrets_are_read(void **state)
{
    (void)state;
    /* "user:pa:ss", "u:p" with NUL bytes behind it, "name:" and a token */
    cleanup_config struct registry_docker_config *config =
        parse("{\"auths\":{\"a\":{\"auth\":\"dXNlcjpwYTpzcw==\",\"email\":\"x\"},"
              "\"b\":{\"username\":\"u\",\"password\":\"p\"},"
              "\"c\":{\"auth\":\"bmFtZTo=\",\"identitytoken\":\"it\"},"
              "\"d\":{\"registrytoken\":\"rt\"},"
              "\"e\":{\"auth\":\"dTpwAAA=\"},\"f\":{\"auth\":\"dTpw\",\"username\":\"x\"}}}");
    static const char *const want[][5] = {
        {"a", "user", "pa:ss", NULL, NULL}, {"b", "u", "p", NULL, NULL},
        {"c", "name", NULL, "it", NULL},    {"d", NULL, NULL, NULL, "rt"},
        {"e", "u", "p", NULL, NULL},        {"f", "u", "p", NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        cleanup_registry_credential struct registry_credential found = {0};
        assert_int_equal(registry_docker_config_find(config, want[i][0], NULL, &found, NULL), 1);
        const char *have[] = {found.username, found.password, found.identity_token,
                              found.registry_token};
        for (size_t k = 0; k < ARRAY_SIZE(have); k++) {
            assert_int_equal(!have[k], !want[i][k + 1]);
            if (have[k])
                assert_string_equal(have[k], want[i][k + 1]);
        }
    }
}

static void entries_without_anything_are_as_none(void **state)
{
    (void)state;
    static const char *const entries[] = {"{}", "null", "{\"email\":\"x\"}", "{\"auth\":\"\"}",
                                          "{\"auth\":null,\"identitytoken\":\"\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"auths\":{\"h\":%s}}", entries[i]);
        cleanup_config struct registry_docker_config *config = parse(text);
        check(config, "h", "a", "-");
    }
    static const char *const files[] = {"{}", "{\"auths\":{}}", "{\"auths\":null}",
                                        "{\"HttpHeaders\":{},\"currentContext\":\"x\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        cleanup_config struct registry_docker_config *config = parse(files[i]);
        check(config, "h", "a", "-");
        const char *names[2];
        assert_int_equal(registry_docker_config_helpers(config, "h", names, NULL), 0);
    }
}

/* Broken entries are told when they are needed, with the host and without what they hold. */
static void broken_entries_name_themselves_and_no_secret(void **state)
{
    (void)state;
    static const char *const entries[] = {
        "{\"auth\":\"" SECRET "!\"}",
        "{\"auth\":\"aHVudGVyMg==\"}", /* no colon */
        "{\"auth\":\"OmEAYg==\"}",     /* a NUL byte inside */
        "{\"auth\":[\"" SECRET "\"]}",
        "{\"auth\":1}",
        "{\"username\":{\"" SECRET "\":1}}",
        "{\"identitytoken\":[]}",
        "\"" SECRET "\"",
        "[1]",
        "{\"registrytoken\":\"" SECRET "\\r\\nX-Evil: 1\"}",
        "{\"registrytoken\":\"" SECRET " x\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"auths\":{\"h\":%s,\"g\":{\"auth\":\"dTpw\"}}}", entries[i]);
        cleanup_config struct registry_docker_config *config = parse(text);
        check(config, "g", NULL, "u");
        cleanup_registry_credential struct registry_credential found = {0};
        struct err err = ERR_INIT;
        if (registry_docker_config_find(config, "h", NULL, &found, &err) >= 0)
            fail_msg("%s was taken", entries[i]);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_non_null(strstr(err.text, "'h' of /etc/auth"));
        assert_null(strstr(err.text, SECRET));
        assert_null(strstr(err.text, "aHVudGVyMg"));
    }
}

static void broken_files_name_themselves_and_no_secret(void **state)
{
    (void)state;
    static const char *const files[] = {
        "",
        " ",
        "{",
        "{\"auths\":{\"h\":{\"auth\":\"" SECRET "\"}}",
        "{\"auths\":{\"h\":{\"auth\":" SECRET "}}}",
        "{\"auths\":{\"h\":{\"auth\":\"" SECRET "}}}",
        "{\"auths\":{\"h\":1,\"h\":\"" SECRET "\"}}",
        "{\"auths\":[\"" SECRET "\"]}",
        "{\"auths\":\"" SECRET "\"}",
        "{\"credsStore\":{\"" SECRET "\":1}}",
        "{\"credHelpers\":\"" SECRET "\"}",
        "[]",
        "\"" SECRET "\"",
        "{} " SECRET,
        "\xff\xfe{}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct registry_docker_config *config = NULL;
        struct err err = ERR_INIT;
        if (registry_docker_config_parse(files[i], strlen(files[i]), "/etc/auth", &config, &err) ==
            0)
            fail_msg("%s was taken", files[i]);
        assert_null(config);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_non_null(strstr(err.text, "/etc/auth"));
        assert_null(strstr(err.text, SECRET));
    }
}

static void helpers_come_in_order(void **state)
{
    (void)state;
    cleanup_config struct registry_docker_config *config =
        parse("{\"credsStore\":\"all\",\"credHelpers\":{\"h:5000\":\"own\",\"g\":\"all\","
              "\"none\":\"\",\"https://index.docker.io/v1/\":\"hub\"}}");
    const char *names[2];
    assert_int_equal(registry_docker_config_helpers(config, "h:5000", names, NULL), 2);
    assert_string_equal(names[0], "own");
    assert_string_equal(names[1], "all");
    assert_int_equal(registry_docker_config_helpers(config, "h", names, NULL), 1);
    assert_string_equal(names[0], "all");
    assert_int_equal(registry_docker_config_helpers(config, "g", names, NULL), 1);
    assert_string_equal(names[0], "all");
    assert_int_equal(registry_docker_config_helpers(config, "none", names, NULL), 0);
    assert_int_equal(registry_docker_config_helpers(config, "docker.io", names, NULL), 2);
    assert_string_equal(names[0], "hub");
    assert_string_equal(registry_docker_config_server("docker.io"), "https://index.docker.io/v1/");
    assert_string_equal(registry_docker_config_server("h:5000"), "h:5000");
}

static void names_of_helpers_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"\"../../tmp/x\"", "\"a b\"", "\".\"", "\"a/b\"", "\"a;b\"",
                                      "\"\\u00e4\"",     "1",       "{}",    "null"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"credHelpers\":{\"h\":%s}}", bad[i]);
        cleanup_config struct registry_docker_config *config = parse(text);
        const char *names[2];
        struct err err = ERR_INIT;
        if (registry_docker_config_helpers(config, "h", names, &err) >= 0)
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_non_null(strstr(err.text, "/etc/auth"));
    }
    char text[200];
    snprintf(text, sizeof text, "{\"credsStore\":\"%0*d\"}", REGISTRY_HELPER_NAME_MAX, 1);
    cleanup_config struct registry_docker_config *fits = parse(text);
    const char *names[2];
    assert_int_equal(registry_docker_config_helpers(fits, "h", names, NULL), 1);
    snprintf(text, sizeof text, "{\"credsStore\":\"%0*d\"}", REGISTRY_HELPER_NAME_MAX + 1, 1);
    cleanup_config struct registry_docker_config *longer = parse(text);
    assert_true(registry_docker_config_helpers(longer, "h", names, NULL) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_all_spellings_are_found),
        cmocka_unit_test(the_longest_path_counts),
        cmocka_unit_test(of_two_spellings_the_callers_counts),
        cmocka_unit_test(all_kinds_of_secrets_are_read),
        cmocka_unit_test(entries_without_anything_are_as_none),
        cmocka_unit_test(broken_entries_name_themselves_and_no_secret),
        cmocka_unit_test(broken_files_name_themselves_and_no_secret),
        cmocka_unit_test(helpers_come_in_order),
        cmocka_unit_test(names_of_helpers_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
