#include "fake_registry_exchange.h"

#include "cleanup.h"
#include "fake_registry_rule.h"

#include <stdarg.h>
#include <string.h>
#include <strings.h>

enum {
    SLICES = 20, /* of a second, for rates */
    PIECE = 64 * 1024,
    LINGER_MS = 500,
};

/* Only ASCII is kept of heads, as records are JSON. */
static void keep_ascii(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text >= 0x7f)
            *text = '?';
}

/* Adds to what is there under this name. */
static void join(json_t *object, const char *name, const char *value, const char *glue)
{
    const char *before = json_string_value(json_object_get(object, name));
    cleanup_free char *joined = NULL;
    if (before && asprintf(&joined, "%s%s%s", before, glue, value) > 0)
        value = joined;
    json_object_set_new(object, name, json_string(value));
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *found = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
    return found ? (int)(found - digits) : -1;
}

static void decode(char *text)
{
    char *to = text;
    for (; *text; text++) {
        int high = *text == '%' ? hex_digit(text[1]) : -1;
        int low = high >= 0 ? hex_digit(text[2]) : -1;
        if (low >= 0) {
            *to++ = (char)(high << 4 | low);
            text += 2;
        } else {
            *to++ = *text == '+' ? ' ' : *text;
        }
    }
    *to = '\0';
}

json_t *fake_registry_form(const char *text)
{
    json_t *form = json_object();
    cleanup_free char *copy = strdup(text);
    for (char *rest = copy, *part; rest && (part = strsep(&rest, "&"));) {
        char *value = strchr(part, '=');
        if (value)
            *value++ = '\0';
        decode(part);
        if (value)
            decode(value);
        if (*part)
            join(form, part, value ? value : "", " ");
    }
    return form;
}

static bool parse_headers(struct fake_exchange *x, char *lines)
{
    for (char *line; (line = strsep(&lines, "\n")) && *line && *line != '\r';) {
        line[strcspn(line, "\r")] = '\0';
        char *value = strchr(line, ':');
        if (!value)
            return false;
        *value++ = '\0';
        for (char *c = line; *c; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c - 'A' + 'a');
        join(x->headers, line, value + strspn(value, " \t"), ", ");
    }
    return true;
}

static bool parse_head(struct fake_exchange *x)
{
    keep_ascii(x->head);
    char *rest = x->head;
    char *line = strsep(&rest, "\n");
    x->method = strsep(&line, " ");
    x->target = strsep(&line, " ");
    x->query = json_object();
    x->headers = json_object();
    if (!line || !x->target || !parse_headers(x, rest))
        return false;
    char *query = strchr(x->target, '?');
    x->path = strndup(x->target, query ? (size_t)(query - x->target) : strlen(x->target));
    if (query) {
        json_decref(x->query);
        x->query = fake_registry_form(query + 1);
    }
    const char *length = fake_exchange_header(x, "content-length");
    const char *coding = fake_exchange_header(x, "transfer-encoding");
    x->chunked = coding && strcasecmp(coding, "chunked") == 0;
    x->length = length && !x->chunked ? strtoull(length, NULL, 10) : 0;
    x->body_done = !x->chunked && x->length == 0;
    x->go_on = !x->body_done && fake_exchange_header(x, "expect");
    return true;
}

bool fake_exchange_read(struct fake_exchange *x, struct fake_conn *conn)
{
    x->conn = conn;
    x->out_fd = -1;
    x->read_max = UINT64_MAX;
    x->kept.max = FAKE_BODY_KEPT + 1;
    x->out.max = FAKE_BODY_MAX;
    x->answer = json_object();
    x->head = malloc(FAKE_HEAD_MAX);
    return x->head && fake_conn_read_head(conn, x->head, FAKE_HEAD_MAX) && parse_head(x);
}

void fake_exchange_free(struct fake_exchange *x)
{
    free(x->head);
    free(x->path);
    json_decref(x->query);
    json_decref(x->headers);
    json_decref(x->settings);
    json_decref(x->rule);
    json_decref(x->answer);
    buf_free(&x->kept);
    buf_free(&x->out);
    if (x->out_fd >= 0)
        close(x->out_fd);
}

