#include "registry_call.h"

#include "base64.h"
#include "registry_auth.h"
#include "registry_error.h"
#include "registry_hide.h"
#include "registry_internal.h"
#include "registry_secret.h"
#include "registry_url.h"

#include <string.h>

/* The rights of a request, sorted. */
struct rights {
    char *scopes[2];
    size_t count;
};

static void rights_free(struct rights *rights)
{
    free(rights->scopes[0]);
    free(rights->scopes[1]);
}
#define cleanup_rights cleanup_with(rights_free)

static struct registry_auth *auth_of(const struct registry *registry)
{
    return registry_pool_auth(registry_http_pool(registry->http));
}

static struct registry_repeat_means means_of(const struct registry *registry)
{
    return (struct registry_repeat_means){.http = registry->http,
                                          .time = registry_auth_time(auth_of(registry))};
}

static int add_right(struct rights *rights, const char *repository, const char *actions,
                     struct err *err)
{
    if (asprintf(&rights->scopes[rights->count], "repository:%s:%s", repository, actions) < 0) {
        rights->scopes[rights->count] = NULL;
        return err_errno(err, ENOMEM, "cannot talk to a registry");
    }
    rights->count++;
    return 0;
}

static int make_rights(const struct registry_call *call, const char *from, struct rights *ret,
                       struct err *err)
{
    int rc = call->repository ? add_right(ret, call->repository, call->actions, err) : 0;
    if (rc == 0 && from && strcmp(from, call->repository) != 0)
        rc = add_right(ret, from, "pull", err);
    if (rc == 0 && ret->count == 2 && strcmp(ret->scopes[0], ret->scopes[1]) > 0) {
        char *first = ret->scopes[1];
        ret->scopes[1] = ret->scopes[0];
        ret->scopes[0] = first;
    }
    return rc;
}

/* The answer may repeat the header, or the password within it, and the addresses that were asked.
 */
static void hide(struct registry_http_response *response, const char *value, const char *url)
{
    registry_hide_query(response, url);
    if (response->url && strcmp(response->url, url) != 0)
        registry_hide_query(response, response->url);
    const char *secret = value ? strchr(value, ' ') : NULL;
    cleanup_secret_buf struct buf plain = BUF_INIT(REGISTRY_HTTP_REFUSAL_MAX);
    if (!secret)
        return;
    const char *password = NULL;
    if (strncmp(value, "Basic ", 6) == 0 &&
        base64_decode(secret + 1, strlen(secret + 1), &plain, NULL) == 0)
        password = strchr(buf_str(&plain), ':');
    const char *const secrets[] = {secret + 1, password ? password + 1 : NULL};
    registry_hide(response, secrets, ARRAY_SIZE(secrets));
}

/* One request with one value of the header. */
static int perform_once(struct registry *registry, const struct registry_call *call,
                        const char *value, struct registry_http_response *ret, struct err *err)
{
    struct registry_http_request request = call->request;
    struct registry_repeat_means means = means_of(registry);
    request.authorization = value;
    int rc = registry_repeat_perform(&means, &request, call->repeat, call->retry, ret, err);
    if (rc == 0)
        hide(ret, value, request.url);
    return rc;
}

/* Whether the registry itself wants another Authorization; an object store that a request was
 * redirected to means something else by its 401. */
static bool is_challenge(const struct registry *registry,
                         const struct registry_http_response *response)
{
    return response->status == 401 && registry_url_same_origin(response->url, registry->base);
}

/* So many 401s are answered. */
static int perform_authorised(struct registry *registry, const struct registry_call *call,
                              const struct registry_need *need, int answers,
                              struct registry_http_response *ret, struct err *err)
{
    struct registry_auth *auth = auth_of(registry);
    for (int tries = 0;; tries++) {
        cleanup_secret char *value = NULL;
        cleanup_http_response struct registry_http_response response = {0};
        int rc = registry_auth_value(auth, need, &value, err);
        if (rc == 0)
            rc = perform_once(registry, call, value, &response, err);
        if (rc < 0)
            return rc;
        if (!is_challenge(registry, &response)) {
            *ret = response;
            response = (struct registry_http_response){0};
            return 0;
        }
        if (tries == answers)
            return registry_error_refusal(&response, err);
        rc = registry_auth_answer(auth, need, value, &response, err);
        if (rc < 0)
            return rc;
    }
}

static int perform_with(struct registry *registry, const struct registry_call *call,
                        const char *from, int answers, struct registry_http_response *ret,
                        struct err *err)
{
    cleanup_rights struct rights rights = {.count = 0};
    int rc = make_rights(call, from, &rights, err);
    if (rc < 0)
        return rc;
    struct registry_waiter waiter = {.progress = call->request.progress,
                                     .arg = call->request.progress_arg,
                                     .total = call->request.body_size};
    struct registry_need need = {.http = registry->http,
                                 .base = registry->base,
                                 .host = registry->remote.host,
                                 .repository = call->repository,
                                 .scopes = (const char *const *)rights.scopes,
                                 .scope_count = rights.count,
                                 .waiter = &waiter};
    return perform_authorised(registry, call, &need, answers, ret, err);
}

int registry_call_perform(struct registry *registry, const struct registry_call *call,
                          struct registry_http_response *ret, struct err *err)
{
    if (!registry_url_same_origin(call->request.url, registry->base))
        return perform_once(registry, call, NULL, ret, err);
    if (!call->from)
        return perform_with(registry, call, NULL, REGISTRY_AUTH_TRIES, ret, err);
    struct err failure = ERR_INIT;
    int rc = perform_with(registry, call, call->from, REGISTRY_AUTH_TRIES, ret, &failure);
    if (rc == 0 || failure.code == ERR_CANCELLED)
        return rc == 0 ? 0 : err_pass(err, rc, &failure);
    /* A 401 would ask for the second right, too, and be remembered for requests without it. */
    return perform_with(registry, call, NULL, 0, ret, err);
}

int registry_call_as_pusher(struct registry *registry, const struct registry_call *call,
                            struct registry_http_response *ret, struct err *err)
{
    struct err failure = ERR_INIT;
    struct registry_call pusher = *call;
    pusher.actions = "pull,push";
    int rc = registry_call_perform(registry, &pusher, ret, &failure);
    if (rc == 0 || failure.code != ERR_DENIED)
        return rc == 0 ? 0 : err_pass(err, rc, &failure);
    pusher.actions = "pull";
    return registry_call_perform(registry, &pusher, ret, err);
}

int registry_call_wait(struct registry *registry, struct registry_retry *retry,
                       const struct registry_http_response *response,
                       const struct registry_waiter *waiter, struct err *err)
{
    struct registry_repeat_means means = means_of(registry);
    return registry_repeat_wait(&means, retry, response, waiter, err);
}
