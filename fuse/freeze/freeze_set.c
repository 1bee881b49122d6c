#include "freeze_set.h"

#include "cleanup.h"
#include "fdio.h"
#include "spawn.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum {
    NS_DEPTH_MAX = 33, /* the kernel allows 32 levels */
    NAME_BYTES = 16,
    THREADS_FIELD = 17, /* num_threads of /proc/PID/stat, counted from the state on */
};

/* --- who belongs to it --- */

int freeze_set_of(pid_t pid, struct freeze_set *ret, struct err *err)
{
    char path[64];
    struct stat st;
    struct stat own;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
    if (stat(path, &st) < 0)
        return errno == ENOENT ? err_fail(err, ERR_NOT_FOUND, "there is no process %d", (int)pid)
                               : err_errno(err, errno, "cannot look at process %d", (int)pid);
    if (stat("/proc/self/ns/pid", &own) < 0)
        return err_errno(err, errno, "cannot look at our own pid namespace");
    if (st.st_dev == own.st_dev && st.st_ino == own.st_ino) {
        int rc = err_fail(err, ERR_CONFLICT,
                          "process %d shares the pid namespace of this host's other processes",
                          (int)pid);
        err_hint(err, "a sandbox with a pid namespace of its own can be frozen");
        return rc;
    }
    *ret = (struct freeze_set){.ns_dev = st.st_dev, .ns_ino = st.st_ino};
    return 0;
}

/* Whether a process's pid namespace is that of the set, or lies in it. */
static bool is_in_namespace(const struct freeze_set *set, pid_t pid)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool found = false;
    for (int i = 0; i < NS_DEPTH_MAX && fd >= 0 && !found; i++) {
        found = fstat(fd, &st) == 0 && st.st_dev == set->ns_dev && st.st_ino == set->ns_ino;
        int up = found ? -1 : ioctl(fd, NS_GET_PARENT);
        (void)close(fd);
        fd = up;
    }
    cleanup_fdp(&fd);
    return found;
}

struct process {
    pid_t pid;
    pid_t parent;
    bool is_member;
};

/* Whether a process has ended, as the fields from its state on say: it is a zombie. The first
 * thread of one whose other threads live is none. */
static bool is_dead(const char *fields)
{
    const char *field = fields;
    if (fields[0] != 'Z' && fields[0] != 'X')
        return false;
    for (int i = 0; i < THREADS_FIELD && field; i++)
        field = strchr(field + 1, ' ');
    return !field || strtol(field, NULL, 10) <= 1;
}

/* Name and parent of a process. False: it has ended. */
static bool read_stat(pid_t pid, char ret_name[NAME_BYTES], pid_t *ret_parent)
{
    char path[64];
    char text[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fdio_read_full(fd, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *begin = strchr(text, '(');
    const char *end = strrchr(text, ')');
    if (!begin || !end || end < begin || strlen(end) < 5 || is_dead(end + 2))
        return false;
    size_t len =
        (size_t)(end - begin - 1) < NAME_BYTES - 1 ? (size_t)(end - begin - 1) : NAME_BYTES - 1;
    memcpy(ret_name, begin + 1, len);
    ret_name[len] = '\0';
    *ret_parent = (pid_t)strtol(end + 4, NULL, 10);
    return true;
}

static bool is_listed(const struct freeze_set *set, pid_t pid)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->pids[i] == pid)
            return true;
    return false;
}

static int list_processes(struct process **ret, size_t *ret_count, struct err *err)
{
    size_t room = 0;
    char name[NAME_BYTES];
    cleanup_dir DIR *dir = fdio_list(AT_FDCWD, "/proc");
    if (!dir)
        return err_errno(err, errno, "cannot list processes");
    cleanup_free struct process *list = NULL;
    size_t count = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        struct process process = {.pid = (pid_t)strtol(entry->d_name, NULL, 10)};
        if (process.pid <= 0 || !read_stat(process.pid, name, &process.parent))
            continue;
        if (count == room) {
            room = room ? 2 * room : 256;
            void *more = room <= FREEZE_MEMBERS_MAX ? reallocarray(list, room, sizeof *list) : NULL;
            if (!more)
                return err_errno(err, ENOMEM, "cannot list processes");
            list = more;
        }
        list[count++] = process;
    }
    *ret = steal_ptr(list);
    *ret_count = count;
    return 0;
}

