/* userns.h - user namespaces with the ids 0..65535 mapped to themselves.
 *
 * Ids on disk stay plain that way, and chown, su and package managers work, which they do not with
 * a single mapped id. The price: uid 0 inside is the host's uid 0 for everything that looks at ids
 * alone, so whoever runs there must be left without the capabilities of the namespace and without
 * sight of the files that the kernel guards by uid (/proc/sys, /sys).
 *
 * A child enters, the parent maps:   child userns_unshare() -> parent userns_map() -> child
 * userns_become_root().
 */
#pragma once

#include "err.h"

#include <sys/types.h>

enum {
    USERNS_IDS = 65536,
};

/* Moves the calling process into a new user namespace. The message of a refusal says what forbids
 * it on this host and what to set. */
int userns_unshare(struct err *err);

/* Maps the ids of the process that has just called userns_unshare(). Needs root. */
int userns_map(pid_t pid, struct err *err);

/* Becomes uid and gid 0 of the namespace, without supplementary groups. */
int userns_become_root(struct err *err);

/* Forbids further user namespaces below the caller's. `proc_fd` is a directory of a procfs that
 * may be written. Undone by nobody without CAP_SYS_RESOURCE in the namespace. */
int userns_forbid_nested(int proc_fd, struct err *err);

/* Tries all of it in a child that ends at once. */
int userns_probe(struct err *err);
