#include "registry_auth.h"

#include "registry_credentials.h"
#include "registry_error.h"
#include "registry_grants.h"
#include "registry_scope.h"
#include "registry_token.h"

#include <pthread.h>

struct registry_auth {
    struct registry_credentials *credentials; /* has a lock of its own */
    struct registry_repeat_time time;         /* does not change after the first call */
    pthread_mutex_t lock;
    pthread_cond_t changed;        /* a fetch has ended */
    struct registry_grants grants; /* under lock */
};

/* What an origin asks for, copied so that it can be fetched without the lock. */
struct ask {
    bool bearer;
    char *realm;
    char *service;
    char *scope;    /* of the challenge */
    char *identity; /* newer than the file's */
};

/* What was got for it. */
struct got {
    char *value; /* NULL: there are no credentials */
    int64_t expires_ns;
    int64_t early_ns;
    char *source;
    char *identity;
    uint64_t version; /* of the file with credentials that was asked, or an older one */
};

static void ask_free(struct ask *ask)
{
    free(ask->realm);
    free(ask->service);
    free(ask->scope);
    registry_secret_free(ask->identity);
}
#define cleanup_ask cleanup_with(ask_free)

static void got_free(struct got *got)
{
    registry_secret_free(got->value);
    free(got->source);
    registry_secret_free(got->identity);
}
#define cleanup_got cleanup_with(got_free)

int registry_auth_open(const char *auth_file, struct registry_auth **ret, struct err *err)
{
    struct registry_auth *auth = calloc(1, sizeof *auth);
    if (!auth)
        return err_errno(err, ENOMEM, "cannot prepare credentials");
    int rc = registry_credentials_open(auth_file, &auth->credentials, err);
    if (rc < 0) {
        free(auth);
        return rc;
    }
    auth->time = registry_repeat_system_time();
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&auth->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&auth->lock, NULL);
    *ret = auth;
    return 0;
}

void registry_auth_close(struct registry_auth *auth)
{
    if (!auth)
        return;
    registry_credentials_close(auth->credentials);
    registry_grants_free(&auth->grants);
    pthread_cond_destroy(&auth->changed);
    pthread_mutex_destroy(&auth->lock);
    free(auth);
}

void registry_auth_set_time(struct registry_auth *auth, const struct registry_repeat_time *time)
{
    auth->time = *time;
}

const struct registry_repeat_time *registry_auth_time(const struct registry_auth *auth)
{
    return &auth->time;
}

/* --- fetching, without the lock --- */

static void hint_to_log_in(const struct registry_need *need, struct err *err)
{
    err_hint(err, "docker login %.200s, or set [remote] auth_file", need->host);
}

static int copy_text(const char *text, char **ret, struct err *err)
{
    *ret = text ? strdup(text) : NULL;
    return !text || *ret ? 0 : err_errno(err, ENOMEM, "cannot log in");
}

static int bearer_value(const char *token, char **ret, struct err *err)
{
    if (asprintf(ret, "Bearer %s", token) >= 0)
        return 0;
    *ret = NULL;
    return err_errno(err, ENOMEM, "cannot log in");
}

/* The scopes of the need, then what the challenge named besides. */
static int collect_scopes(const struct registry_need *need, const char *more,
                          struct registry_scopes *ret, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < need->scope_count && rc == 0; i++)
        rc = registry_scopes_add(ret, need->scopes[i], strlen(need->scopes[i]), err);
    return rc == 0 ? registry_scopes_add_all(ret, more, err) : rc;
}

/* One token for the scopes of the need and `more`, those of the challenge. */
static int fetch_for(struct registry_auth *auth, const struct registry_need *need,
                     const struct ask *ask, const char *more,
                     const struct registry_credential *credential, struct registry_token *ret,
                     struct err *err)
{
    cleanup_registry_scopes struct registry_scopes scopes = {.count = 0};
    struct registry_repeat_means means = {.http = need->http, .time = &auth->time};
    int rc = collect_scopes(need, more, &scopes, err);
    if (rc < 0)
        return rc;
    struct registry_token_request request = {.means = &means,
                                             .realm = ask->realm,
                                             .service = ask->service,
                                             .scopes = (const char *const *)scopes.list,
                                             .scope_count = scopes.count,
                                             .credential = credential,
                                             .waiter = need->waiter};
    return registry_token_fetch(&request, ret, err);
}

