#include "commit_name.h"

#include "cleanup.h"
#include "reference.h"

#include <stdbool.h>
#include <string.h>

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot name the image");
}

int commit_name_of_user(const char *text, char **ret, struct err *err)
{
    cleanup_reference struct reference reference = {0};
    int rc = reference_parse(text, &reference, err);
    if (rc < 0)
        return err_wrap(err, rc, "the name '%.300s' cannot be used", text);
    if (reference.has_digest)
        return err_fail(err, ERR_INVALID, "the name of an image cannot hold a digest: %.300s",
                        text);
    *ret = reference_name(&reference);
    return *ret ? 0 : no_memory(err);
}

/* Cuts one known ending off; false when there is none. */
static bool cut_ending(char *name)
{
    static const char *const endings[] = {".tar", ".tgz", ".tzst",   ".txz",   ".tbz2",
                                          ".tbz", ".gz",  ".zst",    ".zstd",  ".xz",
                                          ".bz2", ".oci", ".layout", ".rootfs"};
    size_t len = strlen(name);
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        size_t end = strlen(endings[i]);
        if (len > end && strcasecmp(name + len - end, endings[i]) == 0) {
            name[len - end] = '\0';
            return true;
        }
    }
    return false;
}

void commit_name_make_legal(char *name)
{
    char *out = name;
    bool separator = false;
    char with = '-';
    size_t run = 0;
    for (const char *s = name; *s && out - name < REFERENCE_REPOSITORY_MAX - 1; s++) {
        char c = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!plain) {
            separator = true;
            with = run++ == 0 && (c == '.' || c == '_') ? c : '-';
            continue;
        }
        if (separator && out > name)
            *out++ = with;
        separator = false;
        run = 0;
        *out++ = c;
    }
    *out = '\0';
}

char *commit_name_of_path(const char *path, const char *tag)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    cleanup_free char *whole = strndup(path, len);
    if (!whole)
        return NULL;
    char *slash = strrchr(whole, '/');
    char *name = slash ? slash + 1 : whole;
    while (cut_ending(name))
        ;
    commit_name_make_legal(name);
    char *ret;
    if (asprintf(&ret, "%s:%s", name[0] ? name : "image",
                 tag && reference_tag_is_valid(tag) ? tag : "latest") < 0)
        return NULL;
    return ret;
}

int commit_name_split(const char *text, char **ret_path, char **ret_name, struct err *err)
{
    size_t len = strlen(text);
    for (size_t at = 0; at <= len; at++) {
        size_t end = at == 0 ? len : at; /* the whole first, then every part before a ':' */
        if (at > 0 && text[at] != ':')
            continue;
        cleanup_free char *path = strndup(text, end);
        if (!path)
            return no_memory(err);
        if (access(path, F_OK) < 0)
            continue;
        cleanup_free char *name = end < len ? strdup(text + end + 1) : NULL;
        if (end < len && !name)
            return no_memory(err);
        *ret_path = steal_ptr(path);
        *ret_name = steal_ptr(name);
        return 0;
    }
    return err_fail(err, ERR_NOT_FOUND, "there is no file or directory %s", text);
}
