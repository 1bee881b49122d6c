#include "registry_exchange.h"

#include "registry_error.h"
#include "registry_url.h"

#include <string.h>

enum {
    STALL_BYTES_PER_SECOND = 1,
    DOWNLOAD_PIECE = 256 * 1024, /* bytes that the sink gets at once, at most */
};

/* One request on the wire and its answer. */
struct exchange {
    const struct registry_exchange_settings *settings;
    const struct registry_http_request *request;
    struct registry_http_response *response;
    CURL *curl;
    uint64_t sent;       /* bytes of the body that curl has taken */
    uint64_t received;   /* bytes that the sink has taken */
    size_t header_bytes; /* of all answers of this exchange, interim ones too */
    bool head_complete;  /* the empty line after the headers has come */
    bool in_body;        /* header lines after this are trailers */
    bool enough;         /* a refusal's body was cut off at its limit */
    int rc;              /* failure of a callback, with err set; 0 without */
    struct err *err;
};

/* A new status line: what earlier answers of this exchange said (100 Continue) no longer counts. */
static void forget_headers(struct registry_http_response *response)
{
    char **values[] = {&response->location, &response->content_type, &response->content_digest,
                       &response->retry_after};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        free(*values[i]);
        *values[i] = NULL;
    }
}

static int take_value(const char *name, const char *value, size_t len, size_t max, char **ret,
                      struct err *err)
{
    if (len >= max)
        return err_fail(err, ERR_TOO_LARGE, "header %s of the answer is longer than %zu bytes",
                        name, max - 1);
    for (size_t i = 0; i < len; i++)
        if (value[i] < ' ' || value[i] > '~')
            return err_fail(err, ERR_DAMAGED,
                            "header %s of the answer holds a byte that is not printable ASCII",
                            name);
    free(*ret);
    *ret = strndup(value, len);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot keep a header");
}

/* Keeps the value of a header line if it is one of interest. */
static int take_header(struct registry_http_response *response, const char *line, size_t len,
                       struct err *err)
{
    const struct {
        const char *name;
        char **to;
        size_t max;
    } wanted[] = {
        {"Location", &response->location, REGISTRY_HTTP_LOCATION_MAX},
        {"Content-Type", &response->content_type, REGISTRY_HTTP_VALUE_MAX},
        {"Docker-Content-Digest", &response->content_digest, REGISTRY_HTTP_VALUE_MAX},
        {"Retry-After", &response->retry_after, REGISTRY_HTTP_VALUE_MAX},
    };
    const char *colon = memchr(line, ':', len);
    if (!colon)
        return 0;
    const char *value = colon + 1;
    const char *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (strlen(wanted[i].name) == (size_t)(colon - line) &&
            strncasecmp(wanted[i].name, line, (size_t)(colon - line)) == 0)
            return take_value(wanted[i].name, value, (size_t)(end - value), wanted[i].max,
                              wanted[i].to, err);
    return 0;
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct exchange *exchange = arg;
    size_t len = size * count;
    exchange->header_bytes += len;
    if (exchange->header_bytes > REGISTRY_HTTP_HEADERS_MAX) {
        exchange->rc = err_fail(exchange->err, ERR_TOO_LARGE,
                                "the headers of the answer are larger than %d bytes",
                                REGISTRY_HTTP_HEADERS_MAX);
        return CURL_WRITEFUNC_ERROR;
    }
    if (exchange->in_body)
        return len;
    exchange->head_complete = line[0] == '\r' || line[0] == '\n';
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0)
        forget_headers(exchange->response);
    else
        exchange->rc = take_header(exchange->response, line, len, exchange->err);
    return exchange->rc < 0 ? CURL_WRITEFUNC_ERROR : len;
}

/* Hands bytes of the wanted body to the sink. */
static int give_to_sink(struct exchange *exchange, const char *bytes, size_t len)
{
    const struct registry_http_request *request = exchange->request;
    if (len > request->sink_max - exchange->received)
        return err_fail(exchange->err, ERR_TOO_LARGE,
                        "the answer is larger than the limit of %llu bytes",
                        (unsigned long long)request->sink_max);
    exchange->received += len;
    return request->sink(request->sink_arg, bytes, len, exchange->err);
}

/* Keeps the beginning of any other body. What comes after it is not waited for. */
static int keep_refusal(struct exchange *exchange, const char *bytes, size_t len)
{
    struct buf *refusal = &exchange->response->refusal;
    size_t room = refusal->max - refusal->len;
    exchange->enough = len > room;
    return buf_add(refusal, bytes, len < room ? len : room, "the answer", exchange->err);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct exchange *exchange = arg;
    size_t len = size * count;
    long status = 0;
    exchange->in_body = true;
    curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200 && exchange->request->sink)
        exchange->rc = give_to_sink(exchange, bytes, len);
    else
        exchange->rc = keep_refusal(exchange, bytes, len);
    return exchange->rc < 0 || exchange->enough ? CURL_WRITEFUNC_ERROR : len;
}

