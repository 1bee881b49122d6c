#include "sandbox_args.h"

#include <stdarg.h>
#include <string.h>
#include <sys/capability.h>

#define DEFAULT_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const char *const sandbox_args_caps[] = {
    "CAP_CHOWN",      "CAP_DAC_OVERRIDE", "CAP_FOWNER",           "CAP_FSETID",  "CAP_KILL",
    "CAP_SETGID",     "CAP_SETUID",       "CAP_SETPCAP",          "CAP_SETFCAP", "CAP_MKNOD",
    "CAP_SYS_CHROOT", "CAP_AUDIT_WRITE",  "CAP_NET_BIND_SERVICE", NULL,
};

unsigned long long sandbox_args_cap_mask(void)
{
    unsigned long long mask = 0;
    for (size_t i = 0; sandbox_args_caps[i]; i++) {
        cap_value_t cap;
        if (cap_from_name(sandbox_args_caps[i], &cap) == 0)
            mask |= 1ULL << cap;
    }
    return mask;
}

/* Adds words up to NULL. */
static int add(struct buf *buf, struct err *err, ...)
{
    va_list ap;
    int rc = 0;
    va_start(ap, err);
    for (const char *word; rc == 0 && (word = va_arg(ap, const char *)) != NULL;)
        rc = buf_add(buf, word, strlen(word) + 1, "options of bubblewrap", err);
    va_end(ap);
    return rc;
}

static int add_setenv(struct buf *buf, const char *pair, struct err *err)
{
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return 0; /* an image's config may hold anything; this sets nothing */
    cleanup_free char *name = strndup(pair, (size_t)(equals - pair));
    if (!name)
        return err_fail(err, ERR_INTERNAL, "no memory for the environment");
    return add(buf, err, "--setenv", name, equals + 1, NULL);
}

/* Defaults first, so that what the image and the user say wins. */
static int add_environment(struct buf *buf, const struct sandbox *sandbox, struct err *err)
{
    const char *home = sandbox->user.home ? sandbox->user.home : "/root";
    int rc = add(buf, err, "--clearenv", NULL);
    if (rc == 0)
        rc = add_setenv(buf, DEFAULT_PATH, err);
    if (rc == 0)
        rc = add(buf, err, "--setenv", "HOME", home, NULL);
    for (size_t i = 0; rc == 0 && sandbox->env && sandbox->env[i]; i++)
        rc = add_setenv(buf, sandbox->env[i], err);
    return rc;
}

static int add_proc(struct buf *buf, const struct sandbox_args *args, struct err *err)
{
    int rc = add(buf, err, "--proc", "/proc", NULL);
    for (size_t i = 0; rc == 0 && i < args->proc_count; i++) {
        char path[80];
        snprintf(path, sizeof path, "/proc/%s", args->proc[i].name);
        switch (args->proc[i].cover) {
        case SANDBOX_PROC_LEAVE:
            break;
        case SANDBOX_PROC_READ_ONLY:
            rc = add(buf, err, "--ro-bind", path, path, NULL);
            break;
        case SANDBOX_PROC_HIDE_FILE:
            rc = add(buf, err, "--dev-bind", "/dev/null", path, NULL);
            break;
        case SANDBOX_PROC_HIDE_DIR:
            rc = add(buf, err, "--tmpfs", path, "--remount-ro", path, NULL);
            break;
        }
    }
    return rc;
}

static int add_files(struct buf *buf, const struct sandbox_args *args, struct err *err)
{
    int rc = add(buf, err, "--bind", args->sandbox->rootfs, "/", NULL);
    if (rc == 0)
        rc = add_proc(buf, args, err);
    /* bubblewrap binds the device nodes of the private /dev; its own /dev/shm is not for users. */
    if (rc == 0)
        rc = add(buf, err, "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", NULL);
    if (rc == 0 && args->console)
        rc = add(buf, err, "--dev-bind", "/dev/console", "/dev/console", NULL);
    if (rc == 0)
        rc = add(buf, err, "--perms", "1777", "--tmpfs", "/tmp", NULL);
    if (rc == 0 && args->resolv_fd >= 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", args->resolv_fd);
        rc = add(buf, err, "--perms", "0644", "--ro-bind-data", number, args->resolv_path, NULL);
    }
    return rc;
}

int sandbox_args_build(const struct sandbox_args *args, struct buf *ret, struct err *err)
{
    int rc = add(ret, err, "--unshare-pid", "--unshare-ipc", "--unshare-uts",
                 "--unshare-cgroup-try", "--as-pid-1", "--die-with-parent", NULL);
    if (rc == 0 && args->sandbox->net != SANDBOX_NET_HOST)
        rc = add(ret, err, "--unshare-net", NULL);
    if (rc == 0)
        rc = add(ret, err, "--hostname", args->sandbox->id, NULL);
    if (rc == 0)
        rc = add_environment(ret, args->sandbox, err);
    if (rc == 0)
        rc = add_files(ret, args, err);
    if (rc == 0)
        rc = add(ret, err, "--cap-drop", "ALL", NULL);
    for (size_t i = 0; rc == 0 && sandbox_args_caps[i]; i++)
        rc = add(ret, err, "--cap-add", sandbox_args_caps[i], NULL);
    return rc;
}
