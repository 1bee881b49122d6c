/* cgroup.h - cgroups as a way to let processes stand still.
 *
 * Two trees can: that of cgroup v2 (Linux 5.2), also the empty one of a hybrid host, and the
 * freezer of v1. A *place* is a process's path in a tree, as /proc/PID/cgroup has it ("/" is the
 * root, which cannot be frozen). v2 comes first, as a process that stands still there can still be
 * killed.
 *
 *   v2   cgroup.freeze = 1, then `frozen 1` in cgroup.events
 *   v1   freezer.state = FROZEN, which reads FREEZING until all have stopped
 *
 * Both stop all cgroups below too. A process in the middle of a system call that cannot be
 * interrupted (state D) is stopped when that ends; so the wait has a limit.
 *
 * In builds with fault points VARVE_CGROUP=v1 or none is what a host may lack.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CGROUP_PATH_MAX = 256,   /* of the mount point of a tree */
    CGROUP_PLACE_MAX = 1024, /* of a place */
};

struct cgroup_tree {
    int version; /* 2 or 1 */
    char path[CGROUP_PATH_MAX];
};

/* The first mounted tree of this version, for v1 that of the freezer. ERR_UNSUPPORTED: none. */
int cgroup_tree_find(int version, struct cgroup_tree *ret, struct err *err);
/* v2, or else v1. */
int cgroup_tree_pick(struct cgroup_tree *ret, struct err *err);

/* The place in the text of a /proc/PID/cgroup (pure). False: it has none in such a tree, or one
 * that this process cannot see. */
bool cgroup_place_parse(const char *text, int version, char ret[CGROUP_PLACE_MAX]);
/* That of a process: 1; 0: the process has ended, or has none. */
int cgroup_place(int version, pid_t pid, char ret[CGROUP_PLACE_MAX], struct err *err);

/* Opens the directory of a place. ERR_NOT_FOUND. */
int cgroup_open(const struct cgroup_tree *tree, const char *place, struct err *err);
/* Asks for the freeze, and for its end. */
int cgroup_freeze(int dir_fd, int version, struct err *err);
int cgroup_thaw(int dir_fd, int version, struct err *err);
/* Whether somebody has asked for it, of this very cgroup: 1 or 0. */
int cgroup_is_asked(int dir_fd, int version, struct err *err);
/* Waits until all have stopped. ERR_UNREACHABLE: not before `until_ns` (clock_now_ns()). */
int cgroup_wait_frozen(int dir_fd, int version, int64_t until_ns, struct err *err);
/* Puts a process with all its threads into the cgroup. One that has ended is no failure. */
int cgroup_move(int dir_fd, pid_t pid, struct err *err);
/* Calls `take` for each process in the cgroup, and in those below it where `below` says so, until
 * it returns something else than 0, which is returned. One that this process cannot see has the
 * number 0. */
typedef int cgroup_take(void *arg, pid_t pid, struct err *err);
int cgroup_each(int dir_fd, bool below, cgroup_take *take, void *arg, struct err *err);
