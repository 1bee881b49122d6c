/* sandbox_resolv.h - name resolution in a sandbox that has a network.
 *
 * The sandbox sees a private copy of the host's resolv.conf over its own file; the run's file is
 * not changed. Where the run has none, or a link that leads nowhere, an empty file is made to show
 * it over, as container engines do; for a program an empty file means the same as none. A resolver
 * on the host's loopback interface cannot be reached through pasta: the upstream servers that
 * systemd-resolved writes down are taken instead, or else pasta passes questions to the address
 * SANDBOX_RESOLV_FORWARD on to the host's first resolver.
 */
#pragma once

#include "buf.h"
#include "sandbox.h"

/* A link-local address that no network gives to a host of its own. */
#define SANDBOX_RESOLV_FORWARD "169.254.1.1"

/* Copies a resolv.conf; with `no_loopback` without name servers on the loopback interface. Returns
 * how many name servers are left (pure). */
int sandbox_resolv_copy(const char *text, bool no_loopback, struct buf *ret, struct err *err);

struct sandbox_resolv {
    int fd;         /* a memory file with the content; -1: nothing is to be shown; owned */
    char path[512]; /* where it is shown, inside */
    bool forward;   /* pasta has to forward questions */
    bool missing;   /* there is something else than a file to show it over */
};

/* Prepares it for a root filesystem. A root filesystem whose /etc/resolv.conf is something else
 * than a file (a directory, a fifo) gets nothing. */
int sandbox_resolv_make(const char *rootfs, enum sandbox_net net, struct sandbox_resolv *ret,
                        struct err *err);
