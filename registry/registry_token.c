#include "registry_token.h"

#include "base64.h"
#include "json_doc.h"
#include "registry_error.h"
#include "registry_hide.h"
#include "registry_url.h"

#include <curl/curl.h>
#include <math.h>
#include <string.h>
#include <time.h>

enum {
    FORM_MAX = 64 * 1024, /* bytes of the body of a POST */
};

void registry_token_free(struct registry_token *token)
{
    registry_secret_free(token->value);
    registry_secret_free(token->refresh_token);
    *token = (struct registry_token){0};
}

int registry_token_realm(const struct registry_http *http, const char *from, const char *realm,
                         char **ret, struct err *err)
{
    /* It is followed under the rules of any other address that a registry gives. */
    struct registry_http_response answer = {.url = (char *)from, .location = (char *)realm};
    cleanup_free char *url = NULL;
    int rc = registry_http_location(http, &answer, &url, err);
    if (rc < 0)
        return err_wrap(err, rc, "the registry's token host cannot be used");
    *ret = steal_ptr(url);
    return 0;
}

/* --- what is asked --- */

/* realm?service=..&scope=..&scope=.. */
static int make_query(const struct registry_token_request *request, char **ret, struct err *err)
{
    cleanup_free char *url = strdup(request->realm);
    int rc = url ? 0 : err_errno(err, ENOMEM, "cannot ask for a token");
    for (size_t i = 0; i <= request->scope_count && rc == 0; i++) {
        const char *value = i == 0 ? request->service : request->scopes[i - 1];
        char *longer;
        if (!value)
            continue;
        rc = registry_url_add_query(url, i == 0 ? "service" : "scope", value, &longer, err);
        if (rc < 0)
            break;
        free(url);
        url = longer;
    }
    if (rc < 0)
        return rc;
    *ret = steal_ptr(url);
    return 0;
}

/* Adds "&name=value" to a form (application/x-www-form-urlencoded). */
static int add_field(struct buf *form, const char *name, const char *value, struct err *err)
{
    int rc = buf_addf(form, err, "%s%s=", form->len > 0 ? "&" : "", name);
    return rc < 0 ? rc : registry_hide_form(value, form, err);
}

/* Scopes are one field, separated by spaces (RFC 6749, 3.3). */
static int join_scopes(const struct registry_token_request *request, struct buf *ret,
                       struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < request->scope_count && rc == 0; i++)
        rc = buf_addf(ret, err, "%s%s", i > 0 ? " " : "", request->scopes[i]);
    return rc;
}

static int make_form(const struct registry_token_request *request, struct buf *form,
                     struct err *err)
{
    cleanup_buf struct buf scopes = BUF_INIT(FORM_MAX);
    int rc = join_scopes(request, &scopes, err);
    if (rc == 0)
        rc = add_field(form, "grant_type", "refresh_token", err);
    if (rc == 0 && request->service)
        rc = add_field(form, "service", request->service, err);
    if (rc == 0 && scopes.len > 0)
        rc = add_field(form, "scope", buf_str(&scopes), err);
    if (rc == 0)
        rc = add_field(form, "client_id", "varve", err);
    if (rc == 0)
        rc = add_field(form, "refresh_token", request->credential->identity_token, err);
    return rc;
}

int registry_token_basic(const char *username, const char *password, char **ret, struct err *err)
{
    cleanup_secret_buf struct buf plain = BUF_INIT(REGISTRY_TOKEN_MAX);
    cleanup_secret_buf struct buf value = BUF_INIT(2 * REGISTRY_TOKEN_MAX);
    int rc = buf_addf(&plain, err, "%s:%s", username ? username : "", password ? password : "");
    if (rc == 0)
        rc = buf_addf(&value, err, "Basic ");
    if (rc == 0)
        rc = base64_encode(buf_str(&plain), plain.len, true, &value, err);
    if (rc < 0)
        return rc;
    *ret = strdup(buf_str(&value));
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot log in");
}

/* What goes with the user name. */
static const char *secret_of(const struct registry_credential *credential)
{
    return credential->password ? credential->password : credential->identity_token;
}

/* --- asking --- */

