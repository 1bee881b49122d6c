#include "workspace_path.h"

#include "cleanup.h"

#include <string.h>
#include <sys/stat.h>

/* Whether `inner` is `outer` or lies below it. */
static bool is_below(const char *inner, const char *outer)
{
    size_t len = strlen(outer);
    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(inner, outer, len) == 0 && (inner[len] == '/' || inner[len] == '\0');
}

static int check_apart(const char *path, const char *other, const char *what, struct err *err)
{
    if (!is_below(path, other) && !is_below(other, path))
        return 0;
    int rc = err_fail(err, ERR_INVALID,
                      "a workspace cannot be mounted at %s, which is, holds or lies in the %s "
                      "directory %s",
                      path, what, other);
    err_hint(err, "name a directory elsewhere");
    return rc;
}

static int fail(int num, const char *path, struct err *err)
{
    int rc;
    if (num == ENOENT)
        rc = err_fail(err, ERR_NOT_FOUND, "there is no directory %s", path);
    else if (num == ENOTDIR)
        rc = err_fail(err, ERR_INVALID, "%s is not a directory", path);
    else
        return err_errno(err, num, "cannot resolve %s", path);
    err_hint(err, "make it with mkdir, or name another one");
    return rc;
}

int workspace_path_resolve(const struct node *node, const char *path, char **ret, struct err *err)
{
    if (path[0] != '/')
        return err_fail(err, ERR_INVALID, "the path '%s' is not absolute", path);
    cleanup_free char *real = realpath(path, NULL);
    struct stat st;
    if (!real || lstat(real, &st) < 0)
        return fail(errno, path, err);
    if (!S_ISDIR(st.st_mode))
        return fail(ENOTDIR, path, err);
    int rc = check_apart(real, node->data_dir, "data", err);
    if (rc == 0)
        rc = check_apart(real, node->run_dir, "run", err);
    if (rc == 0)
        *ret = steal_ptr(real);
    return rc;
}
