/* convert_path.h - names of archive members, brought into one form.
 *
 * "./etc//passwd" and "etc/passwd" are the same member. The one form has no leading "./", no empty
 * and no "." components, and no slash at the end; the root is "". What cannot be a name below a
 * root is refused: absolute names, dot-dot, components of more than 255 bytes, paths of more than
 * CONVERT_PATH_MAX - 1 bytes or CONVERT_DEPTH_MAX components, and the empty name (only "." and
 * "./" mean the root).
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    CONVERT_PATH_MAX = 4096,  /* bytes, NUL included; no system call takes a longer path */
    CONVERT_NAME_MAX = 255,   /* bytes of one component */
    CONVERT_DEPTH_MAX = 1024, /* components */
};

/* Brings `raw` into the one form. ERR_DAMAGED says what is wrong with it. */
int convert_path_normalise(const char *raw, char ret[CONVERT_PATH_MAX], struct err *err);

/* The last component; the path itself when it is the only one. */
const char *convert_path_base(const char *path);

/* Length of the parent's path; 0 when the parent is the root. */
size_t convert_path_parent_len(const char *path);

/* Whether `path` is `dir` or lies below it. */
bool convert_path_is_within(const char *path, const char *dir);

/* Order of a walk: parents before what lies in them, and all of that before the parent's next
 * sibling. As for strcmp(3), but with '/' before every other byte. */
int convert_path_compare(const char *a, const char *b);
