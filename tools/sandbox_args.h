/* sandbox_args.h - the options of bubblewrap for a sandbox (pure).
 *
 * bubblewrap is started inside a user namespace that exists already, as its root (userns.h), in
 * the prepared view of the host (sandbox_view.h). It makes the other namespaces and the file
 * system, drops capabilities, sets no_new_privs and starts varve-init as process 1.
 *
 * Options go through a file (--args), so that neither the host's process list nor the sandbox's
 * own shows the environment of the command.
 */
#pragma once

#include "sandbox.h"
#include "sandbox_proc.h"

struct sandbox_args {
    const struct sandbox *sandbox;
    const struct sandbox_proc_entry *proc; /* covers for /proc */
    size_t proc_count;
    bool console;            /* /dev/console exists in the view */
    int resolv_fd;           /* content for `resolv_path`; -1: none */
    const char *resolv_path; /* absolute, as seen inside */
};

/* Capabilities of the sandbox, as in containers; named for bubblewrap, ended by NULL. */
extern const char *const sandbox_args_caps[];
/* The same as a mask of 1 << CAP_*. */
unsigned long long sandbox_args_cap_mask(void);

/* The options, each followed by a NUL byte. */
int sandbox_args_build(const struct sandbox_args *args, struct buf *ret, struct err *err);
