#include "registry_url.h"

#include "reference.h"
#include "reference_host.h"
#include "registry_address.h"

#include <curl/curl.h>
#include <string.h>

static void curl_url_cleanupp(CURLU **url)
{
    curl_url_cleanup(*url);
}
#define cleanup_curlu cleanup_with(curl_url_cleanupp)

static void curl_freep(char **text)
{
    curl_free(*text);
}
#define cleanup_curl_text cleanup_with(curl_freep)

void registry_url_free(struct registry_url *url)
{
    free(url->base);
    free(url->host);
    free(url->prefix);
    *url = (struct registry_url){0};
}

/* Parses an absolute URL. `flags` are curl's, such as CURLU_PATH_AS_IS. */
static int parse(const char *url, unsigned int flags, CURLU **ret, struct err *err)
{
    cleanup_curlu CURLU *parsed = curl_url();
    if (!parsed)
        return err_errno(err, ENOMEM, "cannot parse a URL");
    CURLUcode code = curl_url_set(parsed, CURLUPART_URL, url, flags | CURLU_DISALLOW_USER);
    if (code != CURLUE_OK)
        return err_fail(err, ERR_INVALID, "the URL cannot be used: %s", curl_url_strerror(code));
    *ret = steal_ptr(parsed);
    return 0;
}

/* One part of a parsed URL; NULL when it has none. Freed with curl_free(). */
static char *part(CURLU *url, CURLUPart which, unsigned int flags)
{
    char *text = NULL;
    return curl_url_get(url, which, &text, flags) == CURLUE_OK ? text : NULL;
}

/* "host[:port]" in the spelling of curl, which has made numeric forms to dotted IPv4 addresses. */
static char *host_and_port(CURLU *url)
{
    cleanup_curl_text char *host = part(url, CURLUPART_HOST, 0);
    cleanup_curl_text char *port = part(url, CURLUPART_PORT, 0);
    char *text;
    int len = asprintf(&text, "%s%s%s", host ? host : "?", port ? ":" : "", port ? port : "");
    return len < 0 ? NULL : text;
}

static bool has_scheme(CURLU *url, const char *scheme)
{
    cleanup_curl_text char *have = part(url, CURLUPART_SCHEME, 0);
    return have && strcasecmp(have, scheme) == 0;
}

/* Whether plain http may be spoken to a host. */
static bool plain_is_allowed(const char *host, const char *insecure_hosts)
{
    cleanup_free char *canonical = NULL;
    if (reference_host_canonical(host, &canonical, NULL) < 0)
        return false;
    return reference_host_is_loopback(canonical) ||
           reference_host_is_listed(canonical, insecure_hosts);
}

/* What can be said about a configured URL before it is parsed. */
static int check_configured(const char *url, struct err *err)
{
    if (strnlen(url, REGISTRY_URL_MAX) == REGISTRY_URL_MAX)
        return err_fail(err, ERR_INVALID, "the registry URL is longer than %d bytes",
                        REGISTRY_URL_MAX - 1);
    if (strchr(url, '@')) { /* may hold a password: not repeated */
        int rc = err_fail(err, ERR_INVALID, "the registry URL holds a user name or password");
        err_hint(err, "write https://host/prefix; a URL is shown in logs and listings and is no "
                      "place for a secret");
        return rc;
    }
    for (const char *p = url; *p; p++)
        if (*p <= ' ' || *p > '~')
            return err_fail(err, ERR_INVALID,
                            "the registry URL holds a byte that is not printable ASCII at "
                            "position %zu",
                            (size_t)(p - url) + 1);
    const char *fault = NULL;
    if (strncasecmp(url, "https://", 8) != 0 && strncasecmp(url, "http://", 7) != 0)
        fault = "begins neither with https:// nor with http://";
    else if (strpbrk(url, "?#"))
        fault = "holds a query or a fragment";
    else if (strstr(url, ":///"))
        fault = "has no host"; /* curl would take what follows for it */
    if (!fault)
        return 0;
    int rc = err_fail(err, ERR_INVALID, "registry URL '%.300s' %s", url, fault);
    err_hint(err, "write https://host[:port][/prefix]");
    return rc;
}

/* The path of a configured URL as a prefix of repositories. */
static int take_prefix(CURLU *parsed, char **ret, struct err *err)
{
    cleanup_curl_text char *path = part(parsed, CURLUPART_PATH, 0);
    const char *from = path ? path : "";
    if (*from == '/')
        from++;
    size_t len = strlen(from);
    if (len > 1 && from[len - 1] == '/')
        len--;
    cleanup_free char *prefix = strndup(from, len);
    if (!prefix)
        return err_errno(err, ENOMEM, "cannot parse a registry URL");
    int rc = len > 0 ? reference_check_repository(prefix, err) : 0;
    if (rc < 0)
        return err_wrap(err, rc, "the path of the registry URL is no prefix for repositories");
    *ret = steal_ptr(prefix);
    return 0;
}

