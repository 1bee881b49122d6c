/* import_internal.h - the parts of an import, for import*.c and their tests only.
 *
 * import.c decides what a source is and records the result; import_layout.c and import_rootfs.c
 * bring an image's blobs into the store, leased, and leave its documents in `image`.
 */
#pragma once

#include "commit_blobs.h"
#include "commit_image.h"
#include "engine.h"
#include "publish.h"

#include <stdbool.h>

struct import {
    struct job *job;     /* borrowed */
    struct node *node;   /* borrowed */
    const char *upload;  /* ID of an upload; NULL: a path was given */
    char *path;          /* of the source, for messages and for opening; owned */
    char *layout_name;   /* which image of a layout; NULL: it has only one; owned */
    char *name;          /* that the image gets; owned */
    struct publish temp; /* the archive as an image in DATA/tmp, never published; owned */
    struct commit_image image;
    struct commit_added added; /* to the catalog */
};

/* Takes an image of the layout in this directory as it is. */
int import_layout(struct import *import, int dir_fd, struct err *err);
/* Makes an image of one layer of the tree below `root_fd`. */
int import_rootfs(struct import *import, int root_fd, struct err *err);
