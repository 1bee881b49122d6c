/* Basic authentication and bearer tokens (distribution's token specification and its OAuth form).
 */

#include "cleanup.h"
#include "clock.h"
#include "fake_registry_api.h"
#include "fake_registry_rule.h"

#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

enum {
    CREDENTIALS_MAX = 4096,
    SCOPE_MAX = 4096,
};

/* What follows the scheme in Authorization; NULL when it is another scheme. */
static const char *after_scheme(const char *value, const char *scheme)
{
    size_t len = strlen(scheme);
    return value && strncasecmp(value, scheme, len) == 0 && value[len] == ' ' ? value + len + 1
                                                                              : NULL;
}

static bool knows(const json_t *users, const char *name, const char *password)
{
    const char *known = json_string_value(json_object_get(users, name));
    return known && strcmp(known, password) == 0;
}

/* Of an Authorization header: 1 right, 0 none of this scheme, -1 wrong. */
static int check_basic(const struct fake_exchange *x)
{
    const char *coded = after_scheme(fake_exchange_header(x, "authorization"), "Basic");
    unsigned char text[CREDENTIALS_MAX + 1] = "";
    if (!coded)
        return 0;
    size_t len = strlen(coded);
    if (len > CREDENTIALS_MAX || EVP_DecodeBlock(text, (const unsigned char *)coded, (int)len) < 0)
        return -1;
    char *password = strchr((char *)text, ':');
    if (!password)
        return -1;
    *password++ = '\0';
    return knows(json_object_get(x->settings, "users"), (char *)text, password) ? 1 : -1;
}

/* Whether the comma-separated list `have` holds all of `wanted`. */
static bool holds(const char *have, const char *wanted)
{
    if (strcmp(have, "*") == 0)
        return true;
    cleanup_free char *copy = strdup(wanted);
    for (char *rest = copy, *one; rest && (one = strsep(&rest, ","));) {
        size_t len = strlen(one);
        bool found = false;
        for (const char *at = have; at && *at && !found;) {
            size_t n = strcspn(at, ",");
            found = n == len && strncmp(at, one, n) == 0;
            at += n + (at[n] == ',');
        }
        if (!found)
            return false;
    }
    return true;
}

/* Why a token is no good ("" when it is). Uses it. With the lock. */
static const char *use_token(struct fake_registry *fake, const char *value, const char *repo,
                             const char *actions, const char *from)
{
    json_t *token = json_object_get(fake->tokens, value);
    int64_t left = fake_rule_int(token, "left", 0);
    if (!token || clock_now_ms() >= fake_rule_int(token, "until", 0) || left == 0)
        return "invalid_token";
    const json_t *scopes = json_object_get(token, "scopes");
    const char *have = repo ? json_string_value(json_object_get(scopes, repo)) : "";
    if (actions && (!have || !holds(have, actions)))
        return "insufficient_scope";
    have = from ? json_string_value(json_object_get(scopes, from)) : "pull";
    if (!have || !holds(have, "pull"))
        return "insufficient_scope";
    json_object_set_new(token, "left", json_integer(left - 1));
    return "";
}

static void add_challenge(struct fake_exchange *x, json_t *list, const char *text,
                          const char *scope)
{
    cleanup_free char *realm = fake_registry_fill(x->fake, fake_rule_str(x->settings, "realm"),
                                                  (const char *const[]){NULL});
    cleanup_free char *value = fake_registry_fill(
        x->fake, text, (const char *const[]){"realm", realm, "scope", scope, NULL});
    json_array_append_new(list, json_string(value));
}

static void challenge(struct fake_exchange *x, const char *scope, const char *error)
{
    const json_t *wanted = json_object_get(x->settings, "challenge");
    bool basic = strcmp(fake_rule_str(x->settings, "auth"), "basic") == 0;
    cleanup_free char *own = NULL;
    json_t *list = json_array();
    if (basic)
        own = strdup("Basic realm=\"fake\"");
    else if (asprintf(&own, "Bearer realm=\"{realm}\",service=\"fake\"%s%s%s%s",
                      *scope ? ",scope=\"{scope}\"" : "", *error ? ",error=\"" : "", error,
                      *error ? "\"" : "") < 0)
        own = NULL;
    for (size_t i = 0; i < json_array_size(wanted); i++)
        add_challenge(x, list, json_string_value(json_array_get(wanted, i)), scope);
    const char *text = json_is_string(wanted) ? json_string_value(wanted) : own;
    if (!json_is_array(wanted) && text && *text)
        add_challenge(x, list, text, scope);
    fake_exchange_error(x, 401, "UNAUTHORIZED", "authentication required", NULL);
    json_object_set_new(x->answer, "WWW-Authenticate", list);
}

