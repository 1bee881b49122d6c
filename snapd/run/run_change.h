/* run_change.h - the way of a run from one mounted state to another, as a step of jobs that hold
 * its lock (run_reset.c, run_rollback.c).
 */
#pragma once

#include "engine.h"
#include "run_switch.h"

/* Prepares the new state, unmounts, exchanges, mounts. `run` is the row as it is. On failure the
 * run is mounted as it was, or, after the durable step, as it shall be. */
int run_change(struct job *job, const struct run_switch *wanted, const struct catalog_run *run,
               struct err *err);
