#include "mount_users.h"

#include "cleanup.h"
#include "clock.h"
#include "deadline_child.h"
#include "fdio.h"
#include "log.h"
#include "mountinfo.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

enum {
    LOOK_MS = 2000,  /* of a child that looks at the memory of processes */
    STUCK_MS = 1000, /* of that, at one process: then it is stuck */
    LOOKS_MAX = 3,
    MAPPERS_MAX = 1 << 16,
};

/* Every thread is looked at, as each can have a root, a working directory and descriptors of its
 * own, and as the first one may be gone while others live. /proc/TID is there for every thread,
 * although only processes are listed. Answers of the helpers: 1 uses it, 0 does not, -EACCES the
 * kernel does not let us look. */

struct filesystem {
    unsigned dev_major;
    unsigned dev_minor;
    bool node_too; /* who has the block device itself open is a user, too */
};

static bool is_refusal(int num)
{
    return num == EACCES || num == EPERM;
}

/* Only st_dev is asked for, so that a file on a dead network or FUSE filesystem blocks nobody. All
 * other failures mean that the process, or this file of it, is gone. */
static int lies_on(int dir_fd, const char *name, const struct filesystem *fs)
{
    struct statx stx;
    if (statx(dir_fd, name, AT_STATX_DONT_SYNC, 0, &stx) < 0)
        return is_refusal(errno) ? -EACCES : 0;
    if (stx.stx_dev_major == fs->dev_major && stx.stx_dev_minor == fs->dev_minor)
        return 1;
    return fs->node_too && S_ISBLK(stx.stx_mode) && stx.stx_rdev_major == fs->dev_major &&
           stx.stx_rdev_minor == fs->dev_minor;
}

/* Whether any link in the directory `name` of a thread lies on the filesystem; whether there was
 * a link at all in *ret_any. */
static int any_lies_on(int thread_fd, const char *name, const struct filesystem *fs, bool *ret_any)
{
    *ret_any = false;
    cleanup_dir DIR *dir = fdio_list(thread_fd, name);
    if (!dir)
        return is_refusal(errno) ? -EACCES : 0;
    int refused = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        *ret_any = true;
        int rc = lies_on(dirfd(dir), entry->d_name, fs);
        if (rc == 1)
            return 1;
        if (rc < 0)
            refused = rc;
    }
    return refused;
}

static bool shares_descriptors(pid_t a, pid_t b)
{
    return a != b && syscall(SYS_kcmp, a, b, KCMP_FILES, 0UL, 0UL) == 0;
}

/* Use wins over refusal, refusal over none. */
static int stronger(int a, int b)
{
    if (a == 1 || b == 1)
        return 1;
    return a < 0 ? a : b;
}

static int thread_uses(int thread_fd, pid_t pid, pid_t tid, const struct filesystem *fs)
{
    bool any;
    int rc = stronger(lies_on(thread_fd, "root", fs), lies_on(thread_fd, "cwd", fs));
    if (rc != 1)
        rc = stronger(rc, lies_on(thread_fd, "exe", fs));
    if (rc != 1 && !shares_descriptors(pid, tid))
        rc = stronger(rc, any_lies_on(thread_fd, "fd", fs, &any));
    return rc;
}

