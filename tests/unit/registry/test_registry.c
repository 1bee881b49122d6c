#include "registry.h"

#include "quick_time.h"
#include "registry_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void opens_without_a_connection(void **state)
{
    (void)state;
    static const struct registry_options options = {.insecure_hosts = "plain.example"};
    static const char *const cases[][4] = {
        {"https://reg.invalid/a/b", "reg.invalid", "a/b", "https://reg.invalid"},
        {"http://127.0.0.1:1", "127.0.0.1:1", "", "http://127.0.0.1:1"},
        {"http://plain.example:81/x/", "plain.example:81", "x", "http://plain.example:81"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct remote *remote = NULL;
        if (registry_open(cases[i][0], &options, &remote, &err) < 0)
            fail_msg("%s: %s", cases[i][0], err.text);
        assert_string_equal(remote->url, cases[i][0]);
        assert_string_equal(remote->host, cases[i][1]);
        assert_string_equal(remote->prefix, cases[i][2]);
        assert_string_equal(registry_of(remote)->base, cases[i][3]);
        remote_close(remote);
    }
}

static void options_may_be_missing(void **state)
{
    (void)state;
    struct remote *remote = NULL;
    assert_int_equal(registry_open("https://reg.invalid", NULL, &remote, NULL), 0);
    remote_close(remote);
}

static void options_are_copied(void **state)
{
    (void)state;
    char insecure[] = "plain.example";
    struct registry_options options = {.insecure_hosts = insecure};
    struct remote *remote = NULL;
    assert_int_equal(registry_open("http://plain.example", &options, &remote, NULL), 0);
    memset(insecure, 'x', sizeof insecure - 1);
    assert_string_equal(registry_of(remote)->base, "http://plain.example");
    remote_close(remote);
}

static void bad_openings_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        struct registry_options options;
        const char *says;
    } cases[] = {
        {"http://reg.invalid", {0}, "plain http"},
        {"http://reg.invalid:5001", {.insecure_hosts = "reg.invalid:5000"}, "plain http"},
        {"https://user:secret@reg.invalid", {0}, "user name"},
        {"https://reg.invalid", {.insecure_hosts = "a b"}, "insecure"},
        {"https://reg.invalid", {.client_key = "/tmp/key"}, "client key"},
        {"reg.invalid", {0}, "https://"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct remote *remote = NULL;
        assert_int_equal(registry_open(cases[i].url, &cases[i].options, &remote, &err), -EINVAL);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_null(remote);
    }
}

static void hosts_of_references_choose_the_scheme(void **state)
{
    (void)state;
    static const struct registry_options options = {.insecure_hosts = "plain.example,p.example:81"};
    static const char *const cases[][2] = {
        {"localhost", "http://localhost"},
        {"localhost:5000", "http://localhost:5000"},
        {"127.0.0.1:5000", "http://127.0.0.1:5000"},
        {"[::1]:5000", "http://[::1]:5000"},
        {"plain.example", "http://plain.example"},
        {"plain.example:1", "http://plain.example:1"},
        {"p.example:81", "http://p.example:81"},
        {"p.example:82", "https://p.example:82"},
        {"p.example", "https://p.example"},
        {"Reg.Example:5000", "https://reg.example:5000"},
        {"10.0.0.1:5000", "https://10.0.0.1:5000"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct remote *remote = NULL;
        if (registry_open_host(cases[i][0], &options, &remote, &err) < 0)
            fail_msg("%s: %s", cases[i][0], err.text);
        assert_string_equal(registry_of(remote)->base, cases[i][1]);
        assert_string_equal(remote->prefix, "");
        remote_close(remote);
    }
    struct remote *remote = NULL;
    assert_int_equal(registry_open_host("localhost/x", NULL, &remote, NULL), -EINVAL);
    assert_int_equal(registry_open_host("user@localhost", NULL, &remote, NULL), -EINVAL);
    assert_int_equal(registry_open_host("", NULL, &remote, NULL), -EINVAL);
    assert_int_equal(registry_open_host("localhost:5000", NULL, &remote, NULL), 0);
    remote_close(remote);
}

static void dockers_registry_has_two_names(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"docker.io", "https://registry-1.docker.io"},
        {"Index.Docker.IO", "https://registry-1.docker.io"},
        {"registry-1.docker.io", "https://registry-1.docker.io"},
        {"docker.io:444", "https://docker.io:444"},
        {"my.docker.io", "https://my.docker.io"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct remote *remote = NULL;
        assert_int_equal(registry_open_host(cases[i][0], NULL, &remote, NULL), 0);
        assert_string_equal(registry_of(remote)->base, cases[i][1]);
        assert_int_equal(strcasecmp(remote->host, cases[i][0]), 0);
        remote_close(remote);
    }
}

