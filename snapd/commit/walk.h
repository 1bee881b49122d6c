/* walk.h - reads a directory tree entry by entry, in one order, without ever leaving it.
 *
 * Job: gives every entry below a directory with all its attributes, so that a layer can be written
 * from them. The caller pulls entries one by one:
 *
 *   order       a directory's entry, then its children in byte order of their names, each followed
 *               at once by what is below it. The root comes first, with the path "". In the upper
 *               directory of an overlay, whiteouts (0:0 character devices) come before their
 *               siblings (OCI image-spec, layer.md, "Whiteouts").
 *   names       any bytes but '/' and NUL; nothing depends on the locale
 *   links       never followed: every open is of a single name in an open directory, with
 *               O_NOFOLLOW. Only regular files and directories are opened.
 *   mounts      the walk stays on the mount of the root by STATX_MNT_ID. A directory that something
 *               is mounted on is given with skipped = "mount" and without content: as the covered
 *               directory cannot be seen, it has the mode and owner of what is mounted there, the
 *               time 0 and no extended attributes. Any other entry that is a mount point is given
 *               with skipped = "mount" and is not part of the tree.
 *   sockets     are given with skipped = "socket"; no archive can hold them
 *   hard links  the first name in order is a file, the later ones refer to it
 *   changes     the tree must stand still. A directory that changed while it was walked, or a file
 *               that changed while it was read (walk_check()), is ERR_CONFLICT.
 *
 * Limits: depth is bounded by the length of a path alone (no recursion; WALK_OPEN_MAX descriptors).
 * Memory is bounded: names of the directories on the current path (WALK_NAMES_MAX) and paths of
 * files with several names until the last one was seen (WALK_LINKS_MAX). More is ERR_TOO_LARGE.
 *
 * One walk belongs to one thread.
 */
#pragma once

#include "cleanup.h"
#include "err.h"
#include "walk_xattrs.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

enum {
    WALK_PATH_MAX = 256 * 1024,  /* bytes; a pax header of at most 1 MiB has to hold it twice */
    WALK_OPEN_MAX = 64,          /* open directories of one walk */
    WALK_NAMES_MAX = 1 << 30,    /* bytes */
    WALK_LINKS_MAX = 256 << 20,  /* bytes */
    WALK_LINK_TARGET_MAX = 4096, /* bytes of a symbolic link's target, NUL included */
};

/* An entry; everything in it is borrowed until the next call for the same walk. */
struct walk_entry {
    const char *path; /* relative to the root; "" for the root */
    const char *name; /* last component of path */
    struct statx stat;
    const struct walk_xattr *xattrs; /* sorted by name; none for a later name of a hard link */
    size_t xattr_count;
    const char *link_target; /* of a symbolic link, else NULL */
    const char *hard_link;   /* path of the first name of this inode, NULL for the first one */
    const char *skipped;     /* "socket" or "mount", NULL for what is fully part of the tree */
    int fd;                  /* for reading a regular file's content, else -1; its offset is 0 */
};

struct walk;

/* Begins a walk below the directory `root_fd` (borrowed). `overlay` says that it is the upper
 * directory of an overlay: whiteouts come first and are never hard links, although the kernel
 * makes many of them from one inode. */
int walk_open(int root_fd, bool overlay, struct walk **ret, struct err *err);

/* The next entry. 1 with *ret set, 0 at the end, or -errno with the path in the message. */
int walk_next(struct walk *walk, const struct walk_entry **ret, struct err *err);

/* After the content of the current regular file was read: whether it is still what it was. */
int walk_check(struct walk *walk, struct err *err);

void walk_close(struct walk *walk); /* NULL is fine */
static inline void walk_closep(struct walk **walk)
{
    walk_close(*walk);
}
#define cleanup_walk cleanup_with(walk_closep)
