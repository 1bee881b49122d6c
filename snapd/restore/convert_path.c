#include "convert_path.h"

#include "path_text.h"

#include <string.h>

static int refuse(const char *raw, const char *why, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "member %s of the archive is refused: %s", path_text(raw).s,
                    why);
}

int convert_path_normalise(const char *raw, char ret[CONVERT_PATH_MAX], struct err *err)
{
    if (raw[0] == '\0')
        return err_fail(err, ERR_DAMAGED, "a member of the archive has an empty name");
    if (raw[0] == '/') {
        int rc = refuse(raw, "its name is absolute", err);
        err_hint(err, "make the archive with relative names (tar -C DIR ... .)");
        return rc;
    }
    char path[CONVERT_PATH_MAX];
    size_t used = 0;
    size_t depth = 0;
    for (const char *at = raw; *at != '\0';) {
        size_t len = strcspn(at, "/");
        const char *name = at;
        at += len + (at[len] == '/');
        if (len == 0 || (len == 1 && name[0] == '.'))
            continue;
        if (len == 2 && name[0] == '.' && name[1] == '.')
            return refuse(raw, "its name leads out of the directory", err);
        if (len > CONVERT_NAME_MAX)
            return refuse(raw, "a part of its name is longer than 255 bytes", err);
        if (used + len + 2 > sizeof path)
            return refuse(raw, "its name is longer than 4095 bytes", err);
        if (++depth > CONVERT_DEPTH_MAX)
            return refuse(raw, "it lies more than 1024 directories deep", err);
        if (used > 0)
            path[used++] = '/';
        memcpy(path + used, name, len);
        used += len;
    }
    path[used] = '\0';
    memcpy(ret, path, used + 1);
    return 0;
}

const char *convert_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

size_t convert_path_parent_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

bool convert_path_is_within(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    if (len == 0)
        return true;
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

int convert_path_compare(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    int left = *a == '/' ? 1 : (unsigned char)*a + (*a != '\0');
    int right = *b == '/' ? 1 : (unsigned char)*b + (*b != '\0');
    return left - right;
}
