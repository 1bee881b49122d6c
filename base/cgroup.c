#include "cgroup.h"

#include "buf.h"
#include "cleanup.h"
#include "clock.h"
#include "fdio.h"
#include "mountinfo.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    PROCS_MAX = 4 << 20, /* bytes: a million processes */
    STATE_MAX = 4096,
    DEPTH_MAX = 64,
    LOOK_NS = 200000, /* between two looks whether all have stopped */
};

/* --- trees --- */

static bool is_switched_off(int version)
{
#ifdef VARVE_FAULT_POINTS
    const char *text = getenv("VARVE_CGROUP");
    return text && (strcmp(text, "none") == 0 || (version == 2 && strcmp(text, "v1") == 0));
#else
    (void)version;
    return false;
#endif
}

static bool is_tree(const struct mountinfo_entry *entry, int version)
{
    if (version == 2)
        return strcmp(entry->type, "cgroup2") == 0;
    return strcmp(entry->type, "cgroup") == 0 &&
           mountinfo_has_option(entry->super_options, "freezer");
}

int cgroup_tree_find(int version, struct cgroup_tree *ret, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = is_switched_off(version) ? 0 : mountinfo_open("self", &info, err);
    while (rc == 0 && info.file && (rc = mountinfo_next(&info, &entry, err)) > 0) {
        rc = 0;
        if (!is_tree(&entry, version) || strlen(entry.point) >= sizeof ret->path)
            continue;
        ret->version = version;
        (void)snprintf(ret->path, sizeof ret->path, "%s", entry.point);
        return 0;
    }
    if (rc < 0)
        return rc;
    return version == 2 ? err_fail(err, ERR_UNSUPPORTED, "no cgroup v2 tree is mounted")
                        : err_fail(err, ERR_UNSUPPORTED,
                                   "neither a cgroup v2 tree nor the freezer of v1 is mounted");
}

int cgroup_tree_pick(struct cgroup_tree *ret, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = cgroup_tree_find(2, ret, &why);
    if (rc == 0 || why.code != ERR_UNSUPPORTED)
        return err_pass(err, rc, &why);
    return cgroup_tree_find(1, ret, err);
}

/* --- places --- */

/* Whether the list between the first two colons is that of the tree: empty, or with freezer. */
static bool is_line_of(const char *list, size_t len, int version)
{
    static const char freezer[] = "freezer";
    if (version == 2)
        return len == 0;
    for (const char *end = list + len; list < end;) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t word = (size_t)((comma ? comma : end) - list);
        if (word == sizeof freezer - 1 && memcmp(list, freezer, word) == 0)
            return true;
        list += word + 1;
    }
    return false;
}

