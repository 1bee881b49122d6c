#include "registry_link.h"

#include "cleanup.h"
#include "registry_url.h"

#include <stdbool.h>
#include <string.h>

static const char space[] = " \t";

static int damaged(struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "the Link header of the answer is malformed");
}

/* One parameter of a link: a name, and a value without its quotes (a quoted pair stays as it is, as
 * no relation has one). */
struct parameter {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};

/* Reads "name=value" or "name" at *at and moves behind it. */
static int read_parameter(const char **at, struct parameter *ret, struct err *err)
{
    const char *text = *at;
    struct parameter parameter = {.name = text, .name_len = strcspn(text, "=;, \t\"<>")};
    text += parameter.name_len;
    text += strspn(text, space);
    if (*text == '=') {
        text++;
        text += strspn(text, space);
        if (*text == '"') {
            const char *end = ++text;
            while (*end && *end != '"')
                end += end[0] == '\\' && end[1] ? 2 : 1;
            if (!*end)
                return damaged(err);
            parameter.value = text;
            parameter.value_len = (size_t)(end - text);
            text = end + 1;
        } else {
            parameter.value = text;
            parameter.value_len = strcspn(text, ";, \t\"<>");
            text += parameter.value_len;
        }
    }
    *at = text;
    *ret = parameter;
    return 0;
}

/* Whether "next" is among the relations of a "rel" parameter. */
static bool is_next(const struct parameter *parameter)
{
    static const char next[] = "next";
    const size_t len = sizeof next - 1;
    if (parameter->name_len != 3 || strncasecmp(parameter->name, "rel", 3) != 0)
        return false;
    for (size_t i = 0; i + len <= parameter->value_len; i++) {
        const char *word = parameter->value + i;
        bool begins = i == 0 || strchr(space, word[-1]);
        bool ends = i + len == parameter->value_len || strchr(space, word[len]);
        if (begins && ends && strncasecmp(word, next, len) == 0)
            return true;
    }
    return false;
}

/* Reads the parameters of one link, up to a comma or the end. Only the first "rel" counts. */
static int read_parameters(const char **at, bool *ret_is_next, struct err *err)
{
    bool found = false;
    bool has_rel = false;
    const char *text = *at + strspn(*at, space);
    while (*text == ';') {
        struct parameter parameter = {.name = NULL};
        text++;
        text += strspn(text, space);
        int rc = read_parameter(&text, &parameter, err);
        if (rc < 0)
            return rc;
        bool is_rel = parameter.name_len == 3 && strncasecmp(parameter.name, "rel", 3) == 0;
        found = has_rel ? found : is_next(&parameter);
        has_rel = has_rel || is_rel;
        text += strspn(text, space);
    }
    if (*text && *text != ',')
        return damaged(err);
    *at = text;
    *ret_is_next = found;
    return 0;
}

int registry_link_next(const char *value, char **ret, struct err *err)
{
    const char *at = value + strspn(value, " \t,");
    while (*at) {
        const char *end = *at == '<' ? strchr(at, '>') : NULL;
        if (!end)
            return damaged(err);
        const char *target = at + 1;
        bool found = false;
        at = end + 1;
        int rc = read_parameters(&at, &found, err);
        if (rc < 0)
            return rc;
        if (found) {
            *ret = strndup(target, (size_t)(end - target));
            return *ret ? 0 : err_errno(err, ENOMEM, "cannot follow a list");
        }
        at += strspn(at, " \t,");
    }
    *ret = NULL;
    return 0;
}

int registry_link_follow(const char *page, const char *target, char **ret, struct err *err)
{
    cleanup_free char *next = NULL;
    cleanup_free char *host = registry_url_host(page); /* in plain http, too, if the page was */
    int rc = host ? registry_url_follow(page, target, host, &next, NULL) : -ENOMEM;
    if (rc == 0 && registry_url_same_origin(page, next)) {
        *ret = steal_ptr(next);
        return 0;
    }
    const char *query = strchr(target, '?');
    size_t len = query ? strcspn(query, "#") : 0;
    cleanup_free char *own = NULL;
    if (len > 1 &&
        asprintf(&own, "%.*s%.*s", (int)strcspn(page, "?#"), page, (int)len, query) < 0) {
        own = NULL;
        return err_errno(err, ENOMEM, "cannot follow a list");
    }
    if (!own || !host || registry_url_follow(page, own, host, ret, NULL) < 0)
        return err_fail(err, ERR_DAMAGED, "the address of the next page cannot be used");
    return 0;
}
