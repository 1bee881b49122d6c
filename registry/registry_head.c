#include "registry_head.h"

#include <inttypes.h>
#include <string.h>

/* Headers with one value. */
struct wanted {
    const char *name;
    char **to;
    size_t max;
    bool optional; /* a value that cannot be used is as none */
};
#define WANTED_COUNT 9

static void list_wanted(struct registry_http_response *response, struct wanted ret[WANTED_COUNT])
{
    const struct wanted wanted[WANTED_COUNT] = {
        {"Location", &response->location, REGISTRY_HTTP_LOCATION_MAX, false},
        {"Content-Type", &response->content_type, REGISTRY_HTTP_VALUE_MAX, true},
        {"Docker-Content-Digest", &response->content_digest, REGISTRY_HTTP_VALUE_MAX, true},
        {"Content-Encoding", &response->content_encoding, REGISTRY_HTTP_VALUE_MAX, true},
        {"Retry-After", &response->retry_after, REGISTRY_HTTP_VALUE_MAX, true},
        {"Range", &response->range, REGISTRY_HTTP_VALUE_MAX, false},
        {"Content-Range", &response->content_range, REGISTRY_HTTP_VALUE_MAX, false},
        {"OCI-Chunk-Min-Length", &response->chunk_min_length, REGISTRY_HTTP_VALUE_MAX, true},
        {"OCI-Subject", &response->oci_subject, REGISTRY_HTTP_VALUE_MAX, true},
    };
    memcpy(ret, wanted, sizeof wanted);
}

void registry_head_forget(struct registry_http_response *response)
{
    struct wanted wanted[WANTED_COUNT];
    list_wanted(response, wanted);
    for (size_t i = 0; i < WANTED_COUNT; i++) {
        free(*wanted[i].to);
        *wanted[i].to = NULL;
    }
    free(response->link);
    response->link = NULL;
    free(response->challenges);
    response->challenges = NULL;
}

/* One header line, taken apart. */
struct field {
    const char *name;
    size_t name_len;
    const char *value;
    size_t len;
};

static bool parse_field(const char *line, size_t len, struct field *ret)
{
    const char *colon = memchr(line, ':', len);
    if (!colon)
        return false;
    const char *value = colon + 1;
    const char *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *ret = (struct field){.name = line,
                          .name_len = (size_t)(colon - line),
                          .value = value,
                          .len = (size_t)(end - value)};
    return true;
}

static bool is_named(const struct field *field, const char *name)
{
    return strlen(name) == field->name_len && strncasecmp(name, field->name, field->name_len) == 0;
}

/* `had` bytes of the value are kept already. */
static int check_value(const char *name, const struct field *field, size_t had, size_t max,
                       struct err *err)
{
    if (had + field->len >= max)
        return err_fail(err, ERR_TOO_LARGE, "header %s of the answer is longer than %zu bytes",
                        name, max - 1);
    for (size_t i = 0; i < field->len; i++)
        if (field->value[i] < ' ' || field->value[i] > '~')
            return err_fail(err, ERR_DAMAGED,
                            "header %s of the answer holds a byte that is not printable ASCII",
                            name);
    return 0;
}

/* Replaces what was kept before. */
static int keep(char **to, char *value, struct err *err)
{
    if (!value)
        return err_errno(err, ENOMEM, "cannot keep a header");
    free(*to);
    *to = value;
    return 0;
}

/* Adds a value to those of the same name. */
static int join(char **to, const char *between, const struct field *field, struct err *err)
{
    char *joined;
    if (asprintf(&joined, "%s%s%.*s", *to ? *to : "", *to ? between : "", (int)field->len,
                 field->value) < 0)
        joined = NULL;
    return keep(to, joined, err);
}

/* In place of links that cannot be kept: who follows lists finds it malformed (registry_link.h), as
 * one without a next page would be taken for complete. To others links are of no use. */
static const char unusable[] = "?";

/* RFC 9110, 5.3: the lines of a list are one list. */
static int add_link(struct registry_http_response *response, const struct field *field,
                    struct err *err)
{
    size_t had = response->link ? strlen(response->link) + 2 : 0;
    if (check_value("Link", field, had, REGISTRY_HTTP_LINK_MAX, NULL) < 0)
        return keep(&response->link, strdup(unusable), err);
    return join(&response->link, ", ", field, err);
}

/* Kept apart, so that a malformed one spoils no other. */
static int add_challenge(struct registry_http_response *response, const struct field *field,
                         struct err *err)
{
    size_t had = response->challenges ? strlen(response->challenges) + 1 : 0;
    if (check_value("WWW-Authenticate", field, had, REGISTRY_HTTP_CHALLENGES_MAX, NULL) < 0)
        return 0;
    return join(&response->challenges, "\n", field, err);
}

int registry_head_take(struct registry_http_response *response, const char *line, size_t len,
                       struct err *err)
{
    struct field field;
    if (!parse_field(line, len, &field))
        return 0;
    if (is_named(&field, "Link"))
        return add_link(response, &field, err);
    if (is_named(&field, "WWW-Authenticate"))
        return add_challenge(response, &field, err);
    struct wanted wanted[WANTED_COUNT];
    list_wanted(response, wanted);
    for (size_t i = 0; i < WANTED_COUNT; i++) {
        if (!is_named(&field, wanted[i].name))
            continue;
        int rc =
            check_value(wanted[i].name, &field, 0, wanted[i].max, wanted[i].optional ? NULL : err);
        if (rc < 0)
            return wanted[i].optional ? 0 : rc;
        return keep(wanted[i].to, strndup(field.value, field.len), err);
    }
    return 0;
}

/* Reads a decimal number and moves on. False when there is none, or one above 2^63. */
static bool take_number(const char **at, uint64_t *ret)
{
    const char *from = *at;
    uint64_t value = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (value > (uint64_t)INT64_MAX / 10 - 1)
            return false;
        value = value * 10 + (uint64_t)(**at - '0');
    }
    *ret = value;
    return *at > from;
}

static bool take_char(const char **at, char c)
{
    if (**at != c)
        return false;
    ++*at;
    return true;
}

int registry_head_range(const char *value, struct registry_head_range *ret, struct err *err)
{
    struct registry_head_range range = {.total = UINT64_MAX};
    const char *at = value;
    bool valid = strncasecmp(at, "bytes", 5) == 0;
    at += valid ? 5 : 0;
    valid = valid && (*at == ' ' || *at == '=');
    at += strspn(at, " =");
    valid = valid && take_number(&at, &range.first) && take_char(&at, '-') &&
            take_number(&at, &range.last) && take_char(&at, '/') &&
            (take_char(&at, '*') || take_number(&at, &range.total)) && *at == '\0' &&
            range.first <= range.last && range.last < range.total;
    if (!valid)
        return err_fail(err, ERR_DAMAGED, "the Content-Range '%.100s' makes no sense", value);
    *ret = range;
    return 0;
}
