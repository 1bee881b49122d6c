#include "server.h"

#include "api_exports.h"
#include "api_handlers.h"
#include "api_uploads.h"
#include "listen_socket.h"
#include "log.h"

#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* What a client still sends of a refused body is read and thrown away up to here, so that it
     * gets to see the answer; beyond, it is answered at once and the connection ends. */
    DRAIN_MAX = 256 << 20,
    CONNECTION_MEMORY = 128 << 10, /* headers and read buffer of one connection */
    FILE_IDLE_TIMEOUT_S = 3600,    /* what takes an archive may be a person who changes a tape */
};

struct server {
    struct api_context context;
    struct listen_socket socket;
    struct MHD_Daemon *http;
};

/* One request and what has become of it so far. */
struct exchange {
    struct api_request request;
    const struct api_route *route; /* NULL: the request failed before it was known */
    struct api_reply reply;
    struct err failure; /* set: the body does not matter any more */
    struct buf body;
    struct api_upload upload;
    uint64_t discarded; /* bytes of the body */
};

static void exchange_free(struct exchange *exchange)
{
    api_uploads_abort(&exchange->upload);
    buf_free(&exchange->body);
    api_reply_free(&exchange->reply);
    api_request_free(&exchange->request);
    free(exchange);
}

static int connection_fd(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Root and the daemon's own user may call. */
static int check_peer(struct exchange *exchange, struct err *err)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(exchange->request.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return err_errno(err, errno, "cannot find out who is calling");
    exchange->request.uid = peer.uid;
    exchange->request.pid = peer.pid;
    if (peer.uid == 0 || peer.uid == geteuid())
        return 0;
    int rc = err_fail(err, ERR_DENIED, "user %lld may not use this daemon", (long long)peer.uid);
    err_hint(err, "call as root or as the daemon's own user");
    return rc;
}

struct query {
    struct exchange *exchange;
    struct err *err;
    int rc;
};

static enum MHD_Result take_parameter(void *arg, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    (void)kind;
    struct query *query = arg;
    struct exchange *exchange = query->exchange;
    query->rc = api_request_set_query(&exchange->request, name, value, exchange->route->takes_wait,
                                      query->err);
    return query->rc < 0 ? MHD_NO : MHD_YES;
}

/* The announced length of the body; 0 without one, UINT64_MAX when it comes in chunks. */
static uint64_t announced_length(struct MHD_Connection *connection)
{
    if (header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING))
        return UINT64_MAX;
    const char *length = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return length ? strtoull(length, NULL, 10) : 0; /* the library has checked it */
}

static int fail_too_large(struct err *err)
{
    int rc = err_fail(err, ERR_TOO_LARGE, "the body has more than the limit of %d bytes",
                      SERVER_BODY_MAX);
    err_hint(err, "files go to /v1/uploads");
    return rc;
}

/* What can be judged before the body. */
static int admit(struct server *server, struct exchange *exchange,
                 struct MHD_Connection *connection, const char *method, const char *path,
                 struct err *err)
{
    struct api_request *request = &exchange->request;
    int rc = check_peer(exchange, err);
    if (rc >= 0)
        rc = api_routes_find(method, path, request, &exchange->reply, &exchange->route, err);
    if (rc < 0)
        return rc;
    struct query query = {.exchange = exchange, .err = err};
    (void)MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, take_parameter, &query);
    rc = query.rc;
    if (rc >= 0)
        rc = api_request_set_key(request, header(connection, "Idempotency-Key"), err);
    if (rc < 0)
        return rc;
    if (exchange->route->body == API_BODY_UPLOAD)
        return api_uploads_begin(server->context.node, &exchange->upload, err);
    uint64_t length = announced_length(connection);
    if (length != UINT64_MAX && length > SERVER_BODY_MAX)
        return fail_too_large(err);
    return 0;
}

/* The library's own thread of the connection sends the file piece by piece, as fast as the client
 * takes it. */