static int add_to_answer(void *arg, const void *bytes, size_t len, struct err *err)
{
    return buf_add(arg, bytes, len, "the token host's answer", err);
}

/* Performs the request; the body of a 200 is in *ret_body. */
static int ask(const struct registry_token_request *request,
               const struct registry_http_request *http_request, struct buf *ret_body,
               struct registry_http_response *ret, struct err *err)
{
    struct registry_http_request full = *http_request;
    full.sink = add_to_answer;
    full.sink_arg = ret_body;
    full.sink_max = REGISTRY_TOKEN_ANSWER_MAX;
    if (request->waiter) {
        full.progress = request->waiter->progress;
        full.progress_arg = request->waiter->arg;
    }
    return registry_repeat_perform(request->means, &full, REGISTRY_REPEAT_SAFE, NULL, ret, err);
}

static int ask_by_get(const struct registry_token_request *request, struct buf *ret_body,
                      struct registry_http_response *ret, struct err *err)
{
    const struct registry_credential *credential = request->credential;
    cleanup_free char *url = NULL;
    cleanup_secret char *basic = NULL;
    int rc = make_query(request, &url, err);
    if (rc == 0 && credential && credential->username)
        rc = registry_token_basic(
            credential->username,
            credential->password ? credential->password : credential->identity_token, &basic, err);
    if (rc < 0)
        return rc;
    struct registry_http_request get = {
        .method = REGISTRY_HTTP_GET, .url = url, .authorization = basic};
    return ask(request, &get, ret_body, ret, err);
}

static int ask_by_post(const struct registry_token_request *request, struct buf *ret_body,
                       struct registry_http_response *ret, struct err *err)
{
    static const char *const headers[] = {"Content-Type: application/x-www-form-urlencoded", NULL};
    cleanup_secret_buf struct buf form = BUF_INIT(FORM_MAX);
    int rc = make_form(request, &form, err);
    if (rc < 0)
        return rc;
    /* The body is a secret, so it goes nowhere else. */
    struct registry_http_request post = {.method = REGISTRY_HTTP_POST,
                                         .url = request->realm,
                                         .headers = headers,
                                         .body = buf_str(&form),
                                         .body_fd = -1,
                                         .body_size = form.len,
                                         .keep_origin = true};
    return ask(request, &post, ret_body, ret, err);
}

/* Asks in the way that the credential calls for. */
static int ask_either(const struct registry_token_request *request, struct buf *ret_body,
                      struct registry_http_response *ret, struct err *err)
{
    const struct registry_credential *credential = request->credential;
    if (!credential || !credential->identity_token)
        return ask_by_get(request, ret_body, ret, err);
    cleanup_http_response struct registry_http_response response = {0};
    int rc = ask_by_post(request, ret_body, &response, err);
    if (rc < 0)
        return rc;
    if ((response.status == 404 || response.status == 405) && credential->username)
        return ask_by_get(request, ret_body, ret, err);
    *ret = response;
    response = (struct registry_http_response){0};
    return 0;
}

/* --- what is answered --- */

/* RFC 3339; -1 for what cannot be read. */
static int64_t read_time(const char *text)
{
    struct tm tm = {0};
    const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
    int hours = 0;
    int minutes = 0;
    char sign = '+';
    if (!rest)
        return -1;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (strcasecmp(rest, "Z") != 0 && sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) != 3)
        return -1;
    int64_t offset = hours * 3600 + minutes * 60;
    return (int64_t)timegm(&tm) - (sign == '-' ? -offset : offset);
}

/* How long a token may be used, in seconds. */
static double read_life(const json_t *doc, int64_t now_s)
{
    const json_t *said = json_object_get(doc, "expires_in");
    double life = json_is_number(said) ? json_number_value(said) : 0;
    if (!isfinite(life) || life <= 0)
        life = REGISTRY_TOKEN_LIFE_S;
    int64_t issued = read_time(json_string_value(json_object_get(doc, "issued_at")));
    double old = issued < 0 ? 0 : (double)(now_s - issued);
    if (old > 0 && old < life)
        life -= old;
    return life < REGISTRY_TOKEN_LIFE_MAX_S ? life : REGISTRY_TOKEN_LIFE_MAX_S;
}

