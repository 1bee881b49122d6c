#include "registry_scope.h"

#include "cleanup.h"

#include <stdbool.h>
#include <string.h>

void registry_scopes_free(struct registry_scopes *scopes)
{
    for (size_t i = 0; i < scopes->count; i++)
        free(scopes->list[i]);
    *scopes = (struct registry_scopes){.count = 0};
}

/* Whether a list of words separated by commas has this one. */
static bool has_action(const char *actions, const char *action, size_t len)
{
    for (const char *at = actions;;) {
        const char *end = strchrnul(at, ',');
        if ((size_t)(end - at) == len && memcmp(at, action, len) == 0)
            return true;
        if (*end == '\0')
            return false;
        at = end + 1;
    }
}

/* Adds the actions that are missing to a scope of the same resource. */
static int merge(char **scope, const char *actions, struct err *err)
{
    for (const char *at = actions; *at;) {
        const char *end = strchrnul(at, ',');
        size_t len = (size_t)(end - at);
        if (len > 0 && !has_action(strrchr(*scope, ':') + 1, at, len)) {
            char *longer;
            if (asprintf(&longer, "%s,%.*s", *scope, (int)len, at) < 0)
                return err_errno(err, ENOMEM, "cannot ask for a token");
            free(*scope);
            *scope = longer;
        }
        at = *end ? end + 1 : end;
    }
    return 0;
}

int registry_scopes_add(struct registry_scopes *scopes, const char *scope, size_t len,
                        struct err *err)
{
    if (len == 0 || len > REGISTRY_SCOPE_TEXT_MAX)
        return 0;
    cleanup_free char *copy = strndup(scope, len);
    if (!copy)
        return err_errno(err, ENOMEM, "cannot ask for a token");
    const char *first = strchr(copy, ':');
    const char *last = strrchr(copy, ':');
    if (!first || first == copy || last == first || last == first + 1 || last[1] == '\0')
        return 0;
    size_t resource = (size_t)(last - copy) + 1; /* with its colon */
    for (size_t i = 0; i < scopes->count; i++) {
        const char *have = scopes->list[i];
        if ((size_t)(strrchr(have, ':') - have) + 1 == resource &&
            memcmp(have, copy, resource) == 0)
            return merge(&scopes->list[i], last + 1, err);
    }
    if (scopes->count < REGISTRY_SCOPES_MAX)
        scopes->list[scopes->count++] = steal_ptr(copy);
    return 0;
}

int registry_scopes_add_all(struct registry_scopes *scopes, const char *text, struct err *err)
{
    int rc = 0;
    for (const char *at = text; rc == 0 && at && *at;) {
        size_t len = strcspn(at, " ");
        rc = registry_scopes_add(scopes, at, len, err);
        at += len + strspn(at + len, " ");
    }
    return rc;
}
