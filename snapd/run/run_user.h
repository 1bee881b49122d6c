/* run_user.h - who a process in a root filesystem is: a user's word against its own passwd file.
 *
 *   "", "USER", "USER:GROUP"     each a name or a number (OCI image-spec, config.md, "User")
 *
 * A number needs no entry; a name does. Without a group the user's entry gives the group (0 without
 * an entry) and /etc/group the supplementary groups; with one it is the only group. The empty word
 * is uid 0. A word of digits is always a number, as in container engines.
 *
 * The files belong to the sandbox, so they may be anything: links that lead out, fifos, devices,
 * gigabytes, lines without an end. They are opened inside the root filesystem (RESOLVE_IN_ROOT),
 * only regular files are read, sizes and counts are bounded, and lines that cannot be understood
 * are passed over. A missing file holds no entry.
 *
 * What it does not do: name services (nss), passwords, shells.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stddef.h>
#include <stdint.h>

enum {
    RUN_USER_WORD_MAX = 256,     /* bytes of "USER:GROUP" */
    RUN_USER_FILE_MAX = 4 << 20, /* bytes of a passwd or group file */
    RUN_USER_GROUPS_MAX = 1024,  /* supplementary groups */
    RUN_USER_HOME_MAX = 4096,    /* bytes of a home directory; a longer one is passed over */
    RUN_USER_ID_MAX = INT32_MAX, /* as in container engines */
};

struct run_user {
    uint32_t uid;
    uint32_t gid;
    uint32_t *groups; /* supplementary; owned */
    size_t group_count;
    char *home; /* "/" without an entry that has one; owned */
};
void run_user_free(struct run_user *user);
#define cleanup_run_user cleanup_with(run_user_free)

/* Resolves `word` (NULL: "") in the root filesystem `root_fd`. ERR_INVALID for a word that is none,
 * ERR_NOT_FOUND for a name that the files do not have, ERR_TOO_LARGE for files above the limits. */
int run_user_resolve(int root_fd, const char *word, struct run_user *ret, struct err *err);