const char *fake_exchange_header(const struct fake_exchange *x, const char *lower_name)
{
    return json_string_value(json_object_get(x->headers, lower_name));
}

const char *fake_exchange_query(const struct fake_exchange *x, const char *name)
{
    return json_string_value(json_object_get(x->query, name));
}

/* A line without its end; false when there is none of less than `size` bytes. */
static bool read_line(struct fake_exchange *x, char *into, size_t size)
{
    for (size_t len = 0; len + 1 < size; len++) {
        if (fake_conn_read(x->conn, into + len, 1) != 1)
            return false;
        into[len + 1] = '\0';
        if (into[len] == '\n') {
            into[strcspn(into, "\r\n")] = '\0';
            return true;
        }
    }
    return false;
}

/* Begins the next chunk (RFC 9112, 7.1); the last one ends the body. */
static bool next_chunk(struct fake_exchange *x)
{
    char line[1024];
    char *end;
    if (x->in_chunks && (!read_line(x, line, sizeof line) || *line))
        return false;
    x->in_chunks = true;
    if (!read_line(x, line, sizeof line))
        return false;
    x->length = strtoull(line, &end, 16);
    if (end == line)
        return false;
    while (x->length == 0 && *line)
        if (!read_line(x, line, sizeof line)) /* trailers */
            return false;
    x->body_done = x->length == 0;
    return true;
}

/* How many bytes may be read now, after waiting as a rate wants it. */
static size_t read_room(struct fake_exchange *x, size_t len)
{
    uint64_t room = len < x->length ? len : x->length;
    if (x->read_max != UINT64_MAX && room > x->read_max - x->bytes)
        room = x->read_max - x->bytes;
    if (x->read_rate > 0) {
        uint64_t slice = (uint64_t)x->read_rate / SLICES;
        if (slice == 0)
            slice = 1;
        if (room > slice)
            room = slice;
        int ms = (int)(1000 * room / (uint64_t)x->read_rate);
        x->lost = x->lost || !fake_conn_wait(x->conn, ms > 0 ? ms : 1);
    }
    return room;
}

ssize_t fake_exchange_body(struct fake_exchange *x, void *into, size_t len)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (x->cut || x->lost)
        return -1;
    if (x->bytes >= x->read_max) {
        x->cut = true;
        return -1;
    }
    if (x->go_on && !fake_conn_write(x->conn, go_on, sizeof go_on - 1))
        x->lost = true;
    x->go_on = false;
    if (!x->lost && !x->body_done && x->length == 0 && !next_chunk(x))
        x->lost = true;
    if (x->body_done && !x->lost)
        return 0;
    size_t room = x->lost ? 0 : read_room(x, len);
    ssize_t n = x->lost ? -1 : fake_conn_read(x->conn, into, room);
    if (n <= 0) {
        x->lost = true;
        return -1;
    }
    if (x->kept.len < x->kept.max)
        (void)buf_add(&x->kept, into,
                      (size_t)n < x->kept.max - x->kept.len ? (size_t)n : x->kept.max - x->kept.len,
                      "body", NULL);
    x->bytes += (uint64_t)n;
    x->length -= (uint64_t)n;
    x->body_done = !x->chunked && x->length == 0;
    return n;
}

bool fake_exchange_body_all(struct fake_exchange *x, struct buf *ret, bool *ret_large)
{
    cleanup_free char *piece = malloc(PIECE);
    ssize_t n;
    *ret_large = false;
    while ((n = piece ? fake_exchange_body(x, piece, PIECE) : -1) > 0) {
        if (!*ret_large && buf_add(ret, piece, (size_t)n, "body", NULL) < 0)
            *ret_large = true;
    }
    return n == 0 && !*ret_large;
}

void fake_exchange_skip_body(struct fake_exchange *x)
{
    cleanup_free char *piece = malloc(PIECE);
    while (piece && fake_exchange_body(x, piece, PIECE) > 0)
        ;
}

