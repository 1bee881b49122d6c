/* walk_names.h - the names in one directory, sorted. */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

struct walk_names {
    char *bytes; /* owned: per name one byte of rank, then the name and a NUL byte */
    size_t len;
    size_t cap;
    size_t *at; /* owned: offsets of the names in order */
    size_t count;
    size_t at_cap;
};

/* Reads all names but "." and ".." from the directory `fd` at its position, in byte order.
 * `whiteouts_first`: 0:0 character devices come before all others. More than `bytes_max` bytes in
 * memory are ERR_TOO_LARGE. `ret` is empty on failure. */
int walk_names_read(int fd, bool whiteouts_first, size_t bytes_max, struct walk_names *ret,
                    struct err *err);
const char *walk_names_get(const struct walk_names *names, size_t index);
void walk_names_free(struct walk_names *names);