bool cgroup_place_parse(const char *text, int version, char ret[CGROUP_PLACE_MAX])
{
    static const char gone[] = " (deleted)";
    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        const char *list = memchr(line, ':', (size_t)(end - line));
        const char *place = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        size_t len = place ? (size_t)(end - place - 1) : 0;
        if (place && is_line_of(list + 1, (size_t)(place - list - 1), version)) {
            /* "/.." leads out of our cgroup namespace. */
            if (len == 0 || len >= CGROUP_PLACE_MAX || place[1] != '/' ||
                (len >= 3 && memcmp(place + 1, "/..", 3) == 0) ||
                (len >= sizeof gone && memcmp(end - sizeof gone + 1, gone, sizeof gone - 1) == 0))
                return false;
            memcpy(ret, place + 1, len);
            ret[len] = '\0';
            return true;
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

int cgroup_place(int version, pid_t pid, char ret[CGROUP_PLACE_MAX], struct err *err)
{
    char path[64];
    cleanup_buf struct buf text = BUF_INIT(64 << 10);
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ESRCH ? 0
                                                 : err_errno(err, errno, "cannot open %s", path);
    struct err why = ERR_INIT;
    int rc = fdio_read_all(fd, path, &text, &why);
    if (rc < 0)
        return why.num == ESRCH ? 0 : err_pass(err, rc, &why);
    return cgroup_place_parse(buf_str(&text), version, ret);
}

int cgroup_open(const struct cgroup_tree *tree, const char *place, struct err *err)
{
    char path[CGROUP_PATH_MAX + CGROUP_PLACE_MAX];
    (void)snprintf(path, sizeof path, "%s%s", tree->path, place);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "there is no cgroup %s", path);
    return fd >= 0 ? fd : err_errno(err, errno, "cannot open the cgroup %s", path);
}

/* --- freezing --- */

static const char *state_file(int version)
{
    return version == 2 ? "cgroup.freeze" : "freezer.state";
}

static int write_text(int dir_fd, const char *name, const char *text, struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, name, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_fail(err, ERR_UNSUPPORTED, "the cgroup has no %s", name);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return err_errno(err, errno, "cannot write %s of a cgroup", name);
    return 0;
}

static int read_text(int dir_fd, const char *name, char ret[STATE_MAX], struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -errno : fdio_read_full(fd, ret, STATE_MAX - 1);
    if (n < 0)
        return err_errno(err, (int)n, "cannot read %s of a cgroup", name);
    ret[n] = '\0';
    return 0;
}

int cgroup_freeze(int dir_fd, int version, struct err *err)
{
    return write_text(dir_fd, state_file(version), version == 2 ? "1" : "FROZEN", err);
}

int cgroup_thaw(int dir_fd, int version, struct err *err)
{
    return write_text(dir_fd, state_file(version), version == 2 ? "0" : "THAWED", err);
}

int cgroup_is_asked(int dir_fd, int version, struct err *err)
{
    char text[STATE_MAX];
    int rc = read_text(dir_fd, version == 2 ? "cgroup.freeze" : "freezer.self_freezing", text, err);
    return rc < 0 ? rc : text[0] == '1';
}

static int is_frozen(int dir_fd, int version, struct err *err)
{
    char text[STATE_MAX];
    int rc = read_text(dir_fd, version == 2 ? "cgroup.events" : "freezer.state", text, err);
    if (rc < 0)
        return rc;
    const char *frozen = strstr(text, "frozen ");
    return version == 2 ? frozen && frozen[7] == '1' : strncmp(text, "FROZEN", 6) == 0;
}

int cgroup_wait_frozen(int dir_fd, int version, int64_t until_ns, struct err *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    for (;;) {
        int rc = is_frozen(dir_fd, version, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (clock_now_ns() >= until_ns)
            return err_fail(err, ERR_UNREACHABLE, "not all processes have stopped in time");
        (void)nanosleep(&pause, NULL);
    }
}

/* --- processes --- */

int cgroup_move(int dir_fd, pid_t pid, struct err *err)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", (int)pid);
    cleanup_fd int fd = openat(dir_fd, "cgroup.procs", O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open cgroup.procs");
    if (write(fd, text, strlen(text)) < 0 && errno != ESRCH)
        return err_errno(err, errno, "cannot put process %d into a cgroup", (int)pid);
    return 0;
}

static int each_here(int dir_fd, cgroup_take *take, void *arg, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(PROCS_MAX);
    cleanup_fd int fd = openat(dir_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open cgroup.procs");
    int rc = fdio_read_all(fd, "cgroup.procs", &text, err);
    for (const char *line = buf_str(&text); rc == 0 && *line;) {
        char *end;
        long pid = strtol(line, &end, 10);
        if (end == line)
            return err_fail(err, ERR_DAMAGED, "cgroup.procs is no list of processes");
        rc = take(arg, (pid_t)pid, err);
        line = *end == '\n' ? end + 1 : end;
    }
    return rc;
}

static int each_below(int dir_fd, int depth, cgroup_take *take, void *arg, struct err *err)
{
    int rc = each_here(dir_fd, take, arg, err);
    cleanup_dir DIR *dir = rc == 0 ? fdio_list(dir_fd, ".") : NULL;
    if (rc == 0 && !dir)
        return err_errno(err, errno, "cannot list a cgroup");
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(dir)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        cleanup_fd int fd =
            openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            continue;
        rc = fd < 0               ? err_errno(err, errno, "cannot open a cgroup")
             : depth == DEPTH_MAX ? err_fail(err, ERR_TOO_LARGE, "cgroups are nested too deeply")
                                  : each_below(fd, depth + 1, take, arg, err);
    }
    return rc;
}

int cgroup_each(int dir_fd, bool below, cgroup_take *take, void *arg, struct err *err)
{
    return below ? each_below(dir_fd, 0, take, arg, err) : each_here(dir_fd, take, arg, err);
}
