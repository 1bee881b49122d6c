/* A set of processes, by their cgroups. */
#include "freeze_ops.h"

#include "cleanup.h"
#include "clock.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define HELD_NS (INT64_C(2000) * 1000000) /* for what somebody freezes at this moment */

enum {
    ROUNDS_MAX = 100,  /* of looking for processes that are to be moved */
    REMOVE_TRIES = 50, /* of 2 ms each: the last process may be on its way out */
};

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* Opens what is frozen for a group. */
static int open_frozen(const struct freeze_plan *plan, const struct freeze_group *group,
                       struct err *err)
{
    char place[CGROUP_PLACE_MAX];
    freeze_plan_place(plan, group, place);
    return cgroup_open(&plan->tree, place, err);
}

/* --- into cgroups of ours, and back --- */

static int make_child(const struct freeze_plan *plan, const struct freeze_group *group,
                      struct err *err)
{
    cleanup_fd int parent = cgroup_open(&plan->tree, group->place, err);
    if (parent < 0)
        return parent;
    if (mkdirat(parent, plan->child, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make a cgroup in %s%s", plan->tree.path, group->place);
    return open_frozen(plan, group, err);
}

static int move_members(const struct freeze_record *record, const struct freeze_group *group,
                        int child, bool *ret_any, struct err *err)
{
    cleanup_freeze_members struct freeze_members members = {.count = 0};
    int rc = freeze_set_members(&record->set, record->plan.tree.version, &members, err);
    for (size_t i = 0; i < members.count && rc == 0; i++) {
        if (strcmp(members.list[i].place, group->place) != 0)
            continue;
        *ret_any = true;
        rc = cgroup_move(child, members.list[i].pid, err);
    }
    return rc;
}

/* Until none is left: those that were moved start new ones in the cgroup of ours. */
static int move_in(const struct freeze_record *record, const struct freeze_group *group,
                   struct err *err)
{
    bool any = true;
    cleanup_fd int child = make_child(&record->plan, group, err);
    int rc = child < 0 ? child : 0;
    for (int i = 0; i < ROUNDS_MAX && rc == 0 && any; i++) {
        any = false;
        rc = move_members(record, group, child, &any, err);
    }
    if (rc == 0 && any)
        rc = err_fail(err, ERR_CONFLICT, "its processes start others faster than they are moved");
    if (rc < 0)
        err_hint(err, "processes that share the cgroup %s with others are moved for a freeze",
                 group->place);
    return rc;
}

struct mover {
    int to;
    bool any;
};

/* cgroup_take */
static int move_one(void *arg, pid_t pid, struct err *err)
{
    struct mover *mover = arg;
    if (pid == 0) /* nobody that can be named here */
        return 0;
    mover->any = true;
    return cgroup_move(mover->to, pid, err);
}

static int move_back(const struct freeze_plan *plan, const struct freeze_group *group, int child,
                     struct err *err)
{
    struct mover mover = {.any = true};
    cleanup_fd int parent = cgroup_open(&plan->tree, group->place, err);
    mover.to = parent;
    int rc = parent < 0 ? parent : 0;
    for (int i = 0; i < ROUNDS_MAX && rc == 0 && mover.any; i++) {
        mover.any = false;
        rc = cgroup_each(child, false, move_one, &mover, err);
    }
    for (int i = 0; i < REMOVE_TRIES && rc == 0; i++) {
        if (unlinkat(parent, plan->child, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY)
            break;
        pause_ms(2);
    }
    return rc < 0 ? rc : err_errno(err, errno, "cannot remove the cgroup %s", plan->child);
}

/* --- freeze_ops --- */

static int tasks_open(const struct freeze_record *record, int *ret_fd, struct err *err)
{
    const struct freeze_plan *plan = &record->plan;
    int rc = 0;
    (void)ret_fd;
    for (size_t i = 0; i < plan->count && rc == 0; i++)
        if (plan->groups[i].how == FREEZE_SHARED)
            rc = move_in(record, &plan->groups[i], err);
    return rc;
}

/* Whether all that belong to the set stand still: one may have been started elsewhere since. */
static int check_all(const struct freeze_record *record, struct err *err)
{
    cleanup_freeze_members struct freeze_members members = {.count = 0};
    int rc = freeze_set_members(&record->set, record->plan.tree.version, &members, err);
    for (size_t i = 0; i < members.count && rc == 0; i++) {
        if (freeze_plan_covers(&record->plan, members.list[i].place))
            continue;
        (void)err_fail(err, ERR_CONFLICT, "process %d has gone to another cgroup, %s",
                       (int)members.list[i].pid, members.list[i].place);
        rc = -EAGAIN;
    }
    return rc;
}

static int is_asked(const struct freeze_plan *plan, const struct freeze_group *group,
                    struct err *err)
{
    cleanup_fd int fd = open_frozen(plan, group, err);
    return fd < 0 ? fd : cgroup_is_asked(fd, plan->tree.version, err);
}

static int each_frozen(const struct freeze_plan *plan, bool wait, int64_t until_ns, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < plan->count && rc == 0; i++) {
        if (plan->groups[i].how == FREEZE_HELD && !wait)
            continue;
        cleanup_fd int fd = open_frozen(plan, &plan->groups[i], err);
        rc = fd < 0 ? fd
             : wait ? cgroup_wait_frozen(fd, plan->tree.version, until_ns, err)
                    : cgroup_freeze(fd, plan->tree.version, err);
    }
    return rc;
}

/* What somebody has frozen is to stand, too, which is another thing than that it was asked for. */
static int tasks_look(const struct freeze_record *record, int fd, struct err *err)
{
    const struct freeze_plan *plan = &record->plan;
    size_t held = 0;
    (void)fd;
    for (size_t i = 0; i < plan->count; i++) {
        const struct freeze_group *group = &plan->groups[i];
        int rc = group->how == FREEZE_SHARED ? 0 : is_asked(plan, group, err);
        if (rc < 0)
            return rc;
        if (group->how != FREEZE_SHARED && rc != (group->how == FREEZE_HELD)) {
            (void)err_fail(err, ERR_CONFLICT, "somebody freezes or thaws the cgroup %s now",
                           group->place);
            return -EAGAIN;
        }
        held += group->how == FREEZE_HELD;
    }
    if (held < plan->count)
        return 0;
    int rc = each_frozen(plan, true, clock_now_ns() + HELD_NS, err);
    if (rc == 0)
        rc = check_all(record, err);
    return rc < 0 ? rc : FREEZE_BY_OTHERS;
}

static int tasks_freeze(const struct freeze_record *record, int fd, int64_t until_ns,
                        struct err *err)
{
    (void)fd;
    int rc = each_frozen(&record->plan, false, until_ns, err);
    if (rc == 0)
        rc = each_frozen(&record->plan, true, until_ns, err);
    return rc == 0 ? check_all(record, err) : rc;
}

static int tasks_stands(const struct freeze_record *record, int fd, bool others, struct err *err)
{
    const struct freeze_plan *plan = &record->plan;
    (void)fd, (void)others;
    for (size_t i = 0; i < plan->count; i++) {
        int rc = plan->groups[i].how == FREEZE_HELD ? is_asked(plan, &plan->groups[i], err) : 1;
        if (rc <= 0)
            return rc < 0 ? rc : freeze_record_fail_gone(err);
    }
    int rc = check_all(record, err);
    return rc == -EAGAIN ? -EBUSY : rc;
}

/* One that has gone with its processes needs nothing. */
static int thaw_group(const struct freeze_plan *plan, const struct freeze_group *group,
                      bool *ret_gone, struct err *err)
{
    struct err why = ERR_INIT;
    cleanup_fd int fd = open_frozen(plan, group, &why);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return err_pass(err, fd, &why);
    if (cgroup_is_asked(fd, plan->tree.version, NULL) == 0)
        *ret_gone = true;
    int rc = cgroup_thaw(fd, plan->tree.version, &why);
    if (rc == -ENODEV)
        return 0;
    if (rc == 0 && group->how == FREEZE_SHARED)
        rc = move_back(plan, group, fd, &why);
    return err_pass(err, rc, &why);
}

/* All of them, also after a failure (I9). A cgroup that is frozen as it is was not touched yet as
 * long as nothing is more than asked for. */
static int tasks_thaw(const struct freeze_record *record, int fd, enum freeze_state state,
                      bool again, bool *ret_gone, struct err *err)
{
    const struct freeze_plan *plan = &record->plan;
    int result = 0;
    bool ignored = false;
    (void)fd;
    for (size_t i = 0; i < plan->count; i++) {
        enum freeze_how how = plan->groups[i].how;
        if (how == FREEZE_HELD || (how == FREEZE_WHOLE && state == FREEZE_ASKED))
            continue;
        int rc = thaw_group(plan, &plan->groups[i], again ? &ignored : ret_gone, err);
        if (rc < 0 && result == 0)
            result = rc;
    }
    return result;
}

const struct freeze_ops freeze_tasks = {.open = tasks_open,
                                        .look = tasks_look,
                                        .freeze = tasks_freeze,
                                        .stands = tasks_stands,
                                        .thaw = tasks_thaw};
