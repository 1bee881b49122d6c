#include "registry_exchange.h"

#include "clock.h"
#include "registry_address.h"
#include "registry_error.h"
#include "registry_handle.h"
#include "registry_head.h"
#include "registry_loop.h"
#include "registry_pipe.h"
#include "registry_url.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

enum {
    STALL_BYTES_PER_SECOND = 1,
};

/* One request on the wire and its answer. Two threads have it: what the transport's thread writes
 * is read by the other one when the pipe has told the end, or is atomic. */
struct exchange {
    struct registry_transfer transfer; /* first, so that the two pointers are one */
    const struct registry_exchange_settings *settings;
    const struct registry_http_request *request;
    const char *url;
    struct registry_loop *loop;
    struct registry_pipe pipe;
    char error_text[CURL_ERROR_SIZE];

    /* Of both. */
    _Atomic bool connected; /* the request is being sent, on a new or a kept connection */
    _Atomic bool answered;  /* the answer has begun, an interim one is none */
    _Atomic uint64_t sent;  /* bytes of the body that curl has taken */
    _Atomic uint64_t moved; /* all bytes that went, either way */

    /* Of the transport's thread. */
    struct registry_http_response *response;
    size_t header_bytes; /* of all answers of this exchange, interim ones too */
    bool head_complete;  /* the empty line after the headers has come */
    bool in_body;        /* header lines after this are trailers */
    bool to_sink;        /* the body goes to the sink */
    bool led_astray;     /* to an address that is not connected to */
    bool enough;         /* a refusal's body was cut off at its limit */
    CURLcode code;
    int rc; /* failure of a callback, with `failure` set; 0 without */
    struct err failure;

    /* Of the calling thread. */
    uint64_t added;    /* bytes of the body that are in the pipe or were */
    uint64_t received; /* bytes that the sink has taken */
    unsigned int restarts;
    bool began;
    int64_t limit_s;       /* on standing still, that holds now */
    int64_t waited_ms;     /* for the peer, since it moved as much as it has to */
    uint64_t moved_before; /* then */
    int64_t answer_ms;     /* waited for the answer, while none of it is for the sink */
};

static bool has_body(const struct registry_http_request *request)
{
    return request->method == REGISTRY_HTTP_POST || request->method == REGISTRY_HTTP_PUT ||
           request->method == REGISTRY_HTTP_PATCH;
}

static bool has_sink(const struct registry_http_request *request)
{
    bool takes = request->method == REGISTRY_HTTP_GET ||
                 (request->method == REGISTRY_HTTP_POST &&
                  (request->body || request->body_size == 0)); /* a pipe goes one way */
    return request->sink && takes;
}

/* Whether the calling thread puts the body into the pipe. */
static bool streams_body(const struct registry_http_request *request)
{
    return has_body(request) && !request->body && request->body_size > 0;
}

/* A status line: what earlier answers of this exchange said (100 Continue) no longer counts. */
static void begin_head(struct exchange *exchange, const char *line, size_t len)
{
    registry_head_forget(exchange->response);
    const char *space = memchr(line, ' ', len);
    if (space && space + 1 < line + len && space[1] != '1')
        exchange->answered = true;
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct exchange *exchange = arg;
    size_t len = size * count;
    exchange->moved += len;
    exchange->header_bytes += len;
    if (exchange->header_bytes > REGISTRY_HTTP_HEADERS_MAX) {
        exchange->rc = err_fail(&exchange->failure, ERR_TOO_LARGE,
                                "the headers of the answer are larger than %d bytes",
                                REGISTRY_HTTP_HEADERS_MAX);
        return CURL_WRITEFUNC_ERROR;
    }
    if (exchange->in_body)
        return len;
    exchange->head_complete = line[0] == '\r' || line[0] == '\n';
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0)
        begin_head(exchange, line, len);
    else
        exchange->rc = registry_head_take(exchange->response, line, len, &exchange->failure);
    return exchange->rc < 0 ? CURL_WRITEFUNC_ERROR : len;
}