/* Those that are listed, and what they have started, whatever came of those in between that have
 * ended. */
static void mark_listed(const struct freeze_set *set, struct process *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        list[i].is_member = is_listed(set, list[i].pid);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; !list[i].is_member && j < count; j++)
                if (list[j].is_member && list[j].pid == list[i].parent)
                    more = list[i].is_member = true;
    }
}

void freeze_members_free(struct freeze_members *members)
{
    for (size_t i = 0; i < members->count; i++)
        free(members->list[i].place);
    free(members->list);
    *members = (struct freeze_members){.count = 0};
}

static int add_member(struct freeze_members *members, pid_t pid, const char *place, struct err *err)
{
    struct freeze_member member = {.pid = pid, .place = strdup(place)};
    void *more = reallocarray(members->list, members->count + 1, sizeof *members->list);
    if (more)
        members->list = more;
    if (!more || !member.place) {
        free(member.place);
        return err_errno(err, ENOMEM, "cannot list the processes to freeze");
    }
    members->list[members->count++] = member;
    return 0;
}

int freeze_set_members(const struct freeze_set *set, int version, struct freeze_members *ret,
                       struct err *err)
{
    cleanup_free struct process *list = NULL;
    cleanup_freeze_members struct freeze_members members = {.count = 0};
    size_t count = 0;
    char place[CGROUP_PLACE_MAX];
    int rc = list_processes(&list, &count, err);
    if (rc == 0 && set->ns_ino == 0)
        mark_listed(set, list, count);
    for (size_t i = 0; i < count && rc >= 0; i++) {
        if (set->ns_ino != 0 ? !is_in_namespace(set, list[i].pid) : !list[i].is_member)
            continue;
        rc = cgroup_place(version, list[i].pid, place, err);
        if (rc > 0)
            rc = add_member(&members, list[i].pid, place, err);
        else if (rc == 0 && kill(list[i].pid, 0) == 0)
            rc = err_fail(err, ERR_CONFLICT, "process %d is in no cgroup that can be seen here",
                          (int)list[i].pid);
    }
    if (rc < 0)
        return rc;
    *ret = members;
    members = (struct freeze_members){.count = 0};
    return 0;
}

/* --- by what --- */

/* One of our programs, as the file that it runs says: a name anybody can take. */
static bool runs(pid_t pid, const char *program)
{
    char path[64];
    char own[4096];
    struct stat st;
    struct stat ours;
    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return spawn_find(program, own, NULL) == 0 && stat(own, &ours) == 0 && stat(path, &st) == 0 &&
           st.st_dev == ours.st_dev && st.st_ino == ours.st_ino;
}