static int take_host(CURLU *parsed, char **ret, struct err *err)
{
    cleanup_free char *host = host_and_port(parsed);
    if (!host)
        return err_errno(err, ENOMEM, "cannot parse a registry URL");
    return reference_host_canonical(host, ret, err);
}

static int refuse_plain(const char *host, struct err *err)
{
    int rc = err_fail(err, ERR_INVALID, "plain http is not used for the host '%s'", host);
    err_hint(err, "use https, or name the host in insecure_hosts");
    return rc;
}

int registry_url_parse(const char *url, const char *insecure_hosts, struct registry_url *ret,
                       struct err *err)
{
    int rc = check_configured(url, err);
    if (rc < 0)
        return rc;
    /* Dots in the path are left for the check of the prefix to find. */
    cleanup_curlu CURLU *parsed = NULL;
    rc = parse(url, CURLU_PATH_AS_IS, &parsed, err);
    if (rc < 0)
        return err_wrap(err, rc, "registry URL '%.300s'", url);
    cleanup_registry_url struct registry_url made = {0};
    rc = take_host(parsed, &made.host, err);
    if (rc < 0)
        return rc;
    rc = take_prefix(parsed, &made.prefix, err);
    if (rc < 0)
        return rc;
    bool plain = has_scheme(parsed, "http");
    if (plain && !plain_is_allowed(made.host, insecure_hosts))
        return refuse_plain(made.host, err);
    if (asprintf(&made.base, "%s://%s", plain ? "http" : "https", made.host) < 0) {
        made.base = NULL;
        return err_errno(err, ENOMEM, "cannot parse a registry URL");
    }
    *ret = made;
    made = (struct registry_url){0};
    return 0;
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart which)
{
    cleanup_curl_text char *in_a = part(a, which, CURLU_DEFAULT_PORT);
    cleanup_curl_text char *in_b = part(b, which, CURLU_DEFAULT_PORT);
    return in_a && in_b && strcasecmp(in_a, in_b) == 0;
}

static bool is_link_local(CURLU *url)
{
    cleanup_curl_text char *host = part(url, CURLUPART_HOST, 0);
    return host && registry_address_text_is_link_local(host);
}

static bool is_loopback(CURLU *url)
{
    cleanup_free char *host = host_and_port(url);
    cleanup_free char *canonical = NULL;
    return host && reference_host_canonical(host, &canonical, NULL) == 0 &&
           reference_host_is_loopback(canonical);
}

/* Whether it leads to this machine, also in spellings that are not taken for loopback where that
 * gives more rights. */
static bool is_own(CURLU *url)
{
    cleanup_curl_text char *host = part(url, CURLUPART_HOST, 0);
    return is_loopback(url) || (host && registry_address_text_is_own(host));
}

/* Checks that an answer does not lead to where only this machine should ask. */
static int check_place(CURLU *from, CURLU *to, struct err *err)
{
    bool link_local = is_link_local(to) && !same_part(from, to, CURLUPART_HOST);
    bool loopback = is_own(to) && !is_own(from);
    if (!link_local && !loopback)
        return 0;
    cleanup_free char *host = host_and_port(to);
    int rc = err_fail(err, ERR_REFUSED, "the registry points to the %s address '%.300s'",
                      link_local ? "link-local" : "loopback", host ? host : "?");
    err_hint(err, "addresses that mean something else on each machine are not followed to; the "
                  "registry must be told its outside address");
    return rc;
}

/* Checks that going from one URL to the other does not weaken the transport. */
static int check_step(CURLU *from, CURLU *to, const char *insecure_hosts, struct err *err)
{
    if (has_scheme(to, "https"))
        return 0;
    cleanup_free char *host = host_and_port(to);
    if (!host)
        return err_errno(err, ENOMEM, "cannot follow an address");
    if (!has_scheme(to, "http"))
        return err_fail(err, ERR_REFUSED, "the registry points to an address that is not http");
    if (has_scheme(from, "https")) {
        int rc = err_fail(err, ERR_REFUSED,
                          "the registry points from https to plain http on '%.300s'", host);
        err_hint(err, "a registry behind a proxy that ends TLS must be told its outside address "
                      "(docker-registry: http.host, or X-Forwarded-Proto from the proxy)");
        return rc;
    }
    if (!plain_is_allowed(host, insecure_hosts))
        return err_fail(err, ERR_REFUSED,
                        "the registry points to plain http on '%.300s', which is neither loopback "
                        "nor in insecure_hosts",
                        host);
    return 0;
}

