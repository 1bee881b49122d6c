/* sandbox.h - runs a command in a sandbox on a root filesystem, as a child of this process.
 *
 *   client (root)
 *     child: cgroup, private view of the mounts, user namespace 0..65535, becomes bubblewrap
 *       bubblewrap: namespaces, file system, capabilities; waits
 *         varve-init, process 1: starts and reaps
 *           the command, as root with the capabilities of a container, or as another user
 *           without any
 *     pasta, in a pid namespace of its own (with --net pasta)
 *
 * The client's end, however it comes, ends everything below it. The end of the command ends the
 * sandbox with whatever the command has left running.
 *
 * What the sandbox cannot do although its root is the host's uid 0 where only ids count:
 *   - no capability over the host, none beyond sandbox_args_caps inside; no_new_privs, so no
 *     program gains any; no further user namespaces;
 *   - of /proc only what an unprivileged user of the host could do; no /sys (sandbox_proc.h);
 *   - no file of the host: not even the standard streams, which are pipes or a terminal of its own
 *     unless they are pipes or sockets already (sandbox_io.h); see sandbox_view.h for the rest;
 *   - no key of the host's keyrings, no process, no System V IPC; no network unless asked for.
 *
 * Setuid programs have no effect inside (no_new_privs, nosuid). Files in /tmp are the sandbox's
 * own and go with it.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

enum sandbox_net {
    SANDBOX_NET_NONE,  /* a loopback interface of its own */
    SANDBOX_NET_PASTA, /* and outbound connections through pasta, none to the host's loopback */
    SANDBOX_NET_HOST,  /* the host's network */
};

enum {
    SANDBOX_IDS = 65536, /* ids that a sandbox has, from 0 on */
    SANDBOX_GROUPS_MAX = 1024,
};

/* Who the command is. */
struct sandbox_user {
    unsigned int uid; /* 0: root inside, with the capabilities of a container */
    unsigned int gid;
    const unsigned int *groups; /* supplementary */
    size_t group_count;
    const char *home; /* HOME of the command; NULL: "/root" */
};

struct sandbox {
    const char *id;         /* of the run: host name and cgroup */
    const char *rootfs;     /* absolute path of a directory */
    int lock_fd;            /* held open by process 1 as long as it lives; -1: none */
    const char *const *env; /* "KEY=VALUE", the last of equal keys wins; NULL-terminated */
    const char *cwd;        /* working directory; made when it is not there; NULL: "/" */
    struct sandbox_user user;
    enum sandbox_net net;
    const char *const *argv; /* the command; NULL-terminated */
    const char *init;        /* path of varve-init; NULL: where helper programs are */
};

/* Runs the command with the standard streams of this process and waits for its end. Returns its
 * exit status (128 + N when signal N ended it). A command that cannot be started gives 127 (not
 * found) or 126 with err set; so does a working directory that cannot be made; a sandbox that
 * cannot be made, or that was ended by somebody else, gives -errno. Must be called by root in a
 * process with one thread. Blocks SIGINT, SIGTERM, SIGHUP and SIGQUIT while it runs and passes them
 * on to the command. */
int sandbox_run(const struct sandbox *sandbox, struct err *err);
