/* erofs_check_acl.h - whether the kernel takes a value of system.posix_acl_* for an access list.
 *
 * It parses them on access, not at mount, and answers with failures where one is malformed: then
 * nobody can look into the directory any more.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool erofs_check_acl_is_good(const void *value, size_t size);
