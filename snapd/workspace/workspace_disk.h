/* workspace_disk.h - what is done while the host's disk is full.
 *
 *   a write is held -> the reserve is given back -> (it goes on)
 *                                                -> waits longer than disk_wait -> fenced
 *
 * A write that finds no room is never answered with an error: its worker holds it and tries again
 * (DESIGN, "Full disk of the host"). The reserve, DATA/volumes-reserve, gives the operator time and
 * the volumes room: WORKSPACE_RESERVE_BYTES, at most a sixteenth of the file system. It is made
 * when a workspace exists and twice its size is free, so never from the last of a disk, and goes
 * with the last workspace. That a write is held is the word of its worker: where more is free than
 * the reserve has, giving it back would help nobody, and a worker that lies would take it from all.
 *
 * What to do is decided by a pure function of what is seen once a second; the monitor does it.
 */
#pragma once

#include "err.h"
#include "node.h"

#include <stdbool.h>
#include <stdint.h>

#define WORKSPACE_RESERVE_BYTES ((uint64_t)256 << 20)
/* For a detach and the catalog. */
#define WORKSPACE_ROOM_BYTES ((uint64_t)16 << 20)

/* What is seen. */
struct workspace_disk_look {
    uint64_t size;      /* of the file system */
    uint64_t free;      /* bytes of it that are free */
    uint64_t reserved;  /* bytes that the reserve has now */
    uint64_t held;      /* requests of all volumes that wait */
    bool has_workspace; /* there is one */
};

enum workspace_disk_action {
    WORKSPACE_DISK_NOTHING,
    WORKSPACE_DISK_RELEASE, /* give the reserve back */
    WORKSPACE_DISK_FILL,    /* make it */
};

enum workspace_disk_action workspace_disk_decide(const struct workspace_disk_look *look);

/* Bytes that the reserve should have on a file system of this size. */
uint64_t workspace_disk_reserve_size(uint64_t size);

/* Looks at the disk and the reserve; `held` and `has_workspace` are the caller's. */
int workspace_disk_look(struct node *node, struct workspace_disk_look *ret, struct err *err);
/* Does it. ERR_UNSUPPORTED: the file system cannot set bytes aside. */
int workspace_disk_act(struct node *node, const struct workspace_disk_look *look,
                       enum workspace_disk_action action, struct err *err);
/* Gives the reserve back when less than WORKSPACE_ROOM_BYTES are free: before a volume is detached,
 * which writes its disk map anew, as that is the way out of a full disk. Failures are logged. */
void workspace_disk_make_room(struct node *node);
