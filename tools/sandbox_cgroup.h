/* sandbox_cgroup.h - a cgroup of its own for a sandbox, where the host has a cgroup v2 tree.
 *
 *   <v2 tree>/varve/run-<run ID>-<pid of the client>
 *
 * It lets others see, freeze and limit exactly the sandbox. It is a comfort, not a condition:
 * where there is no such tree, or it may not be written, the sandbox runs without. Removed at the
 * end; what the cgroup of a killed client leaves behind, the next sandbox removes.
 */
#pragma once

#include <sys/types.h>

struct sandbox_cgroup {
    char path[512]; /* "": none */
};

/* Makes the cgroup, after removing those of clients that are gone. */
struct sandbox_cgroup sandbox_cgroup_make(const char *id);
/* fork(), with the child in the cgroup; what it starts is in it too. Started there where the kernel
 * can (5.7), as moving a process makes it wait for every processor, 10 to 20 ms. The caller has one
 * thread. */
pid_t sandbox_cgroup_fork(struct sandbox_cgroup *cgroup);
/* Removes the cgroup, whose processes have ended. */
void sandbox_cgroup_remove(struct sandbox_cgroup *cgroup);
