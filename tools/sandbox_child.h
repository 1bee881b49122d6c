/* sandbox_child.h - the way of a forked child from root of the host to bubblewrap.
 *
 * In order: parted from the client's terminal and keyrings; told to go on once it is in its
 * cgroup; in the private view of the mounts; in the user namespace, once the client has mapped it;
 * without the capabilities that no sandbox gets; with the listed descriptors only; exec.
 *
 * The two sides talk over a SOCK_SEQPACKET pair: single bytes in step, a struct err when something
 * fails, and its end when bubblewrap has taken over.
 */
#pragma once

#include "sandbox.h"

#include <stddef.h>
#include <sys/types.h>

enum {
    SANDBOX_CHILD_KEEP_MAX = 8,
};

struct sandbox_child {
    const char *rootfs;
    const char *console;              /* path of the terminal for /dev/console; NULL: none */
    const char *bwrap;                /* path */
    char *const *argv;                /* of bubblewrap */
    const char *init;                 /* path of varve-init, opened in the view as `init_fd` */
    int init_fd;                      /* a descriptor whose number is used */
    int sync;                         /* the child's end */
    int said;                         /* bubblewrap's standard error */
    int keep[SANDBOX_CHILD_KEEP_MAX]; /* descriptors to pass on besides */
    size_t keep_count;
    pid_t parent;
};

/* The child's side; never returns. */
_Noreturn void sandbox_child_run(const struct sandbox_child *child);

/* The client's side: leads child `pid` to its exec of bubblewrap. `sync` is the client's end. */
int sandbox_child_lead(int sync, pid_t pid, struct err *err);
