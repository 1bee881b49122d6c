/* freeze_hold.h - varve-freeze: holds one freeze, and ends it whatever happens to whoever wanted it
 * (I7).
 *
 * A process of its own, as the call that freezes cannot be interrupted: it waits for the volume's
 * worker, which may be stopped, and whoever makes it can be killed and its freeze comes all the
 * same. It is no child of varved's, nor of keeper's: started by varved, it lives in a session of
 * its own and outlives it. Keeper stays as small as it is: it could not make these calls itself.
 *
 *   varved        asks, cuts, says END                    record in RUN/freezes
 *     | socket
 *   holder        watches varved, freezer and the budget; thaws
 *     | socket
 *   freezer       calls FIFREEZE; then watches the holder, and thaws when that has gone
 *
 * So any two of the three may be killed, at any instruction, and the third one thaws: varved by the
 * record (freeze.h). When all three die, the next varved does.
 *
 * The freeze ends with END, with the end of varved's socket, or with the budget, which runs from
 * before the call that freezes until the thaw. A call that has not returned by then is waited for,
 * and thawed then: a thaw before it would change nothing, and a freeze that comes later stays. A
 * thaw that fails is tried again. Both processes end with the freeze. Should the holder be stopped,
 * the freezer thaws when the budget is over.
 *
 * Arguments: budget in milliseconds, and what it is about, for people. Descriptors: 3 the socket, 4
 * the record with its lock. Signals that are meant for groups of processes are ignored; its memory
 * is locked where that is allowed.
 */
#pragma once

#include "err.h"

#include <stdint.h>

enum {
    FREEZE_FD_VARVED = 3,
    FREEZE_FD_RECORD = 4,
    FREEZE_OPEN_MS = 10000, /* to open and look, which another hanging file system may stop */
};

/* Messages. From the holder to varved, all but FREEZE_SAYS_END. */
enum freeze_says {
    FREEZE_SAYS_HELLO = 1, /* with pidfds: of the holder, then of both */
    FREEZE_SAYS_FROZEN,    /* begun_ns, done_ns; rc 1, 2: it stood before (freeze_ops.h) */
    FREEZE_SAYS_FAILED,    /* rc, err: nothing is frozen by us, or will be */
    FREEZE_SAYS_LATE,      /* the budget is over; thawed as soon as that can be */
    FREEZE_SAYS_THAWED,    /* done_ns; rc, err: whether it stood until then */
    FREEZE_SAYS_END,
};

struct freeze_message {
    uint32_t says;
    int32_t rc;
    int64_t begun_ns; /* CLOCK_MONOTONIC: the call that freezes, */
    int64_t done_ns;  /* and its return */
    struct err err;
};

/* Does all of it, for the program. Returns its exit status. */
int freeze_hold(int budget_ms);
