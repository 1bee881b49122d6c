/* run_attr.h - a directory's own attributes on another directory. */
#pragma once

#include "err.h"

/* Copies owner, mode, extended attributes (ACLs with them) and the modification time of one open
 * directory to another. Attributes of overlayfs itself (trusted.overlay.*) and of layer images
 * (trusted.varve.*) are left out: they describe a place in a stack. */
int run_attr_copy(int from_fd, int to_fd, struct err *err);
/* Gives a directory what a root directory has that no layer lists: 0755, owner 0:0, time 0. */
int run_attr_default(int fd, struct err *err);
/* Whether the root directory of a layer image is not one of the layer's members
 * (trusted.varve.implied): 1, 0 or -errno. */
int run_attr_is_implied(int fd, struct err *err);
