/* freeze_set.h - processes that are to stand still, and the cgroups by which.
 *
 * A *set* is every process of a pid namespace, and of those in it, and nothing else; or a list of
 * processes with all that they have started. It is looked up in /proc, again and again, as it
 * changes while it runs.
 *
 * A *plan* says by which cgroups of one tree (cgroup.h) the set is frozen:
 *
 *   whole    holds, with all cgroups below it, processes of the set alone: frozen as it is
 *   held     the same, but somebody has frozen it already: left alone
 *   shared   holds others too (varved, a worker, process 1), or is the root, which cannot be
 *            frozen: the processes of the set go into a cgroup of ours in it for the freeze, whose
 *            name is freeze_plan.child, and back
 *
 * A set that has varved itself, keeper, a worker or process 1 in it is refused: whoever froze them
 * could not thaw anything any more.
 */
#pragma once

#include "cgroup.h"
#include "volume_format.h"

enum {
    FREEZE_PIDS_MAX = 256,
    FREEZE_GROUPS_MAX = 64,
    FREEZE_MEMBERS_MAX = 1 << 20,
    FREEZE_CHILD_MAX = 48,
};

struct freeze_set {
    uint64_t ns_dev; /* of the pid namespace; 0: the list */
    uint64_t ns_ino;
    pid_t pids[FREEZE_PIDS_MAX];
    size_t count;
};

/* The set of all processes in the pid namespace of this one. ERR_NOT_FOUND: it has ended.
 * ERR_CONFLICT: it is the namespace of this program. */
int freeze_set_of(pid_t pid, struct freeze_set *ret, struct err *err);

struct freeze_member {
    pid_t pid;
    char *place; /* owned */
};
struct freeze_members {
    struct freeze_member *list;
    size_t count;
};
/* Who belongs to the set now, and where he is in a tree of this version. */
int freeze_set_members(const struct freeze_set *set, int version, struct freeze_members *ret,
                       struct err *err);
void freeze_members_free(struct freeze_members *members); /* harmless on all zeros */
#define cleanup_freeze_members cleanup_with(freeze_members_free)

enum freeze_how {
    FREEZE_WHOLE,
    FREEZE_HELD,
    FREEZE_SHARED,
};
struct freeze_group {
    char place[CGROUP_PLACE_MAX];
    enum freeze_how how;
};
struct freeze_plan {
    struct cgroup_tree tree;
    char child[FREEZE_CHILD_MAX];
    struct freeze_group *groups; /* owned */
    size_t count;
};

/* `child` names the cgroups of ours. ERR_UNSUPPORTED: this host has nothing to freeze with.
 * ERR_CONFLICT: the set cannot be frozen, and why. ERR_NOT_FOUND: nobody belongs to it. */
int freeze_plan_make(const struct freeze_set *set, const char *child, struct freeze_plan *ret,
                     struct err *err);
void freeze_plan_free(struct freeze_plan *plan); /* harmless on all zeros */
/* The place that is frozen for a group: itself, or the cgroup of ours in it. */
void freeze_plan_place(const struct freeze_plan *plan, const struct freeze_group *group,
                       char ret[CGROUP_PLACE_MAX]);
/* Whether what is frozen by the plan holds this place. */
bool freeze_plan_covers(const struct freeze_plan *plan, const char *place);
