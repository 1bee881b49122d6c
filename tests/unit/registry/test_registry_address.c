#include "registry_address.h"

#include "fdio.h"
#include "http_fixture.h"
#include "scratch.h"
#include "spawn.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/un.h>

#include <cmocka.h>

static const char *const refused[] = {
    "169.254.0.0",       "169.254.169.254",    "169.254.255.255",
    "100.100.100.200",   "168.63.129.16",      "fe80::1",
    "fe80::1%eth0",      "[fe80::1]",          "febf:ffff::",
    "fd00:ec2::254",     "fd20:ce::254",       "::ffff:169.254.169.254",
    "::169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
};
static const char *const allowed[] = {
    "169.253.255.255",
    "169.255.0.0",
    "100.100.100.201",
    "10.0.0.1",
    "127.0.0.1",
    "fec0::1",
    "fe7f::1",
    "fd00:ec3::254",
    "::1",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "2002:a00:1::1",
    "2001:db8::169.254.1.1",
    "metadata.internal",
    "169.254.1",
    "",
    "[",
    "fe80::1fe80::1fe80::1fe80::1fe80::1fe80::1fe80::1fe80::1fe80::1",
};

static void texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (!registry_address_text_is_link_local(refused[i]))
            fail_msg("%s was allowed", refused[i]);
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
        if (registry_address_text_is_link_local(allowed[i]))
            fail_msg("%s was refused", allowed[i]);
}

/* The address as the kernel takes it; whether the text is one. */
static bool make_address(const char *text, struct sockaddr_storage *ret)
{
    struct sockaddr_in ipv4 = {.sin_family = AF_INET};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};
    bool is_ipv4 = inet_pton(AF_INET, text, &ipv4.sin_addr) == 1;
    bool is_ipv6 = inet_pton(AF_INET6, text, &ipv6.sin6_addr) == 1;
    if (is_ipv4)
        memcpy(ret, &ipv4, sizeof ipv4);
    if (is_ipv6)
        memcpy(ret, &ipv6, sizeof ipv6);
    return is_ipv4 || is_ipv6;
}

static void addresses(void **state)
{
    (void)state;
    size_t tried = 0;
    struct sockaddr_storage address;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        if (!make_address(refused[i], &address))
            continue;
        tried++;
        if (!registry_address_is_link_local((const struct sockaddr *)&address))
            fail_msg("%s was allowed", refused[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
        if (!make_address(allowed[i], &address))
            continue;
        tried++;
        if (registry_address_is_link_local((const struct sockaddr *)&address))
            fail_msg("%s was refused", allowed[i]);
    }
    assert_int_equal(tried, 13 + 13);
    const struct sockaddr_un local = {.sun_family = AF_UNIX};
    assert_false(registry_address_is_link_local((const struct sockaddr *)&local));
}

/* A network of its own, in which link-local addresses are this machine's, and names that have
 * them. */
static int enter_network(const struct scratch *scratch)
{
    static const char hosts[] = "127.0.0.1 localhost home.test\n"
                                "169.254.169.254 meta.test\n"
                                "fd00:ec2::254 meta6.test\n"
                                "169.254.169.254 both.test\n"
                                "127.0.0.1 both.test\n";
    static const char *const commands[][7] = {
        {"ip", "link", "set", "lo", "up"},
        {"ip", "address", "add", "169.254.169.254/32", "dev", "lo"},
        {"ip", "address", "add", "fd00:ec2::254/128", "dev", "lo"},
    };
    scratch_write(scratch, "hosts", hosts, sizeof hosts - 1);
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(scratch_path(scratch, "hosts"), "/etc/hosts", NULL, MS_BIND, NULL) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (spawn_tool(commands[i], NULL, NULL) < 0)
            return -1;
    return 0;
}

struct site {
    struct scratch *scratch;
    struct http_fixture *fixture;
};

static int setup(void **state)
{
    struct site *site = calloc(1, sizeof *site);
    *state = site;
    if (scratch_setup((void **)&site->scratch) < 0 || enter_network(site->scratch) < 0)
        return -1;
    return http_fixture_setup((void **)&site->fixture);
}

static int teardown(void **state)
{
    struct site *site = *state;
    int rc = http_fixture_teardown((void **)&site->fixture);
    if (scratch_teardown((void **)&site->scratch) < 0)
        rc = -1;
    free(site);
    return rc;
}

/* GET of a URL by a client whose registry is at `base`; the status or a failure. */
static int ask(const char *base, const char *url, struct err *err)
{
    struct registry_http_options options = {
        .base = base, .insecure_hosts = "meta.test,meta6.test,both.test,home.test,169.254.169.254"};
    struct registry_http *http = NULL;
    assert_int_equal(registry_http_open(&options, &http, NULL), 0);
    registry_http_set_timeouts(http, 5, 5, 5);
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET, .url = url};
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_http_perform(http, &request, &response, err);
    registry_http_close(http);
    return rc < 0 ? rc : (int)response.status;
}