/* Reads what curl knows about a head that is there. */
static void take_status(struct exchange *exchange)
{
    struct registry_http_response *response = exchange->response;
    curl_off_t length = -1;
    curl_easy_getinfo(exchange->transfer.curl, CURLINFO_RESPONSE_CODE, &response->status);
    curl_easy_getinfo(exchange->transfer.curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    response->length = length < 0 ? UINT64_MAX : (uint64_t)length;
}

/* A 206 has to be what was asked for, or its bytes would get to a wrong place. */
static int check_range(struct exchange *exchange)
{
    const struct registry_http_request *request = exchange->request;
    struct registry_http_response *response = exchange->response;
    if (request->range_len == 0 || !response->content_range)
        return err_fail(&exchange->failure, ERR_DAMAGED, "the registry answered 206 %s",
                        request->range_len > 0 ? "without a Content-Range"
                                               : "to a request for the whole");
    struct registry_head_range range;
    int rc = registry_head_range(response->content_range, &range, &exchange->failure);
    if (rc < 0)
        return rc;
    uint64_t size = range.last - range.first + 1;
    if (range.first != request->range_offset || size > request->range_len ||
        (response->length != UINT64_MAX && response->length != size))
        return err_fail(&exchange->failure, ERR_DAMAGED,
                        "the registry answered with the range %s where bytes from %" PRIu64
                        " on were asked for",
                        response->content_range, request->range_offset);
    response->range_total = range.total;
    return 0;
}

/* The first byte of a body is there, so the head is complete. */
static int begin_body(struct exchange *exchange)
{
    exchange->in_body = true;
    take_status(exchange);
    long status = exchange->response->status;
    exchange->to_sink = has_sink(exchange->request) && (status == 200 || status == 206);
    return exchange->to_sink && status == 206 ? check_range(exchange) : 0;
}

/* Keeps the beginning of a body that is not for the sink. What comes after it is not waited for. */
static int keep_refusal(struct exchange *exchange, const char *bytes, size_t len)
{
    struct buf *refusal = &exchange->response->refusal;
    size_t room = refusal->max - refusal->len;
    exchange->enough = len > room;
    return buf_add(refusal, bytes, len < room ? len : room, "the answer", &exchange->failure);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct exchange *exchange = arg;
    size_t len = size * count;
    if (!exchange->in_body)
        exchange->rc = begin_body(exchange);
    if (exchange->rc == 0 && exchange->to_sink) {
        if (!registry_pipe_put(&exchange->pipe, bytes, len))
            return CURL_WRITEFUNC_PAUSE;
        registry_loop_note(&exchange->transfer);
    } else if (exchange->rc == 0) {
        exchange->rc = keep_refusal(exchange, bytes, len);
    }
    exchange->moved += len;
    return exchange->rc < 0 || exchange->enough ? CURL_WRITEFUNC_ERROR : len;
}

static size_t on_read(char *into, size_t size, size_t count, void *arg)
{
    struct exchange *exchange = arg;
    const struct registry_http_request *request = exchange->request;
    uint64_t left = request->body_size - exchange->sent;
    size_t len = size * count;
    if (len > left)
        len = (size_t)left;
    if (len == 0)
        return 0;
    if (request->body)
        memcpy(into, (const char *)request->body + exchange->sent, len);
    else
        len = registry_pipe_take(&exchange->pipe, into, len);
    if (len == 0)
        return CURL_READFUNC_PAUSE;
    exchange->sent += len;
    exchange->moved += len;
    return len;
}

static void restart_body(struct exchange *exchange, uint64_t offset)
{
    exchange->sent = offset;
    registry_pipe_restart(&exchange->pipe, offset);
}

/* curl sends a body again when a kept connection was closed, or after a refused Expect header. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct exchange *exchange = arg;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > exchange->request->body_size)
        return CURL_SEEKFUNC_CANTSEEK;
    restart_body(exchange, (uint64_t)offset);
    return CURL_SEEKFUNC_OK;
}

/* The socket of a connection. One that is not made is to curl an address that does not answer, so
 * others of the same name are tried. */
static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct exchange *exchange = arg;
    if (exchange->settings->guarded && registry_address_is_link_local(&address->addr)) {
        exchange->led_astray = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* The request is about to be sent. libcurl 7.88.1 does not seek when a kept connection turns out to
 * be closed after the first bytes of the body were read and before any was sent. */
static int on_connected(void *arg, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    (void)local_ip, (void)remote_port, (void)local_port;
    struct exchange *exchange = arg;
    if (exchange->settings->guarded && registry_address_text_is_link_local(remote_ip)) {
        exchange->led_astray = true; /* a connection of somebody else to whom it is allowed */
        return CURL_PREREQFUNC_ABORT;
    }
    exchange->connected = true;
    if (exchange->sent > 0)
        restart_body(exchange, 0);
    return CURL_PREREQFUNC_OK;
}

static void on_round(struct registry_transfer *transfer)
{
    struct exchange *exchange = (struct exchange *)transfer;
    registry_pipe_flush(&exchange->pipe);
}

static void on_over(struct registry_transfer *transfer, CURLcode code)
{
    struct exchange *exchange = (struct exchange *)transfer;
    exchange->code = code;
    registry_pipe_end(&exchange->pipe);
}

static CURLcode set_callbacks(CURL *curl, struct exchange *exchange)
{
    CURLcode code = CURLE_OK;
    REGISTRY_HANDLE_SET(CURLOPT_READFUNCTION, on_read);
    REGISTRY_HANDLE_SET(CURLOPT_READDATA, exchange);
    REGISTRY_HANDLE_SET(CURLOPT_SEEKFUNCTION, on_seek);
    REGISTRY_HANDLE_SET(CURLOPT_SEEKDATA, exchange);
    REGISTRY_HANDLE_SET(CURLOPT_HEADERFUNCTION, on_header);
    REGISTRY_HANDLE_SET(CURLOPT_HEADERDATA, exchange);
    REGISTRY_HANDLE_SET(CURLOPT_WRITEFUNCTION, on_body);
    REGISTRY_HANDLE_SET(CURLOPT_WRITEDATA, exchange);
    REGISTRY_HANDLE_SET(CURLOPT_OPENSOCKETFUNCTION, on_socket);
    REGISTRY_HANDLE_SET(CURLOPT_OPENSOCKETDATA, exchange);
    REGISTRY_HANDLE_SET(CURLOPT_PREREQFUNCTION, on_connected);
    REGISTRY_HANDLE_SET(CURLOPT_PREREQDATA, exchange);
    REGISTRY_HANDLE_SET(CURLOPT_ERRORBUFFER, exchange->error_text);
    return code;
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
static CURLcode correct_code(struct exchange *exchange)
{
    char *text = exchange->error_text;
    if (exchange->head_complete)
        return exchange->code;
    if (exchange->code == CURLE_OK) { /* to curl an end within the headers is an empty body */
        snprintf(text, CURL_ERROR_SIZE, "it ended within the headers of the answer");
        return CURLE_PARTIAL_FILE;
    }
    curl_off_t first_byte = 0; /* microseconds; 0 while nothing was received */
    curl_easy_getinfo(exchange->transfer.curl, CURLINFO_STARTTRANSFER_TIME_T, &first_byte);
    if (exchange->code == CURLE_OUT_OF_MEMORY && first_byte > 0)
        snprintf(text, CURL_ERROR_SIZE, "curl takes no lines of more than 100 KiB");
    return exchange->code;
}

/* The status with which a proxy refused a way to the registry; 0: none did. */
static long refused_by_proxy(const struct exchange *exchange)
{
    long status = 0;
    curl_easy_getinfo(exchange->transfer.curl, CURLINFO_HTTP_CONNECTCODE, &status);
    return exchange->connected || status / 100 == 2 ? 0 : status;
}

static int refuse_place(const struct exchange *exchange, struct err *err)
{
    cleanup_free char *host = registry_url_host(exchange->url);
    int rc = err_fail(err, ERR_REFUSED,
                      "the registry points to '%.300s', which has a link-local "
                      "address",
                      host ? host : "?");
    err_hint(err, "addresses that mean something else on each machine are not followed to");
    return rc;
}

/* What came of a transfer that is over. */
static int result(struct exchange *exchange, struct err *err)
{
    if (exchange->rc < 0)
        return err_pass(err, exchange->rc, &exchange->failure);
    CURLcode code = correct_code(exchange);
    if (code != CURLE_OK && exchange->led_astray && !exchange->connected)
        return refuse_place(exchange, err);
    if (code != CURLE_OK && refused_by_proxy(exchange) > 0)
        return registry_error_proxy(refused_by_proxy(exchange), exchange->url, err);
    if (code == CURLE_COULDNT_CONNECT)
        add_os_error(exchange->transfer.curl, exchange->error_text);
    if (code != CURLE_OK && !exchange->enough)
        return registry_error_transfer(code, exchange->error_text, exchange->url, err);
    return 0;
}

/* Reads the next bytes of the request's body into the pipe. */
static int add_body(struct exchange *exchange, const struct registry_pipe_state *state,
                    struct err *err)
{
    const struct registry_http_request *request = exchange->request;
    uint64_t left = request->body_size - exchange->added;
    size_t len = state->len < left ? state->len : (size_t)left;
    ssize_t n;
    do
        n = pread(request->body_fd, state->at, len,
                  (off_t)(request->body_offset + exchange->added));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(err, errno, "cannot read what is to be sent");
    if (n == 0)
        return err_fail(err, ERR_DAMAGED,
                        "what is to be sent ended after %" PRIu64 " of %" PRIu64 " bytes",
                        exchange->added, request->body_size);
    exchange->added += (uint64_t)n;
    if (registry_pipe_added(&exchange->pipe, (size_t)n, exchange->restarts))
        registry_loop_wake(exchange->loop, &exchange->transfer);
    return 0;
}

/* Hands the next bytes of the wanted body to the sink. */
static int give_to_sink(struct exchange *exchange, const struct registry_pipe_state *state,
                        struct err *err)
{
    const struct registry_http_request *request = exchange->request;
    if (!exchange->began && request->head) {
        int rc = request->head(request->sink_arg, exchange->response, err);
        if (rc < 0)
            return rc;
    }
    exchange->began = true;
    if (state->len > request->sink_max - exchange->received)
        return err_fail(err, ERR_TOO_LARGE,
                        "the answer is larger than the limit of %" PRIu64 " bytes",
                        request->sink_max);
    exchange->received += state->len;
    int rc = request->sink(request->sink_arg, state->at, state->len, err);
    if (rc < 0)
        return rc;
    if (registry_pipe_taken(&exchange->pipe, state->len))
        registry_loop_wake(exchange->loop, &exchange->transfer);
    return 0;
}

static int ask(const struct exchange *exchange, struct err *err)
{
    const struct registry_http_request *request = exchange->request;
    const struct registry_waiter waiter = {.progress = request->progress,
                                           .arg = request->progress_arg,
                                           .done = exchange->sent,
                                           .total = request->body_size};
    return registry_pool_ask(&waiter, err);
}

/* Counts time in which the peer had nothing to wait for but itself. */
static int check_stall(struct exchange *exchange, int64_t ms, struct err *err)
{
    const struct registry_exchange_settings *settings = exchange->settings;
    bool stores = has_body(exchange->request) && !exchange->answered &&
                  exchange->sent == exchange->request->body_size;
    int64_t limit_s = stores ? settings->commit_s : settings->stall_s;
    uint64_t moved = exchange->moved;
    if (!exchange->connected || limit_s != exchange->limit_s ||
        moved - exchange->moved_before >= (uint64_t)limit_s * STALL_BYTES_PER_SECOND) {
        exchange->limit_s = limit_s;
        exchange->waited_ms = 0;
        exchange->moved_before = moved;
        return 0;
    }
    exchange->waited_ms += ms;
    if (exchange->waited_ms < limit_s * 1000)
        return 0;
    char text[64];
    snprintf(text, sizeof text, "it stood still for %" PRId64 " seconds", limit_s);
    return registry_error_transfer(CURLE_OPERATION_TIMEDOUT, text, exchange->url, err);
}

/* The same for an answer, which has a limit as a whole: headers and refusals have an end, and a
 * server that sends them byte by byte never stands still. */
static int check_answer(struct exchange *exchange, int64_t ms, struct err *err)
{
    const struct registry_http_request *request = exchange->request;
    bool asked = !has_body(request) || exchange->answered || exchange->sent == request->body_size;
    int64_t limit_s = exchange->settings->commit_s;
    exchange->answer_ms += ms;
    if (!exchange->connected || !asked || exchange->received > 0)
        exchange->answer_ms = 0;
    if (exchange->answer_ms < limit_s * 1000)
        return 0;
    char text[64];
    snprintf(text, sizeof text, "its answer took more than %" PRId64 " seconds", limit_s);
    return registry_error_transfer(CURLE_OPERATION_TIMEDOUT, text, exchange->url, err);
}

static enum registry_pipe_wish wish_of(const struct exchange *exchange)
{
    const struct registry_http_request *request = exchange->request;
    if (streams_body(request) && exchange->added < request->body_size)
        return REGISTRY_PIPE_ROOM_WISHED;
    if (has_sink(request))
        return REGISTRY_PIPE_BYTES_WISHED;
    return REGISTRY_PIPE_END_WISHED;
}

/* The calling thread's part until the transfer is over. */
static int work(struct exchange *exchange, struct err *err)
{
    for (;;) {
        enum registry_pipe_wish wish = wish_of(exchange);
        int64_t from = clock_now_ms();
        struct registry_pipe_state state =
            registry_pipe_wait(&exchange->pipe, wish, exchange->restarts, REGISTRY_POOL_ASK_MS);
        int64_t waited = clock_now_ms() - from;
        int rc = 0;
        if (state.restarts != exchange->restarts) {
            exchange->restarts = state.restarts;
            exchange->added = state.position;
        } else if (wish == REGISTRY_PIPE_BYTES_WISHED && state.len > 0) {
            rc = give_to_sink(exchange, &state, err);
        } else if (state.ended) {
            (void)ask(exchange, NULL); /* told, and too late to end it */
            return 0;
        } else if (wish == REGISTRY_PIPE_ROOM_WISHED && state.len > 0) {
            rc = add_body(exchange, &state, err);
        }
        if (rc == 0)
            rc = check_stall(exchange, waited, err);
        if (rc == 0)
            rc = check_answer(exchange, waited, err);
        if (rc == 0)
            rc = ask(exchange, err);
        if (rc < 0)
            return rc;
    }
}

/* Ends the transfer, if it is not over, and waits for that. */
static void stop(struct exchange *exchange)
{
    registry_loop_stop(exchange->loop, &exchange->transfer);
    struct registry_pipe_state state = {.restarts = exchange->restarts};
    while (!state.ended)
        state = registry_pipe_wait(&exchange->pipe, REGISTRY_PIPE_END_WISHED, state.restarts,
                                   REGISTRY_POOL_ASK_MS);
}

static int run(struct exchange *exchange, struct err *err)
{
    CURL *curl = exchange->transfer.curl;
    struct curl_slist *headers = NULL;
    CURLcode code =
        registry_handle_set(curl, exchange->settings, exchange->request, exchange->url, &headers);
    if (code == CURLE_OK)
        code = set_callbacks(curl, exchange);
    int rc = 0;
    if (code == CURLE_OK) {
        registry_loop_start(exchange->loop, &exchange->transfer);
        rc = work(exchange, err);
        stop(exchange);
    } else {
        rc = registry_error_transfer(code, exchange->error_text, exchange->url, err);
    }
    if (rc == 0)
        rc = result(exchange, err);
    take_status(exchange);
    exchange->response->body_complete = exchange->sent == exchange->request->body_size;
    registry_handle_free_headers(headers);
    return rc;
}

int registry_exchange_run(struct registry_loop *loop,
                          const struct registry_exchange_settings *settings,
                          const struct registry_http_request *request, const char *url,
                          struct registry_http_response *ret, struct err *err)
{
    cleanup_http_response struct registry_http_response response = {
        .url = strdup(url),
        .range_total = UINT64_MAX,
        .refusal = BUF_INIT(REGISTRY_HTTP_REFUSAL_MAX)};
    CURL *curl = curl_easy_init();
    struct exchange exchange = {.transfer = {.curl = curl, .round = on_round, .over = on_over},
                                .settings = settings,
                                .request = request,
                                .url = url,
                                .loop = loop,
                                .response = &response};
    int rc = response.url && curl ? 0 : err_errno(err, ENOMEM, "cannot talk to a registry");
    if (rc == 0)
        rc = registry_pipe_open(
            &exchange.pipe, has_sink(request) || streams_body(request) ? REGISTRY_PIPE_BYTES : 0,
            err);
    if (rc == 0) {
        rc = run(&exchange, err);
        registry_pipe_close(&exchange.pipe);
    }
    curl_easy_cleanup(curl);
    if (rc < 0)
        return rc;
    *ret = response;
    response = (struct registry_http_response){0};
    return 0;
}
