/* freeze_ops.h - the two things that can be frozen, for who holds a freeze and who ends one.
 *
 * All of it is repeatable, and done on what the record says. `open` comes before the others; for
 * processes it moves them where they can be frozen, which disturbs nobody. `freeze` alone makes
 * anybody stand still. What waits in the kernel and cannot be killed is FIFREEZE and FITHAW of a
 * file system whose device does not answer.
 */
#pragma once

#include "freeze_record.h"

enum {
    FREEZE_BY_OTHERS = 1,
    FREEZE_UNWRITABLE = 2, /* it takes no writes, as it is mounted read-only */
};

struct freeze_ops {
    /* A descriptor for the rest, or -1 where none is needed (ret_fd). */
    int (*open)(const struct freeze_record *record, int *ret_fd, struct err *err);
    /* Whether it stands still already: 0, or FREEZE_BY_OTHERS, FREEZE_UNWRITABLE. -EAGAIN: not as
     * it was planned any more. Changes nothing. */
    int (*look)(const struct freeze_record *record, int fd, struct err *err);
    /* 0, or FREEZE_BY_OTHERS: somebody else was first, nothing was done. After a failure `thaw` is
     * due. -EAGAIN: a process has gone elsewhere, the plan is to be made again. */
    int (*freeze)(const struct freeze_record *record, int fd, int64_t until_ns, struct err *err);
    /* Right before the thaw: whether that stands still which is not frozen by us, and nobody came
     * to it. `others`: all of it. ERR_CONFLICT. */
    int (*stands)(const struct freeze_record *record, int fd, bool others, struct err *err);
    /* Ends our freeze, in this state of the record. *ret_gone becomes true when somebody else has
     * ended it before; `again`: a try before has failed. */
    int (*thaw)(const struct freeze_record *record, int fd, enum freeze_state state, bool again,
                bool *ret_gone, struct err *err);
};

extern const struct freeze_ops freeze_fs;
extern const struct freeze_ops freeze_tasks;

static inline const struct freeze_ops *freeze_ops_of(const struct freeze_record *record)
{
    return record->kind == FREEZE_TASKS ? &freeze_tasks : &freeze_fs;
}
