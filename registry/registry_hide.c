#include "registry_hide.h"

#include "json_doc.h"
#include "registry_secret.h"

#include <ctype.h>
#include <string.h>

enum {
    SPELLING_MAX = 256 * 1024, /* bytes of a secret with all of its escapes */
    QUERY_SECRET_MIN = 16,     /* shorter values of a query are words and numbers */
    QUERY_SECRETS_MAX = 64,    /* values, and their parts, of one query */
};

/* How a character may be written in JSON. */
enum spelling {
    SPELLING_PLAIN,
    SPELLING_SHORT,   /* \" \\ only, as most do */
    SPELLING_SLASHES, /* and \/ */
    SPELLING_WEB,     /* and \u0026 for & < > */
    SPELLINGS
};

static void overwrite(char *text, size_t len, const char *secret)
{
    size_t secret_len = strlen(secret);
    char *at = text;
    while (secret_len > 0 && text &&
           (at = memmem(at, len - (size_t)(at - text), secret, secret_len)) != NULL)
        memset(at, '*', secret_len);
}

static int spell_char(char c, enum spelling spelling, struct buf *ret)
{
    if (spelling >= SPELLING_SHORT && (c == '"' || c == '\\'))
        return buf_addf(ret, NULL, "\\%c", c);
    if (spelling == SPELLING_SLASHES && c == '/')
        return buf_addf(ret, NULL, "\\/");
    if (spelling == SPELLING_WEB && (c == '&' || c == '<' || c == '>'))
        return buf_addf(ret, NULL, "\\u%04x", (unsigned)c);
    return buf_add(ret, &c, 1, "the secret", NULL);
}

int registry_hide_form(const char *secret, struct buf *ret, struct err *err)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    int rc = 0;
    for (const unsigned char *p = (const unsigned char *)secret; rc == 0 && *p; p++)
        rc = buf_addf(ret, err, strchr(plain, *p) ? "%c" : "%%%02X", *p);
    return rc;
}

/* All spellings of one secret in a text. */
static int hide_in_text(char *text, size_t len, const char *secret)
{
    for (int spelling = 0; spelling < SPELLINGS; spelling++) {
        cleanup_secret_buf struct buf spelled = BUF_INIT(SPELLING_MAX);
        int rc = 0;
        for (const char *p = secret; *p && rc == 0; p++)
            rc = spell_char(*p, spelling, &spelled);
        if (rc < 0)
            return rc;
        overwrite(text, len, buf_str(&spelled));
    }
    cleanup_secret_buf struct buf form = BUF_INIT(SPELLING_MAX);
    int rc = registry_hide_form(secret, &form, NULL);
    if (rc == 0)
        overwrite(text, len, buf_str(&form));
    return rc;
}

/* In all strings of a document, which are decoded. 1 when one was changed. */
static int hide_in_json(json_t *json, const char *secret)
{
    const char *name;
    json_t *member;
    size_t i;
    int changed = 0;
    if (json_is_string(json) && strstr(json_string_value(json), secret)) {
        cleanup_free char *text = strdup(json_string_value(json));
        if (!text)
            return -ENOMEM;
        overwrite(text, strlen(text), secret);
        return json_string_set(json, text) == 0 ? 1 : -ENOMEM;
    }
    if (json_is_array(json))
        for (i = 0; i < json_array_size(json) && changed >= 0; i++)
            changed |= hide_in_json(json_array_get(json, i), secret);
    if (json_is_object(json))
        json_object_foreach (json, name, member)
            changed |= hide_in_json(member, secret);
    return changed;
}

/* Writes the body anew when a secret was found in what its JSON means. */
static int hide_decoded(struct buf *body, const char *const *secrets, size_t count)
{
    cleanup_json json_t *doc = NULL;
    int changed = 0;
    if (json_doc_parse_secret(buf_str(body), body->len, "answer", &doc, NULL) < 0)
        return 0;
    for (size_t i = 0; i < count && changed >= 0; i++)
        if (secrets[i] && *secrets[i])
            changed |= hide_in_json(doc, secrets[i]);
    if (changed <= 0)
        return changed;
    cleanup_secret char *text = json_doc_dump(doc);
    if (!text)
        return -ENOMEM;
    if (body->data)
        explicit_bzero(body->data, body->len);
    body->len = 0;
    return buf_add(body, text, strlen(text), "answer", NULL);
}

