#include "fake_server.h"

#include "cleanup.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 * 1024,
    WRITE_MAX = 1 << 20,
};

struct fake_conn {
    struct fake_conn *next;
    struct fake_server *server;
    size_t number;
    int fd;   /* closed by the thread under the lock, shut down by fake_server_stop() under it */
    SSL *ssl; /* NULL for plain */
    pthread_t thread;
    bool done;   /* guarded by the server's lock: the thread is about to end */
    char *ahead; /* READ_BYTES: what was read and not yet asked for */
    size_t ahead_from;
    size_t ahead_to;
};

struct fake_server {
    int listener;
    int port;
    SSL_CTX *tls; /* NULL for plain */
    fake_server_serve *serve;
    void *arg;
    pthread_t acceptor;
    pthread_mutex_t lock;
    pthread_cond_t ended;    /* a connection did, or all should */
    bool stop;               /* guarded by lock */
    struct fake_conn *conns; /* list guarded by lock, newest first */
    size_t open;             /* guarded by lock */
    size_t count;            /* guarded by lock */
};

static ssize_t read_more(struct fake_conn *conn)
{
    if (conn->ssl)
        return SSL_read(conn->ssl, conn->ahead, READ_BYTES);
    ssize_t n;
    do
        n = recv(conn->fd, conn->ahead, READ_BYTES, 0);
    while (n < 0 && errno == EINTR);
    return n;
}

ssize_t fake_conn_read(struct fake_conn *conn, void *into, size_t len)
{
    if (conn->ahead_from == conn->ahead_to) {
        ssize_t n = read_more(conn);
        if (n <= 0)
            return n == 0 ? 0 : -1;
        conn->ahead_from = 0;
        conn->ahead_to = (size_t)n;
    }
    size_t have = conn->ahead_to - conn->ahead_from;
    size_t n = have < len ? have : len;
    memcpy(into, conn->ahead + conn->ahead_from, n);
    conn->ahead_from += n;
    return (ssize_t)n;
}

bool fake_conn_read_head(struct fake_conn *conn, char *into, size_t size)
{
    for (size_t len = 0; len + 1 < size;) {
        if (fake_conn_read(conn, into + len, 1) != 1)
            return false;
        if (into[0] < 'A' || into[0] > 'Z') /* TLS to a plain server, which would wait for more */
            return false;
        into[++len] = '\0';
        if (len >= 4 && memcmp(into + len - 4, "\r\n\r\n", 4) == 0)
            return true;
    }
    return false;
}

