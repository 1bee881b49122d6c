#include "workspace_path.h"

#include "cleanup.h"
#include "deadline_child.h"

#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define CONFIGFS_SUPER_MAGIC 0x62656570 /* which linux/magic.h lacks */

bool workspace_path_is_below(const char *inner, const char *outer)
{
    size_t len = strlen(outer);
    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(inner, outer, len) == 0 && (inner[len] == '/' || inner[len] == '\0');
}

static int check_apart(const char *path, const char *other, const char *what, struct err *err)
{
    if (!workspace_path_is_below(path, other) && !workspace_path_is_below(other, path))
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
    if (num == ENOENT) {
        rc = err_fail(err, ERR_NOT_FOUND, "there is no directory %s", path);
        err_hint(err, "make it with mkdir, or name another one");
    } else if (num == ENOTDIR) {
        rc = err_fail(err, ERR_INVALID, "%s is not a directory", path);
        err_hint(err, "name a directory");
    } else {
        rc = err_errno(err, num, "cannot resolve %s", path);
    }
    return rc;
}

/* Directories that the kernel makes and takes away with what they show: a mount there would go with
 * a process or a device, and hide what others look at. */
static int check_lasting(const char *path, struct err *err)
{
    static const long passing[] = {PROC_SUPER_MAGIC,   SYSFS_MAGIC,         CGROUP2_SUPER_MAGIC,
                                   CGROUP_SUPER_MAGIC, DEBUGFS_MAGIC,       TRACEFS_MAGIC,
                                   DEVPTS_SUPER_MAGIC, SECURITYFS_MAGIC,    BPF_FS_MAGIC,
                                   NSFS_MAGIC,         CONFIGFS_SUPER_MAGIC};
    struct statfs fs;
    if (statfs(path, &fs) < 0)
        return err_errno(err, errno, "cannot look at the file system of %s", path);
    for (size_t i = 0; i < ARRAY_SIZE(passing); i++)
        if (fs.f_type == passing[i]) {
            int rc = err_fail(err, ERR_INVALID,
                              "a workspace cannot be mounted at %s, which the kernel makes", path);
            err_hint(err, "name a directory on a disk");
            return rc;
        }
    return 0;
}

/* deadline_child_call */
static int call_resolve(void *arg, void *result, int *ret_fd, struct err *err)
{
    const char *path = arg;
    struct stat st;
    (void)ret_fd;
    if (!realpath(path, result) || lstat(result, &st) < 0)
        return fail(errno == ENOTDIR ? ENOENT : errno, path, err); /* below a file there is none */
    return S_ISDIR(st.st_mode) ? check_lasting(result, err) : fail(ENOTDIR, path, err);
}

/* In a child: an automount, a network's or somebody's FUSE file system on the way may not answer,
 * and neither may another workspace. */
static int resolve(const char *path, char **ret, struct err *err)
{
    char real[PATH_MAX];
    char what[120];
    (void)snprintf(what, sizeof what, "resolve %.100s", path);
    const struct deadline_child child = {.what = what,
                                         .object = path,
                                         .wait_ms = WORKSPACE_PATH_MS,
                                         .spare = true,
                                         .hint = "a file system on the way does not answer"};
    int rc = deadline_child_run(&child, call_resolve, (void *)path, real, sizeof real, NULL, err);
    if (rc < 0)
        return rc;
    *ret = strdup(real);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot resolve %s", path);
}

int workspace_path_resolve(const struct node *node, const char *path, char **ret, struct err *err)
{
    if (path[0] != '/')
        return err_fail(err, ERR_INVALID, "the path '%s' is not absolute", path);
    cleanup_free char *real = NULL;
    int rc = resolve(path, &real, err);
    if (rc < 0)
        return rc;
    rc = check_apart(real, node->data_dir, "data", err);
    if (rc == 0)
        rc = check_apart(real, node->run_dir, "run", err);
    if (rc == 0)
        *ret = steal_ptr(real);
    return rc;
}
