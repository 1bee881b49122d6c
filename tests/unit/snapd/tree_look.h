/* tree_look.h - looking at a tree below the scratch directory, and shell filters. */
#pragma once

#include "scratch.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* lstat() below the scratch directory; the test fails when it is missing. */
struct stat look(const struct scratch *scratch, const char *path);
bool is_there(const struct scratch *scratch, const char *path);
/* The content of a file equals the text. */
void assert_content(const struct scratch *scratch, const char *path, const char *text);
void assert_link(const struct scratch *scratch, const char *path, const char *target);
/* The value of an extended attribute, or its absence with NULL. */
void assert_xattr(const struct scratch *scratch, const char *path, const char *name,
                  const void *value, size_t size);
/* The directory holds exactly these names, sorted, with a space between. */
void assert_names(const struct scratch *scratch, const char *path, const char *names);

/* The output of a shell command line that is given the bytes on its standard input. */
void filter(const struct scratch *scratch, const char *command, const void *bytes, size_t len,
            char **ret, size_t *ret_len);
