#include "registry_http.h"

#include "registry.h"
#include "registry_exchange.h"
#include "registry_head.h"
#include "registry_url.h"

#include <string.h>

struct registry_http {
    char *base; /* the strings are owned and do not change after opening */
    char *ca_file;
    char *client_cert;
    char *client_key;
    char *insecure_hosts;
    long connect_s;
    long stall_s;
    long commit_s;
    struct registry_pool *pool;
    bool owns_pool;
};

static int copy_option(const char *value, char **ret, struct err *err)
{
    if (!value)
        return 0;
    *ret = strdup(value);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot open a registry");
}

static int copy_options(const struct registry_http_options *options, struct registry_http *http,
                        struct err *err)
{
    const struct {
        const char *from;
        char **to;
    } copies[] = {{options->base, &http->base},
                  {options->ca_file, &http->ca_file},
                  {options->client_cert, &http->client_cert},
                  {options->client_key, &http->client_key},
                  {options->insecure_hosts, &http->insecure_hosts}};
    for (size_t i = 0; i < ARRAY_SIZE(copies); i++) {
        int rc = copy_option(copies[i].from, copies[i].to, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int registry_http_open(const struct registry_http_options *options, struct registry_http **ret,
                       struct err *err)
{
    struct registry_http *http = calloc(1, sizeof *http);
    if (!http)
        return err_errno(err, ENOMEM, "cannot open a registry");
    http->pool = options->pool;
    http->owns_pool = !options->pool;
    registry_http_set_timeouts(http, REGISTRY_CONNECT_TIMEOUT_S, REGISTRY_STALL_TIMEOUT_S,
                               REGISTRY_HTTP_COMMIT_TIMEOUT_S);
    int rc = copy_options(options, http, err);
    if (rc == 0 && http->owns_pool)
        rc = registry_pool_open(NULL, &http->pool, err);
    if (rc < 0) {
        registry_http_close(http);
        return rc;
    }
    *ret = http;
    return 0;
}

void registry_http_close(struct registry_http *http)
{
    if (!http)
        return;
    if (http->owns_pool)
        registry_pool_close(http->pool);
    free(http->base);
    free(http->ca_file);
    free(http->client_cert);
    free(http->client_key);
    free(http->insecure_hosts);
    free(http);
}

struct registry_pool *registry_http_pool(const struct registry_http *http)
{
    return http->pool;
}

void registry_http_set_timeouts(struct registry_http *http, long connect_s, long stall_s,
                                long commit_s)
{
    http->connect_s = connect_s;
    http->stall_s = stall_s;
    http->commit_s = commit_s;
}

void registry_http_response_free(struct registry_http_response *response)
{
    free(response->url);
    registry_head_forget(response);
    buf_free(&response->refusal);
    *response = (struct registry_http_response){0};
}

/* Without a blob in either direction. A server that answers such a request with a byte a second
 * would have a slot of the budget for weeks. PUTs end when the registry has stored what they sent.
 */
static bool is_question(const struct registry_http_request *request)
{
    switch (request->method) {
    case REGISTRY_HTTP_HEAD:
    case REGISTRY_HTTP_DELETE:
    case REGISTRY_HTTP_POST:
        return true;
    case REGISTRY_HTTP_GET:
        return !request->sink || request->sink_max < UINT64_MAX; /* bounded: a document */
    default:
        return false;
    }
}

/* Whether it may take long: for the budget (registry_pool.h). What closes an upload without a byte
 * may, as object stores copy the blob then. */
static bool is_bulk(const struct registry_http_request *request)
{
    if (is_question(request))
        return false;
    if (request->method == REGISTRY_HTTP_GET)
        return request->range_len == 0 || request->range_len > REGISTRY_HTTP_SMALL_MAX;
    return request->body_size == 0 || request->body_size > REGISTRY_HTTP_SMALL_MAX;
}

/* One request to one address, its answer whatever it is. */
static int exchange_once(struct registry_http *http, const struct registry_http_request *asked,
                         const char *url, struct registry_http_response *ret, struct err *err)
{
    struct registry_http_request limited = *asked;
    const struct registry_http_request *request = &limited;
    if (limited.total_timeout_s == 0 && is_question(asked))
        limited.total_timeout_s = http->commit_s;
    struct registry_exchange_settings settings = {.ca_file = http->ca_file,
                                                  .connect_s = http->connect_s,
                                                  .stall_s = http->stall_s,
                                                  .commit_s = http->commit_s};
    settings.guarded = !registry_url_same_host(url, http->base);
    settings.authorized = registry_url_same_origin(url, request->url);
    if (registry_url_same_origin(url, http->base)) {
        settings.client_cert = http->client_cert;
        settings.client_key = http->client_key;
    }
    const struct registry_waiter waiter = {
        .progress = request->progress, .arg = request->progress_arg, .total = request->body_size};
    struct registry_slot slot;
    int rc = registry_pool_enter(http->pool, url, is_bulk(asked), &waiter, &slot, err);
    if (rc < 0)
        return rc;
    rc = registry_exchange_run(registry_pool_loop(http->pool), &settings, request, url, ret, err);
    registry_pool_leave(http->pool, &slot);
    return rc;
}

int registry_http_location(const struct registry_http *http,
                           const struct registry_http_response *response, char **ret,
                           struct err *err)
{
    if (!response->location)
        return err_fail(err, ERR_DAMAGED, "the registry answered %ld without an address",
                        response->status);
    return registry_url_follow(response->url, response->location, http->insecure_hosts, ret, err);
}

/* RFC 9110, 15.4: 307 and 308 keep method and body; for the others a client may change a method to
 * GET, which is right for downloads only. */
static bool is_followed(enum registry_http_method method, long status)
{
    bool downloads = method == REGISTRY_HTTP_GET || method == REGISTRY_HTTP_HEAD;
    return status == 307 || status == 308 ||
           (downloads && (status == 301 || status == 302 || status == 303));
}

int registry_http_perform(struct registry_http *http, const struct registry_http_request *request,
                          struct registry_http_response *ret, struct err *err)
{
    cleanup_free char *url = strdup(request->url);
    if (!url)
        return err_errno(err, ENOMEM, "cannot talk to a registry");
    for (int redirects = 0;; redirects++) {
        cleanup_http_response struct registry_http_response response = {0};
        int rc = exchange_once(http, request, url, &response, err);
        if (rc < 0)
            return rc;
        char *next = NULL;
        if (is_followed(request->method, response.status)) {
            rc = registry_http_location(http, &response, &next, err);
            if (rc < 0)
                return rc;
        }
        if (!next || (request->keep_origin && !registry_url_same_origin(next, request->url))) {
            free(next);
            *ret = response;
            response = (struct registry_http_response){0};
            return 0;
        }
        free(url);
        url = next;
        if (redirects == REGISTRY_HTTP_REDIRECTS_MAX)
            return err_fail(err, ERR_REFUSED, "the registry redirects more than %d times",
                            REGISTRY_HTTP_REDIRECTS_MAX);
    }
}
