/* run_rollback.h - job "run.rollback": a run becomes what a snapshot or image is.
 *
 * Params: {"id", "snapshot": snapshot ID or image that is on this node, "kill"?: true}.
 *
 *   steps: check (nobody uses the run; with kill: they are ended, run_kill.h) -> safety snapshot
 *   -> layers -> prepare -> switch (run_switch.h)
 *
 * Whatever the run has written since its image is committed first, as a snapshot with the label
 * varve.auto=rollback that expires after RUN_ROLLBACK_SAFETY_S; a run whose writable layer holds no
 * entry gets none. When that fails the run stays as it was, mounted. Nothing is fetched: an image
 * that is not here is ERR_NOT_FOUND, with nothing changed and nobody killed.
 *
 * Result: {"id", "image": digest, "safety_snapshot": ID or null, "killed": number of processes}.
 */
#pragma once

#include "engine.h"

enum {
    RUN_ROLLBACK_SAFETY_S = 24 * 3600,
};
#define RUN_ROLLBACK_LABEL "varve.auto"

extern const struct job_kind run_rollback_job;
