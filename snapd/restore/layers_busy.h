/* layers_busy.h - one thread at a time works on one layer, downloads or uploads one blob.
 *
 * Many runs are often made from one new image at the same moment. The first thread that needs a
 * layer or blob works; the others wait and then find it published. When the first one fails, the
 * next one tries itself. A process has one table for all its nodes; an entry lives on its thread's
 * stack.
 *
 * Two entries are made for a layer, in this order: its chain ID, kept to the end, and its diff ID,
 * given back before the thread waits for the layers below. So a thread with a diff ID waits for no
 * other one, and one with a chain ID only for such as are shorter: nobody waits in a circle. The
 * digest of a blob (pull_blob.c) is entered last and given back before anything else is waited for,
 * and so are an upload (push_image_blob.c) and what many removals would ask a repository for
 * (snapshot_remote.c).
 */
#pragma once

#include "convert.h"

#include <stdbool.h>
#include <stdint.h>

struct layers_busy {
    struct layers_busy *next; /* guarded by the table's lock, like all fields while in the table */
    const void *node;         /* NULL: not in the table */
    const char *what;         /* "chain", "diff", "blob", "push" or "remove" */
    const char
        *digest; /* borrowed; of an upload "repository digest", of a removal the repository */
};

/* Waits until no other thread works on the object and enters it into the table. `stop` (may be
 * NULL) is asked ten times a second while waiting; its failure is returned, and nothing is entered.
 */
int layers_busy_enter(struct layers_busy *busy, const void *node, const char *what,
                      const char *digest, convert_stop *stop, void *arg, struct err *err);
/* Whether somebody waits for the end of it. */
bool layers_busy_is_awaited(const struct layers_busy *busy);
void layers_busy_leave(struct layers_busy *busy); /* harmless when it is not in the table */
#define cleanup_layers_busy cleanup_with(layers_busy_leave)
