/* unpack_fixture.h - what the tests of unpacking share: running it and looking at the result. */
#pragma once

#include "scratch.h"
#include "tar_builder.h"
#include "unpack.h"

#include <stdbool.h>
#include <sys/stat.h>

/* One unpacking into the new directory `target` of the scratch directory. */
struct unpack_try {
    const struct scratch *scratch;
    const char *target;
    enum unpack_mode mode;
    const void *bytes; /* the blob */
    size_t len;
    const char *lowers[8]; /* names of lower layers in the scratch directory, topmost first */
    const struct digest *diff_id;
    uint64_t bytes_max;
    uint64_t entries_max;
    uint64_t growth_free;
};

/* Makes the target directory and unpacks. 0, or -errno with err set. */
int unpack_try(const struct unpack_try *try, struct err *err);

/* Unpacks an archive that must be good; closes it. */
void unpack_good(const struct scratch *scratch, const char *target, enum unpack_mode mode,
                 struct tar_builder *tar);
/* The same as a layer over lower layers. */
void unpack_layer(const struct scratch *scratch, const char *target, struct tar_builder *tar,
                  const char *lower, const char *lower2);
/* Unpacks an archive that must be refused with this code and a message that holds `part`. */
void unpack_bad(const struct scratch *scratch, const char *target, enum unpack_mode mode,
                struct tar_builder *tar, enum err_code code, const char *part);

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