void registry_hide(struct registry_http_response *response, const char *const *secrets,
                   size_t count)
{
    struct buf *body = &response->refusal;
    char *const shown[] = {response->content_type, response->content_digest,
                           response->content_range};
    int rc = hide_decoded(body, secrets, count);
    for (size_t i = 0; i < count && rc >= 0; i++) {
        if (!secrets[i] || !*secrets[i])
            continue;
        rc = hide_in_text(body->data, body->len, secrets[i]);
        for (size_t k = 0; k < ARRAY_SIZE(shown) && rc >= 0; k++)
            if (shown[k])
                rc = hide_in_text(shown[k], strlen(shown[k]), secrets[i]);
    }
    if (rc < 0)
        registry_secret_buf_free(body);
}

/* What one query may have to hide; all owned. */
struct query_secrets {
    char *list[QUERY_SECRETS_MAX];
    size_t count;
};

static void query_secrets_free(struct query_secrets *secrets)
{
    for (size_t i = 0; i < secrets->count; i++)
        registry_secret_free(secrets->list[i]);
}

static int add_query_secret(struct query_secrets *secrets, const char *text, size_t len)
{
    if (len < QUERY_SECRET_MIN)
        return 0;
    if (secrets->count == QUERY_SECRETS_MAX)
        return -E2BIG;
    char *copy = strndup(text, len);
    if (!copy)
        return -ENOMEM;
    secrets->list[secrets->count++] = copy;
    return 0;
}

/* Undoes percent-encoding in place. */
static void decode(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++, to++) {
        unsigned byte;
        if (*p == '%' && isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2]) &&
            sscanf(p + 1, "%2x", &byte) == 1 && byte != 0) {
            *to = (char)byte;
            p += 2;
        } else {
            *to = *p;
        }
    }
    *to = '\0';
}

/* A value as it is, as it is meant, and the parts of that: a key is a part of a longer value with
 * some, and servers repeat both. */
static int add_query_value(struct query_secrets *secrets, const char *value, size_t len)
{
    int rc = add_query_secret(secrets, value, len);
    cleanup_secret char *plain = strndup(value, len);
    if (!plain)
        return -ENOMEM;
    decode(plain);
    if (rc == 0)
        rc = add_query_secret(secrets, plain, strlen(plain));
    for (const char *part = plain; rc == 0 && strchr(plain, '/') && *part;) {
        size_t part_len = strcspn(part, "/");
        rc = add_query_secret(secrets, part, part_len);
        part += part_len + (part[part_len] == '/');
    }
    return rc;
}

/* Parameters of the distribution specification are no secrets, and messages are read for digests.
 */
static bool is_public(const char *name, size_t len)
{
    static const char *const names[] = {"digest", "mount", "from", "n", "last", "artifactType"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return true;
    return false;
}

void registry_hide_query(struct registry_http_response *response, const char *url)
{
    cleanup_with(query_secrets_free) struct query_secrets secrets = {.count = 0};
    const char *query = url ? strchr(url, '?') : NULL;
    int rc = 0;
    while (query && rc == 0) {
        const char *name = query + 1;
        size_t len = strcspn(name, "&#");
        const char *equals = memchr(name, '=', len);
        if (equals && !is_public(name, (size_t)(equals - name)))
            rc = add_query_value(&secrets, equals + 1, len - (size_t)(equals + 1 - name));
        query = name[len] == '&' ? name + len : NULL;
    }
    if (rc == 0 && secrets.count > 0)
        registry_hide(response, (const char *const *)secrets.list, secrets.count);
    else if (rc < 0)
        registry_secret_buf_free(&response->refusal);
}
