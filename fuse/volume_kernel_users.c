#include "volume_kernel_users.h"

#include "cleanup.h"
#include "loop_device.h"
#include "mountinfo.h"

#include <string.h>
#include <sys/sysmacros.h>

static void add(struct volume_kernel_users *users, const char *what)
{
    size_t used = strlen(users->text);
    /* A file system that is mounted twice is looked through twice. */
    if (strstr(users->text, what))
        return;
    if (users->count++ < VOLUME_KERNEL_USERS_SHOWN)
        (void)snprintf(users->text + used, sizeof users->text - used, "%s%s", used > 0 ? ", " : "",
                       what);
}

void volume_kernel_users_add_swaps(FILE *swaps, const char *point, struct volume_kernel_users *ret)
{
    cleanup_free char *line = NULL;
    size_t size = 0;
    size_t len = strlen(point);
    while (getline(&line, &size, swaps) > 0) {
        char what[80];
        line[strcspn(line, " \t\n")] = '\0';
        mountinfo_unescape(line);
        if (strncmp(line, point, len) != 0 || line[len] != '/')
            continue;
        (void)snprintf(what, sizeof what, "the swap file %.60s", line + len + 1);
        add(ret, what);
    }
}

/* loop_device_take */
static int add_loop(void *arg, const struct loop_device *loop, struct err *err)
{
    char what[48];
    (void)err;
    (void)snprintf(what, sizeof what, "the loop device %.30s", loop->path);
    add(arg, what);
    return 0;
}

static int add_below(const char *point, struct volume_kernel_users *ret, struct err *err)
{
    cleanup_free char *prefix = NULL;
    cleanup_file FILE *swaps = fopen("/proc/swaps", "re"); /* none in a kernel without swap */
    if (asprintf(&prefix, "%s/", point) < 0) {
        prefix = NULL;
        return err_errno(err, ENOMEM, "cannot look for what uses %s", point);
    }
    if (swaps)
        volume_kernel_users_add_swaps(swaps, point, ret);
    return loop_device_each(prefix, add_loop, ret, err);
}

int volume_kernel_users_find(dev_t device, struct volume_kernel_users *ret, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    struct volume_kernel_users users = {.count = 0};
    int rc = mountinfo_open("self", &info, err);
    while (rc >= 0 && (rc = mountinfo_next(&info, &entry, err)) > 0)
        if (makedev(entry.dev_major, entry.dev_minor) == device && strcmp(entry.point, "/") != 0)
            rc = add_below(entry.point, &users, err);
    if (rc < 0)
        return rc;
    size_t used = strlen(users.text);
    if (users.count > VOLUME_KERNEL_USERS_SHOWN)
        (void)snprintf(users.text + used, sizeof users.text - used, " and %d more",
                       users.count - VOLUME_KERNEL_USERS_SHOWN);
    *ret = users;
    return 0;
}
