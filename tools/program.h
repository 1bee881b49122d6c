/* program.h - finds stock programs in fixed directories, so that the caller's PATH has no say. */
#pragma once

#include "err.h"

/* The path of `name`; ERR_NOT_FOUND when it is not installed. */
int program_find(const char *name, char ret[4096], struct err *err);
