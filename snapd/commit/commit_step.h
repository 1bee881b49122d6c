/* commit_step.h - what an earlier attempt of a job has come to.
 *
 * A step that takes away what the job started from (an upload, a record) is put on record before
 * it is done; a job that runs again after a kill finds it there and knows that everything before
 * it was complete.
 */
#pragma once

#include "engine.h"

/* *ret: whether any attempt of the job began the step. */
int commit_step_reached(struct job *job, const char *step, bool *ret, struct err *err);
