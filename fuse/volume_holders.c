#include "volume_holders.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "mount_users.h"
#include "mountinfo.h"
#include "volume_kernel_users.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    NAMESPACES_MAX = 1024, /* that are told apart; further ones are not looked at */
};

/* A mount namespace, by its node in nsfs. */
struct namespace_id {
    dev_t device;
    ino_t inode;
};

struct scan {
    dev_t device;
    struct volume_holders found;
    struct namespace_id seen[NAMESPACES_MAX];
    size_t seen_count;
    pid_t namespace_pids[VOLUME_HOLDERS_SHOWN];
    int namespace_shown;
};

/* A call that varved makes in a child (deadline_child.h). */
static bool is_own_call(pid_t pid)
{
    char path[32];
    char text[128];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    cleanup_file FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = '\0';
    const char *name = strchr(text, '(');
    const char *rest = strrchr(text, ')');
    return name && rest && strncmp(name + 1, DEADLINE_CHILD_NAME ")", rest + 1 - (name + 1)) == 0 &&
           sscanf(rest + 1, " %*c %d", &parent) == 1 && parent == getpid();
}

static int count_open(void *arg, pid_t pid, int pidfd, struct err *err)
{
    struct scan *scan = arg;
    (void)pidfd;
    (void)err;
    if (is_own_call(pid)) {
        scan->found.own++;
        return 0;
    }
    if (scan->found.open < VOLUME_HOLDERS_SHOWN) {
        scan->found.pids[scan->found.shown] = pid;
        scan->found.shown++;
    }
    scan->found.open++;
    return 0;
}

/* Notes the mount namespace of a process. True: it is a new one. */
static bool is_new_namespace(struct scan *scan, const char *process)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%.20s/ns/mnt", process);
    if (stat(path, &st) < 0 || scan->seen_count >= NAMESPACES_MAX)
        return false;
    for (size_t i = 0; i < scan->seen_count; i++)
        if (scan->seen[i].device == st.st_dev && scan->seen[i].inode == st.st_ino)
            return false;
    scan->seen[scan->seen_count++] = (struct namespace_id){.device = st.st_dev, .inode = st.st_ino};
    return true;
}

static bool has_mounted(const char *process, dev_t device)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    if (mountinfo_open(process, &info, NULL) < 0)
        return false;
    while (mountinfo_next(&info, &entry, NULL) > 0)
        if (makedev(entry.dev_major, entry.dev_minor) == device)
            return true;
    return false;
}

/* One process of each other namespace in which the device is mounted. */
static int find_namespaces(struct scan *scan, struct err *err)
{
    cleanup_dir DIR *proc = opendir("/proc");
    if (!proc)
        return err_errno(err, errno, "cannot list the processes");
    (void)is_new_namespace(scan, "self");
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(proc);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list the processes") : 0;
        if (!isdigit((unsigned char)entry->d_name[0]) || !is_new_namespace(scan, entry->d_name) ||
            !has_mounted(entry->d_name, scan->device))
            continue;
        scan->found.namespaces++;
        if (scan->namespace_shown < VOLUME_HOLDERS_SHOWN)
            scan->namespace_pids[scan->namespace_shown++] = (pid_t)strtol(entry->d_name, NULL, 10);
    }
}

/* Appends "bash (812), vim (813) and 4 more". */
static void add_names(char text[VOLUME_HOLDERS_TEXT_MAX], const pid_t *pids, int shown, int count)
{
    for (int i = 0; i < shown; i++) {
        char name[32];
        size_t used = strlen(text);
        mount_users_name(pids[i], name);
        snprintf(text + used, VOLUME_HOLDERS_TEXT_MAX - used, "%s%s (%d)", i > 0 ? ", " : "", name,
                 pids[i]);
    }
    size_t used = strlen(text);
    if (count > shown)
        snprintf(text + used, VOLUME_HOLDERS_TEXT_MAX - used, " and %d more", count - shown);
}

static void write_text(struct scan *scan, const struct volume_kernel_users *kernel)
{
    struct volume_holders *ret = &scan->found;
    add_names(ret->text, ret->pids, ret->shown, ret->open);
    size_t before = strlen(ret->text);
    if (kernel->count > 0)
        snprintf(ret->text + before, sizeof ret->text - before, "%s%s", before > 0 ? "; " : "",
                 kernel->text);
    if (scan->namespace_shown == 0)
        return;
    size_t used = strlen(ret->text);
    snprintf(ret->text + used, sizeof ret->text - used, "%smounted in the mount namespace%s of ",
             used > 0 ? "; " : "", ret->namespaces > 1 ? "s" : "");
    add_names(ret->text, scan->namespace_pids, scan->namespace_shown, ret->namespaces);
    for (int i = 0; i < scan->namespace_shown; i++)
        ret->pids[ret->shown++] = scan->namespace_pids[i];
}

int volume_holders_find(dev_t device, struct volume_holders *ret, struct err *err)
{
    cleanup_free struct scan *scan = calloc(1, sizeof *scan);
    if (!scan)
        return err_errno(err, ENOMEM, "cannot look for the users of a volume");
    scan->device = device;
    struct volume_kernel_users kernel = {.count = 0};
    /* What lies on a file system without a device is the loop device of a volume itself. */
    int rc = major(device) != 0 ? volume_kernel_users_find(device, &kernel, err) : 0;
    scan->found.kernel = kernel.count;
    if (rc == 0)
        rc = find_namespaces(scan, err);
    if (rc == 0)
        rc = mount_users_each_device(device, count_open, scan, err);
    if (rc < 0)
        return rc;
    write_text(scan, &kernel);
    *ret = scan->found;
    return 0;
}
