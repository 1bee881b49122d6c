/* workspace_trim.h - what the monitor's third thread does: mounted workspaces give the space of
 * removed files back to the host, once an hour each, if anything was written to them since.
 *
 * Each volume has its own minute of the hour, so that a node with many never trims them all at
 * once. Trimming holds no claim: a job that needs the volume meanwhile is let in by volumes_trim().
 */
#pragma once

#include "node.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    WORKSPACE_TRIM_SECONDS = 3600,
};

struct workspace_trim;

/* NULL without memory. Belongs to one thread. */
struct workspace_trim *workspace_trim_new(struct node *node);
void workspace_trim_free(struct workspace_trim *trim); /* NULL is fine */

/* Trims what is due at this time of the monotonic clock. `stop` (may be NULL) ends it early. */
typedef bool workspace_trim_stop(void *arg);
void workspace_trim_pass(struct workspace_trim *trim, int64_t now_ns, workspace_trim_stop *stop,
                         void *stop_arg);