int registry_url_follow(const char *from, const char *location, const char *insecure_hosts,
                        char **ret, struct err *err)
{
    if (*location == '\0' || strnlen(location, REGISTRY_URL_MAX) == REGISTRY_URL_MAX)
        return err_fail(err, ERR_DAMAGED, "the registry gave an address that is empty or too long");
    cleanup_curlu CURLU *start = NULL;
    int rc = parse(from, 0, &start, err);
    if (rc < 0)
        return rc;
    cleanup_curlu CURLU *target = curl_url_dup(start);
    if (!target)
        return err_errno(err, ENOMEM, "cannot follow an address");
    CURLUcode code = curl_url_set(target, CURLUPART_URL, location, CURLU_DISALLOW_USER);
    if (code == CURLUE_USER_NOT_ALLOWED)
        return err_fail(err, ERR_REFUSED,
                        "the registry gave an address with a user name or password");
    if (code != CURLUE_OK)
        return err_fail(err, ERR_DAMAGED, "the registry gave an address that cannot be used: %s",
                        curl_url_strerror(code));
    rc = check_step(start, target, insecure_hosts, err);
    if (rc == 0)
        rc = check_place(start, target, err);
    if (rc < 0)
        return rc;
    curl_url_set(target, CURLUPART_FRAGMENT, NULL, 0);
    cleanup_curl_text char *text = part(target, CURLUPART_URL, 0);
    char *copy = text ? strdup(text) : NULL;
    if (!copy)
        return err_errno(err, ENOMEM, "cannot follow an address");
    /* Escapes in a host are resolved at each reading, so the text may mean another host. */
    cleanup_curlu CURLU *again = NULL;
    if (parse(copy, 0, &again, NULL) < 0 || !same_part(target, again, CURLUPART_HOST)) {
        free(copy);
        return err_fail(err, ERR_DAMAGED,
                        "the registry gave an address whose host name cannot be used");
    }
    *ret = copy;
    return 0;
}

int registry_url_add_query(const char *url, const char *name, const char *value, char **ret,
                           struct err *err)
{
    cleanup_curlu CURLU *parsed = NULL;
    int rc = parse(url, 0, &parsed, err);
    if (rc < 0)
        return rc;
    cleanup_free char *query = NULL;
    if (asprintf(&query, "%s=%s", name, value) < 0) {
        query = NULL;
        return err_errno(err, ENOMEM, "cannot make an address");
    }
    CURLUcode code =
        curl_url_set(parsed, CURLUPART_QUERY, query, CURLU_APPENDQUERY | CURLU_URLENCODE);
    cleanup_curl_text char *text = code == CURLUE_OK ? part(parsed, CURLUPART_URL, 0) : NULL;
    char *copy = text ? strdup(text) : NULL;
    if (!copy)
        return err_errno(err, ENOMEM, "cannot make an address");
    *ret = copy;
    return 0;
}

int registry_url_add_digest(const char *url, const struct digest *digest, char **ret,
                            struct err *err)
{
    return registry_url_add_query(url, "digest", digest_format(digest).s, ret, err);
}

bool registry_url_same_origin(const char *a, const char *b)
{
    cleanup_curlu CURLU *in_a = NULL;
    cleanup_curlu CURLU *in_b = NULL;
    return parse(a, 0, &in_a, NULL) == 0 && parse(b, 0, &in_b, NULL) == 0 &&
           same_part(in_a, in_b, CURLUPART_SCHEME) && same_part(in_a, in_b, CURLUPART_HOST) &&
           same_part(in_a, in_b, CURLUPART_PORT);
}

int registry_url_origin(const char *url, char **ret, struct err *err)
{
    cleanup_curlu CURLU *parsed = NULL;
    int rc = parse(url, 0, &parsed, err);
    if (rc < 0)
        return rc;
    cleanup_curl_text char *scheme = part(parsed, CURLUPART_SCHEME, 0);
    cleanup_curl_text char *host = part(parsed, CURLUPART_HOST, 0);
    cleanup_curl_text char *port = part(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT);
    if (!scheme || !host || !port)
        return err_fail(err, ERR_INVALID, "the URL cannot be used: it has no host");
    char *origin;
    int len = asprintf(&origin, "%s://%s:%s", scheme, host, port);
    if (len < 0)
        return err_errno(err, ENOMEM, "cannot use a URL");
    for (int i = 0; i < len; i++)
        if (origin[i] >= 'A' && origin[i] <= 'Z')
            origin[i] = (char)(origin[i] - 'A' + 'a');
    *ret = origin;
    return 0;
}

char *registry_url_host(const char *url)
{
    cleanup_curlu CURLU *parsed = NULL;
    return parse(url, 0, &parsed, NULL) == 0 ? host_and_port(parsed) : strdup("?");
}

bool registry_url_same_host(const char *a, const char *b)
{
    cleanup_curlu CURLU *in_a = NULL;
    cleanup_curlu CURLU *in_b = NULL;
    return parse(a, 0, &in_a, NULL) == 0 && parse(b, 0, &in_b, NULL) == 0 &&
           same_part(in_a, in_b, CURLUPART_HOST);
}

bool registry_url_is_link_local(const char *url)
{
    cleanup_curlu CURLU *parsed = NULL;
    return parse(url, 0, &parsed, NULL) == 0 && is_link_local(parsed);
}

bool registry_url_is_loopback(const char *url)
{
    cleanup_curlu CURLU *parsed = NULL;
    return parse(url, 0, &parsed, NULL) == 0 && is_loopback(parsed);
}