/* Names are checked before anything is sent: nobody listens at this address. */
static void bad_names_go_into_no_url(void **state)
{
    (void)state;
    struct remote *remote = NULL;
    assert_int_equal(registry_open("http://127.0.0.1:1", NULL, &remote, NULL), 0);
    struct quick_time quick;
    quick_time_init(&quick);
    quick_time_use(&quick, registry_of(remote)->pool);
    struct digest digest;
    assert_int_equal(digest_bytes("", 0, &digest, NULL), 0);
    static const char *const repositories[] = {"",    "UPPER",  "a/../b", "a b", "a?b",
                                               "a#b", "a\r\nb", "a%2e",   "/a"};
    static const char *const references[] = {"",          ".a",        "a/b", "a b",
                                             "a\r\nX: y", "sha256:12", "a?b", "sha512:00"};
    const struct remote_ops *ops = remote->ops;
    struct remote_manifest manifest;
    struct remote_upload upload = {.sessions = NULL};
    uint64_t size;
    for (size_t i = 0; i < ARRAY_SIZE(repositories); i++) {
        const char *name = repositories[i];
        assert_int_equal(ops->blob_stat(remote, name, &digest, NULL, NULL, &size, NULL), -EINVAL);
        assert_int_equal(ops->blob_put(remote, name, &digest, -1, 0, NULL, NULL, &upload, NULL),
                         -EINVAL);
        assert_int_equal(ops->blob_get(remote, name, &digest, 1, NULL, NULL, NULL, NULL, NULL),
                         -EINVAL);
        assert_int_equal(ops->manifest_get(remote, name, "t", NULL, NULL, &manifest, NULL),
                         -EINVAL);
        assert_int_equal(
            ops->manifest_put(remote, name, "t", "a/b", "{}", 2, false, NULL, NULL, NULL, NULL),
            -EINVAL);
        assert_int_equal(ops->manifest_delete(remote, name, &digest, NULL, NULL, NULL, NULL),
                         -EINVAL);
    }
    for (size_t i = 0; i < ARRAY_SIZE(references); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(ops->manifest_get(remote, "n", references[i], NULL, NULL, &manifest, &err),
                         -EINVAL);
        assert_int_equal(err.code, ERR_INVALID);
        for (const char *p = err.text; *p; p++)
            assert_in_range(*p, ' ', '~');
        err_clear(&err);
        assert_int_equal(ops->manifest_put(remote, "n", references[i], "a/b", "{}", 2, false, NULL,
                                           NULL, NULL, &err),
                         -EINVAL);
    }
    struct err err = ERR_INIT;
    assert_int_equal(ops->blob_stat(remote, "n", &digest, NULL, NULL, &size, &err), -EHOSTUNREACH);
    assert_non_null(
        strstr(err.text, "repository n: 6 attempts failed: registry 127.0.0.1:1 does not answer"));
    remote_close(remote);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_without_a_connection),
        cmocka_unit_test(options_may_be_missing),
        cmocka_unit_test(dockers_registry_has_two_names),
        cmocka_unit_test(options_are_copied),
        cmocka_unit_test(bad_openings_are_refused),
        cmocka_unit_test(hosts_of_references_choose_the_scheme),
        cmocka_unit_test(bad_names_go_into_no_url),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
