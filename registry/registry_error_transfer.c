/* Transfers that brought no answer, in words: what curl says, and what to do about it. */

#include "registry_error.h"
#include "registry_url.h"

#include <string.h>

/* How failures of curl are told. `said` goes in front of the host, `after` behind it. */
static const struct transfer_failure {
    CURLcode curl;
    enum err_code code;
    bool stays; /* asking again would not help */
    const char *said;
    const char *after;
    const char *hint;
} transfer_failures[] = {
    {CURLE_COULDNT_RESOLVE_HOST, ERR_UNREACHABLE, false, "the name of registry",
     "cannot be resolved", "check the host name and the name servers"},
    {CURLE_COULDNT_RESOLVE_PROXY, ERR_UNREACHABLE, false, "the proxy to registry",
     "cannot be resolved", "check the proxy variables of the environment"},
    {CURLE_PROXY, ERR_UNREACHABLE, false, "the proxy to registry", "does not work",
     "check the proxy variables of the environment"},
    {CURLE_COULDNT_CONNECT, ERR_UNREACHABLE, false, "registry", "does not answer",
     "check that the registry runs and that host and port are right"},
    {CURLE_OPERATION_TIMEDOUT, ERR_UNREACHABLE, false, "registry", "does not answer in time",
     "check the network and the registry, then try again"},
    {CURLE_SSL_CONNECT_ERROR, ERR_UNREACHABLE, false, "no TLS connection to registry",
     "can be made", "check that the registry speaks https on this port"},
    {CURLE_PEER_FAILED_VERIFICATION, ERR_UNREACHABLE, true, "the certificate of registry",
     "is not trusted", "name the file with the registry's authority as ca_file"},
    {CURLE_SSL_ISSUER_ERROR, ERR_UNREACHABLE, true, "the certificate of registry", "is not trusted",
     "name the file with the registry's authority as ca_file"},
    {CURLE_SSL_CACERT_BADFILE, ERR_DAMAGED, true, "the ca_file for registry", "cannot be used",
     "check ca_file"},
    {CURLE_SSL_CERTPROBLEM, ERR_DAMAGED, true, "the client certificate for registry",
     "cannot be used", "check client_cert and client_key"},
    {CURLE_UNSUPPORTED_PROTOCOL, ERR_DAMAGED, true, "the answer of registry", "is no HTTP",
     "check that the registry speaks http on this port"},
    {CURLE_WEIRD_SERVER_REPLY, ERR_DAMAGED, true, "the answer of registry", "is no HTTP",
     "check that the registry speaks http on this port"},
    {CURLE_BAD_CONTENT_ENCODING, ERR_DAMAGED, true, "the answer of registry", "is malformed", NULL},
    {CURLE_FILESIZE_EXCEEDED, ERR_DAMAGED, true, "the answer of registry", "is malformed", NULL},
    {CURLE_OUT_OF_MEMORY, ERR_TOO_LARGE, true, "the answer of registry",
     "has a header that is too long", NULL},
    {CURLE_URL_MALFORMAT, ERR_INVALID, true, "the address of registry", "cannot be used", NULL},
};

/* What curl's words tell beside its code: the first of these pieces that is in them. */
static const struct advice {
    CURLcode curl;
    const char *part;
    const char *hint;
} advices[] = {
    {CURLE_PEER_FAILED_VERIFICATION, "has expired",
     "renew the certificate of the registry; if its time is not over, check this machine's clock"},
    {CURLE_PEER_FAILED_VERIFICATION, "not yet valid",
     "check this machine's clock, then the certificate of the registry"},
    {CURLE_PEER_FAILED_VERIFICATION, "target host name",
     "use a host name that the certificate is for, or give the registry one for this name"},
    {CURLE_SSL_CONNECT_ERROR, "unsupported protocol", "the registry has to speak TLS 1.2 or later"},
    {CURLE_SSL_CONNECT_ERROR, "protocol version", "the registry has to speak TLS 1.2 or later"},
};

static const char proxy_hint[] = "check the proxy variables of the environment";

/* A failure to reach a registry that stays has a number of its own, as both have one code. */
static int mark_as_staying(int rc, struct err *err)
{
    if (rc != -EHOSTUNREACH)
        return rc;
    if (err && err->num == EHOSTUNREACH)
        err->num = EPROTO;
    return -EPROTO;
}

