#include "registry_error.h"

#include "clock.h"
#include "json_doc.h"
#include "registry_retry.h"
#include "registry_url.h"

#include <string.h>
#include <time.h>

struct registry_error_text registry_error_clean(const char *bytes, size_t len)
{
    struct registry_error_text text;
    size_t n = 0;
    bool space = false; /* a run of white space and control characters becomes one space */
    for (size_t i = 0; i < len && n < REGISTRY_ERROR_TEXT_MAX; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c <= ' ' || c == 0x7f) {
            space = n > 0;
            continue;
        }
        if ((c & 0xc0) == 0x80) /* inside a UTF-8 character; its first byte gave the '?' */
            continue;
        if (space && n + 1 < REGISTRY_ERROR_TEXT_MAX)
            text.s[n++] = ' ';
        space = false;
        text.s[n++] = c < 0x80 ? (char)c : '?';
    }
    text.s[n] = '\0';
    return text;
}

/* The first entry of "errors" of a refusal's body. Caller releases *ret_doc, which owns the two
 * strings ("" where one is missing). */
static bool parse_refusal(const struct registry_http_response *response, json_t **ret_doc,
                          const char **ret_code, const char **ret_message)
{
    cleanup_json json_t *doc = NULL;
    if (json_doc_parse(buf_str(&response->refusal), response->refusal.len, "answer", &doc, NULL) <
        0)
        return false;
    const json_t *first = json_array_get(json_object_get(doc, "errors"), 0);
    const char *code = json_string_value(json_object_get(first, "code"));
    const char *message = json_string_value(json_object_get(first, "message"));
    if (!code && !message)
        return false;
    *ret_code = code ? code : "";
    *ret_message = message ? message : "";
    *ret_doc = steal_ptr(doc);
    return true;
}

static bool is_web_page(const struct registry_http_response *response)
{
    return response->content_type && strncasecmp(response->content_type, "text/html", 9) == 0;
}

/* What the peer said about its refusal; "" when nothing. */
static struct registry_error_text peer_words(const struct registry_http_response *response)
{
    cleanup_json json_t *doc = NULL;
    const char *code;
    const char *message;
    if (!parse_refusal(response, &doc, &code, &message)) {
        if (is_web_page(response))
            return registry_error_clean("a web page", strlen("a web page"));
        return registry_error_clean(buf_str(&response->refusal), response->refusal.len);
    }
    cleanup_free char *both = NULL;
    if (asprintf(&both, "%s%s%s", code, *code && *message ? ": " : "", message) < 0)
        both = NULL;
    const char *words = both ? both : message;
    return registry_error_clean(words, strlen(words));
}

bool registry_error_has_code(const struct registry_http_response *response, const char *code)
{
    cleanup_json json_t *doc = NULL;
    const char *have;
    const char *message;
    return parse_refusal(response, &doc, &have, &message) && strcmp(have, code) == 0;
}

/* The text as it is, as it may be cut off or no JSON: "detail" is a digest with some registries, an
 * object or a list with others. */
void registry_error_missing(const struct registry_http_response *response,
                            struct remote_missing *ret)
{
    *ret = (struct remote_missing){.any = false};
    if (response->status != 400 && response->status != 404)
        return;
    const char *text = buf_str(&response->refusal);
    ret->any = strstr(text, "BLOB_UNKNOWN") != NULL;
    while (ret->any && ret->count < REMOTE_MISSING_MAX && (text = strstr(text, "sha256:"))) {
        struct digest_text word;
        snprintf(word.s, sizeof word.s, "%s", text);
        struct digest *digest = &ret->digests[ret->count];
        bool good = digest_parse(word.s, digest, NULL) == 0;
        for (size_t i = 0; good && i < ret->count; i++)
            good = !digest_equal(&ret->digests[i], digest);
        ret->count += good;
        text++;
    }
}

static enum err_code code_of_status(const struct registry_http_response *response)
{
    switch (response->status) {
    case 401:
    case 403:
        return ERR_DENIED;
    case 404:
        return ERR_NOT_FOUND;
    default:
        return registry_error_has_code(response, "DIGEST_INVALID") ? ERR_DIGEST : ERR_REFUSED;
    }
}

