/* sandbox_proc.h - what of /proc a sandbox may see and change.
 *
 * A new procfs shows the sandbox's own processes and, beside them, files of the whole host that the
 * kernel guards by uid alone. The root inside is the host's uid 0 for those, so it gets no more of
 * them than an unprivileged user of the host: what only its owner may read or enter is covered,
 * what may be written is read-only, and so is every directory. Some files that anybody may read
 * tell too much or were trouble before; container runtimes cover them, and so does this.
 */
#pragma once

#include "buf.h"
#include "err.h"

#include <sys/types.h>

enum {
    SANDBOX_PROC_MAX = 256, /* entries beside processes; kernels have about 60 */
};

enum sandbox_proc_cover {
    SANDBOX_PROC_LEAVE,
    SANDBOX_PROC_READ_ONLY,
    SANDBOX_PROC_HIDE_FILE,
    SANDBOX_PROC_HIDE_DIR,
};

struct sandbox_proc_entry {
    char name[64];
    enum sandbox_proc_cover cover;
};

/* What is done with one entry (pure). */
enum sandbox_proc_cover sandbox_proc_decide(const char *name, mode_t mode);

/* The entries of a mounted procfs that are not left as they are, sorted by name. Caller frees. */
int sandbox_proc_list(const char *proc, struct sandbox_proc_entry **ret, size_t *ret_count,
                      struct err *err);