/* Whether the two do not agree on TLS, such as a version; otherwise the connection was lost in the
 * middle of it. Both have one code, and OpenSSL's words tell them apart. */
static bool is_disagreement(const char *detail)
{
    return strstr(detail, "SSL routines") && !strstr(detail, "unexpected eof");
}

/* Whether curl tried to connect to another host than the registry: a proxy. */
static bool is_other_host(const char *detail, const char *host)
{
    static const char words[] = "Failed to connect to ";
    const char *tried = strstr(detail, words);
    if (!tried)
        return false;
    tried += sizeof words - 1;
    size_t len = strcspn(tried, " ");
    host += *host == '[';
    return strncmp(tried, host, len) != 0 || !strchr(":]", host[len]);
}

/* Whether the connection was there, and what came by it was no answer. */
static bool is_no_answer(CURLcode code)
{
    return code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
           code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY;
}

/* How a failure is told. What is not in the table broke after the connection was made. */
static struct transfer_failure failure_of(CURLcode code, const char *detail, const char *host)
{
    struct transfer_failure failure = {
        code,    ERR_UNREACHABLE,
        false,   "the connection to registry",
        "broke", "check the network and the registry, then try again"};
    for (size_t i = 0; i < ARRAY_SIZE(transfer_failures); i++)
        if (transfer_failures[i].curl == code)
            failure = transfer_failures[i];
    for (size_t i = ARRAY_SIZE(advices); i-- > 0;)
        if (advices[i].curl == code && strstr(detail, advices[i].part))
            failure.hint = advices[i].hint;
    if (code == CURLE_SSL_CONNECT_ERROR && is_disagreement(detail))
        failure.stays = true;
    if (code == CURLE_COULDNT_CONNECT && is_other_host(detail, host)) {
        failure.said = "the proxy to registry";
        failure.hint = proxy_hint;
    }
    return failure;
}

/* curl shows an address that it does not understand with the password that is in it. */
static int refuse_proxy_address(const char *host, struct err *err)
{
    int rc = err_fail(err, ERR_INVALID,
                      "the address of the proxy to registry %.300s cannot be used: it is malformed "
                      "or of an unknown kind",
                      host);
    err_hint(err, "%s", proxy_hint);
    return rc;
}

void registry_error_hint_loopback(const char *url, struct err *err)
{
    if (url && strncasecmp(url, "http:", 5) == 0 && registry_url_is_loopback(url))
        err_hint(err, "plain http is spoken to loopback hosts; if this registry speaks https, make "
                      "it the [remote], with url = https://..., or call its host by another name");
}

int registry_error_transfer(CURLcode code, const char *detail, const char *url, struct err *err)
{
    /* With a text it is a header line above curl's limit, without one it is memory. */
    if (code == CURLE_OUT_OF_MEMORY && *detail == '\0')
        return err_errno(err, ENOMEM, "cannot talk to a registry");
    cleanup_free char *host = registry_url_host(url);
    if (!host)
        return err_errno(err, ENOMEM, "cannot talk to a registry");
    if (strstr(detail, "Unsupported proxy"))
        return refuse_proxy_address(host, err);
    if (*detail == '\0')
        detail = curl_easy_strerror(code);
    struct transfer_failure failure = failure_of(code, detail, host);
    struct registry_error_text cause = registry_error_clean(detail, strlen(detail));
    int rc =
        err_fail(err, failure.code, "%s %.300s %s: %s", failure.said, host, failure.after, cause.s);
    if (is_no_answer(code))
        registry_error_hint_loopback(url, err);
    if (failure.hint)
        err_hint(err, "%s", failure.hint);
    return failure.stays ? mark_as_staying(rc, err) : rc;
}

int registry_error_proxy(long status, const char *url, struct err *err)
{
    cleanup_free char *host = registry_url_host(url);
    int rc = err_fail(err, ERR_UNREACHABLE, "the proxy to registry %.300s answered %ld",
                      host ? host : "?", status);
    if (status >= 500)
        err_hint(err,
                 "the proxy may not reach the registry; check the name, or put it into no_proxy");
    else if (status == 407)
        err_hint(err, "put user and password for the proxy into https_proxy");
    else
        err_hint(err, "have the proxy allow this host and port, or put the host into no_proxy");
    return status >= 500 || status == 408 || status == 429 ? rc : mark_as_staying(rc, err);
}
