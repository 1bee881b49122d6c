/* freeze_record.h - what is frozen by us: written down before, so that everybody who comes later
 * thaws it, and nothing else (I7; docs/FORMAT.md, "Freezes").
 *
 * One file in RUN/freezes for each thing that is frozen, published before anything is done to it
 * (I1, I2). A freeze is of the running kernel, so a record is of one boot. Its first byte is the
 * state, which the processes that hold the freeze change in place:
 *
 *   asked     nothing is frozen yet; processes may have been moved
 *   calling   the call that freezes is under way, or who made it has died in it
 *   frozen    by us
 *   others    somebody had frozen it before: nothing is to be thawed
 *   thawed    it is over
 *
 * Its lock (flock on the open file description that the holders have) says that one of them lives,
 * be it in a call that cannot be interrupted: then the thaw is theirs. Who gets the lock thaws what
 * is calling or frozen, and removes the file.
 *
 * `calling` without a holder is the one state that does not know: whoever died was about to freeze
 * or had frozen. He had looked before, and saw nobody's freeze; so what is frozen then is taken for
 * ours. docs/DESIGN.md ("Freezing") has the cases in which that is wrong.
 */
#pragma once

#include "freeze_set.h"

#include <limits.h>

enum {
    FREEZE_NAME_LEN = 16,
    FREEZE_RECORD_MAX = 1 << 20,
    FREEZE_BOOT_MAX = 40,
};

enum freeze_state {
    FREEZE_ASKED = 'a',
    FREEZE_CALLING = 'c',
    FREEZE_FROZEN = 'f',
    FREEZE_OTHERS = 'o',
    FREEZE_THAWED = 't',
};

enum freeze_kind {
    FREEZE_FILE_SYSTEM,
    FREEZE_TASKS,
};

struct freeze_record {
    enum freeze_kind kind;
    enum freeze_state state; /* as it was read */
    char boot[FREEZE_BOOT_MAX];
    /* Of a file system. */
    char volume[VOLUME_ID_LEN + 1];
    char path[PATH_MAX]; /* where it is mounted */
    dev_t device;
    uint64_t diskseq; /* of the device: another one may get its number; 0: the kernel has none */
    /* Of tasks. */
    struct freeze_set set;
    struct freeze_plan plan;
};
void freeze_record_free(struct freeze_record *record); /* harmless on all zeros */
#define cleanup_freeze_record cleanup_with(freeze_record_free)

/* The boot ID of the host. */
int freeze_record_boot(char ret[FREEZE_BOOT_MAX], struct err *err);
/* Publishes it as `asked` under this name in `dir_fd`. Returns its descriptor, whose open file
 * description has the lock. */
int freeze_record_write(int dir_fd, const char *name, const struct freeze_record *record,
                        struct err *err);
/* Reads one that is open. ERR_DAMAGED, ERR_TOO_NEW. */
int freeze_record_read(int fd, struct freeze_record *ret, struct err *err);
/* Whether what is found in this state is to be thawed by us: of processes also those that may have
 * been moved for it. */
static inline bool freeze_record_is_ours(enum freeze_kind kind, enum freeze_state state)
{
    return state == FREEZE_CALLING || state == FREEZE_FROZEN ||
           (state == FREEZE_ASKED && kind == FREEZE_TASKS);
}
/* Says that somebody else has ended a freeze, so nothing that relied on it counts. */
int freeze_record_fail_gone(struct err *err);
/* Changes the state, and reads it again. */
int freeze_record_set(int fd, enum freeze_state state, struct err *err);
int freeze_record_state(int fd, enum freeze_state *ret, struct err *err);
