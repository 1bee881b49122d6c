/* sandbox_view.h - the mount namespace that bubblewrap starts in.
 *
 * The root inside a sandbox is uid 0 of the host for everything that looks at ids alone. Whatever
 * file of the host came within its reach, by a slip of bubblewrap, a symbolic link in the root
 * filesystem or a magic link in /proc, it could write or change the mode of. So bubblewrap starts
 * in a copy of the host's mounts in which
 *
 *   - every mount is read-only, but /proc, which the kernel wants to be as writable as the procfs
 *     that bubblewrap mounts from there;
 *   - the run's root filesystem is as it was, with what is mounted in it;
 *   - the mounts of other runs are gone, as bubblewrap reads the list of all mounts many times:
 *     the more runs a host has, the later a sandbox would start;
 *   - /dev is a small private tmpfs with the nodes that sandboxes need: a chmod of /dev/null inside
 *     changes no device of the host;
 *   - a root filesystem whose /proc is a symbolic link is refused, as another sandbox on the same
 *     run could turn it while bubblewrap covers what must not be written there;
 *   - unmounts on the host still arrive, so that a long sandbox pins no other run.
 *
 * Made while the process is still root of the host; entering a user namespace afterwards locks the
 * flags.
 */
#pragma once

#include "err.h"

/* Moves the calling process into such a namespace. `rootfs` is absolute. `console` is the path of
 * a terminal to show as /dev/console, or NULL. */
int sandbox_view_enter(const char *rootfs, const char *console, struct err *err);
