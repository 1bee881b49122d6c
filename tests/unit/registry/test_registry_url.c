#include "registry_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void configured_urls(void **state)
{
    (void)state;
    static const char *const good[][4] = {
        {"https://reg.example", "https://reg.example", "reg.example", ""},
        {"https://reg.example/", "https://reg.example", "reg.example", ""},
        {"https://Reg.Example:5000/a/b", "https://reg.example:5000", "reg.example:5000", "a/b"},
        {"https://reg.example/a/b/", "https://reg.example", "reg.example", "a/b"},
        {"HTTPS://reg.example/v1.0", "https://reg.example", "reg.example", "v1.0"},
        {"http://127.0.0.1:5000", "http://127.0.0.1:5000", "127.0.0.1:5000", ""},
        {"http://127.200.0.1/x", "http://127.200.0.1", "127.200.0.1", "x"},
        {"http://localhost:5000/x", "http://localhost:5000", "localhost:5000", "x"},
        {"http://[::1]:5000", "http://[::1]:5000", "[::1]:5000", ""},
        {"http://[0:0::1]:5000", "http://[::1]:5000", "[::1]:5000", ""},
        {"http://plain.example:81/x", "http://plain.example:81", "plain.example:81", "x"},
        {"http://port.example:5000", "http://port.example:5000", "port.example:5000", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct err err = ERR_INIT;
        cleanup_registry_url struct registry_url url = {0};
        if (registry_url_parse(good[i][0], "plain.example,port.example:5000", &url, &err) < 0)
            fail_msg("%s: %s", good[i][0], err.text);
        assert_string_equal(url.base, good[i][1]);
        assert_string_equal(url.host, good[i][2]);
        assert_string_equal(url.prefix, good[i][3]);
    }
}

static void bad_urls_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "https://"},
        {"reg.example/x", "https://"},
        {"oci:/srv/x", "https://"},
        {"ftp://reg.example", "https://"},
        {"file:///etc/passwd", "https://"},
        {"https:/reg.example", "https://"},
        {"https://", "registry URL"},
        {"https:///x", "no host"},
        {"https://reg.example?x=1", "query"},
        {"https://reg.example/x?", "query"},
        {"https://reg.example/#f", "query or a fragment"},
        {"https://reg.example:0", "port"},
        {"https://reg.example:65536", "registry URL"},
        {"https://reg.example:x", "registry URL"},
        {"https://reg..example", "labels"},
        {"https://reg_1.example", "labels"},
        {"https://reg.example/UPPER", "prefix"},
        {"https://reg.example/a//b", "prefix"},
        {"https://reg.example//", "prefix"},
        {"https://reg.example/a/../b", "prefix"},
        {"https://reg.example/a%2fb", "prefix"},
        {"https://reg.example/a b", "position 22"},
        {"https://reg.example/\n", "position 21"},
        {"https://b\xc3\xbc"
         "cher.example",
         "position 10"},
        {"http://reg.example", "plain http"},
        {"http://128.0.0.1", "plain http"},
        {"http://port.example:5001", "plain http"},
        {"http://port.example", "plain http"},
        {"http://localhost.example", "plain http"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = ERR_INIT;
        struct registry_url url = {0};
        int rc = registry_url_parse(bad[i][0], "port.example:5000", &url, &err);
        if (rc != -EINVAL || !strstr(err.text, bad[i][1]))
            fail_msg("'%s': %d, '%s' lacks '%s'", bad[i][0], rc, err.text, bad[i][1]);
        assert_int_equal(err.code, ERR_INVALID);
        assert_null(url.base);
    }
}

static void passwords_are_refused_and_not_shown(void **state)
{
    (void)state;
    static const char *const bad[] = {"https://user:hunter2@reg.example",
                                      "https://hunter2@reg.example",
                                      "http://user:hunter2@127.0.0.1:5000/x"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = ERR_INIT;
        struct registry_url url;
        assert_int_equal(registry_url_parse(bad[i], NULL, &url, &err), -EINVAL);
        assert_non_null(strstr(err.text, "user name or password"));
        assert_null(strstr(err.text, "hunter2"));
        assert_true(err.hint[0] != '\0');
        assert_null(strstr(err.hint, "hunter2"));
    }
}

static void too_long_urls_are_refused(void **state)
{
    (void)state;
    char url[REGISTRY_URL_MAX + 1];
    memset(url, 'a', sizeof url - 1);
    url[sizeof url - 1] = '\0';
    memcpy(url, "https://", 8);
    struct err err = ERR_INIT;
    struct registry_url parsed;
    assert_int_equal(registry_url_parse(url, NULL, &parsed, &err), -EINVAL);
    assert_non_null(strstr(err.text, "longer"));
}

#define FROM "http://127.0.0.1:5000/v2/a/n/blobs/uploads/"

