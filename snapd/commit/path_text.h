/* path_text.h - paths are bytes; messages and JSON documents are text.
 *
 * A name in a filesystem is any byte string without '/' and NUL. What leaves the program as text
 * (messages, job records, lists of skipped paths) must be UTF-8 on one line. Here is the one
 * rule for that: a path that is UTF-8 without control characters stays as it is; in any other path
 * each byte that is not part of such text is written as \xHH and each backslash as two.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    PATH_TEXT_MAX = 512, /* bytes, NUL included; longer paths are cut in the middle */
};

struct path_text {
    char s[PATH_TEXT_MAX];
};

/* Whether bytes are well-formed UTF-8 (no overlong forms, surrogates or values above 10FFFF).
 * Independent of the locale. */
bool path_text_is_utf8(const char *bytes, size_t len);

/* A path for a message. "" becomes "/", the root of the tree that the path is relative to. */
struct path_text path_text(const char *path);

/* A whole path for a document; caller frees. NULL without memory. */
char *path_text_dup(const char *path);
