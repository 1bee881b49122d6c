/* convert_fixture.h - what the tests of layers share: converting an archive in this process,
 * checking the image, and mounting it.
 *
 * An image "t" of the scratch directory is the file t.img; mounted, the directory t.
 */
#pragma once

#include "convert_layer.h"
#include "scratch.h"
#include "tar_builder.h"
#include "tree_look.h"

enum {
    CONVERT_TRY_LOWERS = 8,
};

struct convert_try {
    const struct scratch *scratch;
    const char *target; /* name of the image */
    enum convert_mode mode;
    const void *bytes; /* the tar */
    size_t len;
    size_t piece;                           /* bytes that the stream gives at once; 0: all */
    const char *lowers[CONVERT_TRY_LOWERS]; /* names of images, topmost first */
    bool not_lowest;                        /* also without lower images */
    const struct digest *diff_id;           /* expected */
    uint64_t bytes_max;
    uint64_t entries_max;
};

/* What came of it. */
struct convert_done {
    struct convert_layer_stats stats; /* without its text */
    bool needed_lowers;
    char dropped[4096];
};

/* Converts into the image file and checks it with erofs_check(); an accepted image that does not
 * pass fails the test. 0, or -errno with err set. `ret` may be NULL. */
int convert_try(const struct convert_try *try, struct convert_done *ret, struct err *err);

/* Mounts an image at the directory of its name. */
void convert_mount(const struct scratch *scratch, const char *target);

/* Converts an archive that must be good, closes it, mounts the image. */
struct convert_done convert_good(const struct scratch *scratch, const char *target,
                                 enum convert_mode mode, struct tar_builder *tar);
/* The same as a layer over lower ones. */
struct convert_done convert_over(const struct scratch *scratch, const char *target,
                                 struct tar_builder *tar, const char *lower, const char *lower2);
/* Converts an archive that must be refused with this code and a message that holds `part`. */
void convert_bad(const struct scratch *scratch, const char *target, enum convert_mode mode,
                 struct tar_builder *tar, enum err_code code, const char *part);

/* Mounts the layers ("top base"), topmost first, read-only as an overlay at "m". An empty layer is
 * put below, as overlayfs wants two. */
void convert_stack(const struct scratch *scratch, const char *layers);