bool fake_auth_check(struct fake_exchange *x, const char *repo, const char *actions,
                     const char *from)
{
    const char *auth = fake_rule_str(x->settings, "auth");
    const char *value = fake_exchange_header(x, "authorization");
    char scope[SCOPE_MAX] = "";
    if (x->other || strcmp(auth, "none") == 0)
        return true;
    if (repo && actions)
        snprintf(scope, sizeof scope, "repository:%s:%s%s%s%s", repo, actions,
                 from ? " repository:" : "", from ? from : "", from ? ":pull" : "");
    if (strcmp(auth, "basic") == 0) {
        if (check_basic(x) == 1)
            return true;
        challenge(x, scope, "");
        return false;
    }
    const char *token = after_scheme(value, "Bearer");
    const char *error = "";
    if (token) {
        pthread_mutex_lock(&x->fake->lock);
        error = use_token(x->fake, token, repo, actions, from);
        pthread_mutex_unlock(&x->fake->lock);
        if (!*error)
            return true;
    }
    challenge(x, scope, error);
    return false;
}

/* What of the scopes is granted: {repository: actions}. */
static json_t *grant(const char *scopes, bool everything)
{
    json_t *granted = json_object();
    cleanup_free char *copy = strdup(scopes);
    for (char *rest = copy, *one; rest && (one = strsep(&rest, " "));) {
        char *name = strchr(one, ':');
        char *actions = name ? strrchr(name + 1, ':') : NULL;
        if (!actions || strncmp(one, "repository:", 11) != 0)
            continue;
        *actions++ = '\0';
        if (everything)
            json_object_set_new(granted, name + 1, json_string(actions));
        else if (holds(actions, "pull"))
            json_object_set_new(granted, name + 1, json_string("pull"));
    }
    return granted;
}

static void answer_token(struct fake_exchange *x, const char *scopes, bool everything)
{
    struct fake_registry *fake = x->fake;
    int64_t ms = fake_rule_int(x->settings, "token_ms", 0);
    int64_t uses = fake_rule_int(x->settings, "token_uses", 0);
    const json_t *expires = json_object_get(x->settings, "expires_in");
    int64_t said = json_integer_value(expires);
    char token[64];
    pthread_mutex_lock(&fake->lock);
    snprintf(token, sizeof token, "fake-token-%llu", (unsigned long long)++fake->made);
    json_object_set_new(fake->tokens, token,
                        json_pack("{s:o,s:I,s:I}", "scopes", grant(scopes, everything), "left",
                                  uses > 0 ? (json_int_t)uses : (json_int_t)INT64_MAX, "until",
                                  (json_int_t)(clock_now_ms() + ms)));
    pthread_mutex_unlock(&fake->lock);
    json_t *answer = json_pack("{s:s}", fake_rule_str(x->settings, "token_field"), token);
    if (!json_is_null(expires))
        json_object_set_new(answer, "expires_in",
                            json_integer(said >= 0 ? said : (ms + 999) / 1000));
    fake_exchange_json(x, 200, "application/json", answer);
}

static bool is_refresh_token(const struct fake_exchange *x, const char *token)
{
    const json_t *known = json_object_get(x->settings, "refresh_tokens");
    for (size_t i = 0; i < json_array_size(known) && token; i++)
        if (strcmp(json_string_value(json_array_get(known, i)), token) == 0)
            return true;
    return false;
}

/* POST: grant_type=refresh_token or password. */
static void answer_form(struct fake_exchange *x)
{
    cleanup_buf struct buf text = BUF_INIT(FAKE_BODY_KEPT);
    bool large;
    if (!fake_exchange_body_all(x, &text, &large))
        return;
    cleanup_json json_t *form = fake_registry_form(buf_str(&text));
    const char *type = fake_rule_str(form, "grant_type");
    const char *name = fake_rule_str(form, "username");
    const char *password = fake_rule_str(form, "password");
    const char *scope = fake_rule_str(form, "scope");
    bool right = false;
    if (type && strcmp(type, "refresh_token") == 0)
        right = is_refresh_token(x, fake_rule_str(form, "refresh_token"));
    else if (type && strcmp(type, "password") == 0)
        right = name && password && knows(json_object_get(x->settings, "users"), name, password);
    if (right)
        answer_token(x, scope ? scope : "", true);
    else
        fake_exchange_json(x, 401, "application/json",
                           json_pack("{s:s}", "error", "invalid_grant"));
}

void fake_auth_token(struct fake_exchange *x)
{
    const char *scope = fake_exchange_query(x, "scope");
    int basic = check_basic(x);
    if (strcmp(x->method, "POST") == 0)
        answer_form(x);
    else if (basic < 0 || (basic == 0 && !fake_rule_bool(x->settings, "anonymous", true)))
        fake_exchange_error(x, 401, "UNAUTHORIZED", "incorrect username or password", NULL);
    else
        answer_token(x, scope ? scope : "", basic == 1);
}
