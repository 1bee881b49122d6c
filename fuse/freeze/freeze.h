/* freeze.h - lets writers stand still for the moment of a cut or of the last look of a capture, and
 * go on whatever happens (I7).
 *
 *   freeze_begin -> the cut -> freeze_end
 *
 * What can be frozen: a set of processes (freeze_set.h), and a mounted file system, for writers
 * that are in no cgroup of ours. Several are begun at once and stand together. Processes come
 * first: a file system that is frozen before its writers are has them wait where no cgroup can stop
 * them, and the freeze of the cgroup never comes to its end.
 *
 * Each is held by a process of its own (freeze_hold.h), which thaws when varved has gone or the
 * budget is over, and written down before (freeze_record.h). A file system that somebody else has
 * frozen is as good as frozen: that freeze is left alone, by everybody, and the result says so; the
 * same for a cgroup.
 *
 * The budget is for the time in which anybody may stand still: from the call that freezes to the
 * thaw. Over it, all is thawed, and freeze_begin() or freeze_end() fails: nothing was cut that may
 * be called frozen. What cannot be thawed yet, as its device does not answer, is thawed by its
 * holder as soon as it does.
 *
 * Threads: any number; a struct freeze belongs to one.
 */
#pragma once

#include "freeze_set.h"

enum {
    FREEZE_BUDGET_MIN_MS = 10,
    FREEZE_BUDGET_MS = 1000, /* where nobody says another one */
    FREEZE_BUDGET_MAX_MS = 30000,
    FREEZE_ORDERS_MAX = 64,
};

/* What to freeze. Everything is borrowed. */
struct freeze_order {
    const struct freeze_set *set; /* these processes; NULL: the file system */
    const char *volume;           /* of the file system: for people, */
    const char *path;             /* where it is mounted, */
    dev_t device;                 /* and its device */
    int budget_ms;
    /* Called when the budget is over and the call that freezes has not returned: what it waits for
     * may have to be ended. May be NULL. */
    void (*rescue)(void *arg);
    /* Whether nobody waits any more for the thaw of a freeze that is over its budget, as the
     * program is to end; its holder does it alone. May be NULL; who ends the thread's work is asked
     * too (wait_stop.h). */
    bool (*stops)(void *arg);
    void *arg;
};

/* How it went. */
struct freeze_times {
    bool others;       /* somebody else had frozen it, and it was so to the end */
    bool unwritable;   /* it takes no writes (mounted read-only), and was not touched */
    int64_t took_ns;   /* the call that freezes: some stand still from its begin on */
    int64_t frozen_ns; /* from its return to the return of the thaw */
};

struct freeze {
    int dir_fd; /* borrowed */
    int socket;
    int pidfds[2]; /* of the holder, and of its freezer; -1 */
    char name[17]; /* of the record */
    struct freeze_order order;
    bool asked;      /* there is a record */
    bool late;       /* its budget is over */
    int64_t done_ns; /* since when it is frozen */
    int64_t end_ns;  /* for the next answer */
    struct freeze_times times;
};

/* A budget in milliseconds that somebody asked for: ERR_INVALID when it is out of bounds. */
int freeze_check_budget(int64_t budget_ms, struct err *err);

/* Freezes everything; `dir_fd` is RUN/freezes. ret[count] is for freeze_end(). After a failure
 * nothing is frozen by us, or will be for long, and ret needs no freeze_end(). ERR_UNREACHABLE: not
 * within the budget. ERR_CONFLICT, ERR_UNSUPPORTED: it cannot be, and why. */
int freeze_begin(int dir_fd, const struct freeze_order *orders, size_t count, struct freeze *ret,
                 struct err *err);
/* Thaws everything, whatever else happens. ret_times[count] (may be NULL) is written for each.
 * Fails when one did not stand still until now: its budget is over (ERR_UNREACHABLE), somebody
 * else has thawed it (ERR_CONFLICT), its processes have died (ERR_INTERRUPTED). */
int freeze_end(struct freeze *freezes, size_t count, struct freeze_times *ret_times,
               struct err *err);

/* Thaws what earlier ones have left, and removes their records: at the start of varved, and again
 * and again. What a living process holds is left to it, after a wait of `wait_ms` for its end.
 * Returns how many are left; what fails is logged and tried again the next time. */
int freeze_recover(int dir_fd, int wait_ms);
/* The same for one record: 1: it is left, 0: it has gone. */
int freeze_recover_one(int dir_fd, const char *name, int wait_ms, struct err *err);