/* The name as the answer has it already, whatever its case. */
static const char *known_name(const json_t *answer, const char *name)
{
    for (void *i = json_object_iter((json_t *)answer); i;
         i = json_object_iter_next((json_t *)answer, i))
        if (strcasecmp(json_object_iter_key(i), name) == 0)
            return json_object_iter_key(i);
    return name;
}

void fake_exchange_set(struct fake_exchange *x, const char *name, const char *value)
{
    name = known_name(x->answer, name);
    if (value)
        json_object_set_new(x->answer, name, json_string(value));
    else
        json_object_del(x->answer, name);
}

void fake_exchange_setf(struct fake_exchange *x, const char *name, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    cleanup_free char *value = NULL;
    int rc = vasprintf(&value, fmt, args);
    va_end(args);
    if (rc >= 0)
        fake_exchange_set(x, name, value);
}

void fake_exchange_text(struct fake_exchange *x, int status, const char *type, const char *text)
{
    x->status = status;
    x->out.len = 0;
    if (type)
        fake_exchange_set(x, "Content-Type", type);
    (void)buf_add(&x->out, text, strlen(text), "answer", NULL);
    x->size = x->out.len;
}

void fake_exchange_json(struct fake_exchange *x, int status, const char *type, json_t *value)
{
    cleanup_free char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    fake_exchange_text(x, status, type, text ? text : "");
    json_decref(value);
}

void fake_exchange_error(struct fake_exchange *x, int status, const char *code, const char *message,
                         json_t *detail)
{
    json_t *error = json_pack("{s:s,s:s}", "code", code, "message", message);
    if (detail)
        json_object_set_new(error, "detail", detail);
    fake_exchange_json(x, status, "application/json", json_pack("{s:[o]}", "errors", error));
}

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {{200, "OK"},
                   {201, "Created"},
                   {202, "Accepted"},
                   {204, "No Content"},
                   {206, "Partial Content"},
                   {307, "Temporary Redirect"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {404, "Not Found"},
                   {416, "Range Not Satisfiable"},
                   {429, "Too Many Requests"}};
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Status";
}

static void add_header(struct buf *head, const char *name, const json_t *value)
{
    if (json_is_string(value))
        (void)buf_addf(head, NULL, "%s: %s\r\n", name, json_string_value(value));
    for (size_t i = 0; i < json_array_size(value); i++)
        add_header(head, name, json_array_get(value, i));
}

static void make_head(struct fake_exchange *x, struct buf *head)
{
    bool no_length = json_is_true(json_object_get(x->rule, "no_length"));
    bool bodiless = x->status == 204 || x->status == 304 || x->status < 200;
    if (!no_length && !bodiless &&
        !json_object_get(x->answer, known_name(x->answer, "Content-Length")))
        fake_exchange_setf(x, "Content-Length", "%llu", (unsigned long long)x->size);
    if (no_length || x->end != FAKE_END_KEEP)
        fake_exchange_set(x, "Connection", "close");
    (void)buf_addf(head, NULL, "HTTP/1.1 %d %s\r\n", x->status, reason(x->status));
    for (void *i = json_object_iter(x->answer); i; i = json_object_iter_next(x->answer, i))
        add_header(head, json_object_iter_key(i), json_object_iter_value(i));
    int64_t filler = fake_rule_int(x->rule, "filler", 0);
    if (filler > 0)
        (void)buf_addf(head, NULL, "X-Filler: %0*d\r\n", (int)filler, 0);
    (void)buf_add(head, "\r\n", 2, "head", NULL);
}

/* Bytes of the body from `at` on; 0 when there are none to be had. */
static size_t body_piece(const struct fake_exchange *x, uint64_t at, char *into, size_t len)
{
    size_t n = 0;
    if (x->out_fd >= 0) {
        ssize_t got = pread(x->out_fd, into, len, (off_t)(x->out_from + at));
        n = got > 0 ? (size_t)got : 0;
    } else if (x->out.len > 0) {
        size_t from = at % x->out.len;
        n = len < x->out.len - from ? len : x->out.len - from;
        memcpy(into, x->out.data + from, n);
    }
    int64_t flip = fake_rule_int(x->rule, "flip", -1);
    if (flip >= 0 && (uint64_t)flip >= at && (uint64_t)flip < at + n)
        into[(uint64_t)flip - at] ^= 1;
    return n;
}

