/* run_attr.h - a directory's own attributes on another directory. */
#pragma once

#include "err.h"

/* Copies owner, mode, extended attributes (ACLs with them) and the modification time of one open
 * directory to another. Attributes of overlayfs itself (trusted.overlay.*) are left out: they
 * describe a place in a stack. */
int run_attr_copy(int from_fd, int to_fd, struct err *err);
