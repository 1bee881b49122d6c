#include "registry_challenge.h"

#include "buf.h"

#include <string.h>

/* Where the parser is in one header line. */
struct cursor {
    const char *at;
    const char *end;
};

/* The challenge that is being read. */
struct draft {
    bool is_bearer;
    bool is_basic;
    char *realm; /* these are kept of a Bearer only; owned */
    char *service;
    char *scope;
};

void registry_challenge_free(struct registry_challenge *challenge)
{
    free(challenge->realm);
    free(challenge->service);
    free(challenge->scope);
    *challenge = (struct registry_challenge){0};
}

static void draft_clear(struct draft *draft)
{
    free(draft->realm);
    free(draft->service);
    free(draft->scope);
    *draft = (struct draft){0};
}

/* tchar of RFC 9110, 5.6.2. */
static bool is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_spaces(struct cursor *cursor)
{
    while (cursor->at < cursor->end && is_space(*cursor->at))
        cursor->at++;
}

static bool at_char(const struct cursor *cursor, char c)
{
    return cursor->at < cursor->end && *cursor->at == c;
}

/* The token at the cursor; its length is 0 when there is none. */
static size_t take_token(struct cursor *cursor, const char **ret)
{
    *ret = cursor->at;
    while (cursor->at < cursor->end && is_token_char(*cursor->at))
        cursor->at++;
    return (size_t)(cursor->at - *ret);
}

static bool same_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && strncasecmp(text, word, len) == 0;
}

/* Adds a character of a value. What makes it too long is left out, and *fits says so. */
static int add_char(struct buf *value, char c, bool *fits, struct err *err)
{
    if (value->len >= REGISTRY_CHALLENGE_VALUE_MAX)
        *fits = false;
    return *fits ? buf_add(value, &c, 1, "the challenge", err) : 0;
}

/* quoted-string of RFC 9110, 5.6.4, from behind its first quote. One that does not end is no value,
 * and what follows it cannot be known. */
static int take_quoted(struct cursor *cursor, struct buf *value, bool *fits, struct err *err)
{
    int rc = 0;
    while (rc == 0 && cursor->at < cursor->end && *cursor->at != '"') {
        if (*cursor->at == '\\' && cursor->at + 1 < cursor->end)
            cursor->at++;
        rc = add_char(value, *cursor->at++, fits, err);
    }
    if (cursor->at < cursor->end)
        cursor->at++;
    else
        *fits = false;
    return rc;
}

/* A value without quotes. Only tokens may be such, but some registries forget the quotes of an
 * address, so all is taken that does not end it. */
static int take_bare(struct cursor *cursor, struct buf *value, bool *fits, struct err *err)
{
    int rc = 0;
    while (rc == 0 && cursor->at < cursor->end && *cursor->at != ',' && !is_space(*cursor->at))
        rc = add_char(value, *cursor->at++, fits, err);
    return rc;
}

/* Keeps a parameter; the first of a name counts. */
static int keep_param(struct draft *draft, const char *name, size_t len, struct buf *value,
                      struct err *err)
{
    const struct {
        const char *name;
        char **to;
    } wanted[] = {{"realm", &draft->realm}, {"service", &draft->service}, {"scope", &draft->scope}};
    for (size_t i = 0; draft->is_bearer && i < ARRAY_SIZE(wanted); i++) {
        if (!same_word(name, len, wanted[i].name) || *wanted[i].to)
            continue;
        *wanted[i].to = buf_steal(value);
        return *wanted[i].to ? 0 : err_errno(err, ENOMEM, "cannot keep a challenge");
    }
    return 0;
}

/* The value of a parameter, from behind its '='. */
static int take_param(struct cursor *cursor, struct draft *draft, const char *name, size_t len,
                      struct err *err)
{
    cleanup_buf struct buf value = BUF_INIT(REGISTRY_CHALLENGE_VALUE_MAX);
    bool fits = true;
    skip_spaces(cursor);
    int rc;
    if (at_char(cursor, '"')) {
        cursor->at++;
        rc = take_quoted(cursor, &value, &fits, err);
    } else {
        rc = take_bare(cursor, &value, &fits, err);
    }
    return rc == 0 && fits ? keep_param(draft, name, len, &value, err) : rc;
}

/* Ends a challenge: what it says is taken over when it is the first usable one of its scheme. */
static void finish(struct draft *draft, struct registry_challenge *ret)
{
    if (draft->is_basic)
        ret->basic = true;
    if (draft->is_bearer && draft->realm && *draft->realm && !ret->bearer) {
        ret->bearer = true;
        ret->realm = steal_ptr(draft->realm);
        ret->service = steal_ptr(draft->service);
        ret->scope = steal_ptr(draft->scope);
    }
    draft_clear(draft);
}

/* Passes over a token68 ("Negotiate YIIb6w=="), which is the whole rest of its challenge. */
static void skip_token68(struct cursor *cursor)
{
    struct cursor ahead = *cursor;
    const char *start = ahead.at;
    while (ahead.at < ahead.end && (is_token_char(*ahead.at) || *ahead.at == '/'))
        ahead.at++;
    if (ahead.at == start)
        return;
    while (at_char(&ahead, '='))
        ahead.at++;
    skip_spaces(&ahead);
    if (ahead.at == ahead.end || *ahead.at == ',')
        *cursor = ahead;
}

/* A word is the name of a parameter when '=' follows, else it begins a challenge. */
static int take_word(struct cursor *cursor, struct draft *draft, const char *word, size_t len,
                     struct registry_challenge *ret, struct err *err)
{
    skip_spaces(cursor);
    if (at_char(cursor, '=')) {
        cursor->at++;
        return take_param(cursor, draft, word, len, err);
    }
    finish(draft, ret);
    draft->is_bearer = same_word(word, len, "Bearer");
    draft->is_basic = same_word(word, len, "Basic");
    skip_token68(cursor);
    return 0;
}

static int parse_line(struct cursor cursor, struct registry_challenge *ret, struct err *err)
{
    struct draft draft = {0};
    int rc = 0;
    while (rc == 0 && cursor.at < cursor.end) {
        const char *word;
        size_t len = take_token(&cursor, &word);
        if (len > 0)
            rc = take_word(&cursor, &draft, word, len, ret, err);
        else
            cursor.at++; /* a comma, a space, or what belongs nowhere */
    }
    if (rc == 0)
        finish(&draft, ret);
    draft_clear(&draft);
    return rc;
}

int registry_challenge_parse(const char *values, struct registry_challenge *ret, struct err *err)
{
    cleanup_registry_challenge struct registry_challenge made = {0};
    int rc = 0;
    for (const char *line = values; rc == 0 && line && *line;) {
        const char *end = strchrnul(line, '\n');
        rc = parse_line((struct cursor){line, end}, &made, err);
        line = *end ? end + 1 : end;
    }
    if (rc < 0)
        return rc;
    *ret = made;
    made = (struct registry_challenge){0};
    return 0;
}
