/* workspace_consistency.h - how still a workspace stands when it is cut.
 *
 *   none     as it is, as after a power cut: what was not synced inside may be missing
 *   sync     its file system is synced first: what was written before is there
 *   freeze   synced, and frozen for the cut: nothing is in the middle of anything, and the
 *            checkpoint mounts without a journal to replay
 *
 * What is not mounted stands still by itself.
 */
#pragma once

#include "err.h"
#include "json_doc.h"

enum workspace_consistency {
    WORKSPACE_SYNC, /* where nobody says another one */
    WORKSPACE_NONE,
    WORKSPACE_FREEZE,
};

struct workspace_stillness {
    enum workspace_consistency consistency;
    int freeze_budget_ms; /* of a freeze (freeze.h) */
};

/* "none", "sync" or "freeze". */
const char *workspace_consistency_name(enum workspace_consistency consistency);
/* Members "consistency" and "freeze_budget_ms" of a request, both optional. ERR_INVALID. */
int workspace_consistency_read(const json_t *params, struct workspace_stillness *ret,
                               struct err *err);