static int check_token(const char *token, struct err *err)
{
    size_t len = strlen(token);
    if (len > REGISTRY_TOKEN_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the token has more than %d bytes", REGISTRY_TOKEN_MAX);
    for (const char *p = token; *p; p++)
        if (*p <= ' ' || *p > '~')
            return err_fail(err, ERR_DAMAGED, "the token holds a character that no token has");
    return 0;
}

static int copy_secret(const char *text, char **ret, struct err *err)
{
    *ret = strdup(text);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot keep a token");
}

int registry_token_read(const char *bytes, size_t len, int64_t now_s, struct registry_token *ret,
                        struct err *err)
{
    static const char *const names[] = {"token", "access_token"};
    cleanup_json json_t *doc = NULL;
    cleanup_registry_token struct registry_token token = {0};
    int rc = json_doc_parse_secret(bytes, len, "its answer", &doc, err);
    const char *value = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names) && rc == 0 && (!value || !*value); i++)
        rc = json_doc_opt_str(doc, names[i], "its answer", &value, err);
    if (rc < 0)
        return rc;
    if (!value || !*value)
        return err_fail(err, ERR_DAMAGED, "its answer holds no token");
    rc = check_token(value, err);
    const char *refresh = json_string_value(json_object_get(doc, "refresh_token"));
    if (rc == 0 && refresh && *refresh && strlen(refresh) <= REGISTRY_TOKEN_MAX)
        rc = copy_secret(refresh, &token.refresh_token, err);
    if (rc == 0)
        rc = copy_secret(value, &token.value, err);
    if (rc < 0)
        return rc;
    token.life_ns = (int64_t)(read_life(doc, now_s) * (double)CLOCK_NS_PER_S);
    *ret = token;
    token = (struct registry_token){0};
    return 0;
}

/* The failure for an answer other than 200. What the host says may repeat what it was sent. */
static int refuse(const struct registry_token_request *request,
                  struct registry_http_response *response, struct err *err)
{
    struct err said = ERR_INIT;
    const struct registry_credential *credential = request->credential;
    cleanup_secret char *basic = NULL;
    if (credential && credential->username &&
        registry_token_basic(credential->username, secret_of(credential), &basic, NULL) < 0)
        return err_errno(err, ENOMEM, "cannot say why there is no token");
    const char *const secrets[] = {credential ? credential->password : NULL,
                                   credential ? credential->identity_token : NULL,
                                   basic ? strchr(basic, ' ') + 1 : NULL};
    registry_hide(response, secrets, ARRAY_SIZE(secrets));
    int rc = registry_error_refusal(response, &said);
    if (response->status == 400 || response->status == 401 || response->status == 403 ||
        response->status == 404) {
        said.code = ERR_DENIED;
        said.num = EACCES;
        rc = -EACCES;
    }
    said.hint[0] = '\0'; /* it names the token host; the caller knows what to log in to */
    return err_pass(err, rc, &said);
}

static int fetch(const struct registry_token_request *request, struct registry_token *ret,
                 struct err *err)
{
    cleanup_secret_buf struct buf body = BUF_INIT(REGISTRY_TOKEN_ANSWER_MAX);
    cleanup_http_response struct registry_http_response response = {0};
    const struct clock *clock = request->means->time->clock;
    int rc = ask_either(request, &body, &response, err);
    if (rc < 0)
        return rc;
    if (response.status != 200)
        return refuse(request, &response, err);
    return registry_token_read(buf_str(&body), body.len, clock_wall_ns(clock) / CLOCK_NS_PER_S, ret,
                               err);
}

int registry_token_fetch(const struct registry_token_request *request, struct registry_token *ret,
                         struct err *err)
{
    cleanup_registry_token struct registry_token made = {0};
    int rc = fetch(request, &made, err);
    if (rc < 0) {
        cleanup_free char *host = registry_url_host(request->realm);
        return err_wrap(err, rc, "no token from %.300s", host ? host : "?");
    }
    *ret = made;
    made = (struct registry_token){0};
    return 0;
}
