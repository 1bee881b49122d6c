#include "api_request.h"

#include "buf.h"
#include "server.h"

#include <ctype.h>
#include <string.h>

void api_request_free(struct api_request *request)
{
    json_decref(request->body);
    free(request->arg);
    request->body = NULL;
    request->arg = NULL;
}

void api_path_free(struct api_path *path)
{
    free(path->storage);
    path->storage = NULL;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place; the result is never longer. */
static int decode(char *text, struct err *err)
{
    char *out = text;
    for (const char *in = text; *in; in++) {
        if (*in != '%') {
            *out++ = *in;
            continue;
        }
        int high = hex_value(in[1]);
        int low = high < 0 ? -1 : hex_value(in[2]);
        if (low < 0)
            return err_fail(err, ERR_INVALID, "the path holds '%%' without two hex digits");
        if (high == 0 && low == 0)
            return err_fail(err, ERR_INVALID, "the path holds an escaped NUL byte");
        *out++ = (char)(high * 16 + low);
        in += 2;
    }
    *out = '\0';
    cleanup_json json_t *utf8 = json_string(text);
    if (!utf8)
        return err_fail(err, ERR_INVALID, "the path is not valid UTF-8");
    return 0;
}

int api_path_parse(const char *raw, struct api_path *ret, struct err *err)
{
    if (raw[0] != '/')
        return err_fail(err, ERR_INVALID, "the path does not begin with '/'");
    cleanup_api_path struct api_path path = {.storage = strdup(raw + 1)};
    if (!path.storage)
        return err_fail(err, ERR_INTERNAL, "no memory for the path");
    for (char *at = path.storage, *next; at; at = next) {
        next = strchr(at, '/');
        if (next)
            *next++ = '\0';
        if (path.count == API_SEGMENTS_MAX)
            return err_fail(err, ERR_INVALID, "the path has more than %d parts", API_SEGMENTS_MAX);
        path.segments[path.count++] = at;
        int rc = decode(at, err);
        if (rc < 0)
            return rc;
    }
    *ret = path;
    path.storage = NULL;
    return 0;
}

int api_request_blame(struct err *err, int rc, const char *word)
{
    if (rc >= 0 || !err)
        return rc;
    if (err->code == ERR_DAMAGED || err->code == ERR_UNSUPPORTED) {
        struct err cause = *err;
        err_clear(err);
        rc = err_fail(err, ERR_INVALID, "%s", cause.text);
        if (cause.hint[0])
            err_hint(err, "%s", cause.hint);
    }
    if (word && !strstr(err->text, word))
        rc = err_wrap(err, rc, "'%.300s'", word);
    return rc;
}

int api_request_set_body(struct api_request *request, const char *bytes, size_t len,
                         struct err *err)
{
    json_t *body = NULL;
    int rc = json_doc_parse(bytes, len, "the body", &body, err);
    if (rc < 0)
        return api_request_blame(err, rc, NULL);
    if (!json_is_object(body)) {
        json_decref(body);
        return err_fail(err, ERR_INVALID, "the body is not a JSON object");
    }
    json_decref(request->body);
    request->body = body;
    return 0;
}

int api_request_set_query(struct api_request *request, const char *name, const char *value,
                          bool takes_wait, struct err *err)
{
    if (!takes_wait || strcmp(name, "wait") != 0)
        return err_fail(err, ERR_INVALID, "this route has no parameter '%.80s'", name);
    size_t len = value ? strspn(value, "0123456789") : 0;
    if (len == 0 || len > 6 || value[len] != '\0')
        return err_fail(err, ERR_INVALID, "'wait' must be a whole number of seconds, not '%.80s'",
                        value ? value : "");
    long seconds = strtol(value, NULL, 10);
    request->wait_s = seconds > SERVER_WAIT_MAX_S ? SERVER_WAIT_MAX_S : (int)seconds;
    return 0;
}

int api_request_set_key(struct api_request *request, const char *key, struct err *err)
{
    if (!key)
        return 0;
    size_t len = strlen(key);
    bool good = len >= 1 && len <= API_KEY_MAX;
    for (size_t i = 0; good && i < len; i++)
        good = isgraph((unsigned char)key[i]) && (unsigned char)key[i] < 0x80;
    if (!good)
        return err_fail(err, ERR_INVALID,
                        "an Idempotency-Key has 1 to %d printable ASCII characters and no spaces",
                        API_KEY_MAX);
    request->key = key;
    return 0;
}

static int check_labels(const json_t *labels, const char *name, struct err *err)
{
    if (!json_is_object(labels))
        return err_fail(err, ERR_INVALID, "'%s' is not an object of strings", name);
    if (json_object_size(labels) > API_LABELS_MAX)
        return err_fail(err, ERR_INVALID, "'%s' has more than %d members", name, API_LABELS_MAX);
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)labels, key, value) {
        if (!json_is_string(value))
            return err_fail(err, ERR_INVALID, "'%.80s' in '%s' is not a string", key, name);
        if (key[0] == '\0' || strlen(key) > API_LABEL_KEY_MAX)
            return err_fail(err, ERR_INVALID, "a name in '%s' is empty or has more than %d bytes",
                            name, API_LABEL_KEY_MAX);
        if (json_string_length(value) > API_LABEL_VALUE_MAX)
            return err_fail(err, ERR_INVALID, "'%s' in '%s' has more than %d bytes", key, name,
                            API_LABEL_VALUE_MAX);
    }
    return 0;
}

