/* workspace_watch.h - what the monitor's first thread sees and does: events, rates, the reserve.
 *
 * Belongs to one thread.
 */
#pragma once

#include "node.h"

#include <stdbool.h>

struct workspace_watch;

/* NULL without memory. */
struct workspace_watch *workspace_watch_new(struct node *node);
void workspace_watch_free(struct workspace_watch *watch); /* NULL is fine */

/* A volumes_event: `arg` is the watch. */
void workspace_watch_event(void *arg, const char *id, const char *event, const char *detail);
/* To be called about once a second. Returns whether there is something to be mended
 * (workspace_mend.h). */
bool workspace_watch_second(struct workspace_watch *watch);
