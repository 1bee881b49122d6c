/* workspace_mend.h - what the monitor's second thread does: what has died is brought back, what has
 * waited too long, or is on a disk that has failed, is fenced, what was held elsewhere is let go
 * of.
 *
 * What is tried and fails stays for a person (workspace_revive() writes the reason down), but for
 * what only time can mend: somebody who still holds on. What dies again and again is brought back
 * once a minute after WORKSPACE_EVENTS_AT_ONCE times (workspace_event_limit.h).
 */
#pragma once

#include "node.h"

#include <stdbool.h>

/* Goes through all workspaces once. Several are mended at once (workspace_pool.h), and what takes
 * longer than a second goes on by itself. `stop` (may be NULL) ends it early. Returns whether
 * something is left that a later pass may mend. */
typedef bool workspace_mend_stop(void *arg);
bool workspace_mend(struct node *node, workspace_mend_stop *stop, void *stop_arg);