/* For how many seconds the registry does not want to be asked; -1: it does not say. */
static int64_t seconds_to_wait(const struct registry_http_response *response)
{
    int64_t seconds = -1;
    if ((response->status == 429 || response->status == 503) && response->retry_after)
        (void)registry_retry_after(response->retry_after, time(NULL), &seconds, NULL);
    return seconds;
}

static void hint_for_wait(int64_t seconds, struct err *err)
{
    if (seconds <= REGISTRY_RETRY_AFTER_MAX_S)
        err_hint(err, "try again in %lld seconds", (long long)seconds);
    else
        err_hint(err, "try again after %s",
                 clock_format(seconds < CLOCK_OFFSET_MAX_S ? (time(NULL) + seconds) * CLOCK_NS_PER_S
                                                           : INT64_MAX)
                     .s);
}

static void hint_for_status(const struct registry_http_response *response, const char *host,
                            int64_t after_s, struct err *err)
{
    long status = response->status;
    if (status == 401 || status == 403)
        err_hint(err,
                 "docker login %.200s, or set [remote] auth_file; a user who is logged in already "
                 "lacks the right",
                 host);
    else if (status == 404)
        err_hint(err,
                 "check the name; some registries also say so when a login is missing (docker "
                 "login %.200s)",
                 host);
    else if (after_s >= 0)
        hint_for_wait(after_s, err);
    else if (registry_retry_is_open(response))
        err_hint(err, "try again later; the registry's own log may tell more");
    else if (status >= 300 && status < 400)
        err_hint(err, "such redirects are not followed; check the registry's address");
    else if (status == 413)
        err_hint(err, "the registry, or a proxy in front of it, limits the size of a body");
}

/* Gives a failure that was just set another number than that of its code. */
static int renumber(int num, struct err *err)
{
    if (err)
        err->num = num;
    return -num;
}

int registry_error_refusal(const struct registry_http_response *response, struct err *err)
{
    cleanup_free char *host = registry_url_host(response->url);
    struct registry_error_text words = peer_words(response);
    char wait[64] = "";
    int64_t after_s = seconds_to_wait(response);
    if (after_s > 0)
        snprintf(wait, sizeof wait, " and asks not to come back for %lld s", (long long)after_s);
    int rc = err_fail(err, code_of_status(response), "registry %.300s answered %ld%s%s%s%s",
                      host ? host : "?", response->status, words.s[0] ? " (" : "", words.s,
                      words.s[0] ? ")" : "", wait);
    if (response->status == 400 && strstr(words.s, "HTTPS"))
        registry_error_hint_loopback(response->url, err); /* as servers say who hear http there */
    hint_for_status(response, host ? host : "HOST", after_s, err);
    if (registry_retry_is_open(response))
        return renumber(REMOTE_REFUSED_FOR_NOW, err);
    return response->status == 403 ? renumber(REMOTE_DENIED_FOR_GOOD, err) : rc;
}

int registry_error_if_web_page(const struct registry_http_response *response, struct err *err)
{
    if (response->status != 200 || response->content_digest || !is_web_page(response))
        return 0;
    cleanup_free char *host = registry_url_host(response->url);
    int rc = err_fail(err, ERR_DAMAGED, "%.300s answered with a web page", host ? host : "?");
    err_hint(err, "check the registry's address; a proxy may answer in its place");
    return rc;
}

int registry_error_of_encoded(const struct registry_http_response *response, int rc,
                              struct err *err)
{
    const char *encoding = response->content_encoding;
    if (rc >= 0 || !encoding || strcasecmp(encoding, "identity") == 0)
        return rc;
    err_hint(
        err,
        "the answer has 'Content-Encoding: %.60s', which nobody asked for: a proxy in front of "
        "the registry may compress what it sends",
        encoding);
    return rc;
}

int registry_error_if_other_digest(const struct registry_http_response *response,
                                   const struct digest *digest, struct err *err)
{
    struct digest_text text = digest_format(digest);
    if (!response->content_digest || strcmp(response->content_digest, text.s) == 0)
        return 0;
    return err_fail(err, ERR_DIGEST, "the registry says that it has %.150s, not %s",
                    response->content_digest, text.s);
}
