#include "client.h"

#include "buf.h"
#include "fdio.h"

#include <curl/curl.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

enum {
    ERROR_BODY_SHOWN = 200, /* bytes of an answer that is no document, in the message */
    CONNECT_TIMEOUT_S = 10,
};

int client_open(const char *host, struct client *ret, struct err *err)
{
    static const char scheme[] = "unix:";
    if (!host)
        host = CLIENT_HOST_DEFAULT;
    const char *path = host + sizeof scheme - 1;
    if (strncmp(host, scheme, sizeof scheme - 1) != 0 || *path == '\0') {
        int rc = err_fail(err, ERR_INVALID, "'%.200s' is not an address of varved", host);
        err_hint(err, "write unix:PATH, the path of its socket");
        return rc;
    }
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return err_fail(err, ERR_INVALID, "the path of the socket %.200s is longer than %zu bytes",
                        path, sizeof((struct sockaddr_un *)0)->sun_path - 1);
    struct client client = {.socket = strdup(path), .handle = curl_easy_init()};
    if (!client.socket || !client.handle) {
        client_close(&client);
        return err_fail(err, ERR_INTERNAL, "cannot prepare a connection: no memory");
    }
    *ret = client;
    return 0;
}

void client_close(struct client *client)
{
    free(client->socket);
    if (client->handle)
        curl_easy_cleanup(client->handle);
    *client = (struct client){0};
}

int client_path(const char *prefix, const char *name, const char *suffix, bool slashes, char **ret,
                struct err *err)
{
    if (*name == '\0')
        return err_fail(err, ERR_INVALID, "an empty name names nothing");
    cleanup_buf struct buf path = BUF_INIT(64 << 10);
    int rc = buf_addf(&path, err, "%s", prefix);
    for (const char *p = name; rc == 0 && *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~:@", c) || (slashes && c == '/');
        rc = plain ? buf_add(&path, p, 1, "name", err) : buf_addf(&path, err, "%%%02X", c);
    }
    if (rc == 0)
        rc = buf_addf(&path, err, "%s", suffix);
    if (rc < 0)
        return rc;
    char *text = buf_steal(&path);
    if (!text)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    *ret = text;
    return 0;
}

int client_error(const json_t *document, struct err *err)
{
    const char *code = json_string_value(json_object_get(document, "code"));
    const char *message = json_string_value(json_object_get(document, "message"));
    const char *hint = json_string_value(json_object_get(document, "hint"));
    enum err_code number = err_code_from_name(code);
    int rc = err_fail(err, number == ERR_NONE ? ERR_INTERNAL : number, "%.2000s",
                      message ? message : "varved reports a failure without saying which");
    if (hint)
        err_hint(err, "%.500s", hint);
    return rc;
}

/* --- One exchange --- */

struct exchange {
    const struct client_request *request;
    CURL *curl; /* borrowed */
    struct buf reply;
    struct err file_err; /* of the file that is uploaded or downloaded to */
    int64_t moved;       /* bytes of that file */
};

static void note_moved(struct exchange *exchange, size_t bytes)
{
    exchange->moved += (int64_t)bytes;
    if (exchange->request->moved)
        exchange->request->moved(exchange->request->arg, exchange->moved);
}

static bool is_good(CURL *curl)
{
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
}

static size_t on_download(struct exchange *exchange, const char *bytes, size_t len)
{
    int rc = fdio_write_full(exchange->request->download_fd, bytes, len);
    if (rc < 0) {
        err_errno(&exchange->file_err, rc, "cannot write what is downloaded");
        return 0;
    }
    note_moved(exchange, len);
    return len;
}

static size_t on_reply(char *bytes, size_t size, size_t count, void *arg)
{
    struct exchange *exchange = arg;
    if (exchange->request->download && is_good(exchange->curl))
        return on_download(exchange, bytes, size * count);
    return buf_add(&exchange->reply, bytes, size * count, "answer", NULL) == 0 ? size * count : 0;
}

static size_t on_upload(char *room, size_t size, size_t count, void *arg)
{
    struct exchange *exchange = arg;
    ssize_t n;
    do
        n = read(exchange->request->upload_fd, room, size * count);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        err_errno(&exchange->file_err, errno, "cannot read what is to be uploaded");
        return CURL_READFUNC_ABORT;
    }
    note_moved(exchange, (size_t)n);
    return (size_t)n;
}

/* Adds "name: value"; the list is as it was when there is no memory. */
static int add_header(struct curl_slist **list, const char *name, const char *value,
                      struct err *err)
{
    cleanup_free char *line = NULL;
    if (asprintf(&line, "%s: %s", name, value) < 0) {
        line = NULL;
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    }
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (!longer)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    *list = longer;
    return 0;
}

/* A key becomes a header line, so it must be one. */
static int check_key(const char *key, struct err *err)
{
    size_t len = strlen(key);
    bool good = len >= 1 && len <= CLIENT_KEY_MAX;
    for (size_t i = 0; good && i < len; i++)
        good = key[i] > ' ' && key[i] < 0x7f;
    if (good)
        return 0;
    return err_fail(err, ERR_INVALID, "a key has 1 to %d printable characters without spaces",
                    CLIENT_KEY_MAX);
}