static int check_members(const struct freeze_members *members, struct err *err)
{
    static const char *const ours[] = {"varve-keeper", "varve-volume", "varve-freeze"};
    if (members->count == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no process to freeze");
    for (size_t i = 0; i < members->count; i++) {
        pid_t pid = members->list[i].pid;
        if (pid == 1 || pid == getpid())
            return err_fail(err, ERR_CONFLICT, "process %d cannot be frozen: it is %s", (int)pid,
                            pid == 1 ? "the first one of the host" : "the one that would thaw");
        for (size_t j = 0; j < ARRAY_SIZE(ours); j++)
            if (runs(pid, ours[j]))
                return err_fail(err, ERR_CONFLICT,
                                "process %d cannot be frozen: it is %s, which volumes need",
                                (int)pid, ours[j]);
    }
    return 0;
}

struct census {
    const struct freeze_set *set;
    const struct freeze_members *members;
    size_t others;
};

/* cgroup_take */
static int count_one(void *arg, pid_t pid, struct err *err)
{
    struct census *census = arg;
    char name[NAME_BYTES];
    pid_t parent;
    (void)err;
    for (size_t i = 0; i < census->members->count; i++)
        if (census->members->list[i].pid == pid)
            return 0;
    /* It may have ended, or been started since the members were listed. */
    if (pid != 0 && (!read_stat(pid, name, &parent) ||
                     (census->set->ns_ino != 0 && is_in_namespace(census->set, pid))))
        return 0;
    census->others++;
    return 0;
}

static int find_how(const struct cgroup_tree *tree, const char *place, const struct freeze_set *set,
                    const struct freeze_members *members, enum freeze_how *ret, struct err *err)
{
    struct census census = {.set = set, .members = members};
    cleanup_fd int fd = cgroup_open(tree, place, err);
    if (fd < 0)
        return fd;
    *ret = FREEZE_SHARED;
    if (strcmp(place, "/") == 0)
        return 0;
    int rc = cgroup_each(fd, true, count_one, &census, err);
    if (rc == 0 && census.others == 0)
        rc = cgroup_is_asked(fd, tree->version, err);
    if (rc < 0)
        return rc;
    if (census.others == 0)
        *ret = rc > 0 ? FREEZE_HELD : FREEZE_WHOLE;
    return 0;
}

static bool is_below(const char *place, const char *top)
{
    size_t len = strcmp(top, "/") == 0 ? 0 : strlen(top);
    return strncmp(place, top, len) == 0 && (place[len] == '\0' || place[len] == '/');
}

static const struct freeze_group *find_group(const struct freeze_plan *plan, const char *place)
{
    for (size_t i = 0; i < plan->count; i++)
        if (strcmp(plan->groups[i].place, place) == 0 ||
            (plan->groups[i].how != FREEZE_SHARED && is_below(place, plan->groups[i].place)))
            return &plan->groups[i];
    return NULL;
}

static int add_group(struct freeze_plan *plan, const char *place, const struct freeze_set *set,
                     const struct freeze_members *members, struct err *err)
{
    enum freeze_how how = FREEZE_WHOLE;
    if (plan->count == FREEZE_GROUPS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "its processes are in more than %d cgroups",
                        FREEZE_GROUPS_MAX);
    int rc = find_how(&plan->tree, place, set, members, &how, err);
    if (rc < 0)
        return err_wrap(err, rc, "cgroup %s", place);
    struct freeze_group *group = &plan->groups[plan->count++];
    *group = (struct freeze_group){.how = how};
    (void)snprintf(group->place, sizeof group->place, "%s", place);
    return 0;
}

void freeze_plan_free(struct freeze_plan *plan)
{
    free(plan->groups);
    *plan = (struct freeze_plan){.count = 0};
}

int freeze_plan_make(const struct freeze_set *set, const char *child, struct freeze_plan *ret,
                     struct err *err)
{
    cleanup_freeze_members struct freeze_members members = {.count = 0};
    struct freeze_plan plan = {.count = 0};
    int rc = cgroup_tree_pick(&plan.tree, err);
    if (rc == 0)
        rc = freeze_set_members(set, plan.tree.version, &members, err);
    if (rc == 0)
        rc = check_members(&members, err);
    if (rc < 0)
        return rc;
    plan.groups = calloc(FREEZE_GROUPS_MAX, sizeof *plan.groups);
    if (!plan.groups)
        return err_errno(err, ENOMEM, "cannot plan a freeze");
    (void)snprintf(plan.child, sizeof plan.child, "%s", child);
    for (size_t i = 0; i < members.count && rc == 0; i++)
        if (!find_group(&plan, members.list[i].place))
            rc = add_group(&plan, members.list[i].place, set, &members, err);
    if (rc < 0) {
        freeze_plan_free(&plan);
        return rc;
    }
    *ret = plan;
    return 0;
}

void freeze_plan_place(const struct freeze_plan *plan, const struct freeze_group *group,
                       char ret[CGROUP_PLACE_MAX])
{
    const char *place = strcmp(group->place, "/") == 0 ? "" : group->place;
    if (group->how == FREEZE_SHARED)
        (void)snprintf(ret, CGROUP_PLACE_MAX, "%.*s/%s", CGROUP_PLACE_MAX - FREEZE_CHILD_MAX - 2,
                       place, plan->child);
    else
        (void)snprintf(ret, CGROUP_PLACE_MAX, "%s", group->place);
}

bool freeze_plan_covers(const struct freeze_plan *plan, const char *place)
{
    char top[CGROUP_PLACE_MAX];
    for (size_t i = 0; i < plan->count; i++) {
        freeze_plan_place(plan, &plan->groups[i], top);
        if (is_below(place, top))
            return true;
    }
    return false;
}
