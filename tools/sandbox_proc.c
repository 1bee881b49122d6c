#include "sandbox_proc.h"

#include "cleanup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

enum sandbox_proc_cover sandbox_proc_decide(const char *name, mode_t mode)
{
    /* The list of the OCI runtime specification's default profile, and keyrings. */
    static const char *const hidden[] = {"acpi",       "asound",        "kcore",       "key-users",
                                         "keys",       "latency_stats", "sched_debug", "scsi",
                                         "timer_list", "timer_stats"};
    if (name[0] >= '0' && name[0] <= '9')
        return SANDBOX_PROC_LEAVE;
    bool hide = false;
    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        hide = hide || strcmp(name, hidden[i]) == 0;
    if (S_ISDIR(mode)) {
        hide = hide || (mode & S_IROTH) == 0 || (mode & S_IXOTH) == 0;
        return hide ? SANDBOX_PROC_HIDE_DIR : SANDBOX_PROC_READ_ONLY;
    }
    if (!S_ISREG(mode))
        return SANDBOX_PROC_LEAVE; /* links to processes: self, mounts, net, thread-self */
    if (hide || (mode & S_IROTH) == 0)
        return SANDBOX_PROC_HIDE_FILE;
    return mode & (S_IWUSR | S_IWGRP | S_IWOTH) ? SANDBOX_PROC_READ_ONLY : SANDBOX_PROC_LEAVE;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct sandbox_proc_entry *)a)->name,
                  ((const struct sandbox_proc_entry *)b)->name);
}

/* One name of the directory. An entry that has gone meanwhile needs no cover. */
static int take(int dir_fd, const char *name, struct sandbox_proc_entry *entries, size_t *count,
                struct err *err)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot stat /proc/%s", name);
    enum sandbox_proc_cover cover = sandbox_proc_decide(name, st.st_mode);
    if (cover == SANDBOX_PROC_LEAVE)
        return 0;
    if (*count == SANDBOX_PROC_MAX || strlen(name) >= sizeof entries->name)
        return err_fail(err, ERR_TOO_LARGE, "/proc has more entries than varve can cover");
    snprintf(entries[*count].name, sizeof entries->name, "%s", name);
    entries[(*count)++].cover = cover;
    return 0;
}

int sandbox_proc_list(const char *proc, struct sandbox_proc_entry **ret, size_t *ret_count,
                      struct err *err)
{
    cleanup_dir DIR *dir = opendir(proc);
    cleanup_free struct sandbox_proc_entry *entries = calloc(SANDBOX_PROC_MAX, sizeof *entries);
    if (!dir || !entries)
        return err_errno(err, errno, "cannot list %s", proc);
    size_t count = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            return err_errno(err, errno, "cannot list %s", proc);
        if (!entry)
            break;
        if (entry->d_name[0] == '.' || (entry->d_name[0] >= '0' && entry->d_name[0] <= '9'))
            continue;
        int rc = take(dirfd(dir), entry->d_name, entries, &count, err);
        if (rc < 0)
            return rc;
    }
    qsort(entries, count, sizeof *entries, by_name);
    *ret = steal_ptr(entries);
    *ret_count = count;
    return 0;
}
