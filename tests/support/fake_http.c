#include "fake_http.h"

#include "cleanup.h"
#include "fake_server.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    REQUESTS_MAX = 256,
    RULES_MAX = 32,
    HEAD_MAX = 64 * 1024, /* bytes of request line and headers */
    BODY_KEPT = 64 * 1024,
};

/* The thread of its connection may still read one that a test has forgotten, so all of them stay
 * until these threads have ended. */
struct kept {
    struct kept *next;
    struct fake_http_request request;
};

struct fake_http {
    struct fake_server *server;
    pthread_mutex_t lock; /* all that follows, and the body of a request that a test may look at */
    struct fake_http_rule rules[RULES_MAX];
    size_t rule_count;
    struct kept *kept;                                /* owned */
    struct fake_http_request *requests[REQUESTS_MAX]; /* since fake_http_set(); borrowed */
    size_t request_count;
};

static void kept_free(struct kept *kept)
{
    free(kept->request.target);
    free(kept->request.headers);
    free(kept->request.body);
    free(kept);
}

static uint64_t length_of(const struct fake_http_request *request)
{
    const char *length = fake_http_header(request, "Content-Length");
    return length ? strtoull(length, NULL, 10) : 0;
}

static struct kept *parse_head(char *head)
{
    char *line_end = strstr(head, "\r\n");
    *line_end = '\0';
    char *space = strchr(head, ' ');
    char *target_end = space ? strchr(space + 1, ' ') : NULL;
    struct kept *kept = calloc(1, sizeof *kept);
    if (!kept)
        return NULL;
    struct fake_http_request *request = &kept->request;
    if (!target_end || space - head >= (ptrdiff_t)sizeof request->method) {
        free(kept);
        return NULL;
    }
    memcpy(request->method, head, (size_t)(space - head));
    request->target = strndup(space + 1, (size_t)(target_end - space - 1));
    request->headers = strdup(line_end + 2);
    uint64_t length = request->headers ? length_of(request) : 0;
    request->body = calloc(1, (length < BODY_KEPT ? (size_t)length : BODY_KEPT) + 1);
    if (request->target && request->headers && request->body)
        return kept;
    kept_free(kept);
    return NULL;
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

static bool read_body(struct fake_http *fake, struct fake_conn *conn,
                      struct fake_http_request *request)
{
    uint64_t left = length_of(request);
    static _Thread_local char chunk[64 * 1024];
    while (left > 0) {
        ssize_t n = fake_conn_read(conn, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk);
        if (n <= 0)
            return false;
        pthread_mutex_lock(&fake->lock);
        if (request->body_len < BODY_KEPT) {
            size_t room = BODY_KEPT - (size_t)request->body_len;
            memcpy(request->body + request->body_len, chunk, (size_t)n < room ? (size_t)n : room);
        }
        request->body_len += (uint64_t)n;
        pthread_mutex_unlock(&fake->lock);
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
static struct fake_http_rule record(struct fake_http *fake, struct kept *kept, char **ret_copy)
{
    struct fake_http_request *request = &kept->request;
    static const struct fake_http_rule none = {
        .path = "", .response = "HTTP/1.1 500 no rule\r\nContent-Length: 0\r\n\r\n"};
    struct fake_http_rule found = none;
    pthread_mutex_lock(&fake->lock);
    kept->next = fake->kept;
    fake->kept = kept;
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

static bool send_response(struct fake_conn *conn, const struct fake_http_rule *rule)
{
    size_t slow = 0;
    while (rule->byte_ms > 0 && slow < rule->response_len) {
        if (!fake_conn_wait(conn, rule->byte_ms) ||
            !fake_conn_write(conn, rule->response + slow++, 1))
            return false;
    }
    if (!fake_conn_write(conn, rule->response + slow, rule->response_len - slow))
        return false;
    static const char filler[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    for (size_t left = rule->repeat; left > 0;) {
        size_t n = left < sizeof filler - 1 ? left : sizeof filler - 1;
        if (!fake_conn_write(conn, filler, n))
            return false;
        left -= n;
    }
    return true;
}

/* Serves one request. Whether the connection goes on. */
static bool serve_one(struct fake_http *fake, struct fake_conn *conn, char *head)
{
    if (!fake_conn_read_head(conn, head, HEAD_MAX))
        return false;
    struct kept *kept = parse_head(head);
    if (!kept)
        return false;
    struct fake_http_request *request = &kept->request;
    request->client_cert = fake_conn_has_cert(conn);
    cleanup_free char *response = NULL;
    struct fake_http_rule rule = record(fake, kept, &response);
    if (!rule.skip_body) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        if (fake_http_header(request, "Expect") && !rule.no_continue)
            (void)fake_conn_write(conn, go_on, sizeof go_on - 1);
        if (!read_body(fake, conn, request))
            return false;
    }
    if (rule.delay_ms > 0)
        (void)fake_conn_wait(conn, rule.delay_ms);
    if (!send_response(conn, &rule))
        return false;
    if (rule.end == FAKE_STALL)
        (void)fake_conn_wait(conn, FAKE_SERVER_FOREVER_MS);
    if (rule.end == FAKE_RESET)
        fake_conn_reset(conn);
    return rule.end == FAKE_KEEP;
}

static void serve(void *arg, struct fake_conn *conn)
{
    cleanup_free char *head = malloc(HEAD_MAX);
    while (head && serve_one(arg, conn, head))
        ;
}

int fake_http_start(const char *cert, const char *key, const char *client_ca,
                    struct fake_http **ret, struct err *err)
{
    struct fake_http *fake = calloc(1, sizeof *fake);
    if (!fake)
        return err_errno(err, ENOMEM, "the fake server cannot start");
    pthread_mutex_init(&fake->lock, NULL);
    const struct fake_server_options options = {.cert = cert, .key = key, .client_ca = client_ca};
    int rc = fake_server_start(&options, serve, fake, &fake->server, err);
    if (rc < 0) {
        pthread_mutex_destroy(&fake->lock);
        free(fake);
        return rc;
    }
    *ret = fake;
    return 0;
}

void fake_http_stop(struct fake_http *fake)
{
    if (!fake)
        return;
    fake_server_stop(fake->server);
    while (fake->kept) {
        struct kept *next = fake->kept->next;
        kept_free(fake->kept);
        fake->kept = next;
    }
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

int fake_http_port(const struct fake_http *fake)
{
    return fake_server_port(fake->server);
}

void fake_http_set(struct fake_http *fake, const struct fake_http_rule *rules, size_t count)
{
    pthread_mutex_lock(&fake->lock);
    fake->request_count = 0;
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
    return fake_server_connections(fake->server);
}

const struct fake_http_request *fake_http_at(struct fake_http *fake, size_t i)
{
    pthread_mutex_lock(&fake->lock);
    const struct fake_http_request *request = i < fake->request_count ? fake->requests[i] : NULL;
    pthread_mutex_unlock(&fake->lock);
    return request;
}
