/* workspace_recover.h - after a restart: what the catalog says about workspaces is made true.
 *
 * Before the engine starts jobs. What is still served is adopted (volumes_adopt()): for those who
 * use it nothing has happened. A workspace that is to be mounted and is not (the host was started
 * anew, or everything that served it has died) is attached again, its file system checked, and
 * mounted; that is told as an event, and, unless the host was restarted, as an incident. What a job
 * left half done is finished, unless the job will do so itself. Failures are logged and written
 * down, and do not stop the others (I9).
 *
 * Several are worked on at once (workspace_pool.h). What takes longer than
 * WORKSPACE_RECOVER_SECONDS, a check of a large file system, goes on while the daemon serves: it
 * has the claim of its workspace, so that jobs wait for it.
 */
#pragma once

#include "convert.h"
#include "node.h"

enum {
    WORKSPACE_RECOVER_SECONDS = 10,
};

/* `stop` (may be NULL) ends it early; what is left is for the next start. */
void workspace_recover(struct node *node, convert_stop *stop, void *stop_arg);