bool fake_conn_write(struct fake_conn *conn, const void *bytes, size_t len)
{
    const char *from = bytes;
    while (len > 0) {
        ssize_t n = conn->ssl ? SSL_write(conn->ssl, from, (int)(len < WRITE_MAX ? len : WRITE_MAX))
                              : send(conn->fd, from, len, MSG_NOSIGNAL);
        if (n < 0 && !conn->ssl && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        len -= (size_t)n;
    }
    return true;
}

bool fake_conn_wait(struct fake_conn *conn, int ms)
{
    struct pollfd end = {.fd = conn->fd, .events = POLLRDHUP};
    return poll(&end, 1, ms) == 0;
}

void fake_conn_reset(struct fake_conn *conn)
{
    const struct linger linger = {.l_onoff = 1};
    (void)setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    if (conn->ssl)
        SSL_set_quiet_shutdown(conn->ssl, 1);
}

void fake_conn_end_writing(struct fake_conn *conn)
{
    if (conn->ssl)
        (void)SSL_shutdown(conn->ssl);
    (void)shutdown(conn->fd, SHUT_WR);
}

bool fake_conn_has_cert(const struct fake_conn *conn)
{
    X509 *cert = conn->ssl ? SSL_get1_peer_certificate(conn->ssl) : NULL;
    X509_free(cert);
    return cert != NULL;
}

size_t fake_conn_number(const struct fake_conn *conn)
{
    return conn->number;
}

static bool open_conn(struct fake_conn *conn)
{
    const int on = 1;
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    conn->ahead = malloc(READ_BYTES);
    if (!conn->ahead || !conn->server->tls)
        return conn->ahead != NULL;
    conn->ssl = SSL_new(conn->server->tls);
    return conn->ssl && SSL_set_fd(conn->ssl, conn->fd) == 1 && SSL_accept(conn->ssl) == 1;
}

static void *serve_conn(void *arg)
{
    struct fake_conn *conn = arg;
    struct fake_server *server = conn->server;
    sigset_t pipe_signal; /* OpenSSL writes without MSG_NOSIGNAL */
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    if (open_conn(conn)) {
        server->serve(server->arg, conn);
        if (conn->ssl)
            (void)SSL_shutdown(conn->ssl);
    }
    SSL_free(conn->ssl);
    free(conn->ahead);
    pthread_mutex_lock(&server->lock);
    close(conn->fd);
    conn->fd = -1;
    conn->done = true;
    server->open--;
    pthread_cond_broadcast(&server->ended);
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* Frees what connections that are done have left. With the lock. */
static void reap(struct fake_server *server)
{
    struct fake_conn **at = &server->conns;
    while (*at) {
        struct fake_conn *conn = *at;
        if (!conn->done) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        pthread_join(conn->thread, NULL);
        free(conn);
    }
}

static void begin(struct fake_server *server, int fd)
{
    struct fake_conn *conn = server->stop ? NULL : calloc(1, sizeof *conn);
    if (!conn) {
        close(fd);
        return;
    }
    *conn = (struct fake_conn){
        .next = server->conns, .server = server, .number = server->count + 1, .fd = fd};
    if (pthread_create(&conn->thread, NULL, serve_conn, conn) != 0) {
        close(fd);
        free(conn);
        return;
    }
    server->conns = conn;
    server->count++;
    server->open++;
}

static void *accept_all(void *arg)
{
    struct fake_server *server = arg;
    for (;;) {
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0)
            return NULL; /* shut down */
        pthread_mutex_lock(&server->lock);
        while (server->open >= FAKE_SERVER_CONNECTIONS_MAX && !server->stop)
            pthread_cond_wait(&server->ended, &server->lock);
        reap(server);
        begin(server, fd);
        pthread_mutex_unlock(&server->lock);
    }
}

static int open_tls(struct fake_server *server, const struct fake_server_options *options,
                    struct err *err)
{
    server->tls = SSL_CTX_new(TLS_server_method());
    if (!server->tls || SSL_CTX_use_certificate_chain_file(server->tls, options->cert) != 1 ||
        SSL_CTX_use_PrivateKey_file(server->tls, options->key, SSL_FILETYPE_PEM) != 1)
        return err_fail(err, ERR_INTERNAL, "the fake server cannot use %s and %s", options->cert,
                        options->key);
    if (options->tls10) {
        SSL_CTX_set_security_level(server->tls, 0);
        SSL_CTX_set_min_proto_version(server->tls, TLS1_VERSION);
        SSL_CTX_set_max_proto_version(server->tls, TLS1_VERSION);
    }
    if (!options->client_ca)
        return 0;
    if (SSL_CTX_load_verify_locations(server->tls, options->client_ca, NULL) != 1)
        return err_fail(err, ERR_INTERNAL, "the fake server cannot use %s", options->client_ca);
    SSL_CTX_set_verify(server->tls, SSL_VERIFY_PEER, NULL);
    return 0;
}

static int open_listener(struct fake_server *server, int port, struct err *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    const int on = 1;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listener < 0 ||
        setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(server->listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(server->listener, 128) < 0 ||
        getsockname(server->listener, (struct sockaddr *)&address, &len) < 0)
        return err_errno(err, errno, "the fake server cannot listen");
    server->port = ntohs(address.sin_port);
    return 0;
}

static void free_server(struct fake_server *server)
{
    if (server->listener >= 0)
        close(server->listener);
    SSL_CTX_free(server->tls);
    pthread_cond_destroy(&server->ended);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

int fake_server_start(const struct fake_server_options *options, fake_server_serve *serve,
                      void *arg, struct fake_server **ret, struct err *err)
{
    struct fake_server *server = calloc(1, sizeof *server);
    if (!server)
        return err_errno(err, ENOMEM, "the fake server cannot start");
    server->listener = -1;
    server->serve = serve;
    server->arg = arg;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->ended, NULL);
    int rc = open_listener(server, options->port, err);
    if (rc == 0 && options->cert)
        rc = open_tls(server, options, err);
    if (rc == 0 && pthread_create(&server->acceptor, NULL, accept_all, server) != 0)
        rc = err_errno(err, EAGAIN, "the fake server cannot start");
    if (rc < 0) {
        free_server(server);
        return rc;
    }
    *ret = server;
    return 0;
}

void fake_server_stop(struct fake_server *server)
{
    if (!server)
        return;
    pthread_mutex_lock(&server->lock);
    server->stop = true;
    pthread_cond_broadcast(&server->ended);
    for (struct fake_conn *conn = server->conns; conn; conn = conn->next)
        if (conn->fd >= 0)
            shutdown(conn->fd, SHUT_RDWR);
    pthread_mutex_unlock(&server->lock);
    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->acceptor, NULL);
    /* No connection is begun any more, so the list is this thread's. */
    while (server->conns) {
        struct fake_conn *conn = server->conns;
        server->conns = conn->next;
        pthread_join(conn->thread, NULL);
        free(conn);
    }
    free_server(server);
}

int fake_server_port(const struct fake_server *server)
{
    return server->port;
}

size_t fake_server_connections(struct fake_server *server)
{
    pthread_mutex_lock(&server->lock);
    size_t count = server->count;
    pthread_mutex_unlock(&server->lock);
    return count;
}
