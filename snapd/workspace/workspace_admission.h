/* workspace_admission.h - whether the disk bears another volume, or a larger one.
 *
 * Volumes are thin: all together may grow by more than the disk has free, as seldom all do at once.
 * What they may still grow by (their sizes less what they have stored) is at most [volume]
 * overcommit times the free bytes of the disk. That is looked at when a workspace is made and when
 * it is resized; later the disk may fill up by other things, and then writes wait
 * (workspace_disk.h).
 */
#pragma once

#include "err.h"
#include "node.h"

#include <stdint.h>

struct workspace_admission {
    uint64_t wanted;     /* bytes that it is about */
    uint64_t unwritten;  /* by which the volumes that are there may still grow */
    uint64_t free;       /* bytes of the disk */
    uint64_t overcommit; /* the setting */
};

/* ERR_NO_SPACE, with the numbers and what to do, when it is too much. */
int workspace_admission_check(const struct workspace_admission *admission, struct err *err);

/* What a volume of this size may take on the disk. One that shows an epoch of another (its ID, or
 * NULL) takes at most as much as that has stored here. */
uint64_t workspace_admission_need(struct node *node, const char *view_of, uint64_t size);

/* workspace_admission_check() for this node as it is now. What was admitted counts until the
 * release, which follows when a row speaks of it. */
int workspace_admission_reserve(struct node *node, uint64_t wanted, struct err *err);
void workspace_admission_release(struct node *node, uint64_t wanted);
