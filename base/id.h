/* id.h - random identifiers and the rule for names that users choose. */
#pragma once

#include "err.h"

#include <stdbool.h>

enum {
    ID_LEN_MAX = 63, /* so that an ID fits a file name, a label and a tag with room to spare */
};

struct id {
    char s[ID_LEN_MAX + 1];
};

/* Writes `digits` random lower-case hex digits and a NUL byte. */
int id_random_hex(char *ret, size_t digits, struct err *err);

/* "<prefix>-<12 hex digits>": r- runs, s- snapshots, j- jobs. */
int id_new(const char *prefix, struct id *ret, struct err *err);

/* An ID that a user gave: 1 to 63 of a-z, 0-9, '.', '_', '-', the first one a letter or digit.
 * `what` names it in the message ("run ID"). */
int id_check(const char *text, const char *what, struct err *err);
