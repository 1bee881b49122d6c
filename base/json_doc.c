#include "json_doc.h"

#include <string.h>

/* jansson bounds nesting only by a constant far above what its recursion should see from outside,
 * so brackets outside of strings are counted first. */
static bool depth_is_bounded(const char *bytes, size_t len)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = bytes[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DOC_DEPTH_MAX)
                return false;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return true;
}

/* Returns 1 when it is no JSON; *ret_error has the reader's words then, which hold a piece of the
 * document. */
static int parse(const char *bytes, size_t len, const char *what, size_t flags, json_t **ret,
                 json_error_t *ret_error, struct err *err)
{
    if (len > JSON_DOC_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%s has %zu bytes, more than the limit of %d", what,
                        len, JSON_DOC_BYTES_MAX);
    if (!depth_is_bounded(bytes, len))
        return err_fail(err, ERR_DAMAGED, "%s is nested deeper than %d levels", what,
                        JSON_DOC_DEPTH_MAX);
    json_t *json = json_loadb(bytes, len, JSON_REJECT_DUPLICATES | flags, ret_error);
    if (!json)
        return 1;
    *ret = json;
    return 0;
}

int json_doc_parse(const char *bytes, size_t len, const char *what, json_t **ret, struct err *err)
{
    json_error_t error;
    int rc = parse(bytes, len, what, 0, ret, &error, err);
    if (rc == 1)
        return err_fail(err, ERR_DAMAGED, "%s is not valid JSON: %s (line %d, column %d)", what,
                        error.text, error.line, error.column);
    return rc;
}

int json_doc_parse_secret(const char *bytes, size_t len, const char *what, json_t **ret,
                          struct err *err)
{
    json_error_t error;
    int rc = parse(bytes, len, what, 0, ret, &error, err);
    if (rc == 1 && json_error_code(&error) == json_error_numeric_overflow)
        rc = parse(bytes, len, what, JSON_DECODE_INT_AS_REAL, ret, &error, err);
    if (rc == 1)
        return err_fail(err, ERR_DAMAGED, "%s is not valid JSON (line %d, column %d)", what,
                        error.line, error.column);
    return rc;
}

/* Finds a member of the wanted type. Returns 1 found, 0 missing, or a failure. */
static int find(const json_t *object, const char *key, const char *what, bool required,
                json_type type, json_t **ret, struct err *err)
{
    static const char *const type_names[] = {[JSON_OBJECT] = "an object",
                                             [JSON_ARRAY] = "an array",
                                             [JSON_STRING] = "a string",
                                             [JSON_INTEGER] = "a whole number",
                                             [JSON_TRUE] = "true or false"};
    if (!json_is_object(object))
        return err_fail(err, ERR_DAMAGED, "%s is not a JSON object", what);
    json_t *member = json_object_get(object, key);
    if (!member || json_is_null(member)) {
        if (required)
            return err_fail(err, ERR_DAMAGED, "%s lacks '%s'", what, key);
        return 0;
    }
    bool fits = json_typeof(member) == type || (type == JSON_TRUE && json_is_boolean(member));
    if (!fits)
        return err_fail(err, ERR_DAMAGED, "'%s' in %s is not %s", key, what, type_names[type]);
    *ret = member;
    return 1;
}

static int find_str(const json_t *object, const char *key, const char *what, bool required,
                    const char **ret, struct err *err)
{
    json_t *member = NULL;
    int rc = find(object, key, what, required, JSON_STRING, &member, err);
    if (rc == 1)
        *ret = json_string_value(member);
    return rc < 0 ? rc : 0;
}

static int find_int(const json_t *object, const char *key, const char *what, bool required,
                    int64_t *ret, struct err *err)
{
    json_t *member = NULL;
    int rc = find(object, key, what, required, JSON_INTEGER, &member, err);
    if (rc == 1)
        *ret = json_integer_value(member);
    return rc < 0 ? rc : 0;
}

static int find_typed(const json_t *object, const char *key, const char *what, bool required,
                      json_type type, json_t **ret, struct err *err)
{
    json_t *member = NULL;
    int rc = find(object, key, what, required, type, &member, err);
    if (rc == 1)
        *ret = member;
    return rc < 0 ? rc : 0;
}

int json_doc_get_str(const json_t *object, const char *key, const char *what, const char **ret,
                     struct err *err)
{
    return find_str(object, key, what, true, ret, err);
}

int json_doc_get_int(const json_t *object, const char *key, const char *what, int64_t *ret,
                     struct err *err)
{
    return find_int(object, key, what, true, ret, err);
}

int json_doc_get_array(const json_t *object, const char *key, const char *what, json_t **ret,
                       struct err *err)
{
    return find_typed(object, key, what, true, JSON_ARRAY, ret, err);
}

int json_doc_get_object(const json_t *object, const char *key, const char *what, json_t **ret,
                        struct err *err)
{
    return find_typed(object, key, what, true, JSON_OBJECT, ret, err);
}

int json_doc_opt_str(const json_t *object, const char *key, const char *what, const char **ret,
                     struct err *err)
{
    return find_str(object, key, what, false, ret, err);
}

int json_doc_opt_int(const json_t *object, const char *key, const char *what, int64_t *ret,
                     struct err *err)
{
    return find_int(object, key, what, false, ret, err);
}

int json_doc_opt_bool(const json_t *object, const char *key, const char *what, bool *ret,
                      struct err *err)
{
    json_t *member = NULL;
    int rc = find(object, key, what, false, JSON_TRUE, &member, err);
    if (rc == 1)
        *ret = json_is_true(member);
    return rc < 0 ? rc : 0;
}

int json_doc_opt_object(const json_t *object, const char *key, const char *what, json_t **ret,
                        struct err *err)
{
    return find_typed(object, key, what, false, JSON_OBJECT, ret, err);
}

char *json_doc_dump(const json_t *json)
{
    return json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
}