/* Whether the challenge named a resource that was not asked for. */
static bool names_others(const struct registry_need *need, const struct ask *ask)
{
    cleanup_registry_scopes struct registry_scopes scopes = {.count = 0};
    return need->scope_count > 0 && collect_scopes(need, ask->scope, &scopes, NULL) == 0 &&
           scopes.count > need->scope_count;
}

static int fetch_token(struct registry_auth *auth, const struct registry_need *need,
                       const struct ask *ask, const struct registry_credential *credential,
                       struct got *ret, struct err *err)
{
    cleanup_registry_token struct registry_token token = {0};
    struct err failure = ERR_INIT;
    int64_t start = clock_mono_ns(auth->time.clock);
    int rc = fetch_for(auth, need, ask, ask->scope, credential, &token, &failure);
    /* Some challenges name a placeholder, for which nobody gets a token. */
    if (rc == -EACCES && names_others(need, ask)) {
        err_clear(&failure);
        rc = fetch_for(auth, need, ask, NULL, credential, &token, &failure);
    }
    if (rc < 0) {
        (void)err_pass(err, rc, &failure);
        if (rc == -EACCES)
            hint_to_log_in(need, err);
        return rc;
    }
    int64_t early = (int64_t)REGISTRY_AUTH_EARLY_S * CLOCK_NS_PER_S;
    ret->early_ns = token.life_ns / 4 < early ? token.life_ns / 4 : early;
    ret->expires_ns = start + token.life_ns;
    ret->identity = steal_ptr(token.refresh_token);
    return bearer_value(token.value, &ret->value, err);
}

/* What the origin asks for, with what there is to log in with. */
static int fetch(struct registry_auth *auth, const struct registry_need *need,
                 const struct ask *ask, struct got *ret, struct err *err)
{
    cleanup_registry_credential struct registry_credential credential = {0};
    int rc = registry_credentials_find(auth->credentials, need->host, need->repository,
                                       need->waiter, &credential, &ret->version, err);
    if (rc < 0)
        return rc;
    bool known = rc == 1;
    if (credential.identity_token && ask->identity) {
        registry_secret_free(credential.identity_token);
        rc = copy_text(ask->identity, &credential.identity_token, err);
        if (rc < 0)
            return rc;
    }
    rc = copy_text(credential.source, &ret->source, err);
    ret->expires_ns = INT64_MAX;
    if (rc < 0)
        return rc;
    if (ask->bearer && credential.registry_token)
        return bearer_value(credential.registry_token, &ret->value, err);
    if (ask->bearer)
        return fetch_token(auth, need, ask, known ? &credential : NULL, ret, err);
    if (!credential.username || !credential.password)
        return 0;
    return registry_token_basic(credential.username, credential.password, &ret->value, err);
}

/* --- under the lock --- */

/* "repository scope scope": credentials may differ by repository, tokens by scope. */
static int name_rights(const struct registry_need *need, struct buf *ret, struct err *err)
{
    int rc = buf_addf(ret, err, "%s", need->repository ? need->repository : "");
    for (size_t i = 0; i < need->scope_count && rc == 0; i++)
        rc = buf_addf(ret, err, " %s", need->scopes[i]);
    return rc;
}

static int hold_grant(struct registry_auth *auth, const struct registry_need *need,
                      struct registry_grant **ret, struct err *err)
{
    cleanup_buf struct buf rights = BUF_INIT(64 * 1024);
    int rc = name_rights(need, &rights, err);
    if (rc < 0)
        return rc;
    *ret = registry_grants_hold(&auth->grants, need->base, buf_str(&rights));
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot log in");
}

static bool is_usable(const struct registry_auth *auth, const struct registry_grant *grant,
                      int64_t early_ns)
{
    return grant->value && (grant->expires_ns == INT64_MAX ||
                            clock_mono_ns(auth->time.clock) < grant->expires_ns - early_ns);
}

static bool is_fresh(const struct registry_auth *auth, const struct registry_grant *grant)
{
    return is_usable(auth, grant, grant->early_ns);
}

