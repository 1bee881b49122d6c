/* Any text as the address of a registry, and any address that a registry answers with.
 *
 * Input: a line with a URL, one with a Location header, one with a list of insecure hosts.
 */
#include "registry_url.h"

#include "fuzz_check.h"
#include "reference.h"
#include "reference_host.h"

/* Whether this program would speak plain http to the host of a URL. */
static bool may_be_plain(const char *url, const char *insecure_hosts)
{
    cleanup_free char *host = registry_url_host(url);
    cleanup_free char *canonical = NULL;
    CHECK(host);
    return reference_host_canonical(host, &canonical, NULL) == 0 &&
           (reference_host_is_loopback(canonical) ||
            reference_host_is_listed(canonical, insecure_hosts));
}

static void check_transport(const char *url, const char *insecure_hosts)
{
    bool plain = strncmp(url, "http://", 7) == 0;
    CHECK(plain || strncmp(url, "https://", 8) == 0);
    CHECK(!plain || may_be_plain(url, insecure_hosts));
}

static void check_host(const char *host)
{
    cleanup_free char *canonical = NULL;
    if (reference_host_canonical(host, &canonical, NULL) < 0)
        return;
    cleanup_free char *again = NULL;
    CHECK(reference_host_canonical(canonical, &again, NULL) == 0 && strcmp(again, canonical) == 0);
    CHECK(fuzz_is_plain(canonical));
    CHECK(reference_host_is_listed(canonical, canonical));
}

/* What was accepted is canonical: made into a URL again it is the same. */
static void check_configured(const char *text, const char *insecure_hosts)
{
    cleanup_registry_url struct registry_url url = {0};
    struct err err = ERR_INIT;
    int rc = registry_url_parse(text, insecure_hosts, &url, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!url.base && !url.host && !url.prefix);
        CHECK(fuzz_is_plain(err.text));
        return;
    }
    check_transport(url.base, insecure_hosts);
    check_host(url.host);
    CHECK(url.prefix[0] == '\0' || reference_check_repository(url.prefix, NULL) == 0);
    CHECK(!strchr(url.base, '@') && registry_url_same_origin(text, url.base));
    cleanup_free char *whole = NULL;
    CHECK(asprintf(&whole, "%s/%s", url.base, url.prefix) > 0);
    cleanup_registry_url struct registry_url again = {0};
    CHECK(registry_url_parse(whole, insecure_hosts, &again, NULL) == 0);
    CHECK(strcmp(url.base, again.base) == 0 && strcmp(url.host, again.host) == 0);
    CHECK(strcmp(url.prefix, again.prefix) == 0);
}

static void check_digest(const char *url)
{
    static const struct digest digest = {.bytes = {0xAB}};
    cleanup_free char *with_digest = NULL;
    if (registry_url_add_digest(url, &digest, &with_digest, NULL) < 0)
        return;
    CHECK(registry_url_same_origin(url, with_digest));
    CHECK(strcasestr(with_digest, "digest=sha256%3Aab00"));
}

/* A step never weakens the transport, and its result means the same when it is read again. */
static void check_follow(const char *from, const char *location, const char *insecure_hosts)
{
    cleanup_free char *to = NULL;
    struct err err = ERR_INIT;
    int rc = registry_url_follow(from, location, insecure_hosts, &to, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!to);
        return;
    }
    check_transport(to, insecure_hosts);
    CHECK(strncmp(from, "https://", 8) != 0 || strncmp(to, "https://", 8) == 0);
    CHECK(!strchr(to, '#'));
    cleanup_free char *host = registry_url_host(to);
    CHECK(host && strcmp(host, "?") != 0); /* it can be parsed */
    cleanup_free char *again = NULL;
    rc = registry_url_follow(to, to, insecure_hosts, &again, &err);
    CHECK(rc == 0 && registry_url_same_origin(to, again));
    check_digest(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    char *rest = text;
    const char *url = fuzz_line(&rest);
    const char *location = fuzz_line(&rest);
    const char *insecure_hosts = fuzz_line(&rest);
    if (reference_host_check_list(insecure_hosts, NULL) < 0)
        insecure_hosts = "";
    check_host(url);
    check_configured(url, insecure_hosts);
    check_configured(location, NULL);
    check_follow("https://registry.example/v2/a/blobs/uploads/", location, insecure_hosts);
    check_follow("http://localhost:5000/v2/a/blobs/uploads/", location, insecure_hosts);
    check_follow(url, location, insecure_hosts);
    return 0;
}
