/* program.h - stock programs that sandboxes are made with.
 *
 * They are looked for in fixed directories, so that the caller's PATH has no say. What they write
 * to standard error is kept in memory files, for the message when they fail.
 */
#pragma once

#include "err.h"

/* The path of `name`; ERR_NOT_FOUND when it is not installed. */
int program_find(const char *name, char ret[4096], struct err *err);

/* The last line of what was written to a memory file; "" when nothing was. */
void program_last_line(int fd, char ret[512]);