/* Forgets what came from an older file than the one that was seen. */
static void notice_file(struct registry_auth *auth, struct registry_gate *gate, uint64_t version)
{
    if (gate->version >= version)
        return;
    registry_grants_drop_all(&auth->grants, gate);
    gate->version = version;
}

static int copy_ask(const struct registry_gate *gate, const struct registry_grant *grant,
                    struct ask *ret, struct err *err)
{
    ret->bearer = gate->bearer;
    int rc = copy_text(gate->realm, &ret->realm, err);
    if (rc == 0)
        rc = copy_text(gate->service, &ret->service, err);
    if (rc == 0)
        rc = copy_text(grant->scope, &ret->scope, err);
    return rc == 0 ? copy_text(gate->identity, &ret->identity, err) : rc;
}

/* The value that would be used is the one that was just refused. */
static int fail_refused(const struct registry_need *need, struct registry_grant *grant,
                        const struct got *got, struct err *err)
{
    registry_secret_free(grant->refused); /* the next request may try it again */
    grant->refused = NULL;
    int rc = got->source ? err_fail(err, ERR_DENIED, "what %s has for %s is refused", got->source,
                                    need->host)
                         : err_fail(err, ERR_DENIED,
                                    "the token that anybody gets for %s is refused", need->host);
    hint_to_log_in(need, err);
    return rc;
}

/* Takes over what was fetched. */
static int keep(struct registry_auth *auth, const struct registry_need *need,
                struct registry_grant *grant, struct got *got, struct err *err)
{
    registry_grants_drop(grant);
    if (got->value && grant->refused && strcmp(got->value, grant->refused) == 0)
        return fail_refused(need, grant, got, err);
    grant->value = steal_ptr(got->value);
    grant->source = steal_ptr(got->source);
    grant->expires_ns = got->expires_ns;
    grant->early_ns = got->early_ns;
    struct registry_gate *gate = registry_grants_gate(&auth->grants, need->base);
    if (gate && got->identity) {
        registry_secret_free(gate->identity);
        gate->identity = steal_ptr(got->identity);
    }
    return 0;
}

/* A fetch has failed. While the old value lives it serves on. */
static int keep_failure(struct registry_auth *auth, struct registry_grant *grant, int rc,
                        const struct err *failure, struct err *err)
{
    if (failure->code != ERR_CANCELLED && is_usable(auth, grant, 0)) {
        grant->early_ns = 0; /* not to be tried again by everybody who comes */
        return 0;
    }
    grant->failure = malloc(sizeof *failure);
    if (grant->failure)
        *grant->failure = *failure;
    return err_pass(err, rc, failure);
}

/* Whether the file has changed since what was fetched began with it. */
static bool is_of_an_old_file(struct registry_auth *auth, const struct registry_need *need,
                              uint64_t version)
{
    const struct registry_gate *gate = registry_grants_gate(&auth->grants, need->base);
    return gate && gate->version > version;
}

/* Fetches a value for everybody who waits for it. The lock is let go meanwhile. 1 when somebody has
 * noticed another file in that time: then nothing that came from the old one is kept, neither a
 * value nor a failure. */
static int renew(struct registry_auth *auth, const struct registry_need *need,
                 struct registry_gate *gate, struct registry_grant *grant, struct err *err)
{
    cleanup_ask struct ask ask = {.bearer = false};
    cleanup_got struct got got = {.version = gate->version};
    struct err failure = ERR_INIT;
    int rc = copy_ask(gate, grant, &ask, err);
    if (rc < 0)
        return rc;
    grant->fetching = true;
    free(grant->failure);
    grant->failure = NULL;
    pthread_mutex_unlock(&auth->lock);
    rc = fetch(auth, need, &ask, &got, &failure);
    pthread_mutex_lock(&auth->lock);
    grant->fetching = false;
    pthread_cond_broadcast(&auth->changed);
    if (failure.code != ERR_CANCELLED && is_of_an_old_file(auth, need, got.version))
        return 1;
    if (rc == 0)
        rc = keep(auth, need, grant, &got, &failure);
    return rc < 0 ? keep_failure(auth, grant, rc, &failure, err) : 0;
}