/* Makes the registry redirect to a URL. */
static void redirect_to(struct site *site, const char *url)
{
    static char answer[256];
    snprintf(answer, sizeof answer,
             "HTTP/1.1 307 Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", url);
    http_fixture_answer(site->fixture, (struct fake_http_rule){.response = answer});
}

static void redirects_to_link_local_are_refused(void **state)
{
    struct site *site = *state;
    static const char *const targets[] = {"http://169.254.169.254/latest/meta-data/",
                                          "https://169.254.169.254/",
                                          "https://[fd00:ec2::254]/",
                                          "http://meta.test/latest",
                                          "https://meta.test/",
                                          "http://meta6.test/",
                                          "https://[::ffff:a9fe:a9fe]/"};
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        redirect_to(site, targets[i]);
        struct err err = ERR_INIT;
        assert_true(ask(site->fixture->base, site->fixture->base, &err) < 0);
        if (err.code != ERR_REFUSED || !strstr(err.text, "link-local"))
            fail_msg("%s: %s", targets[i], err.text);
    }
}

/* Also an address that another part of the program names: an upload's, a token host's. */
static void requests_to_link_local_are_refused(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    assert_true(ask(site->fixture->base, "http://meta.test:81/", &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
}

/* There it is asked, and nobody listens. */
static void registries_may_live_there(void **state)
{
    (void)state;
    static const char *const bases[] = {"http://169.254.169.254:9", "http://meta.test:9",
                                        "http://meta6.test:9"};
    for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(ask(bases[i], bases[i], &err), -EHOSTUNREACH);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        assert_non_null(strstr(err.text, "refused")); /* the connection, by the kernel */
    }
}

/* Of several addresses of a name those are used that are allowed. */
static void other_addresses_of_a_name_are_tried(void **state)
{
    struct site *site = *state;
    char url[128];
    snprintf(url, sizeof url, "http://both.test:%d/x", fake_http_port(site->fixture->other));
    struct fake_http_rule rule = {.path = "", .response = HTTP_FIXTURE_OK};
    fake_http_set(site->fixture->other, &rule, 1);
    redirect_to(site, url);
    struct err err = ERR_INIT;
    if (ask(site->fixture->base, site->fixture->base, &err) != 200)
        fail_msg("%s", err.text);
}

static void addresses_of_this_machine(void **state)
{
    (void)state;
    static const char *const own[] = {"127.0.0.1",
                                      "127.255.1.1",
                                      "0.0.0.0",
                                      "0.1.2.3",
                                      "::1",
                                      "[::1]",
                                      "::",
                                      "[::]",
                                      "::ffff:127.0.0.1",
                                      "[::ffff:127.0.0.1]",
                                      "::127.0.0.1",
                                      "::ffff:0.0.0.0",
                                      "64:ff9b::7f00:1",
                                      "2002:7f00:1::",
                                      "[0:0:0:0:0:0:0:1]",
                                      "::1%lo"};
    static const char *const others[] = {"128.0.0.1", "1.0.0.0",         "10.0.0.1", "::2:0:1",
                                         "localhost", "::ffff:10.0.0.1", "",         "fe80::1"};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        if (!registry_address_text_is_own(own[i]))
            fail_msg("%s is this machine", own[i]);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (registry_address_text_is_own(others[i]))
            fail_msg("%s is not this machine", others[i]);
}

/* The services of this machine are for registries of this machine. */
static void redirects_to_loopback_are_for_loopback(void **state)
{
    struct site *site = *state;
    char base[128];
    snprintf(base, sizeof base, "http://home.test:%d", fake_http_port(site->fixture->fake));
    redirect_to(site, site->fixture->other_base);
    struct fake_http_rule rule = {.path = "", .response = HTTP_FIXTURE_OK};
    fake_http_set(site->fixture->other, &rule, 1);
    struct err err = ERR_INIT;
    assert_true(ask(base, base, &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_non_null(strstr(err.text, "loopback"));
    assert_int_equal(fake_http_count(site->fixture->other), 0);
    assert_int_equal(ask(site->fixture->base, site->fixture->base, NULL), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(addresses),
        cmocka_unit_test(redirects_to_link_local_are_refused),
        cmocka_unit_test(requests_to_link_local_are_refused),
        cmocka_unit_test(registries_may_live_there),
        cmocka_unit_test(other_addresses_of_a_name_are_tried),
        cmocka_unit_test(addresses_of_this_machine),
        cmocka_unit_test(redirects_to_loopback_are_for_loopback),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
