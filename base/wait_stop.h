/* wait_stop.h - who may end the waits of a thread.
 *
 * What may wait long (a call that a file system does not answer, a check of it) lies many calls
 * below those who know for whom it is done. So who begins such work says so once, for the calls
 * that this thread makes until the end of the scope, and what waits asks several times a second.
 *
 *   wait_stop_begin()   from here on `ask` is asked
 *   wait_stop_decide()  by the work, before a step that is not taken back: who began it hears of
 *                       it and may refuse; from here on nobody is asked
 *   wait_stop_end()
 *
 * Scopes lie in each other; the innermost alone counts. One without `ask` is for work that nobody
 * shall end, such as the undoing of what was ended. Threads have nothing of each other's.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stdbool.h>

struct wait_stop {
    int (*ask)(void *arg, struct err *err);    /* a failure ends the wait; NULL: nobody is asked */
    int (*decide)(void *arg, struct err *err); /* may be NULL */
    void *arg;
    bool decided;            /* its own */
    struct wait_stop *outer; /* its own */
};

/* `stop` lives until its end, which comes in the same thread. */
void wait_stop_begin(struct wait_stop *stop);
void wait_stop_end(struct wait_stop *stop);
#define cleanup_wait_stop cleanup_with(wait_stop_end)

/* 0 to go on waiting, also when there is nobody to ask; or the failure. */
int wait_stop_ask(struct err *err);
/* 0 to go on with what is not taken back; or the failure. The second time it is asked nothing. */
int wait_stop_decide(struct err *err);