/* Waits for somebody else's fetch. 0 when it has ended well, or was given up. */
static int await(struct registry_auth *auth, const struct registry_need *need,
                 struct registry_grant *grant, struct err *err)
{
    while (grant->fetching) {
        struct timespec end = clock_in_ms(REGISTRY_POOL_ASK_MS);
        (void)pthread_cond_timedwait(&auth->changed, &auth->lock, &end);
        pthread_mutex_unlock(&auth->lock);
        int rc = registry_pool_ask(need->waiter, err);
        pthread_mutex_lock(&auth->lock);
        if (rc < 0)
            return rc;
    }
    if (grant->failure && grant->failure->code != ERR_CANCELLED)
        return err_pass(err, -grant->failure->num, grant->failure);
    return 0;
}

static int fail_changing(const struct registry_auth *auth, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT, "%s changes all the time",
                      registry_credentials_file(auth->credentials));
    err_hint(err, "find out who writes it so often, and ask again then");
    return rc;
}

/* Makes the grant's value one that can be sent; it stays NULL where there are no credentials. */
static int make_fresh(struct registry_auth *auth, const struct registry_need *need,
                      struct registry_grant *grant, struct err *err)
{
    for (int changes = 0; !is_fresh(auth, grant); changes++) {
        while (grant->fetching) {
            int rc = await(auth, need, grant, err);
            if (rc < 0 || is_fresh(auth, grant))
                return rc;
        }
        struct registry_gate *gate = registry_grants_gate(&auth->grants, need->base);
        int rc = gate ? renew(auth, need, gate, grant, err) : 0;
        if (rc <= 0)
            return rc;
        if (changes == REGISTRY_AUTH_TRIES)
            return fail_changing(auth, err);
    }
    return 0;
}

/* Whether it is known how this origin wants to be asked. */
static bool is_gated(struct registry_auth *auth, const struct registry_need *need)
{
    pthread_mutex_lock(&auth->lock);
    bool gated = registry_grants_gate(&auth->grants, need->base) != NULL;
    pthread_mutex_unlock(&auth->lock);
    return gated;
}

/* A value for who has seen this version of the file. */
static int value_of(struct registry_auth *auth, const struct registry_need *need, uint64_t version,
                    char **ret, struct err *err)
{
    struct registry_grant *grant = NULL;
    struct registry_gate *gate = registry_grants_gate(&auth->grants, need->base);
    if (!gate)
        return 0;
    notice_file(auth, gate, version);
    int rc = hold_grant(auth, need, &grant, err);
    if (rc < 0)
        return rc;
    rc = make_fresh(auth, need, grant, err);
    if (rc == 0)
        rc = copy_text(grant->value, ret, err);
    registry_grants_release(grant);
    return rc;
}

int registry_auth_value(struct registry_auth *auth, const struct registry_need *need, char **ret,
                        struct err *err)
{
    char *value = NULL;
    uint64_t version = 0;
    if (!is_gated(auth, need)) {
        *ret = NULL;
        return 0;
    }
    int rc = registry_credentials_version(auth->credentials, need->waiter, &version, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&auth->lock);
    rc = value_of(auth, need, version, &value, err);
    pthread_mutex_unlock(&auth->lock);
    if (rc == 0)
        *ret = value;
    return rc;
}

/* --- answering a 401 --- */

/* The registry's own words behind the reason why nothing more can be tried. */
static int deny(const struct registry_need *need, const struct registry_http_response *response,
                const char *why, struct err *err)
{
    struct err said = ERR_INIT;
    int rc = registry_error_refusal(response, &said);
    said.hint[0] = '\0';
    (void)err_pass(err, rc, &said);
    hint_to_log_in(need, err);
    return err_wrap(err, rc, "%s", why);
}

/* The reason behind the registry's own words. */
static int wrap_in_refusal(const struct registry_http_response *response, int rc, struct err *err)
{
    struct err said = ERR_INIT;
    (void)registry_error_refusal(response, &said);
    return err_wrap(err, rc, "%s", said.text);
}

static int deny_unknown(struct registry_auth *auth, const struct registry_need *need,
                        const struct registry_http_response *response, struct err *err)
{
    const char *file = registry_credentials_file(auth->credentials);
    char why[600];
    if (*file)
        snprintf(why, sizeof why, "there are no credentials for %.200s in %.300s", need->host,
                 file);
    else
        snprintf(why, sizeof why, "there is no file with credentials for %.200s", need->host);
    return deny(need, response, why, err);
}

