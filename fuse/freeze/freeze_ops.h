/* freeze_ops.h - the two things that can be frozen, for who holds a freeze and who ends one.
 *
 * All of it is repeatable, and done on what the record says. `open` comes before the others; for
 * processes it moves them where they can be frozen, which disturbs nobody. `freeze` alone makes
 * anybody stand still. What waits in the kernel and cannot be killed is FIFREEZE and FITHAW of a
 * file system whose device does not answer.
 */
#pragma once

#include "freeze_record.h"

struct freeze_ops {
    /* A descriptor for the rest, or -1 where none is needed (ret_fd). */
    int (*open)(const struct freeze_record *record, int *ret_fd, struct err *err);
    /* Whether somebody else has frozen it: 1 or 0. */
    int (*is_others)(const struct freeze_record *record, int fd, struct err *err);
    /* 0; 1: somebody else was first, nothing was done. After a failure `thaw` is due. -EAGAIN: a
     * process has gone elsewhere, the plan is to be made again. */
    int (*freeze)(const struct freeze_record *record, int fd, int64_t until_ns, struct err *err);
    /* 0; 1: it was not frozen any more, somebody has thawed it. */
    int (*thaw)(const struct freeze_record *record, int fd, struct err *err);
};

extern const struct freeze_ops freeze_fs;
extern const struct freeze_ops freeze_tasks;

static inline const struct freeze_ops *freeze_ops_of(const struct freeze_record *record)
{
    return record->kind == FREEZE_TASKS ? &freeze_tasks : &freeze_fs;
}
