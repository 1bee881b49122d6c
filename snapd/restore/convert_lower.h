/* convert_lower.h - looking names up in the images of the layers below, as overlayfs would.
 *
 * The topmost layer that has a name decides; a 0:0 character device hides the name in the layers
 * below, trusted.overlay.opaque on a directory hides that directory's content below, a file hides
 * everything below it. No symbolic link is followed: a path through one does not exist here.
 *
 * The directories of the path that was looked up last stay open in all layers. So whoever asks in
 * the order of a tree (paths sorted, or depth first) pays once for each directory, however deep it
 * lies, and then for the names in it.
 *
 * The images are read with erofs_reader.h and are not trusted: memory is bounded by the depth of a
 * path and the number of layers, time by CONVERT_LOWER_STEPS_MAX.
 */
#pragma once

#include "cleanup.h"
#include "convert_path.h"
#include "erofs_reader.h"

/* Directories and names that are looked at; about two minutes. Five million names in a stack of
 * 127 layers are about half of it. */
#define CONVERT_LOWER_STEPS_MAX (UINT64_C(1) << 30)

struct convert_lower;

/* `images` are borrowed, topmost first; none is fine. */
int convert_lower_open(const struct erofs_image *images, size_t count, struct convert_lower **ret,
                       struct err *err);
void convert_lower_free(struct convert_lower *lower); /* NULL is fine */

static inline void convert_lower_freep(struct convert_lower **lower)
{
    convert_lower_free(*lower);
}
#define cleanup_convert_lower cleanup_with(convert_lower_freep)

struct convert_lower_found {
    size_t layer;                    /* index into the images */
    const struct erofs_image *image; /* that one */
    struct erofs_inode inode;        /* never a whiteout */
};

/* Looks `path` (convert_path.h) up. 1 found, 0 not, or -errno; *ret is written when found. The root
 * is that of the topmost layer which lists it (trusted.varve.implied says that one does not), or
 * not found. */
int convert_lower_find(struct convert_lower *lower, const char *path,
                       struct convert_lower_found *ret, struct err *err);

/* Calls `take` for each name in the root of each layer until it fails, the same name more than once
 * and hidden ones too. The name is borrowed. */
typedef int convert_lower_take(void *arg, const char *name, struct err *err);
int convert_lower_each_root_name(struct convert_lower *lower, convert_lower_take *take, void *arg,
                                 struct err *err);