static pid_t parse_pid(const char *text)
{
    char *end;
    errno = 0;
    long pid = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && pid > 0 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

/* Looks at one thread: what is above 0 ends the walk, what is below is remembered. */
typedef int look_at_thread(int thread_fd, pid_t pid, pid_t tid, const struct filesystem *fs);

static int each_thread(int proc_fd, pid_t pid, look_at_thread *look, const struct filesystem *fs)
{
    char name[32];
    snprintf(name, sizeof name, "%d/task", pid);
    cleanup_dir DIR *dir = fdio_list(proc_fd, name);
    if (!dir)
        return is_refusal(errno) ? -EACCES : 0;
    int refused = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        pid_t tid = parse_pid(entry->d_name);
        snprintf(name, sizeof name, "%d", tid);
        cleanup_fd int thread =
            tid > 0 ? openat(proc_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        int rc = thread >= 0 ? look(thread, pid, tid, fs) : 0;
        if (rc > 0)
            return rc;
        if (rc < 0)
            refused = rc;
    }
    return refused;
}

/* --- Memory ---
 *
 * The kernel looks at the mappings of a process under a lock of its memory, and one that is stuck
 * in the kernel can have that for as long as it is stuck: a page fault on a file system that does
 * not answer, with another thread that maps or unmaps. So a child does it, which can be killed
 * while it waits. Who is stuck is left out, what is known of him otherwise decides. */

/* Shared with the child. */
struct mappers {
    struct filesystem fs;
    pid_t only;       /* look at this process alone; 0: at all */
    pid_t self;       /* who asks */
    pid_t after;      /* begin behind this one */
    _Atomic pid_t at; /* who is being looked at */
    _Atomic int64_t since_ms;
    _Atomic uint32_t count;
    pid_t pids[MAPPERS_MAX]; /* who maps a file of the filesystem; ascending */
};

/* look_at_thread. Threads share their memory, so one that has some is enough: 2 when none of it is
 * of the filesystem. */
static int thread_maps(int thread_fd, pid_t pid, pid_t tid, const struct filesystem *fs)
{
    bool any;
    (void)pid;
    (void)tid;
    int rc = any_lies_on(thread_fd, "map_files", fs, &any);
    if (rc == 1)
        return 1;
    return any ? 2 : rc;
}

static int note_mapper(struct mappers *mappers, int proc_fd, pid_t pid, struct err *err)
{
    atomic_store(&mappers->since_ms, clock_now_ms());
    atomic_store(&mappers->at, pid);
    uint32_t count = atomic_load(&mappers->count);
    if (each_thread(proc_fd, pid, thread_maps, &mappers->fs) != 1)
        return 0;
    if (count == MAPPERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "more than %d processes map a file of it",
                        (int)MAPPERS_MAX);
    mappers->pids[count] = pid;
    atomic_store(&mappers->count, count + 1);
    return 0;
}

/* deadline_child_call */
static int call_look(void *arg, void *result, int *ret_fd, struct err *err)
{
    struct mappers *mappers = arg;
    (void)result;
    (void)ret_fd;
    cleanup_dir DIR *proc = opendir("/proc");
    if (!proc)
        return err_errno(err, errno, "cannot list the processes");
    if (mappers->only)
        return note_mapper(mappers, dirfd(proc), mappers->only, err);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(proc); /* ascending */
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list the processes") : 0;
        pid_t pid = parse_pid(entry->d_name);
        int rc = pid > mappers->after && pid != mappers->self && pid != getpid()
                     ? note_mapper(mappers, dirfd(proc), pid, err)
                     : 0;
        if (rc < 0)
            return rc;
    }
}

/* After a child that was not done in time. */
static void skip_stuck(struct mappers *mappers)
{
    char number[16];
    char name[32];
    pid_t at = atomic_load(&mappers->at);
    mappers->after = at > 0 ? at - 1 : 0;
    if (at <= 0 || clock_now_ms() - atomic_load(&mappers->since_ms) < STUCK_MS)
        return; /* there are many */
    mappers->after = at;
    mount_users_name(at, name);
    snprintf(number, sizeof number, "%d", at);
    log_event(LOG_WARN, "process-stuck", "pid", number, "name", name, "what",
              "its memory cannot be looked at", NULL);
}

static void mappers_free(struct mappers **mappers)
{
    if (*mappers)
        (void)munmap(*mappers, sizeof **mappers);
}
#define cleanup_mappers cleanup_with(mappers_free)

static int find_mappers(const struct filesystem *fs, pid_t only, struct mappers **ret,
                        struct err *err)
{
    static const struct deadline_child child = {.what = "look at the memory of processes",
                                                .wait_ms = LOOK_MS};
    cleanup_mappers struct mappers *mappers =
        mmap(NULL, sizeof *mappers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mappers == MAP_FAILED) {
        mappers = NULL;
        return err_errno(err, ENOMEM, "cannot look at the memory of processes");
    }
    mappers->fs = *fs;
    mappers->only = only;
    mappers->self = getpid();
    for (int i = 0; i < LOOKS_MAX; i++) {
        struct err failure = ERR_INIT;
        int rc = deadline_child_run(&child, call_look, mappers, NULL, 0, NULL, &failure);
        if (rc < 0 && failure.code != ERR_UNREACHABLE)
            return err_pass(err, rc, &failure);
        if (rc == 0)
            break;
        skip_stuck(mappers);
        if (only)
            break;
    }
    *ret = steal_ptr(mappers);
    return 0;
}

static bool maps_file(const struct mappers *mappers, pid_t pid)
{
    for (uint32_t i = 0; i < atomic_load(&mappers->count); i++)
        if (mappers->pids[i] == pid)
            return true;
    return false;
}

/* --- All of it --- */

/* For processes with more rights than this one (pid 1 of some hosts): their mounts can be read by
 * everybody, and one that lives in the filesystem has it as its root. */
