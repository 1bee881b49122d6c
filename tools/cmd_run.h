/* cmd_run.h - what the verbs of runs share. */
#pragma once

#include "cmd.h"

/* Asks the daemon to mount a run that it says is not mounted, as after a reboot. 0 also when it is
 * mounted already. */
int cmd_run_need_mount(struct cmd_context *ctx, const char *id, struct err *err);