/* Reads the next bytes of the request's body. Returns their number or a failure. */
static ssize_t read_body(struct exchange *exchange, char *into, size_t len)
{
    const struct registry_http_request *request = exchange->request;
    if (request->body) {
        memcpy(into, (const char *)request->body + exchange->sent, len);
        return (ssize_t)len;
    }
    ssize_t n;
    do
        n = pread(request->body_fd, into, len, (off_t)exchange->sent);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(exchange->err, errno, "cannot read what is to be sent");
    if (n == 0)
        return err_fail(exchange->err, ERR_DAMAGED,
                        "what is to be sent ended after %llu of %llu bytes",
                        (unsigned long long)exchange->sent, (unsigned long long)request->body_size);
    return n;
}

static size_t on_read(char *into, size_t size, size_t count, void *arg)
{
    struct exchange *exchange = arg;
    uint64_t left = exchange->request->body_size - exchange->sent;
    size_t len = size * count;
    if (len > left)
        len = (size_t)left;
    if (len == 0)
        return 0;
    ssize_t n = read_body(exchange, into, len);
    if (n < 0) {
        exchange->rc = (int)n;
        return CURL_READFUNC_ABORT;
    }
    exchange->sent += (uint64_t)n;
    /* From here on the registry stores the blob, which may take it long without a byte moving. */
    if (exchange->sent == exchange->request->body_size)
        curl_easy_setopt(exchange->curl, CURLOPT_LOW_SPEED_TIME, exchange->settings->commit_s);
    return (size_t)n;
}

/* curl sends a body again when a kept connection was closed, or after a refused Expect header. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct exchange *exchange = arg;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > exchange->request->body_size)
        return CURL_SEEKFUNC_CANTSEEK;
    exchange->sent = (uint64_t)offset;
    curl_easy_setopt(exchange->curl, CURLOPT_LOW_SPEED_TIME, exchange->settings->stall_s);
    return CURL_SEEKFUNC_OK;
}

static int on_progress(void *arg, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up)
{
    (void)down_total, (void)down, (void)up_total, (void)up;
    struct exchange *exchange = arg;
    const struct registry_http_request *request = exchange->request;
    if (request->progress(request->progress_arg, exchange->sent, request->body_size) == 0)
        return 0;
    exchange->rc = err_fail(exchange->err, ERR_CANCELLED, "the transfer was cancelled");
    return 1;
}

/* Sets an option unless one before could not be set. */
#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (code == CURLE_OK)                                                                      \
            code = curl_easy_setopt(curl, option, value);                                          \
    } while (0)

static CURLcode set_connection(CURL *curl, const struct registry_exchange_settings *settings,
                               const char *url)
{
    CURLcode code = CURLE_OK;
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    /* A handle carries one request at a time, so HTTP/2 would bring nothing but more states. */
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_USERAGENT, "varve/" VARVE_VERSION);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_CONNECTTIMEOUT, settings->connect_s);
    SET(CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_PER_SECOND);
    SET(CURLOPT_LOW_SPEED_TIME, settings->stall_s);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (registry_url_is_loopback(url))
        SET(CURLOPT_PROXY, ""); /* an empty one also hides the environment's */
    return code;
}

static CURLcode set_tls(CURL *curl, const struct registry_exchange_settings *settings)
{
    CURLcode code = CURLE_OK;
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    if (settings->ca_file)
        SET(CURLOPT_CAINFO, settings->ca_file);
    if (settings->client_cert) {
        SET(CURLOPT_SSLCERT, settings->client_cert);
        SET(CURLOPT_SSLKEY, settings->client_key ? settings->client_key : settings->client_cert);
    }
    return code;
}

static CURLcode set_upload(CURL *curl, struct exchange *exchange)
{
    CURLcode code = CURLE_OK;
    SET(CURLOPT_UPLOAD, 1L);
    SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)exchange->request->body_size);
    SET(CURLOPT_READFUNCTION, on_read);
    SET(CURLOPT_READDATA, exchange);
    SET(CURLOPT_SEEKFUNCTION, on_seek);
    SET(CURLOPT_SEEKDATA, exchange);
    if (exchange->request->body_size == 0) /* on_read() will not see a last byte */
        SET(CURLOPT_LOW_SPEED_TIME, exchange->settings->commit_s);
    return code;
}

static CURLcode set_request(CURL *curl, struct exchange *exchange, struct curl_slist *headers)
{
    CURLcode code = CURLE_OK;
    switch (exchange->request->method) {
    case REGISTRY_HTTP_GET:
        SET(CURLOPT_HTTPGET, 1L);
        SET(CURLOPT_BUFFERSIZE, (long)DOWNLOAD_PIECE);
        break;
    case REGISTRY_HTTP_HEAD:
        SET(CURLOPT_NOBODY, 1L);
        break;
    case REGISTRY_HTTP_POST:
        SET(CURLOPT_POSTFIELDS, "");
        SET(CURLOPT_POSTFIELDSIZE, 0L);
        break;
    case REGISTRY_HTTP_PUT:
        if (code == CURLE_OK)
            code = set_upload(curl, exchange);
        break;
    case REGISTRY_HTTP_DELETE:
        SET(CURLOPT_CUSTOMREQUEST, "DELETE");
        break;
    }
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_TIMEOUT, exchange->request->total_timeout_s);
    return code;
}

