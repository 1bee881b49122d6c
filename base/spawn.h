/* spawn.h - helper programs as child processes.
 *
 * A child gets the standard streams and the extra descriptors that are listed, nothing else, also
 * where a library left one open that is not close-on-exec, and a clean signal state: nothing
 * ignored, nothing blocked. It outlives its parent, unless it is tied to the thread that starts it,
 * or the program itself sees to it (PR_SET_PDEATHSIG). Helpers are found beside the running
 * program, then in libexecdir.
 *
 * Needs close_range(2) with CLOSE_RANGE_CLOEXEC (Linux 5.11).
 */
#pragma once

#include "buf.h"
#include "confine.h"
#include "err.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    SPAWN_FDS_MAX = 16,
    SPAWN_LINE_MAX = 512,
};

struct spawn {
    const char *const *argv;  /* argv[0] is the program's absolute path */
    const char *const *envp;  /* NULL: an environment of PATH and LC_ALL=C only */
    int stdin_fd;             /* -1: /dev/null; borrowed */
    int stdout_fd;            /* -1: /dev/null; borrowed */
    int stderr_fd;            /* -1: the parent's; borrowed */
    int extra[SPAWN_FDS_MAX]; /* become descriptors 3, 4, ... of the child; borrowed */
    size_t extra_count;
    const struct confine *confine; /* rights that it loses; NULL: none. Borrowed */
    bool own_group; /* it leads a process group of its own, so that what it starts can be killed,
                       too */
    bool tied;      /* it is killed when the thread that starts it ends, however that ends */
};

/* Finds a helper ("varve-convert"): beside the running program, else in libexecdir. `ret` gets an
 * absolute path. ERR_UNSUPPORTED says where it was looked for. */
int spawn_find(const char *name, char ret[4096], struct err *err);

/* Finds a stock tool in a fixed search path, so that the caller's environment has no say.
 * ERR_NOT_FOUND: it is not installed. */
int spawn_find_tool(const char *name, char ret[4096], struct err *err);
/* Starts the child and returns its pid, or -errno. */
pid_t spawn_start(const struct spawn *spawn, struct err *err);

/* Waits for the child. Returns its exit status (0..255), or 128 + the signal that ended it. */
int spawn_wait(pid_t pid, struct err *err);

/* Runs a stock tool (found in PATH) to its end with its output collected: stdout in `ret_out`
 * (may be NULL), the last line of stderr in the error. Fails unless it exits with 0. */
int spawn_tool(const char *const *argv, struct buf *ret_out, struct err *err);
/* The last line of what was written to a memory file, such as a child's standard error; "" when
 * nothing was. */
void spawn_last_line(int fd, char ret[SPAWN_LINE_MAX]);