/* RFC 3986, section 5, for what registries send. */
static void addresses_are_resolved(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/v2/n/blobs/uploads/1?_state=a%2Bb%3D",
         "http://127.0.0.1:5000/v2/n/blobs/uploads/1?_state=a%2Bb%3D"},
        {"1", FROM "1"},
        {"uploads/1", FROM "uploads/1"},
        {"../uploads/1", "http://127.0.0.1:5000/v2/a/n/blobs/uploads/1"},
        {"../../../../../../x", "http://127.0.0.1:5000/x"},
        {"?x=1", "http://127.0.0.1:5000/v2/a/n/blobs/uploads/?x=1"},
        {"http://127.0.0.1:5001/x", "http://127.0.0.1:5001/x"},
        {"//localhost:5002/x", "http://localhost:5002/x"},
        {"https://s3.example/b_1/x?X-Sig=a%2Fb%3D&y=~._-",
         "https://s3.example/b_1/x?X-Sig=a%2Fb%3D&y=~._-"},
        {"https://my_bucket.s3.example/x", "https://my_bucket.s3.example/x"},
        {"/x?a=1#fragment", "http://127.0.0.1:5000/x?a=1"},
        {"/x#fragment", "http://127.0.0.1:5000/x"},
        {"http://plain.example/x", "http://plain.example/x"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        cleanup_free char *url = NULL;
        if (registry_url_follow(FROM, cases[i][0], "plain.example", &url, &err) < 0)
            fail_msg("%s: %s", cases[i][0], err.text);
        assert_string_equal(url, cases[i][1]);
    }
}

static void weaker_addresses_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from;
        const char *location;
        enum err_code code;
    } cases[] = {
        {"https://reg.example/v2/", "http://reg.example/x", ERR_REFUSED},
        {"https://reg.example/v2/", "http://127.0.0.1/x", ERR_REFUSED},
        {"https://reg.example/v2/", "https://127.1/x", ERR_REFUSED},
        {"https://reg.example/v2/", "https://0.0.0.0/x", ERR_REFUSED},
        {"https://reg.example/v2/", "https://0:5000/x", ERR_REFUSED},
        {"https://reg.example/v2/", "https://[::]/x", ERR_REFUSED},
        {"https://reg.example/v2/", "https://[::1]/x", ERR_REFUSED},
        {"https://reg.example/v2/", "https://[::ffff:127.0.0.1]/x", ERR_REFUSED},
        {"https://reg.example/v2/", "http://plain.example/x", ERR_REFUSED},
        {FROM, "http://other.example/x", ERR_REFUSED},
        {FROM, "http://169.254.169.254/latest/meta-data", ERR_REFUSED},
        {FROM, "ftp://127.0.0.1/x", ERR_REFUSED},
        {FROM, "file:///etc/passwd", ERR_REFUSED},
        {FROM, "https://user:secret@s3.example/x", ERR_REFUSED},
        {FROM, "//user@localhost/x", ERR_REFUSED},
        {FROM, "", ERR_DAMAGED},
        {FROM, "http://[::1/x", ERR_DAMAGED},
        {FROM, "http://127.0.0.1:99999/x", ERR_DAMAGED},
        {FROM, "https://ho%2573t/x", ERR_DAMAGED},
        {FROM, "https://host%7f%6p/x", ERR_DAMAGED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        char *url = NULL;
        int rc = registry_url_follow(cases[i].from, cases[i].location, "plain.example", &url, &err);
        if (rc >= 0 || err.code != cases[i].code)
            fail_msg("%s: %d %s", cases[i].location, rc, err.text);
        assert_null(url);
        assert_null(strstr(err.text, "secret"));
    }
}

static void digest_is_added_to_the_query(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"http://h/u/1", "http://h/u/1?digest=sha256%3A" HEX},
        {"http://h/u/1?_state=a%2Bb%3D", "http://h/u/1?_state=a%2Bb%3D&digest=sha256%3A" HEX},
        {"http://h/u/1?a=1&b=%20+%C3%A4", "http://h/u/1?a=1&b=%20+%C3%A4&digest=sha256%3A" HEX},
        {"https://h:8443/u/1?a", "https://h:8443/u/1?a&digest=sha256%3A" HEX},
    };
    struct digest digest;
    assert_int_equal(digest_parse_hex(HEX, &digest, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *url = NULL;
        assert_int_equal(registry_url_add_digest(cases[i][0], &digest, &url, NULL), 0);
        for (char *p = url; *p; p++) /* either case of the escape is right */
            if (strncmp(p, "%3a", 3) == 0)
                p[2] = 'A';
        assert_string_equal(url, cases[i][1]);
    }
}

static void origins(void **state)
{
    (void)state;
    assert_true(registry_url_same_origin("https://a/x", "https://a:443/y?z"));
    assert_true(registry_url_same_origin("http://A.example/x", "http://a.example:80/"));
    assert_false(registry_url_same_origin("https://a/", "http://a/"));
    assert_false(registry_url_same_origin("https://a/", "https://a:444/"));
    assert_false(registry_url_same_origin("https://a/", "https://b/"));
    assert_false(registry_url_same_origin("https://a/", "not a url"));
    assert_false(registry_url_same_origin("", ""));
}

static void hosts_of_urls(void **state)
{
    (void)state;
    cleanup_free char *host = registry_url_host("https://reg.example:5000/x?secret");
    assert_string_equal(host, "reg.example:5000");
    cleanup_free char *none = registry_url_host("::");
    assert_string_equal(none, "?");
    assert_true(registry_url_is_loopback("http://127.1:5000/")); /* curl reads it as 127.0.0.1 */
    assert_true(registry_url_is_loopback("https://localhost/"));
    assert_true(registry_url_is_loopback("http://[::1]:1/"));
    assert_false(registry_url_is_loopback("https://localhost.example/"));
    assert_false(registry_url_is_loopback("nonsense"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configured_urls),
        cmocka_unit_test(bad_urls_are_refused),
        cmocka_unit_test(passwords_are_refused_and_not_shown),
        cmocka_unit_test(too_long_urls_are_refused),
        cmocka_unit_test(addresses_are_resolved),
        cmocka_unit_test(weaker_addresses_are_refused),
        cmocka_unit_test(digest_is_added_to_the_query),
        cmocka_unit_test(origins),
        cmocka_unit_test(hosts_of_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