/* None of the ways to log in that the registry names is one of ours. */
static int deny_unanswerable(const struct registry_need *need,
                             const struct registry_http_response *response, struct err *err)
{
    const char *named = response->challenges ? response->challenges : "";
    struct registry_error_text scheme = registry_error_clean(named, strcspn(named, " \t,\n"));
    char why[300];
    if (!scheme.s[0])
        return deny(need, response, "the registry does not say how to log in", err);
    if (strcasecmp(scheme.s, "Bearer") == 0)
        return deny(need, response, "the registry does not say where to get a token", err);
    snprintf(why, sizeof why,
             "the registry wants a log-in by '%s', of which there is only Basic and Bearer here",
             scheme.s);
    return deny(need, response, why, err);
}

/* Takes over how the origin wants to be asked, under the lock. `realm` is given away. */
static int learn(struct registry_auth *auth, const struct registry_need *need,
                 struct registry_challenge *challenge, char **realm, struct registry_gate **ret,
                 struct err *err)
{
    struct registry_gate *gate = registry_grants_make_gate(&auth->grants, need->base);
    if (!gate)
        return err_errno(err, ENOMEM, "cannot log in");
    gate->bearer = *realm != NULL;
    free(gate->realm);
    gate->realm = steal_ptr(*realm);
    free(gate->service);
    gate->service = steal_ptr(challenge->service);
    *ret = gate;
    return 0;
}

/* Remembers the challenge, and that `used` was refused. *ret_newer: somebody has got another value
 * meanwhile. */
static int remember(struct registry_auth *auth, const struct registry_need *need, const char *used,
                    struct registry_challenge *challenge, char **realm, bool *ret_newer,
                    struct err *err)
{
    struct registry_gate *gate = NULL;
    struct registry_grant *grant = NULL;
    uint64_t version = 0;
    int rc = registry_credentials_version(auth->credentials, need->waiter, &version, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&auth->lock);
    rc = learn(auth, need, challenge, realm, &gate, err);
    if (rc == 0)
        rc = hold_grant(auth, need, &grant, err);
    if (rc == 0) {
        notice_file(auth, gate, version);
        *ret_newer = is_fresh(auth, grant) && (!used || strcmp(grant->value, used) != 0);
        if (!*ret_newer) {
            registry_grants_drop(grant);
            registry_secret_free(grant->refused);
            free(grant->scope);
            grant->scope = steal_ptr(challenge->scope);
            rc = copy_text(used, &grant->refused, err);
        }
        registry_grants_release(grant);
    }
    pthread_mutex_unlock(&auth->lock);
    return rc;
}

/* Chooses the challenge to answer: *ret_realm is the checked realm of the Bearer, NULL for Basic.
 */
static int choose(const struct registry_need *need, const struct registry_challenge *challenge,
                  const struct registry_http_response *response, char **ret_realm, struct err *err)
{
    struct err failure = ERR_INIT;
    if (!challenge->bearer && !challenge->basic)
        return deny_unanswerable(need, response, err);
    if (!challenge->bearer)
        return 0;
    int rc = registry_token_realm(need->http, response->url, challenge->realm, ret_realm, &failure);
    if (rc == 0 || challenge->basic)
        return 0;
    return wrap_in_refusal(response, err_pass(err, rc, &failure), err);
}

int registry_auth_answer(struct registry_auth *auth, const struct registry_need *need,
                         const char *used, const struct registry_http_response *response,
                         struct err *err)
{
    cleanup_registry_challenge struct registry_challenge challenge = {0};
    cleanup_free char *realm = NULL;
    cleanup_secret char *value = NULL;
    bool newer = false;
    int rc = registry_challenge_parse(response->challenges, &challenge, err);
    if (rc == 0)
        rc = choose(need, &challenge, response, &realm, err);
    if (rc == 0)
        rc = remember(auth, need, used, &challenge, &realm, &newer, err);
    if (rc < 0 || newer)
        return rc;
    rc = registry_auth_value(auth, need, &value, err);
    if (rc < 0)
        return rc == -ECANCELED ? rc : wrap_in_refusal(response, rc, err);
    if (value)
        return 0;
    return deny_unknown(auth, need, response, err);
}
