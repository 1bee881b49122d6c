#include "output.h"

#include "cleanup.h"
#include "clock.h"
#include "text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

enum {
    CELL_MAX = 1 << 20, /* bytes of one escaped cell or line */
    GAP = 2,            /* columns between two columns */
    DEPTH_MAX = 4,      /* of objects in a record; deeper ones are written as JSON */
};

/* --- Values as text --- */

static int add_scalar(const json_t *value, struct buf *ret, struct err *err)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return text_escape(*json_string_value(value) ? json_string_value(value) : "-", ret, err);
    case JSON_INTEGER:
        return buf_addf(ret, err, "%lld", (long long)json_integer_value(value));
    case JSON_REAL:
        return buf_addf(ret, err, "%g", json_real_value(value));
    case JSON_TRUE:
        return buf_addf(ret, err, "yes");
    case JSON_FALSE:
        return buf_addf(ret, err, "no");
    case JSON_NULL:
        return buf_addf(ret, err, "-");
    default: {
        cleanup_free char *text = json_doc_dump(value);
        return text ? text_escape(text, ret, err)
                    : err_fail(err, ERR_INTERNAL, "no memory for the output");
    }
    }
}

static int add_joined(const json_t *array, struct buf *ret, struct err *err)
{
    size_t i;
    json_t *item;
    if (json_array_size(array) == 0)
        return buf_addf(ret, err, "-");
    json_array_foreach (array, i, item) {
        int rc = i > 0 ? buf_addf(ret, err, ",") : 0;
        if (rc == 0)
            rc = add_scalar(item, ret, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int add_digest(const char *text, struct buf *ret, struct err *err)
{
    static const char prefix[] = "sha256:";
    if (strncmp(text, prefix, sizeof prefix - 1) == 0)
        text += sizeof prefix - 1;
    char shortened[13];
    snprintf(shortened, sizeof shortened, "%s", text);
    return text_escape(shortened, ret, err);
}

static int add_value(const json_t *value, enum output_format format, int64_t now_ns,
                     struct buf *ret, struct err *err)
{
    if (!value || json_is_null(value))
        return buf_addf(ret, err, "-");
    int64_t at;
    if (format == OUTPUT_SIZE && json_is_integer(value))
        return buf_addf(ret, err, "%s", text_size(json_integer_value(value)).s);
    if (format == OUTPUT_AGE && json_is_string(value) &&
        text_parse_time(json_string_value(value), &at, NULL) == 0)
        return buf_addf(ret, err, "%s", text_age(now_ns - at).s);
    if (format == OUTPUT_DIGEST && json_is_string(value))
        return add_digest(json_string_value(value), ret, err);
    if (json_is_array(value))
        return add_joined(value, ret, err);
    return add_scalar(value, ret, err);
}

/* "a.b" is member b of member a. */
static const json_t *lookup(const json_t *object, const char *key)
{
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_object_get(object, key);
    char head[64];
    snprintf(head, sizeof head, "%.*s", (int)(dot - key), key);
    return lookup(json_object_get(object, head), dot + 1);
}

/* --- Tables --- */

static void free_cells(char **cells, size_t count)
{
    for (size_t i = 0; cells && i < count; i++)
        free(cells[i]);
    free(cells);
}

static int fill_cells(const json_t *rows, const struct output_column *columns, size_t count,
                      int64_t now_ns, char **cells, struct err *err)
{
    size_t r;
    json_t *row;
    json_array_foreach (rows, r, row) {
        for (size_t c = 0; c < count; c++) {
            cleanup_buf struct buf cell = BUF_INIT(CELL_MAX);
            int rc = add_value(lookup(row, columns[c].key), columns[c].format, now_ns, &cell, err);
            if (rc < 0)
                return rc;
            cells[r * count + c] = buf_steal(&cell);
            if (!cells[r * count + c])
                return err_fail(err, ERR_INTERNAL, "no memory for the output");
        }
    }
    return 0;
}

static void print_row(FILE *out, const size_t *widths, size_t count, char *const *cells)
{
    for (size_t c = 0; c < count; c++) {
        int pad = c + 1 < count ? (int)(widths[c] - text_width(cells[c]) + GAP) : 0;
        fprintf(out, "%s%*s", cells[c], pad, "");
    }
    fputc('\n', out);
}

static int print_table(FILE *out, const struct output_column *columns, size_t count,
                       char *const *cells, size_t rows, struct err *err)
{
    cleanup_free size_t *widths = calloc(count, sizeof *widths);
    cleanup_free char **headers = calloc(count, sizeof *headers);
    if (!widths || !headers)
        return err_fail(err, ERR_INTERNAL, "no memory for the output");
    for (size_t c = 0; c < count; c++) {
        headers[c] = (char *)columns[c].header;
        widths[c] = text_width(headers[c]);
        for (size_t r = 0; r < rows; r++) {
            size_t width = text_width(cells[r * count + c]);
            if (width > widths[c])
                widths[c] = width;
        }
    }
    print_row(out, widths, count, headers);
    for (size_t r = 0; r < rows; r++)
        print_row(out, widths, count, cells + r * count);
    return 0;
}

int output_table(FILE *out, const json_t *rows, const struct output_column *columns, size_t count,
                 int64_t now_ns, struct err *err)
{
    size_t total = json_array_size(rows);
    char **cells = calloc(total * count + 1, sizeof *cells);
    if (!cells)
        return err_fail(err, ERR_INTERNAL, "no memory for the output");
    int rc = fill_cells(rows, columns, count, now_ns, cells, err);
    if (rc == 0)
        rc = print_table(out, columns, count, cells, total, err);
    free_cells(cells, total * count);
    return rc;
}

/* --- Records --- */

/* What a member of a document is, as its name says. */
static enum output_format format_of(const char *key)
{
    static const char *const sizes[] = {"size",   "downloaded", "bytes_new", "bytes_total",
                                        "stored", "used",       "free",      "locked_bytes"};
    static const char *const times[] = {"created", "started", "finished", "expires", "when"};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        if (strcmp(key, sizes[i]) == 0)
            return OUTPUT_SIZE;
    for (size_t i = 0; i < ARRAY_SIZE(times); i++)
        if (strcmp(key, times[i]) == 0)
            return OUTPUT_AGE;
    return OUTPUT_TEXT;
}

static int add_member(const char *key, const json_t *value, int64_t now_ns, struct buf *ret,
                      struct err *err)
{
    enum output_format format = format_of(key);
    int rc = add_value(value, format == OUTPUT_AGE ? OUTPUT_TEXT : format, now_ns, ret, err);
    int64_t at;
    if (rc < 0 || format != OUTPUT_AGE || !json_is_string(value) ||
        text_parse_time(json_string_value(value), &at, NULL) < 0)
        return rc;
    int64_t seconds = (now_ns - at) / CLOCK_NS_PER_S; /* towards 0 */
    if (seconds == 0)
        return buf_addf(ret, err, " (now)");
    return seconds > 0 ? buf_addf(ret, err, " (%s ago)", text_age(now_ns - at).s)
                       : buf_addf(ret, err, " (in %s)", text_age(at - now_ns).s);
}

/* The members of an object in an array on one line. */
static int add_line(const json_t *object, int64_t now_ns, struct buf *ret, struct err *err)
{
    const char *key;
    json_t *value;
    const char *separator = "";
    json_object_foreach ((json_t *)object, key, value) {
        int rc = buf_addf(ret, err, "%s", separator);
        if (rc == 0)
            rc = text_escape(key, ret, err);
        if (rc == 0)
            rc = buf_addf(ret, err, " ");
        if (rc == 0)
            rc = add_member(key, value, now_ns, ret, err);
        if (rc < 0)
            return rc;
        separator = "  ";
    }
    return 0;
}

static int print_array(FILE *out, const json_t *array, size_t indent, int64_t now_ns,
                       struct err *err)
{
    size_t i;
    json_t *item;
    json_array_foreach (array, i, item) {
        cleanup_buf struct buf line = BUF_INIT(CELL_MAX);
        int rc = json_is_object(item) ? add_line(item, now_ns, &line, err)
                                      : add_scalar(item, &line, err);
        if (rc < 0)
            return rc;
        fprintf(out, "%*s%s\n", i == 0 ? 0 : (int)indent, "", buf_str(&line));
    }
    return 0;
}

static int print_object(FILE *out, const json_t *object, size_t indent, int64_t now_ns,
                        struct err *err)
{
    const char *key;
    json_t *value;
    size_t widest = 0;
    json_object_foreach ((json_t *)object, key, value)
        widest = text_width(key) > widest ? text_width(key) : widest;
    bool first = true;
    json_object_foreach ((json_t *)object, key, value) {
        cleanup_buf struct buf name = BUF_INIT(CELL_MAX);
        cleanup_buf struct buf text = BUF_INIT(CELL_MAX);
        int rc = text_escape(key, &name, err);
        if (rc < 0)
            return rc;
        size_t column = indent + widest + GAP;
        fprintf(out, "%*s%s%*s", first ? 0 : (int)indent, "", buf_str(&name),
                (int)(widest + GAP - text_width(key)), "");
        first = false;
        if (json_is_array(value) && json_array_size(value) > 0) {
            rc = print_array(out, value, column, now_ns, err);
        } else if (json_is_object(value) && json_object_size(value) > 0 &&
                   indent < DEPTH_MAX * 16) {
            rc = print_object(out, value, column, now_ns, err);
        } else {
            bool empty = json_is_object(value) && json_object_size(value) == 0;
            rc = empty ? buf_addf(&text, err, "-") : add_member(key, value, now_ns, &text, err);
            fprintf(out, "%s\n", buf_str(&text));
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

int output_record(FILE *out, const json_t *object, int64_t now_ns, struct err *err)
{
    return print_object(out, object, 0, now_ns, err);
}

int output_json(FILE *out, const json_t *json, struct err *err)
{
    cleanup_free char *text = json_doc_dump(json);
    if (!text)
        return err_fail(err, ERR_INTERNAL, "no memory for the output");
    fprintf(out, "%s\n", text);
    return 0;
}

/* --- Lines on standard error --- */

void output_error(FILE *out, const struct err *err)
{
    cleanup_buf struct buf line = BUF_INIT(CELL_MAX);
    (void)text_escape(err->text, &line, NULL);
    if (err->hint[0] != '\0') {
        (void)buf_addf(&line, NULL, "; ");
        (void)text_escape(err->hint, &line, NULL);
    }
    fprintf(out, "varve: %s\n", buf_str(&line));
}

void output_warning(FILE *out, const char *fmt, ...)
{
    cleanup_buf struct buf line = BUF_INIT(CELL_MAX);
    cleanup_free char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        return;
    }
    (void)text_escape(text, &line, NULL);
    fprintf(out, "varve: warning: %s\n", buf_str(&line));
}
