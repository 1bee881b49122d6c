/* layers_busy.h - one thread at a time unpacks one layer.
 *
 * Many runs are often made from one new image at the same moment. The first thread that needs a
 * layer works; the others wait and then find it published. A process has one table for all its
 * nodes; an entry lives on its thread's stack.
 */
#pragma once

#include <stdint.h>

struct layers_busy {
    struct layers_busy *next; /* guarded by the table's lock, like all fields while in the table */
    const void *node;
    const char *chain_id; /* borrowed */
};

/* Waits until no other thread works on the layer and enters it into the table. */
void layers_busy_enter(struct layers_busy *busy, const void *node, const char *chain_id);
void layers_busy_leave(struct layers_busy *busy);
