#include "registry_http.h"

#include "registry.h"
#include "registry_exchange.h"
#include "registry_url.h"

#include <curl/curl.h>
#include <pthread.h>
#include <string.h>

enum {
    IDLE_HANDLES_MAX = 8, /* kept with their connections; more are closed after use */
};

struct registry_http {
    char *base; /* the strings are owned and do not change after opening */
    char *ca_file;
    char *client_cert;
    char *client_key;
    char *insecure_hosts;
    long connect_s;
    long stall_s;
    long commit_s;
    pthread_mutex_t lock;
    CURL *idle[IDLE_HANDLES_MAX]; /* guarded by lock */
    size_t idle_count;            /* guarded by lock */
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_init_code; /* written under curl_once */

static void init_curl(void)
{
    curl_init_code = curl_global_init(CURL_GLOBAL_DEFAULT);
}

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
    pthread_once(&curl_once, init_curl);
    if (curl_init_code != CURLE_OK)
        return err_fail(err, ERR_INTERNAL, "cannot start the HTTP library: %s",
                        curl_easy_strerror(curl_init_code));
    struct registry_http *http = calloc(1, sizeof *http);
    if (!http)
        return err_errno(err, ENOMEM, "cannot open a registry");
    pthread_mutex_init(&http->lock, NULL);
    registry_http_set_timeouts(http, REGISTRY_CONNECT_TIMEOUT_S, REGISTRY_STALL_TIMEOUT_S,
                               REGISTRY_HTTP_COMMIT_TIMEOUT_S);
    int rc = copy_options(options, http, err);
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
    for (size_t i = 0; i < http->idle_count; i++)
        curl_easy_cleanup(http->idle[i]);
    pthread_mutex_destroy(&http->lock);
    free(http->base);
    free(http->ca_file);
    free(http->client_cert);
    free(http->client_key);
    free(http->insecure_hosts);
    free(http);
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
    free(response->location);
    free(response->content_type);
    free(response->content_digest);
    free(response->retry_after);
    buf_free(&response->refusal);
    *response = (struct registry_http_response){0};
}

/* A handle for the calling thread; NULL without memory. */
static CURL *take_handle(struct registry_http *http)
{
    CURL *curl = NULL;
    pthread_mutex_lock(&http->lock);
    if (http->idle_count > 0)
        curl = http->idle[--http->idle_count];
    pthread_mutex_unlock(&http->lock);
    return curl ? curl : curl_easy_init();
}

/* Gives a handle back. Its connections stay open, its options are forgotten. */
static void give_handle(struct registry_http *http, CURL *curl)
{
    curl_easy_reset(curl);
    pthread_mutex_lock(&http->lock);
    if (http->idle_count < IDLE_HANDLES_MAX) {
        http->idle[http->idle_count++] = curl;
        curl = NULL;
    }
    pthread_mutex_unlock(&http->lock);
    curl_easy_cleanup(curl);
}

/* One request to one address, its answer whatever it is. */
static int exchange_once(struct registry_http *http, const struct registry_http_request *request,
                         const char *url, struct registry_http_response *ret, struct err *err)
{
    struct registry_exchange_settings settings = {.ca_file = http->ca_file,
                                                  .connect_s = http->connect_s,
                                                  .stall_s = http->stall_s,
                                                  .commit_s = http->commit_s};
    if (registry_url_same_origin(url, http->base)) {
        settings.client_cert = http->client_cert;
        settings.client_key = http->client_key;
    }
    CURL *curl = take_handle(http);
    if (!curl)
        return err_errno(err, ENOMEM, "cannot talk to a registry");
    int rc = registry_exchange_run(curl, &settings, request, url, ret, err);
    give_handle(http, curl);
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

static bool is_redirect(long status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

int registry_http_perform(struct registry_http *http, const struct registry_http_request *request,
                          struct registry_http_response *ret, struct err *err)
{
    bool follows = request->method == REGISTRY_HTTP_GET || request->method == REGISTRY_HTTP_HEAD;
    cleanup_free char *url = strdup(request->url);
    if (!url)
        return err_errno(err, ENOMEM, "cannot talk to a registry");
    for (int redirects = 0;; redirects++) {
        cleanup_http_response struct registry_http_response response = {0};
        int rc = exchange_once(http, request, url, &response, err);
        if (rc < 0)
            return rc;
        if (!follows || !is_redirect(response.status)) {
            *ret = response;
            response = (struct registry_http_response){0};
            return 0;
        }
        if (redirects == REGISTRY_HTTP_REDIRECTS_MAX)
            return err_fail(err, ERR_REFUSED, "the registry redirects more than %d times",
                            REGISTRY_HTTP_REDIRECTS_MAX);
        char *next;
        rc = registry_http_location(http, &response, &next, err);
        if (rc < 0)
            return rc;
        free(url);
        url = next;
    }
}
