/* remote_internal.h - what the wrappers of remote.h (remote*.c) share: checks of names before an
 * implementation sees them. Each returns 0 or ERR_INVALID.
 */
#pragma once

#include "remote.h"

/* Lower-case components of letters and digits, with separators inside of them only; so no name
 * leaves its place in a path or URL. */
int remote_check_repository(const char *repository, struct err *err);
int remote_check_tag(const char *tag, struct err *err);
/* A repository, and a tag or digest in it. */
int remote_check_reference(const char *repository, const char *reference, struct err *err);
