#include "fake_http.h"

#include "cleanup.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 64,
    REQUESTS_MAX = 256,
    RULES_MAX = 32,
    HEAD_MAX = 64 * 1024, /* bytes of request line and headers */
    BODY_KEPT = 64 * 1024,
    STALL_MAX_MS = 10 * 60 * 1000,
};

struct connection {
    struct fake_http *fake;
    int fd;   /* -1: unused; closed by the thread, shut down by fake_http_stop() under lock */
    SSL *ssl; /* NULL for plain http */
    pthread_t thread;
    bool started;
};

struct fake_http {
    int listener;
    int port;
    SSL_CTX *tls; /* NULL for plain http */
    pthread_t acceptor;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stop;                                        /* guarded by lock */
    struct connection connections[CONNECTIONS_MAX];   /* fd: guarded by lock */
    size_t connection_count;                          /* guarded by lock */
    struct fake_http_rule rules[RULES_MAX];           /* guarded by lock */
    size_t rule_count;                                /* guarded by lock */
    struct fake_http_request *requests[REQUESTS_MAX]; /* guarded by lock */
    size_t request_count;                             /* guarded by lock */
};

static ssize_t conn_read(struct connection *conn, void *into, size_t len)
{
    if (conn->ssl)
        return SSL_read(conn->ssl, into, (int)len);
    return recv(conn->fd, into, len, 0);
}

