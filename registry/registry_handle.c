#include "registry_handle.h"

#include "registry_pipe.h"
#include "registry_url.h"

#include <inttypes.h>
#include <string.h>

/* See registry_handle.h. */
static long http_version(const struct registry_http_request *request)
{
    bool large = request->sink ? request->sink_max > REGISTRY_HANDLE_SMALL_MAX
                               : request->body_size > REGISTRY_HANDLE_SMALL_MAX;
    return large || (request->body_size > 0 && !request->body) ? CURL_HTTP_VERSION_1_1
                                                               : CURL_HTTP_VERSION_2TLS;
}

static CURLcode set_connection(CURL *curl, const struct registry_exchange_settings *settings,
                               const struct registry_http_request *request, const char *url)
{
    CURLcode code = CURLE_OK;
    REGISTRY_HANDLE_SET(CURLOPT_URL, url);
    REGISTRY_HANDLE_SET(CURLOPT_PROTOCOLS_STR, "http,https");
    REGISTRY_HANDLE_SET(CURLOPT_FOLLOWLOCATION, 0L);
    REGISTRY_HANDLE_SET(CURLOPT_HTTP_VERSION, http_version(request));
    REGISTRY_HANDLE_SET(CURLOPT_USERAGENT, "varve/" VARVE_VERSION);
    REGISTRY_HANDLE_SET(CURLOPT_NOSIGNAL, 1L);
    REGISTRY_HANDLE_SET(CURLOPT_TCP_KEEPALIVE, 1L);
    REGISTRY_HANDLE_SET(CURLOPT_CONNECTTIMEOUT, settings->connect_s);
    REGISTRY_HANDLE_SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (registry_url_is_loopback(url))
        REGISTRY_HANDLE_SET(CURLOPT_PROXY, ""); /* an empty one also hides the environment's */
    return code;
}

static CURLcode set_tls(CURL *curl, const struct registry_exchange_settings *settings)
{
    CURLcode code = CURLE_OK;
    REGISTRY_HANDLE_SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    REGISTRY_HANDLE_SET(CURLOPT_SSL_VERIFYPEER, 1L);
    REGISTRY_HANDLE_SET(CURLOPT_SSL_VERIFYHOST, 2L);
    if (settings->ca_file)
        REGISTRY_HANDLE_SET(CURLOPT_CAINFO, settings->ca_file);
    REGISTRY_HANDLE_SET(CURLOPT_CA_CACHE_TIMEOUT, (long)REGISTRY_HANDLE_CA_SECONDS);
    if (settings->client_cert) {
        REGISTRY_HANDLE_SET(CURLOPT_SSLCERT, settings->client_cert);
        REGISTRY_HANDLE_SET(CURLOPT_SSLKEY,
                            settings->client_key ? settings->client_key : settings->client_cert);
    }
    return code;
}

static CURLcode set_upload(CURL *curl, const struct registry_http_request *request)
{
    CURLcode code = CURLE_OK;
    REGISTRY_HANDLE_SET(CURLOPT_UPLOAD, 1L);
    REGISTRY_HANDLE_SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->body_size);
    REGISTRY_HANDLE_SET(CURLOPT_UPLOAD_BUFFERSIZE, (long)REGISTRY_PIPE_PIECE);
    return code;
}

static CURLcode set_range(CURL *curl, const struct registry_http_request *request)
{
    char range[64];
    if (request->range_len == 0)
        return CURLE_OK;
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, request->range_offset,
             request->range_offset + request->range_len - 1);
    return curl_easy_setopt(curl, CURLOPT_RANGE, range);
}

static CURLcode set_request(CURL *curl, const struct registry_http_request *request)
{
    static const char *const methods[] = {
        [REGISTRY_HTTP_POST] = "POST",
        [REGISTRY_HTTP_PATCH] = "PATCH",
        [REGISTRY_HTTP_DELETE] = "DELETE",
    };
    enum registry_http_method method = request->method;
    CURLcode code = CURLE_OK;
    if (methods[method])
        REGISTRY_HANDLE_SET(CURLOPT_CUSTOMREQUEST, methods[method]);
    switch (method) {
    case REGISTRY_HTTP_GET:
        REGISTRY_HANDLE_SET(CURLOPT_HTTPGET, 1L);
        REGISTRY_HANDLE_SET(CURLOPT_BUFFERSIZE, (long)REGISTRY_PIPE_PIECE);
        if (code == CURLE_OK)
            code = set_range(curl, request);
        break;
    case REGISTRY_HTTP_HEAD:
        REGISTRY_HANDLE_SET(CURLOPT_NOBODY, 1L);
        break;
    case REGISTRY_HTTP_POST:
    case REGISTRY_HTTP_PUT:
    case REGISTRY_HTTP_PATCH:
        if (code == CURLE_OK)
            code = set_upload(curl, request);
        break;
    case REGISTRY_HTTP_DELETE:
        break;
    }
    REGISTRY_HANDLE_SET(CURLOPT_TIMEOUT, request->total_timeout_s);
    return code;
}

static CURLcode add_line(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (!longer)
        return CURLE_OUT_OF_MEMORY;
    *list = longer;
    return CURLE_OK;
}

/* The header lines for curl. */
static CURLcode make_headers(const struct registry_exchange_settings *settings,
                             const struct registry_http_request *request, struct curl_slist **ret)
{
    CURLcode code = CURLE_OK;
    for (size_t i = 0; code == CURLE_OK && request->headers && request->headers[i]; i++)
        code = add_line(ret, request->headers[i]);
    if (code != CURLE_OK || !request->authorization || !settings->authorized)
        return code;
    char *line;
    int len = asprintf(&line, "Authorization: %s", request->authorization);
    if (len < 0)
        return CURLE_OUT_OF_MEMORY;
    code = add_line(ret, line);
    explicit_bzero(line, (size_t)len);
    free(line);
    return code;
}

void registry_handle_free_headers(struct curl_slist *list)
{
    for (struct curl_slist *at = list; at; at = at->next)
        explicit_bzero(at->data, strlen(at->data));
    curl_slist_free_all(list);
}

CURLcode registry_handle_set(CURL *curl, const struct registry_exchange_settings *settings,
                             const struct registry_http_request *request, const char *url,
                             struct curl_slist **ret_headers)
{
    CURLcode code = make_headers(settings, request, ret_headers);
    if (code == CURLE_OK)
        code = set_connection(curl, settings, request, url);
    if (code == CURLE_OK)
        code = set_tls(curl, settings);
    if (code == CURLE_OK)
        code = set_request(curl, request);
    REGISTRY_HANDLE_SET(CURLOPT_HTTPHEADER, *ret_headers);
    return code;
}