/* Sends the first `size` bytes of the body. */
static bool send_body(struct fake_exchange *x, uint64_t size)
{
    int64_t rate = fake_rule_int(x->rule, "send_rate", 0);
    size_t most = rate == 0 ? PIECE : rate < SLICES ? 1 : (size_t)rate / SLICES;
    cleanup_free char *piece = malloc(PIECE);
    while (piece && x->sent < size) {
        uint64_t left = size - x->sent;
        size_t n = most < PIECE ? most : PIECE;
        n = body_piece(x, x->sent, piece, left < n ? (size_t)left : n);
        if (n == 0 || !fake_conn_write(x->conn, piece, n))
            return false;
        x->sent += n;
        if (rate > 0 && x->sent < size &&
            !fake_conn_wait(x->conn, (int)(1000 * n / (uint64_t)rate)))
            return false;
    }
    return true;
}

/* Takes the rest of a body that was answered early, or enough of it that the answer is not lost by
 * a reset. */
static void drain(struct fake_exchange *x)
{
    char piece[4096];
    uint64_t before = x->bytes;
    x->read_max = UINT64_MAX;
    x->read_rate = 0;
    x->cut = false;
    bool waits = x->go_on; /* for a 100 Continue that it will not get */
    x->go_on = false;
    if (waits || x->chunked || x->length > FAKE_DRAIN_MAX) {
        x->end = FAKE_END_CLOSE;
        fake_conn_end_writing(x->conn);
        for (int ms = 0; ms < LINGER_MS && fake_conn_wait(x->conn, 5); ms += 5)
            ;
        return;
    }
    while (fake_exchange_body(x, piece, sizeof piece) > 0 && x->bytes - before <= FAKE_DRAIN_MAX)
        ;
    if (!x->body_done)
        x->end = FAKE_END_CLOSE;
}

static bool write_parts(struct fake_exchange *x)
{
    cleanup_buf struct buf head = BUF_INIT(FAKE_BODY_MAX);
    int64_t send_head = fake_rule_int(x->rule, "send_head", -1);
    int64_t send = fake_rule_int(x->rule, "send", -1);
    make_head(x, &head);
    if (send_head >= 0)
        return fake_conn_write(x->conn, buf_str(&head),
                               (uint64_t)send_head < head.len ? (size_t)send_head : head.len);
    uint64_t size = strcmp(x->method, "HEAD") == 0 ? 0 : x->size;
    if (send >= 0 && (uint64_t)send < size)
        size = (uint64_t)send;
    return fake_conn_write(x->conn, buf_str(&head), head.len) && send_body(x, size);
}

void fake_exchange_write(struct fake_exchange *x)
{
    const char *raw = json_string_value(json_object_get(x->rule, "raw"));
    const char *close = fake_exchange_header(x, "connection");
    if (x->lost) {
        x->status = 0;
        x->end = FAKE_END_LOST;
        return;
    }
    if (json_is_true(json_object_get(x->rule, "no_length")) && x->end == FAKE_END_KEEP)
        x->end = FAKE_END_CLOSE;
    bool early = !x->body_done && x->end == FAKE_END_KEEP;
    if (early && (x->go_on || x->chunked || x->length > FAKE_DRAIN_MAX))
        fake_exchange_set(x, "Connection", "close");
    bool wrote = true;
    if (raw) {
        wrote = fake_conn_write(x->conn, buf_str(&x->out), x->out.len);
        x->sent = x->out.len;
    } else if (x->status > 0) {
        wrote = write_parts(x);
    }
    if (!wrote)
        x->end = FAKE_END_LOST;
    else if (early)
        drain(x);
    else if (x->end == FAKE_END_KEEP && close && strcasecmp(close, "close") == 0)
        x->end = FAKE_END_CLOSE;
    if (x->end == FAKE_END_STALL)
        (void)fake_conn_wait(x->conn, FAKE_SERVER_FOREVER_MS);
    if (x->end == FAKE_END_RESET)
        fake_conn_reset(x->conn);
}
