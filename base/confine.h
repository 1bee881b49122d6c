/* confine.h - rights that are taken from a child before it becomes a program that reads what others
 * have made (spawn.h).
 *
 *   processes  a pid namespace of its own: it sees and signals nobody
 *   network    and System V IPC, host name: namespaces of its own, with nothing in them
 *   user       `uid`, `gid` and no other group; with root go all capabilities
 *   exec       gives nothing back (no_new_privs)
 *   files      where the kernel has Landlock, it writes nowhere but below one directory, whatever
 *              their modes allow; what everybody may read it may read
 *   memory     no core dump; when it is short, this process is the first to be killed
 *
 * What it keeps are the descriptors that it is handed. What it does not do: limit system calls,
 * time or memory.
 */
#pragma once

#include <sched.h>
#include <sys/types.h>

struct confine {
    uid_t uid; /* not 0 */
    gid_t gid;
    int writable; /* descriptor, in the child, of the directory; -1: none */
};

/* Flags of clone(2) that make the namespaces; the rest is confine_apply()'s. */
#define CONFINE_NAMESPACES (CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

/* In the child, before its exec: system calls alone. 0 or -errno. */
int confine_apply(const struct confine *confine);
