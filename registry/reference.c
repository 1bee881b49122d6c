#include "reference.h"

#include "reference_host.h"

#include <string.h>

/* Own tests on characters, as those of ctype.h depend on the locale. */
static bool is_lower_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_tag_char(char c)
{
    return is_lower_alnum(c) || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-';
}

void reference_free(struct reference *reference)
{
    free(reference->host);
    free(reference->repository);
    free(reference->tag);
    *reference = (struct reference){0};
}

bool reference_tag_is_valid(const char *tag)
{
    size_t len = strnlen(tag, REFERENCE_TAG_MAX + 1);
    if (len == 0 || len > REFERENCE_TAG_MAX || tag[0] == '.' || tag[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_tag_char(tag[i]))
            return false;
    return true;
}

/* Length of the separator at `s`: one '.', one or two '_', any number of '-'; 0 for none. */
static size_t separator_len(const char *s)
{
    if (*s == '.')
        return 1;
    if (*s == '_')
        return s[1] == '_' ? 2 : 1;
    return strspn(s, "-");
}

/* Whether the component that ends at '/' or at the end of the string follows the grammar. */
static bool component_is_valid(const char *component, size_t len)
{
    size_t i = 0;
    for (;;) {
        size_t start = i;
        while (i < len && is_lower_alnum(component[i]))
            i++;
        if (i == start)
            return false;
        if (i == len)
            return true;
        size_t separator = separator_len(component + i);
        if (separator == 0)
            return false;
        i += separator;
    }
}

/* Whether every byte can stand in a message and in a name at all. */
static int check_bytes(const char *text, const char *what, struct err *err)
{
    for (size_t i = 0; text[i]; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == ' ')
            return err_fail(err, ERR_INVALID, "%s holds a space at position %zu", what, i + 1);
        if (c < ' ' || c > '~')
            return err_fail(err, ERR_INVALID,
                            "%s holds the byte 0x%02x at position %zu; only printable ASCII is "
                            "allowed",
                            what, c, i + 1);
    }
    return 0;
}