static enum MHD_Result send_file(struct api_reply *reply, struct MHD_Connection *connection)
{
    struct MHD_Response *response = MHD_create_response_from_fd64(reply->file_size, reply->file_fd);
    if (!response)
        return MHD_NO;
    reply->has_file = false; /* the response closes it */
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                    (unsigned)FILE_IDLE_TIMEOUT_S);
    enum MHD_Result rc =
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/x-tar");
    if (rc == MHD_YES)
        rc = MHD_queue_response(connection, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result send_reply(struct exchange *exchange, struct MHD_Connection *connection)
{
    struct api_reply *reply = &exchange->reply;
    if (reply->has_file)
        return send_file(reply, connection);
    char *text = reply->body ? json_doc_dump(reply->body) : NULL;
    if (!text)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    enum MHD_Result rc =
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    if (rc == MHD_YES && reply->status == 405)
        rc = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, reply->allow);
    if (rc == MHD_YES)
        rc = MHD_queue_response(connection, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result send_failure(struct exchange *exchange, struct MHD_Connection *connection)
{
    api_reply_fail(&exchange->reply, &exchange->failure);
    return send_reply(exchange, connection);
}

static void log_request(const struct exchange *exchange, const char *method, const char *path)
{
    const struct err *failure = &exchange->failure;
    int status = exchange->reply.status;
    char number[16];
    snprintf(number, sizeof number, "%d", status);
    log_event(status >= 500 || status == 403 ? LOG_WARN : LOG_DEBUG, "request", "method", method,
              "path", path, "status", number, "error",
              failure->code == ERR_NONE ? NULL : failure->text, NULL);
}

/* The library takes an answer before or after a body, not in the middle of it. Where reading on
 * would have no end, the answer is written here and the connection is given up. */
static enum MHD_Result answer_and_close(struct exchange *exchange)
{
    struct api_reply *reply = &exchange->reply;
    api_reply_fail(reply, &exchange->failure);
    cleanup_free char *text = reply->body ? json_doc_dump(reply->body) : NULL;
    cleanup_free char *message = NULL;
    if (text &&
        asprintf(&message,
                 "HTTP/1.1 %d Refused\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 reply->status, strlen(text), text) > 0)
        (void)send(exchange->request.fd, message, strlen(message), MSG_DONTWAIT | MSG_NOSIGNAL);
    return MHD_NO;
}

static enum MHD_Result begin(struct server *server, struct MHD_Connection *connection,
                             const char *method, const char *path, void **ret_exchange)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange)
        return MHD_NO;
    *ret_exchange = exchange;
    exchange->body = (struct buf)BUF_INIT(SERVER_BODY_MAX);
    exchange->upload.publish = (struct publish)PUBLISH_INIT;
    exchange->request.context = &server->context;
    exchange->request.node = server->context.node;
    exchange->request.fd = connection_fd(connection);
    struct err *failure = &exchange->failure;
    if (admit(server, exchange, connection, method, path, failure) >= 0)
        return MHD_YES;
    /* A client that waits for "100 Continue" is spared the body; a stranger and a body without
     * measure are not read at all. */
    uint64_t length = announced_length(connection);
    bool at_once = header(connection, MHD_HTTP_HEADER_EXPECT) || failure->code == ERR_DENIED ||
                   (length != UINT64_MAX && length > DRAIN_MAX);
    if (!at_once)
        return MHD_YES;
    enum MHD_Result sent = send_failure(exchange, connection);
    log_request(exchange, method, path);
    return sent;
}

static int take_body(struct exchange *exchange, const char *bytes, size_t len, struct err *err)
{
    switch (exchange->route->body) {
    case API_BODY_UPLOAD:
        return api_uploads_write(&exchange->upload, bytes, len, err);
    case API_BODY_NONE:
        return err_fail(err, ERR_INVALID, "%s takes no body", exchange->route->path);
    default:
        if (exchange->body.len + len > SERVER_BODY_MAX)
            return fail_too_large(err);
        return buf_add(&exchange->body, bytes, len, "the body", err);
    }
}

static enum MHD_Result receive(struct exchange *exchange, const char *bytes, size_t *len)
{
    struct err *failure = &exchange->failure;
    if (failure->code == ERR_NONE)
        (void)take_body(exchange, bytes, *len, failure);
    if (failure->code != ERR_NONE) {
        /* Whatever was kept of the body is of no use. */
        api_uploads_abort(&exchange->upload);
        buf_free(&exchange->body);
        exchange->discarded += *len;
        if (exchange->discarded > DRAIN_MAX)
            return answer_and_close(exchange);
    }
    *len = 0;
    return MHD_YES;
}

static int handle(struct exchange *exchange, struct err *err)
{
    struct api_request *request = &exchange->request;
    const struct api_route *route = exchange->route;
    if (route->body == API_BODY_UPLOAD)
        return api_uploads_finish(request->node, &exchange->upload, &exchange->reply, err);
    if (exchange->body.len > 0) {
        int rc = api_request_set_body(request, exchange->body.data, exchange->body.len, err);
        if (rc < 0)
            return rc;
    } else if (route->body == API_BODY_JSON) {
        return err_fail(err, ERR_INVALID, "%s needs a JSON object as its body", route->path);
    }
    return route->handler(request, &exchange->reply, err);
}

static enum MHD_Result finish(struct exchange *exchange, struct MHD_Connection *connection,
                              const char *method, const char *path)
{
    struct err *failure = &exchange->failure;
    int rc = failure->code == ERR_NONE ? handle(exchange, failure) : -1;
    if (rc < 0 && failure->code == ERR_NONE)
        err_errno(failure, rc, "the request failed");
    enum MHD_Result sent =
        rc < 0 ? send_failure(exchange, connection) : send_reply(exchange, connection);
    log_request(exchange, method, path);
    return sent;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *len, void **exchange)
{
    (void)version;
    if (!*exchange)
        return begin(arg, connection, method, path, exchange);
    if (*len > 0)
        return receive(*exchange, bytes, len);
    return finish(*exchange, connection, method, path);
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **exchange,
                         enum MHD_RequestTerminationCode code)
{
    (void)arg;
    (void)connection;
    (void)code;
    if (*exchange)
        exchange_free(*exchange);
    *exchange = NULL;
}

/* Paths are decoded part by part in api_request.c, so the library leaves them as they are. */
static size_t keep_escapes(void *arg, struct MHD_Connection *connection, char *text)
{
    (void)arg;
    (void)connection;
    return strlen(text);
}

static void log_library(void *arg, const char *fmt, va_list ap)
{
    (void)arg;
    char text[512];
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    log_event(LOG_DEBUG, "http", "message", text, NULL);
}

static int start_http(struct server *server, struct err *err)
{
    server->http = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL,
        MHD_OPTION_LISTEN_SOCKET, server->socket.fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        server, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)SERVER_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)SERVER_IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
    if (!server->http)
        return err_fail(err, ERR_INTERNAL, "cannot start the HTTP server");
    return 0;
}

int server_start(struct node *node, const char *path, struct server **ret, struct err *err)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return err_fail(err, ERR_INTERNAL, "no memory for the HTTP server");
    server->context.node = node;
    int rc = listen_socket_open(path, &server->socket, err);
    if (rc < 0) {
        free(server);
        return rc;
    }
    api_uploads_sweep(node);
    api_exports_sweep(node);
    rc = start_http(server, err);
    if (rc < 0) {
        listen_socket_unlink(&server->socket);
        (void)close(server->socket.fd);
        free(server);
        return rc;
    }
    *ret = server;
    return 0;
}

void server_stop(struct server *server)
{
    if (!server)
        return;
    /* The name goes first: who comes now finds no daemon instead of one that hangs up. */
    listen_socket_unlink(&server->socket);
    atomic_store(&server->context.stopping, true);
    MHD_stop_daemon(server->http);
    free(server);
}
