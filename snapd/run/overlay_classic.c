#include "overlay_internal.h"

#include "buf.h"
#include "cleanup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>

/* mount(2) takes one page of options; the names of 127 layers do not fit. So a child changes into
 * /proc/self/fd, where a layer's name is the number of its descriptor. A child of its own, as the
 * working directory belongs to the whole process. */

enum {
    OPTIONS_MAX = 4095,
    EXIT_ERRNO_MAX = 255,
};

struct lowers {
    int *fds; /* owned */
    size_t count;
};

static void lowers_close(struct lowers *lowers)
{
    for (size_t i = 0; i < lowers->count; i++)
        cleanup_fdp(&lowers->fds[i]);
    free(lowers->fds);
}

static int lowers_open(const struct overlay_mount *mount, struct lowers *ret, struct err *err)
{
    ret->fds = calloc(mount->lower_count, sizeof *ret->fds);
    if (!ret->fds)
        return err_errno(err, ENOMEM, "cannot list the layers");
    for (size_t i = 0; i < mount->lower_count; i++) {
        ret->fds[i] = openat(mount->lowers_dir, mount->lowers[i],
                             O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (ret->fds[i] < 0)
            return err_errno(err, errno, "cannot open layer %s", mount->lowers[i]);
        ret->count++;
    }
    return 0;
}

static int build_options(const struct overlay_plan *plan, const struct lowers *lowers,
                         struct buf *ret, struct err *err)
{
    char upper[4096];
    char work[4096];
    overlay_option_path(plan->mount->upper, plan->upper_fd, OVERLAY_STRING_MAX, upper);
    overlay_option_path(plan->mount->work, plan->work_fd, OVERLAY_STRING_MAX, work);
    int rc = buf_addf(ret, err, "upperdir=%s,workdir=%s", upper, work);
    for (size_t i = 0; rc == 0 && i < OVERLAY_OPTIONS; i++)
        rc = buf_addf(ret, err, ",%s=%s", overlay_options[i].key, overlay_options[i].value);
    for (size_t i = 0; rc == 0 && i < lowers->count; i++)
        rc = buf_addf(ret, err, "%s%d", i == 0 ? ",lowerdir=" : ":", lowers->fds[i]);
    return rc;
}

/* Runs between fork and _exit in a process that had other threads: system calls only. */
static void child_mount(const char *target, const char *options)
{
    int num = 0;
    if (chdir("/proc/self/fd") < 0 || mount("varve", target, "overlay", MS_NODEV, options) < 0)
        num = errno;
    _exit(num > EXIT_ERRNO_MAX ? EIO : num);
}

static int wait_for(pid_t pid, struct err *err)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_errno(err, errno, "cannot wait for the mounting process");
    if (!WIFEXITED(status))
        return err_fail(err, ERR_INTERNAL, "the mounting process was killed by signal %d",
                        WTERMSIG(status));
    if (WEXITSTATUS(status) == 0)
        return 0;
    int rc = err_errno(err, WEXITSTATUS(status), "the kernel refused it");
    err_hint(err, "the kernel log may say more");
    return rc;
}

int overlay_classic_mount(const struct overlay_plan *plan, struct err *err)
{
    cleanup_with(lowers_close) struct lowers lowers = {.fds = NULL};
    cleanup_buf struct buf options = BUF_INIT(OPTIONS_MAX);
    int rc = lowers_open(plan->mount, &lowers, err);
    if (rc == 0)
        rc = build_options(plan, &lowers, &options, err);
    if (rc < 0)
        return rc;
    char target[32];
    snprintf(target, sizeof target, "%d", plan->target_fd); /* in /proc/self/fd */
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(err, errno, "cannot start the mounting process");
    if (pid == 0)
        child_mount(target, buf_str(&options));
    return wait_for(pid, err);
}