static int check_components(const char *repository, struct err *err)
{
    const char *component = repository;
    for (;;) {
        size_t len = strcspn(component, "/");
        if (len == 0)
            return err_fail(err, ERR_INVALID, "repository '%s' has an empty component", repository);
        if (!component_is_valid(component, len)) {
            int rc = err_fail(err, ERR_INVALID,
                              "'%.*s' in repository '%s' must be groups of a-z and 0-9, joined by "
                              "one '.', one or two '_' or any number of '-'",
                              (int)len, component, repository);
            if (component[strcspn(component, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] != '\0')
                err_hint(err, "write it in small letters");
            return rc;
        }
        if (component[len] == '\0')
            return 0;
        component += len + 1;
    }
}

int reference_check_repository(const char *repository, struct err *err)
{
    if (*repository == '\0')
        return err_fail(err, ERR_INVALID, "the repository is empty");
    if (strnlen(repository, REFERENCE_REPOSITORY_MAX + 1) > REFERENCE_REPOSITORY_MAX)
        return err_fail(err, ERR_INVALID, "the repository is longer than %d bytes",
                        REFERENCE_REPOSITORY_MAX);
    int rc = check_bytes(repository, "the repository", err);
    if (rc < 0)
        return rc;
    return check_components(repository, err);
}

static int check_text(const char *text, struct err *err)
{
    if (*text == '\0')
        return err_fail(err, ERR_INVALID, "the reference is empty");
    if (strnlen(text, REFERENCE_TEXT_MAX + 1) > REFERENCE_TEXT_MAX)
        return err_fail(err, ERR_INVALID, "the reference is longer than %d bytes",
                        REFERENCE_TEXT_MAX);
    int rc = check_bytes(text, "the reference", err);
    if (rc < 0)
        return rc;
    if (!strstr(text, "://"))
        return 0;
    rc = err_fail(err, ERR_INVALID, "the reference '%s' begins with a scheme", text);
    err_hint(err, "write host/repository:tag without 'https://'");
    return rc;
}

/* Whether the first component names a host. */
static bool component_is_host(const char *text, size_t len)
{
    if (len == strlen("localhost") && memcmp(text, "localhost", len) == 0)
        return true;
    return strcspn(text, ".:[") < len;
}

/* Takes "@digest" off the end of `text`. */
static int cut_digest(char *text, struct reference *reference, struct err *err)
{
    char *at = strchr(text, '@');
    if (!at)
        return 0;
    *at = '\0';
    if (at[1] == '\0')
        return err_fail(err, ERR_INVALID, "nothing follows the '@'");
    reference->has_digest = true;
    return digest_parse(at + 1, &reference->digest, err);
}

/* Takes "host/" off the front. *ret_rest gets what follows it. */
static int cut_host(char *text, struct reference *reference, char **ret_rest, struct err *err)
{
    char *slash = strchr(text, '/');
    *ret_rest = text;
    if (!slash || !component_is_host(text, (size_t)(slash - text)))
        return 0;
    *slash = '\0';
    *ret_rest = slash + 1;
    return reference_host_canonical(text, &reference->host, err);
}

/* Takes ":tag" off the end. No ':' is left but the one in front of a tag. */
static int cut_tag(char *text, struct reference *reference, struct err *err)
{
    char *colon = strchr(text, ':');
    if (!colon)
        return 0;
    *colon = '\0';
    const char *tag = colon + 1;
    if (*tag == '\0')
        return err_fail(err, ERR_INVALID, "nothing follows the ':'");
    if (!reference_tag_is_valid(tag))
        return err_fail(err, ERR_INVALID,
                        "tag '%s' must be at most %d letters, digits, '_', '.' or '-', the first "
                        "one no '.' or '-'",
                        tag, REFERENCE_TAG_MAX);
    reference->tag = strdup(tag);
    if (!reference->tag)
        return err_errno(err, ENOMEM, "cannot parse a reference");
    return 0;
}

/* Parses `copy`, which is cut to pieces, into `reference`; on failure some of it may be set. */
static int parse_into(char *copy, struct reference *reference, struct err *err)
{
    int rc = cut_digest(copy, reference, err);
    if (rc < 0)
        return rc;
    char *rest;
    rc = cut_host(copy, reference, &rest, err);
    if (rc < 0)
        return rc;
    rc = cut_tag(rest, reference, err);
    if (rc < 0)
        return rc;
    rc = reference_check_repository(rest, err);
    if (rc < 0)
        return rc;
    reference->repository = strdup(rest);
    if (!reference->repository)
        return err_errno(err, ENOMEM, "cannot parse a reference");
    return 0;
}

int reference_parse(const char *text, struct reference *ret, struct err *err)
{
    int rc = check_text(text, err);
    if (rc < 0)
        return rc;
    cleanup_free char *copy = strdup(text);
    if (!copy)
        return err_errno(err, ENOMEM, "cannot parse a reference");
    cleanup_reference struct reference reference = {0};
    rc = parse_into(copy, &reference, err);
    if (rc < 0)
        return err_wrap(err, rc, "'%s' is no reference", text);
    *ret = reference;
    reference = (struct reference){0};
    return 0;
}

char *reference_format(const struct reference *reference)
{
    struct digest_text digest = {.s = ""};
    if (reference->has_digest)
        digest = digest_format(&reference->digest);
    char *text;
    int len =
        asprintf(&text, "%s%s%s%s%s%s%s", reference->host ? reference->host : "",
                 reference->host ? "/" : "", reference->repository, reference->tag ? ":" : "",
                 reference->tag ? reference->tag : "", reference->has_digest ? "@" : "", digest.s);
    return len < 0 ? NULL : text;
}

char *reference_name(const struct reference *reference)
{
    char *text;
    int len = asprintf(&text, "%s%s%s:%s", reference->host ? reference->host : "",
                       reference->host ? "/" : "", reference->repository,
                       reference->tag ? reference->tag : "latest");
    return len < 0 ? NULL : text;
}