/* Whether everything was written. */
static bool conn_write(struct connection *conn, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = conn->ssl ? SSL_write(conn->ssl, bytes, (int)(len < 1 << 20 ? len : 1 << 20))
                              : send(conn->fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

static void request_free(struct fake_http_request *request)
{
    free(request->target);
    free(request->headers);
    free(request->body);
    free(request);
}

/* Reads up to the empty line, byte by byte so that nothing of the body is taken. */
static bool read_head(struct connection *conn, char *head)
{
    size_t len = 0;
    while (len + 1 < HEAD_MAX) {
        if (conn_read(conn, head + len, 1) != 1)
            return false;
        head[++len] = '\0';
        if (len >= 4 && memcmp(head + len - 4, "\r\n\r\n", 4) == 0)
            return true;
    }
    return false;
}

static struct fake_http_request *parse_head(char *head)
{
    struct fake_http_request *request = calloc(1, sizeof *request);
    char *line_end = strstr(head, "\r\n");
    *line_end = '\0';
    char *space = strchr(head, ' ');
    char *target_end = space ? strchr(space + 1, ' ') : NULL;
    if (!target_end || space - head >= (ptrdiff_t)sizeof request->method) {
        free(request);
        return NULL;
    }
    memcpy(request->method, head, (size_t)(space - head));
    request->target = strndup(space + 1, (size_t)(target_end - space - 1));
    request->headers = strdup(line_end + 2);
    request->body = calloc(1, BODY_KEPT + 1);
    return request;
}

const char *fake_http_header(const struct fake_http_request *request, const char *name)
{
    static _Thread_local char value[4096];
    size_t len = strlen(name);
    const char *line = request->headers;
    while (*line && *line != '\r') {
        size_t line_len = strcspn(line, "\r\n");
        if (line_len > len && line[len] == ':' && strncasecmp(line, name, len) == 0) {
            const char *from = line + len + 1;
            from += strspn(from, " ");
            snprintf(value, sizeof value, "%.*s", (int)(line + line_len - from), from);
            return value;
        }
        line += line_len + strspn(line + line_len, "\r\n");
    }
    return NULL;
}

static bool read_body(struct connection *conn, struct fake_http_request *request)
{
    const char *length = fake_http_header(request, "Content-Length");
    uint64_t left = length ? strtoull(length, NULL, 10) : 0;
    static _Thread_local char chunk[64 * 1024];
    while (left > 0) {
        ssize_t n = conn_read(conn, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk);
        if (n <= 0)
            return false;
        if (request->body_len < BODY_KEPT) {
            size_t room = BODY_KEPT - (size_t)request->body_len;
            memcpy(request->body + request->body_len, chunk, (size_t)n < room ? (size_t)n : room);
        }
        request->body_len += (uint64_t)n;
        left -= (uint64_t)n;
    }
    return true;
}

static bool fits(const struct fake_http_rule *rule, const struct fake_http_request *request)
{
    return (!rule->method || strcmp(rule->method, request->method) == 0) &&
           strncmp(rule->path, request->target, strlen(rule->path)) == 0;
}

/* Records the request, which the server then owns, and finds its rule. The response is a copy, as
 * the test may go on as soon as it has read the last byte; *ret_copy is for the caller to free. */
static struct fake_http_rule record(struct fake_http *fake, struct fake_http_request *request,
                                    char **ret_copy)
{
    static const struct fake_http_rule none = {
        .path = "", .response = "HTTP/1.1 500 no rule\r\nContent-Length: 0\r\n\r\n"};
    struct fake_http_rule found = none;
    pthread_mutex_lock(&fake->lock);
    if (fake->request_count < REQUESTS_MAX)
        fake->requests[fake->request_count++] = request;
    for (size_t i = 0; i < fake->rule_count; i++) {
        const struct fake_http_rule *rule = &fake->rules[i];
        int calls = 0;
        for (size_t j = 0; j < fake->request_count; j++)
            calls += fits(rule, fake->requests[j]);
        if (fits(rule, request) && (rule->nth == 0 || rule->nth == calls)) {
            found = *rule;
            break;
        }
    }
    if (found.response_len == 0)
        found.response_len = strlen(found.response);
    *ret_copy = malloc(found.response_len + 1);
    if (*ret_copy)
        memcpy(*ret_copy, found.response, found.response_len);
    else
        found.response_len = 0;
    found.response = *ret_copy;
    pthread_mutex_unlock(&fake->lock);
    return found;
}

/* Waits until the server stops, at most for so many milliseconds. */
static void wait_for_stop(struct fake_http *fake, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (ms % 1000) * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&fake->lock);
    while (!fake->stop && pthread_cond_timedwait(&fake->stopped, &fake->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&fake->lock);
}

static bool send_response(struct connection *conn, const struct fake_http_rule *rule)
{
    if (!conn_write(conn, rule->response, rule->response_len))
        return false;
    static const char filler[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    for (size_t left = rule->repeat; left > 0;) {
        size_t n = left < sizeof filler - 1 ? left : sizeof filler - 1;
        if (!conn_write(conn, filler, n))
            return false;
        left -= n;
    }
    return true;
}

/* Serves one request. Whether the connection goes on. */
static bool serve_one(struct connection *conn, char *head)
{
    struct fake_http *fake = conn->fake;
    if (!read_head(conn, head))
        return false;
    struct fake_http_request *request = parse_head(head);
    if (!request)
        return false;
    if (conn->ssl) {
        X509 *cert = SSL_get1_peer_certificate(conn->ssl);
        request->client_cert = cert != NULL;
        X509_free(cert);
    }
    cleanup_free char *response = NULL;
    struct fake_http_rule rule = record(fake, request, &response);
    if (!rule.skip_body) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        if (fake_http_header(request, "Expect") && !rule.no_continue)
            (void)conn_write(conn, go_on, sizeof go_on - 1);
        if (!read_body(conn, request))
            return false;
    }
    if (rule.delay_ms > 0)
        wait_for_stop(fake, rule.delay_ms);
    if (!send_response(conn, &rule))
        return false;
    if (rule.end == FAKE_STALL)
        wait_for_stop(fake, STALL_MAX_MS);
    if (rule.end == FAKE_RESET) {
        struct linger linger = {.l_onoff = 1};
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    }
    return rule.end == FAKE_KEEP;
}

static void *serve_connection(void *arg)
{
    struct connection *conn = arg;
    sigset_t pipe_signal; /* OpenSSL writes without MSG_NOSIGNAL */
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    char *head = malloc(HEAD_MAX);
    bool open = head != NULL;
    if (open && conn->fake->tls) {
        conn->ssl = SSL_new(conn->fake->tls);
        open = conn->ssl && SSL_set_fd(conn->ssl, conn->fd) == 1 && SSL_accept(conn->ssl) == 1;
    }
    while (open)
        open = serve_one(conn, head);
    free(head);
    if (conn->ssl)
        SSL_shutdown(conn->ssl);
    SSL_free(conn->ssl);
    pthread_mutex_lock(&conn->fake->lock);
    close(conn->fd);
    conn->fd = -1;
    pthread_mutex_unlock(&conn->fake->lock);
    return NULL;
}

static void *accept_all(void *arg)
{
    struct fake_http *fake = arg;
    for (;;) {
        int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL; /* shut down */
        pthread_mutex_lock(&fake->lock);
        struct connection *conn = NULL;
        if (!fake->stop && fake->connection_count < CONNECTIONS_MAX)
            conn = &fake->connections[fake->connection_count++];
        if (conn) {
            *conn = (struct connection){.fake = fake, .fd = fd};
            conn->started = pthread_create(&conn->thread, NULL, serve_connection, conn) == 0;
        }
        pthread_mutex_unlock(&fake->lock);
        if (!conn)
            close(fd);
    }
}

static int open_tls(struct fake_http *fake, const char *cert, const char *key,
                    const char *client_ca, struct err *err)
{
    fake->tls = SSL_CTX_new(TLS_server_method());
    if (!fake->tls || SSL_CTX_use_certificate_chain_file(fake->tls, cert) != 1 ||
        SSL_CTX_use_PrivateKey_file(fake->tls, key, SSL_FILETYPE_PEM) != 1)
        return err_fail(err, ERR_INTERNAL, "the fake server cannot use %s and %s", cert, key);
    if (!client_ca)
        return 0;
    if (SSL_CTX_load_verify_locations(fake->tls, client_ca, NULL) != 1)
        return err_fail(err, ERR_INTERNAL, "the fake server cannot use %s", client_ca);
    SSL_CTX_set_verify(fake->tls, SSL_VERIFY_PEER, NULL);
    return 0;
}

static int open_listener(struct fake_http *fake, struct err *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fake->listener < 0 ||
        bind(fake->listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(fake->listener, 32) < 0 ||
        getsockname(fake->listener, (struct sockaddr *)&address, &len) < 0)
        return err_errno(err, errno, "the fake server cannot listen");
    fake->port = ntohs(address.sin_port);
    return 0;
}

int fake_http_start(const char *cert, const char *key, const char *client_ca,
                    struct fake_http **ret, struct err *err)
{
    struct fake_http *fake = calloc(1, sizeof *fake);
    if (!fake)
        return err_errno(err, ENOMEM, "the fake server cannot start");
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->stopped, NULL);
    int rc = open_listener(fake, err);
    if (rc == 0 && cert)
        rc = open_tls(fake, cert, key, client_ca, err);
    if (rc == 0 && pthread_create(&fake->acceptor, NULL, accept_all, fake) != 0)
        rc = err_errno(err, EAGAIN, "the fake server cannot start");
    if (rc < 0) {
        SSL_CTX_free(fake->tls);
        close(fake->listener);
        free(fake);
        return rc;
    }
    *ret = fake;
    return 0;
}

static void forget_requests(struct fake_http *fake)
{
    for (size_t i = 0; i < fake->request_count; i++)
        request_free(fake->requests[i]);
    fake->request_count = 0;
}

void fake_http_stop(struct fake_http *fake)
{
    if (!fake)
        return;
    pthread_mutex_lock(&fake->lock);
    fake->stop = true;
    pthread_cond_broadcast(&fake->stopped);
    for (size_t i = 0; i < fake->connection_count; i++)
        if (fake->connections[i].fd >= 0)
            shutdown(fake->connections[i].fd, SHUT_RDWR);
    pthread_mutex_unlock(&fake->lock);
    shutdown(fake->listener, SHUT_RDWR);
    pthread_join(fake->acceptor, NULL);
    for (size_t i = 0; i < fake->connection_count; i++)
        if (fake->connections[i].started)
            pthread_join(fake->connections[i].thread, NULL);
    close(fake->listener);
    SSL_CTX_free(fake->tls);
    forget_requests(fake);
    pthread_cond_destroy(&fake->stopped);
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

int fake_http_port(const struct fake_http *fake)
{
    return fake->port;
}

void fake_http_set(struct fake_http *fake, const struct fake_http_rule *rules, size_t count)
{
    pthread_mutex_lock(&fake->lock);
    forget_requests(fake);
    fake->rule_count = count < RULES_MAX ? count : RULES_MAX;
    memcpy(fake->rules, rules, fake->rule_count * sizeof *rules);
    pthread_mutex_unlock(&fake->lock);
}

size_t fake_http_count(struct fake_http *fake)
{
    pthread_mutex_lock(&fake->lock);
    size_t count = fake->request_count;
    pthread_mutex_unlock(&fake->lock);
    return count;
}

size_t fake_http_connections(struct fake_http *fake)
{
    pthread_mutex_lock(&fake->lock);
    size_t count = fake->connection_count;
    pthread_mutex_unlock(&fake->lock);
    return count;
}

const struct fake_http_request *fake_http_at(struct fake_http *fake, size_t i)
{
    pthread_mutex_lock(&fake->lock);
    const struct fake_http_request *request = i < fake->request_count ? fake->requests[i] : NULL;
    pthread_mutex_unlock(&fake->lock);
    return request;
}
