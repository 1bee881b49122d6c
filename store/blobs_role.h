/* blobs_role.h - what an image layout is for: the store of one node, or a remote that nodes share.
 *
 * The two are one directory format but two sets of rules. A node removes from its store what its
 * catalog does not name and writes index.json from the catalog; a remote is the only copy of what
 * was pushed. Were a store opened as a remote too, a push would find every blob there already, call
 * the snapshot safe, and the next removal would take its only copy (I4). So a layout takes one
 * role, for good, before anything is written into it under the rules of that role.
 *
 * The role stands in .varve/role. A layout without the file takes the role that is asked for first;
 * any number of daemons may ask at once.
 */
#pragma once

#include "blobs.h"

enum blobs_role {
    BLOBS_ROLE_STORE,  /* of one node */
    BLOBS_ROLE_REMOTE, /* of any number of nodes */
};

/* Gives the layout a role, durably, or checks that it has this one. ERR_CONFLICT when it has the
 * other one, ERR_DAMAGED when the file says nothing that is known. Not for readers. */
int blobs_role_take(struct blobs *blobs, enum blobs_role role, struct err *err);
