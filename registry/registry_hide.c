#include "registry_hide.h"

#include "json_doc.h"
#include "registry_secret.h"

#include <string.h>

enum {
    SPELLING_MAX = 256 * 1024, /* bytes of a secret with all of its escapes */
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