static int has_as_root(pid_t pid, const struct filesystem *fs)
{
    char name[16];
    snprintf(name, sizeof name, "%d", pid);
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int found = 0;
    if (mountinfo_open(name, &info, NULL) < 0)
        return 0;
    while (mountinfo_next(&info, &entry, NULL) > 0)
        if (strcmp(entry.point, "/") == 0) /* the last one is the topmost */
            found = entry.dev_major == fs->dev_major && entry.dev_minor == fs->dev_minor;
    return found;
}

static bool process_uses(int proc_fd, pid_t pid, const struct mappers *mappers)
{
    int rc = each_thread(proc_fd, pid, thread_uses, &mappers->fs);
    if (rc == 1 || maps_file(mappers, pid))
        return true;
    return rc < 0 && has_as_root(pid, &mappers->fs);
}

void mount_users_name(pid_t pid, char ret[32])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, 31);
    ret[n > 0 ? n : 0] = '\0';
    if (n > 0 && ret[n - 1] == '\n')
        ret[n - 1] = '\0';
    for (char *c = ret; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    if (ret[0] == '\0')
        snprintf(ret, 32, "?");
}

/* The filesystem that is mounted at exactly this path. 1, 0 when nothing is mounted, -errno. */
static int mounted_at(const char *path, struct filesystem *ret, struct err *err)
{
    struct statx stx;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &stx) <
        0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot stat %s", path);
    *ret = (struct filesystem){.dev_major = stx.stx_dev_major, .dev_minor = stx.stx_dev_minor};
    return (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Calls `take` with each process that uses the filesystem. */
static int each_user(const struct filesystem *fs,
                     int (*take)(void *arg, int proc_fd, pid_t pid, struct err *err), void *arg,
                     struct err *err)
{
    cleanup_mappers struct mappers *mappers = NULL;
    int found = find_mappers(fs, 0, &mappers, err);
    if (found < 0)
        return found;
    cleanup_dir DIR *proc = opendir("/proc");
    if (!proc)
        return err_errno(err, errno, "cannot list the processes");
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(proc);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list the processes") : 0;
        pid_t pid = parse_pid(entry->d_name);
        if (pid == 0 || pid == getpid() || !process_uses(dirfd(proc), pid, mappers))
            continue;
        int rc = take(arg, dirfd(proc), pid, err);
        if (rc < 0)
            return rc;
    }
}

struct found {
    int count;
    pid_t first;
    char name[32];
};

static int count_user(void *arg, int proc_fd, pid_t pid, struct err *err)
{
    (void)proc_fd;
    (void)err;
    struct found *found = arg;
    if (found->count++ == 0) {
        found->first = pid;
        mount_users_name(pid, found->name);
    }
    return 0;
}

int mount_users_find(const char *path, pid_t *ret_first, char ret_name[32], struct err *err)
{
    struct filesystem fs;
    struct found found = {.count = 0};
    int rc = mounted_at(path, &fs, err);
    if (rc > 0)
        rc = each_user(&fs, count_user, &found, err);
    if (rc < 0 || found.count == 0)
        return rc;
    *ret_first = found.first;
    memcpy(ret_name, found.name, sizeof found.name);
    return found.count;
}

struct visit {
    const struct filesystem *fs;
    mount_users_take *take;
    void *arg;
};

static int visit_user(void *arg, int proc_fd, pid_t pid, struct err *err)
{
    const struct visit *visit = arg;
    cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0 && errno != ESRCH)
        return err_errno(err, errno, "cannot open process %d", pid);
    if (pidfd < 0)
        return 0;
    /* The number may have gone to another process between the look and the opening. */
    if (each_thread(proc_fd, pid, thread_uses, visit->fs) != 1) {
        cleanup_mappers struct mappers *mappers = NULL;
        int rc = find_mappers(visit->fs, pid, &mappers, err);
        if (rc < 0 || !process_uses(proc_fd, pid, mappers))
            return rc;
    }
    return visit->take(visit->arg, pid, pidfd, err);
}

int mount_users_each(const char *path, mount_users_take *take, void *arg, struct err *err)
{
    struct filesystem fs;
    const struct visit visit = {.fs = &fs, .take = take, .arg = arg};
    int rc = mounted_at(path, &fs, err);
    return rc <= 0 ? rc : each_user(&fs, visit_user, (void *)&visit, err);
}

int mount_users_each_device(dev_t device, mount_users_take *take, void *arg, struct err *err)
{
    const struct filesystem fs = {
        .dev_major = major(device), .dev_minor = minor(device), .node_too = true};
    const struct visit visit = {.fs = &fs, .take = take, .arg = arg};
    return each_user(&fs, visit_user, (void *)&visit, err);
}
