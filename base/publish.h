/* publish.h - durable publish: the only way in which a file or directory that others rely on gets
 * its name (invariant I1, docs/FORMAT.md).
 *
 * A file is written under a temporary name in a directory for temporary files, synced, renamed to
 * its final name, and the directory that holds the name is synced. After a crash the name is there
 * with complete content, or it is not there. The two directories lie on one filesystem.
 *
 * A directory tree is published the same way: everything on its filesystem is synced, then it is
 * renamed, then its new parent is synced.
 *
 * Temporary names begin with ".tmp-" and end in 16 random hex digits; publish_sweep() removes what
 * a crash left of them.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stdbool.h>
#include <sys/types.h>

enum publish_mode {
    PUBLISH_REPLACE,   /* takes the place of an existing name */
    PUBLISH_NOREPLACE, /* -EEXIST (ERR_EXISTS) when the name is there */
};

struct publish {
    int fd;        /* write here; owned */
    int temp_dir;  /* borrowed */
    char temp[32]; /* "" once published */
};

#define PUBLISH_INIT                                                                               \
    {                                                                                              \
        .fd = -1, .temp_dir = -1                                                                   \
    }

/* Makes the temporary file in `temp_dir` with `mode` (not changed by the umask). */
int publish_begin(int temp_dir, mode_t mode, struct publish *ret, struct err *err);

/* The same under a temporary name that the caller knows again after a crash: ".tmp-" and at most 26
 * bytes more. A file that is there under it is what an earlier attempt left, and goes. For
 * directories that publish_sweep() never looks into. */
int publish_begin_as(int temp_dir, const char *temp, mode_t mode, struct publish *ret,
                     struct err *err);

/* Syncs and renames to `name` in `dir_fd`, syncs that directory. On failure the name is as it was
 * before; only when the last sync failed the new content has it, complete, but a power cut may
 * bring back what was there. publish_abort() has to be called in any case. */
int publish_commit(struct publish *publish, int dir_fd, const char *name, enum publish_mode mode,
                   struct err *err);

/* Removes what was not committed. Harmless after publish_commit() and on PUBLISH_INIT. */
void publish_abort(struct publish *publish);
#define cleanup_publish cleanup_with(publish_abort)

/* Publishes bytes in one call; temporary and final name lie in `dir_fd`. */
int publish_bytes(int dir_fd, const char *name, const void *bytes, size_t len, mode_t mode,
                  enum publish_mode how, struct err *err);

/* Publishes the directory `temp` in `temp_dir` as `name` in `dir_fd`. Never replaces. */
int publish_tree(int temp_dir, const char *temp, int dir_fd, const char *name, struct err *err);

/* The same for a directory in which there is nothing but these regular files: they are synced, not
 * everything on the filesystem, which takes long where others write a lot. */
int publish_files(int temp_dir, const char *temp, const char *const *files, size_t count,
                  int dir_fd, const char *name, struct err *err);
/* Removes a name and syncs its directory. A missing name is no failure. */
int publish_unlink(int dir_fd, const char *name, struct err *err);

/* Writes a fresh temporary name, such as publish_begin() uses, into `ret`. */
int publish_temp_name(char ret[32], struct err *err);

/* Removes every ".tmp-" entry (files and trees) in `dir_fd`. For start-up, when nobody else
 * writes there. One that cannot be removed does not keep the others; it is the failure (I9). */
int publish_sweep(int dir_fd, struct err *err);