static int check_strings(const json_t *list, const char *name, struct err *err)
{
    if (!json_is_array(list))
        return err_fail(err, ERR_INVALID, "'%s' is not an array of strings", name);
    if (json_array_size(list) > API_STRINGS_MAX)
        return err_fail(err, ERR_INVALID, "'%s' has more than %d members", name, API_STRINGS_MAX);
    size_t i;
    json_t *value;
    json_array_foreach ((json_t *)list, i, value)
        if (!json_is_string(value))
            return err_fail(err, ERR_INVALID, "member %zu of '%s' is not a string", i, name);
    return 0;
}

static int check_member(const struct api_member *member, const json_t *value, struct err *err)
{
    switch (member->type) {
    case API_STRING:
        if (!json_is_string(value))
            return err_fail(err, ERR_INVALID, "'%s' is not a string", member->name);
        if (member->max > 0 && json_string_length(value) > member->max)
            return err_fail(err, ERR_INVALID, "'%s' has %zu bytes, more than the limit of %zu",
                            member->name, json_string_length(value), member->max);
        return 0;
    case API_BOOL:
        if (!json_is_boolean(value))
            return err_fail(err, ERR_INVALID, "'%s' is neither true nor false", member->name);
        return 0;
    case API_INTEGER:
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return err_fail(err, ERR_INVALID, "'%s' is not a whole number from 0 on", member->name);
        return 0;
    case API_LABELS:
        return check_labels(value, member->name, err);
    case API_STRINGS:
        return check_strings(value, member->name, err);
    }
    return err_fail(err, ERR_INTERNAL, "'%s' has no type", member->name);
}

static const struct api_member *find_member(const struct api_member *members, size_t count,
                                            const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(members[i].name, name) == 0)
            return &members[i];
    return NULL;
}

static int fail_unknown(const struct api_member *members, size_t count, const char *name,
                        struct err *err)
{
    cleanup_buf struct buf known = BUF_INIT(ERR_HINT_MAX);
    for (size_t i = 0; i < count; i++)
        (void)buf_addf(&known, NULL, "%s%s", i > 0 ? ", " : "", members[i].name);
    int rc =
        err_fail(err, ERR_INVALID, "the body has a member '%.80s' that is not known here", name);
    err_hint(err, "known members: %s", count > 0 ? buf_str(&known) : "none");
    return rc;
}

int api_request_params(const struct api_request *request, const struct api_member *members,
                       size_t count, json_t **ret, struct err *err)
{
    cleanup_json json_t *params = json_object();
    const char *name;
    json_t *value;
    json_object_foreach (request->body, name, value) {
        const struct api_member *member = find_member(members, count, name);
        if (!member)
            return fail_unknown(members, count, name, err);
        if (json_is_null(value))
            continue;
        int rc = check_member(member, value, err);
        if (rc < 0)
            return rc;
        if (json_object_set(params, name, value) < 0)
            return err_fail(err, ERR_INTERNAL, "no memory for the request");
    }
    for (size_t i = 0; i < count; i++)
        if (members[i].required && !json_object_get(params, members[i].name))
            return err_fail(err, ERR_INVALID, "the body lacks '%s'", members[i].name);
    *ret = steal_ptr(params);
    return 0;
}
