#include "registry_error.h"
#include "registry_retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char url[] = "http://reg.example:5000/v2/secret-path?secret=1";

static void failed_transfers_are_explained(void **state)
{
    (void)state;
    static const struct {
        CURLcode curl;
        enum err_code code;
        const char *says;
    } cases[] = {
        {CURLE_COULDNT_RESOLVE_HOST, ERR_UNREACHABLE, "cannot be resolved"},
        {CURLE_COULDNT_CONNECT, ERR_UNREACHABLE, "does not answer"},
        {CURLE_OPERATION_TIMEDOUT, ERR_UNREACHABLE, "in time"},
        {CURLE_PEER_FAILED_VERIFICATION, ERR_UNREACHABLE, "not trusted"},
        {CURLE_PARTIAL_FILE, ERR_UNREACHABLE, "broke"},
        {CURLE_RECV_ERROR, ERR_UNREACHABLE, "broke"},
        {CURLE_GOT_NOTHING, ERR_UNREACHABLE, "broke"},
        {CURLE_SSL_CACERT_BADFILE, ERR_DAMAGED, "ca_file"},
        {CURLE_SSL_CERTPROBLEM, ERR_DAMAGED, "client certificate"},
        {CURLE_UNSUPPORTED_PROTOCOL, ERR_DAMAGED, "no HTTP"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        int rc = registry_error_transfer(cases[i].curl, "the\ncause", url, &err);
        assert_int_equal(rc, -err.num);
        assert_int_equal(err.code, cases[i].code);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_non_null(strstr(err.text, "reg.example:5000"));
        assert_non_null(strstr(err.text, "the cause"));
        assert_null(strstr(err.text, "secret"));
        assert_true(err.hint[0] != '\0');
    }
    struct err err = ERR_INIT;
    assert_int_equal(registry_error_transfer(CURLE_OUT_OF_MEMORY, "", url, &err), -ENOMEM);
    err_clear(&err);
    assert_true(registry_error_transfer(CURLE_COULDNT_CONNECT, "", url, &err) < 0);
    assert_non_null(strstr(err.text, curl_easy_strerror(CURLE_COULDNT_CONNECT)));
}

static struct err transfer(CURLcode code, const char *detail, const char *address)
{
    struct err err = ERR_INIT;
    int rc = registry_error_transfer(code, detail, address, &err);
    assert_int_equal(rc, -err.num);
    return err;
}

/* One reason for each of curl's words; whether asking again may help. */
static void hints_fit_the_reason(void **state)
{
    (void)state;
    static const struct {
        CURLcode curl;
        const char *detail;
        const char *hint;
        bool passes;
    } cases[] = {
        {CURLE_PEER_FAILED_VERIFICATION, "SSL certificate problem: certificate has expired",
         "renew", false},
        {CURLE_PEER_FAILED_VERIFICATION, "SSL certificate problem: certificate is not yet valid",
         "clock", false},
        {CURLE_PEER_FAILED_VERIFICATION,
         "SSL: no alternative certificate subject name matches target host name 'reg.example'",
         "host name that the certificate is for", false},
        {CURLE_PEER_FAILED_VERIFICATION, "SSL certificate problem: self-signed certificate",
         "ca_file", false},
        {CURLE_SSL_CONNECT_ERROR, "error:0A000102:SSL routines::unsupported protocol", "TLS 1.2",
         false},
        {CURLE_SSL_CONNECT_ERROR, "error:0A00042E:SSL routines::tlsv1 alert protocol version",
         "TLS 1.2", false},
        {CURLE_SSL_CONNECT_ERROR, "error:0A00010B:SSL routines::wrong version number",
         "https on this port", false},
        {CURLE_SSL_CONNECT_ERROR, "error:0A000126:SSL routines::unexpected eof while reading",
         "https on this port", true},
        {CURLE_SSL_CONNECT_ERROR, "OpenSSL SSL_connect: Connection reset by peer",
         "https on this port", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = transfer(cases[i].curl, cases[i].detail, url);
        assert_non_null(strstr(err.text, cases[i].detail));
        if (!strstr(err.hint, cases[i].hint))
            fail_msg("%s: %s", cases[i].detail, err.hint);
        assert_int_equal(registry_retry_is_lost(&err), cases[i].passes);
    }
}

/* Who does not answer: the registry, or the proxy in front of it. */
static void proxies_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        const char *tried;
        bool proxy;
    } cases[] = {
        {url, "reg.example", false},
        {url, "reg.example.org", true},
        {url, "reg", true},
        {url, "10.0.0.1", true},
        {"https://reg.example/v2/", "reg.example", false},
        {"https://[2001:db8::1]:5000/v2/", "2001:db8::1", false},
        {"https://[2001:db8::1]/v2/", "2001:db8::1", false},
        {"https://[2001:db8::1]/v2/", "2001:db8::2", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char detail[200];
        snprintf(detail, sizeof detail, "Failed to connect to %s port 1 after 0 ms: no",
                 cases[i].tried);
        struct err err = transfer(CURLE_COULDNT_CONNECT, detail, cases[i].url);
        assert_int_equal(strncmp(err.text, "the proxy", 9) == 0, cases[i].proxy);
        assert_int_equal(strstr(err.hint, "proxy variables") != NULL, cases[i].proxy);
        assert_true(registry_retry_is_lost(&err));
    }
}

/* curl's text has the address as it was given. */
static void proxy_addresses_are_not_shown(void **state)
{
    (void)state;
    static const struct {
        CURLcode curl;
        const char *detail;
    } cases[] = {
        {CURLE_COULDNT_CONNECT, "Unsupported proxy scheme for 'gopher://u:secret@p:1'"},
        {CURLE_COULDNT_RESOLVE_PROXY,
         "Unsupported proxy syntax in 'http://u:secret@[::1:1': Bad IPv6 address"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = transfer(cases[i].curl, cases[i].detail, url);
        assert_null(strstr(err.text, "secret"));
        assert_non_null(strstr(err.text, "the proxy to registry reg.example:5000"));
        assert_non_null(strstr(err.hint, "proxy variables"));
        assert_false(registry_retry_is_lost(&err));
    }
}

static void refusals_of_proxies(void **state)
{
    (void)state;
    static const struct {
        long status;
        const char *hint;
        bool passes;
    } cases[] = {
        {407, "password", false}, {403, "no_proxy", false}, {405, "no_proxy", false},
        {302, "no_proxy", false}, {408, "no_proxy", true},  {429, "no_proxy", true},
        {502, "no_proxy", true},  {503, "no_proxy", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        int rc = registry_error_proxy(cases[i].status, url, &err);
        assert_int_equal(rc, -err.num);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        char says[80];
        snprintf(says, sizeof says, "proxy to registry reg.example:5000 answered %ld",
                 cases[i].status);
        assert_non_null(strstr(err.text, says));
        assert_non_null(strstr(err.hint, cases[i].hint));
        assert_int_equal(registry_retry_is_lost(&err), cases[i].passes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_transfers_are_explained),
        cmocka_unit_test(hints_fit_the_reason),
        cmocka_unit_test(proxies_are_told_apart),
        cmocka_unit_test(proxy_addresses_are_not_shown),
        cmocka_unit_test(refusals_of_proxies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