static CURLcode set_callbacks(CURL *curl, struct exchange *exchange, char *error_text)
{
    CURLcode code = CURLE_OK;
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, exchange);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, exchange);
    SET(CURLOPT_ERRORBUFFER, error_text);
    if (exchange->request->progress) {
        SET(CURLOPT_NOPROGRESS, 0L);
        SET(CURLOPT_XFERINFOFUNCTION, on_progress);
        SET(CURLOPT_XFERINFODATA, exchange);
    }
    return code;
}

/* The header lines for curl; NULL with *ret_code set on failure. */
static struct curl_slist *make_headers(const struct registry_http_request *request,
                                       CURLcode *ret_code)
{
    struct curl_slist *list = NULL;
    for (size_t i = 0; request->headers && request->headers[i]; i++) {
        struct curl_slist *longer = curl_slist_append(list, request->headers[i]);
        if (!longer) {
            *ret_code = CURLE_OUT_OF_MEMORY;
            curl_slist_free_all(list);
            return NULL;
        }
        list = longer;
    }
    return list;
}

/* Reads what curl knows about a complete answer. */
static void finish_response(struct exchange *exchange)
{
    struct registry_http_response *response = exchange->response;
    curl_off_t length = -1;
    curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &response->status);
    curl_easy_getinfo(exchange->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    response->length = length < 0 ? UINT64_MAX : (uint64_t)length;
    response->body_complete = exchange->sent == exchange->request->body_size;
}

/* curl says where it could not connect to, the system says why. */
static void add_os_error(CURL *curl, char text[CURL_ERROR_SIZE])
{
    long num = 0;
    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &num);
    char buf[128];
    size_t len = strlen(text);
    if (num > 0)
        snprintf(text + len, CURL_ERROR_SIZE - len, " (%s)", strerror_r((int)num, buf, sizeof buf));
}

/* Tells two failures apart that curl reports as others. */
static CURLcode correct_code(const struct exchange *exchange, CURLcode code,
                             char text[CURL_ERROR_SIZE])
{
    if (exchange->head_complete)
        return code;
    if (code == CURLE_OK) { /* to curl the connection's end within the headers is an empty body */
        snprintf(text, CURL_ERROR_SIZE, "it ended within the headers of the answer");
        return CURLE_PARTIAL_FILE;
    }
    curl_off_t first_byte = 0; /* microseconds; 0 while nothing was received */
    curl_easy_getinfo(exchange->curl, CURLINFO_STARTTRANSFER_TIME_T, &first_byte);
    if (code == CURLE_OUT_OF_MEMORY && first_byte > 0)
        snprintf(text, CURL_ERROR_SIZE, "curl takes no lines of more than 100 KiB");
    return code;
}

static int run(struct exchange *exchange, const char *url)
{
    CURL *curl = exchange->curl;
    char error_text[CURL_ERROR_SIZE] = "";
    CURLcode code = CURLE_OK;
    struct curl_slist *headers = make_headers(exchange->request, &code);
    if (code == CURLE_OK)
        code = set_connection(curl, exchange->settings, url);
    if (code == CURLE_OK)
        code = set_tls(curl, exchange->settings);
    if (code == CURLE_OK)
        code = set_callbacks(curl, exchange, error_text);
    if (code == CURLE_OK)
        code = set_request(curl, exchange, headers);
    if (code == CURLE_OK)
        code = curl_easy_perform(curl);
    finish_response(exchange);
    curl_slist_free_all(headers);
    if (exchange->rc < 0)
        return exchange->rc;
    code = correct_code(exchange, code, error_text);
    if (code == CURLE_COULDNT_CONNECT)
        add_os_error(curl, error_text);
    if (code != CURLE_OK && !exchange->enough)
        return registry_error_transfer(code, error_text, url, exchange->err);
    return 0;
}

int registry_exchange_run(CURL *curl, const struct registry_exchange_settings *settings,
                          const struct registry_http_request *request, const char *url,
                          struct registry_http_response *ret, struct err *err)
{
    cleanup_http_response struct registry_http_response response = {
        .url = strdup(url), .refusal = BUF_INIT(REGISTRY_HTTP_REFUSAL_MAX)};
    if (!response.url)
        return err_errno(err, ENOMEM, "cannot talk to a registry");
    struct exchange exchange = {
        .settings = settings, .request = request, .response = &response, .curl = curl, .err = err};
    int rc = run(&exchange, url);
    if (rc < 0)
        return rc;
    *ret = response;
    response = (struct registry_http_response){0};
    return 0;
}
