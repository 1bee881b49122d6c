#include "run_attr.h"

#include "cleanup.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum {
    VALUE_MAX = 65536, /* XATTR_SIZE_MAX of Linux; names of one file are bounded by the same */
};

static int copy_one(int from_fd, int to_fd, const char *name, char *value, struct err *err)
{
    ssize_t len = fgetxattr(from_fd, name, value, VALUE_MAX);
    if (len < 0)
        return err_errno(err, errno, "cannot read the attribute %s", name);
    if (fsetxattr(to_fd, name, value, (size_t)len, 0) < 0)
        return err_errno(err, errno, "cannot set the attribute %s", name);
    return 0;
}

static bool is_of_the_stack(const char *name)
{
    static const char *const prefixes[] = {"trusted.overlay.", "trusted.varve."};
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static int copy_xattrs(int from_fd, int to_fd, struct err *err)
{
    cleanup_free char *names = malloc(VALUE_MAX);
    cleanup_free char *value = malloc(VALUE_MAX);
    if (!names || !value)
        return err_errno(err, ENOMEM, "cannot copy attributes");
    ssize_t len = flistxattr(from_fd, names, VALUE_MAX);
    if (len < 0)
        return errno == ENOTSUP ? 0 : err_errno(err, errno, "cannot list the attributes");
    for (const char *name = names; name < names + len; name += strlen(name) + 1) {
        if (is_of_the_stack(name))
            continue;
        int rc = copy_one(from_fd, to_fd, name, value, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int run_attr_copy(int from_fd, int to_fd, struct err *err)
{
    struct stat st;
    if (fstat(from_fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the root of the topmost layer");
    if (fchown(to_fd, st.st_uid, st.st_gid) < 0 || fchmod(to_fd, st.st_mode & 07777) < 0)
        return err_errno(err, errno, "cannot set owner and mode of the upper directory");
    int rc = copy_xattrs(from_fd, to_fd, err);
    if (rc < 0)
        return rc;
    /* Last, as what comes before changes it on some filesystems. */
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, st.st_mtim};
    if (futimens(to_fd, times) < 0)
        return err_errno(err, errno, "cannot set the time of the upper directory");
    return 0;
}

int run_attr_default(int fd, struct err *err)
{
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 0}};
    if (fchown(fd, 0, 0) < 0 || fchmod(fd, 0755) < 0 || futimens(fd, times) < 0)
        return err_errno(err, errno, "cannot set owner, mode and time of the upper directory");
    return 0;
}

int run_attr_is_implied(int fd, struct err *err)
{
    char value[8];
    if (fgetxattr(fd, "trusted.varve.implied", value, sizeof value) >= 0 || errno == ERANGE)
        return 1;
    if (errno == ENODATA || errno == ENOTSUP)
        return 0;
    return err_errno(err, errno, "cannot read an attribute of a layer's root");
}
