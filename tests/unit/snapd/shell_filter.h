/* shell_filter.h - bytes through a shell command line, and files in memory, for tests of archives.
 */
#pragma once

#include "scratch.h"

#include <stddef.h>

/* The output of a shell command line that is given the bytes on its standard input and runs in the
 * scratch directory. Caller frees; the test fails when the command does. */
char *shell_filter(const struct scratch *scratch, const char *command, const void *bytes,
                   size_t len, size_t *ret_len);

/* A file without a name that holds the bytes, open for reading and writing. */
int memory_file(const void *bytes, size_t len);
