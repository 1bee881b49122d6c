/* convert_space.h - the last part of the disk stays free, whatever an archive holds. */
#pragma once

#include "err.h"

/* ERR_NO_SPACE when the file system of `fd` has less than 5 % (at most 1 GiB) left. To be asked
 * every few MiB that are written. */
int convert_space_check(int fd, struct err *err);