static int add_headers(const struct client_request *request, struct curl_slist **list,
                       struct err *err)
{
    int rc = request->key ? check_key(request->key, err) : 0;
    if (rc == 0 && request->key)
        rc = add_header(list, "Idempotency-Key", request->key, err);
    if (rc == 0 && request->body)
        rc = add_header(list, "Content-Type", "application/json", err);
    if (rc == 0 && request->upload)
        rc = add_header(list, "Content-Type", "application/octet-stream", err);
    if (rc == 0 && request->upload)
        rc = add_header(list, "Transfer-Encoding", "chunked", err);
    return rc;
}

static void set_options(const struct client *client, struct exchange *exchange, const char *url,
                        const char *body, struct curl_slist *headers)
{
    const struct client_request *request = exchange->request;
    CURL *curl = client->handle;
    long timeout = request->timeout_s == 0 ? CLIENT_TIMEOUT_S : request->timeout_s;
    curl_easy_reset(curl); /* keeps the connection */
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->socket);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, timeout < 0 ? 0L : timeout);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_reply);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (request->upload) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_upload);
        curl_easy_setopt(curl, CURLOPT_READDATA, exchange);
    } else if (body) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

static int fail_transfer(struct client *client, CURLcode code, struct err *err)
{
    long os_errno = 0;
    curl_easy_getinfo(client->handle, CURLINFO_OS_ERRNO, &os_errno);
    if (code == CURLE_WRITE_ERROR)
        return err_fail(err, ERR_TOO_LARGE, "the answer of varved is larger than %d MiB",
                        CLIENT_BODY_MAX >> 20);
    client->absent = true;
    if (code == CURLE_COULDNT_CONNECT) {
        char text[128];
        int rc = err_fail(
            err, ERR_UNREACHABLE, "varved is not reachable at unix:%s: %s", client->socket,
            os_errno ? strerror_r((int)os_errno, text, sizeof text) : "it does not answer");
        if (os_errno == EACCES || os_errno == EPERM)
            err_hint(err, "only root may talk to it");
        else
            err_hint(err, "start varved, or name its socket with --host unix:PATH or VARVE_HOST");
        return rc;
    }
    int rc = err_fail(err, ERR_UNREACHABLE, "varved at unix:%s stopped answering: %s",
                      client->socket, curl_easy_strerror(code));
    err_hint(err, "look at its log and whether it runs, then try again");
    return rc;
}

static int parse_reply(struct client *client, const struct buf *reply, json_t **ret,
                       struct err *err)
{
    long status = 0;
    curl_easy_getinfo(client->handle, CURLINFO_RESPONSE_CODE, &status);
    cleanup_json json_t *json =
        json_loadb(buf_str(reply), reply->len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (status >= 200 && status < 300 && json_is_object(json)) {
        *ret = steal_ptr(json);
        return 0;
    }
    const json_t *error = json_object_get(json, "error");
    if (json_is_object(error))
        return client_error(error, err);
    int rc =
        err_fail(err, ERR_INTERNAL, "unix:%s answers %ld with something else than varved: %.*s",
                 client->socket, status, ERROR_BODY_SHOWN, buf_str(reply));
    err_hint(err, "check that the socket is that of varved");
    return rc;
}

static int finish(struct client *client, const struct exchange *exchange, json_t **ret,
                  struct err *err)
{
    if (!exchange->request->download || !is_good(client->handle))
        return parse_reply(client, &exchange->reply, ret, err);
    *ret = NULL;
    return 0;
}

static int perform(struct client *client, struct exchange *exchange, const char *url,
                   const char *body, json_t **ret, struct err *err)
{
    struct curl_slist *headers = NULL;
    int rc = add_headers(exchange->request, &headers, err);
    if (rc == 0) {
        set_options(client, exchange, url, body, headers);
        client->absent = false;
        CURLcode code = curl_easy_perform(client->handle);
        /* A daemon that refuses an upload in its middle answers and closes: the answer counts. */
        if (code == CURLE_OK || (code == CURLE_SEND_ERROR && exchange->reply.len > 0))
            rc = finish(client, exchange, ret, err);
        else if (exchange->file_err.code != ERR_NONE)
            rc = err_pass(err, -exchange->file_err.num, &exchange->file_err);
        else
            rc = fail_transfer(client, code, err);
    }
    curl_slist_free_all(headers);
    return rc;
}

int client_call(struct client *client, const struct client_request *request, json_t **ret,
                struct err *err)
{
    cleanup_free char *url = NULL;
    cleanup_free char *body = request->body ? json_doc_dump(request->body) : NULL;
    if (asprintf(&url, "http://varved%s", request->path) < 0)
        url = NULL;
    if (!url || (request->body && !body))
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    struct exchange exchange = {
        .request = request, .curl = client->handle, .reply = BUF_INIT(CLIENT_BODY_MAX)};
    int rc = perform(client, &exchange, url, body, ret, err);
    buf_free(&exchange.reply);
    return rc;
}

int client_get(struct client *client, const char *prefix, const char *name, bool slashes,
               json_t **ret, struct err *err)
{
    cleanup_free char *path = NULL;
    int rc = client_path(prefix, name, "", slashes, &path, err);
    if (rc < 0)
        return rc;
    struct client_request request = {.method = "GET", .path = path};
    return client_call(client, &request, ret, err);
}
