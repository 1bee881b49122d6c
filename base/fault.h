/* fault.h - named places where tests make this program fail.
 *
 * `FAULT_POINT("import.config-stored", err)` stands between two steps that a kill or an error may
 * separate. In builds with -Dfault_points=true the variable VARVE_FAULT arms one of them:
 *
 *   VARVE_FAULT=NAME=ACTION[:N]      act at the N-th hit (default 1) of the point NAME
 *   kill                             the process ends at once, as by kill -9
 *   eio, enospc                      the point fails with that error
 *   stop                             the process stops (SIGSTOP); the test goes on with it later
 *   hang                             the thread goes no further, and a line says so; others do
 *
 *   VARVE_FAULT=trace                nothing fails; each hit of any point is a line
 *                                    "fault point: NAME" on standard error
 *
 * and `varved --fault-points` lists every name that is linked into the program. Other builds
 * contain nothing of it.
 */
#pragma once

#include "err.h"

#include <stdio.h>

#ifdef VARVE_FAULT_POINTS

struct fault_point {
    const char *name;
};

/* 0, or the armed failure with `err` set. */
int fault_hit(const struct fault_point *point, struct err *err);

/* Pointers to points lie side by side in one section; fault_list() walks it. */
#define FAULT_POINT(name_, err_)                                                                   \
    __extension__({                                                                                \
        static const struct fault_point point_ = {name_};                                          \
        static const struct fault_point *const entry_                                              \
            __attribute__((section("varve_faults"), used)) = &point_;                              \
        fault_hit(entry_, err_);                                                                   \
    })

#else

#define FAULT_POINT(name_, err_) ((void)(err_), 0)

#endif

/* Writes the names of all points, sorted, one per line; nothing in builds without them. */
void fault_list(FILE *out);
