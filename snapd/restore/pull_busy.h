/* pull_busy.h - one thread at a time downloads one blob.
 *
 * Images share layers, and many nodes' jobs begin with the same image at the same moment. The first
 * thread that needs a blob downloads it; the others wait and then find it in the store. When the
 * first one fails, the next one tries itself. A process has one table for all its nodes; an entry
 * lives on its thread's stack.
 */
#pragma once

#include "convert.h"
#include "digest.h"

struct pull_busy {
    struct pull_busy *next; /* guarded by the table's lock, like all fields while in the table */
    const void *node;
    struct digest digest;
};

/* Waits until no other thread downloads the blob and enters it into the table. `stop` (may be NULL)
 * is asked ten times a second while waiting; its failure is returned, and nothing is entered. */
int pull_busy_enter(struct pull_busy *busy, const void *node, const struct digest *digest,
                    convert_stop *stop, void *arg, struct err *err);
void pull_busy_leave(struct pull_busy *busy);
