#include "overlay_internal.h"

#include "buf.h"
#include "cleanup.h"
#include "mount_context.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Kernels before 6.5 find an option that they do not know only when the filesystem is made, and
 * say nothing about it here; newer ones name it. */
static bool is_about_unknown_option(int num, const char *messages)
{
    return num == EINVAL && (messages[0] == '\0' || strstr(messages, "nknown parameter"));
}

static int fail(int context, int num, const char *what, struct err *err)
{
    char messages[MOUNT_CONTEXT_TEXT_MAX];
    mount_context_messages(context, messages);
    if (is_about_unknown_option(num, messages))
        return OVERLAY_TRY_CLASSIC;
    if (messages[0] == '\0') {
        int rc = err_errno(err, num, "%s", what);
        err_hint(err, "the kernel log may say more");
        return rc;
    }
    return err_errno(err, num, "%s: %s", what, messages);
}

static int set_string(int context, const char *key, const char *value, struct err *err)
{
    if (fsconfig(context, FSCONFIG_SET_STRING, key, value, 0) == 0)
        return 0;
    char what[600];
    int num = errno;
    snprintf(what, sizeof what, "option %s=%.500s", key, value);
    return fail(context, num, what, err);
}

/* One lower directory, by its path when that is short and plain. */
static int add_lower(int context, const struct overlay_mount *mount, const char *name,
                     const char *parent, struct err *err)
{
    cleanup_fd int fd =
        openat(mount->lowers_dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open layer %s", name);
    char path[4096 + 256];
    char option[4096];
    snprintf(path, sizeof path, "%s/%.255s", parent, name);
    overlay_option_path(path, fd, OVERLAY_STRING_MAX, option);
    return set_string(context, "lowerdir+", option, err);
}

/* The path of an open directory; "" when it has none any more or another file has it. */
static void path_of(int fd, char ret[4096])
{
    char link[64];
    struct stat by_fd;
    struct stat by_path;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, ret, 4095);
    ret[n > 0 ? n : 0] = '\0';
    if (fstat(fd, &by_fd) < 0 || stat(ret, &by_path) < 0 || by_fd.st_dev != by_path.st_dev ||
        by_fd.st_ino != by_path.st_ino)
        ret[0] = '\0';
}

static int set_options(int context, const struct overlay_plan *plan, struct err *err)
{
    const struct overlay_mount *mount = plan->mount;
    char parent[4096];
    char upper[4096];
    char work[4096];
    path_of(mount->lowers_dir, parent);
    overlay_option_path(mount->upper, plan->upper_fd, OVERLAY_STRING_MAX, upper);
    overlay_option_path(mount->work, plan->work_fd, OVERLAY_STRING_MAX, work);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < mount->lower_count; i++)
        rc = add_lower(context, mount, mount->lowers[i], parent, err);
    if (rc == 0)
        rc = set_string(context, "upperdir", upper, err);
    if (rc == 0)
        rc = set_string(context, "workdir", work, err);
    if (rc == 0)
        rc = set_string(context, "source", "varve", err);
    for (size_t i = 0; rc == 0 && i < OVERLAY_OPTIONS; i++)
        rc = set_string(context, overlay_options[i].key, overlay_options[i].value, err);
    return rc;
}

int overlay_context_mount(const struct overlay_plan *plan, struct err *err)
{
    cleanup_fd int context = fsopen("overlay", FSOPEN_CLOEXEC);
    if (context < 0 && errno == ENOSYS)
        return OVERLAY_TRY_CLASSIC;
    if (context < 0)
        return err_errno(err, errno, "cannot use the filesystem overlay");
    int rc = set_options(context, plan, err);
    if (rc != 0)
        return rc;
    if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return fail(context, errno, "the kernel refused it", err);
    cleanup_fd int mounted = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
    if (mounted < 0)
        return fail(context, errno, "the kernel refused it", err);
    if (move_mount(mounted, "", plan->target_fd, "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_errno(err, errno, "cannot attach it");
    return 0;
}
