/* erofs_check_xattr.h - whether an inode of a layer may have an attribute, and with that value.
 *
 * Allowed is what the converter takes over from archives (convert_attr.h) and what it writes
 * itself:
 *
 *   user.*                   files and directories, as Linux knows no others
 *   trusted.*                of trusted.overlay.* and trusted.varve.* only those that mark a
 * directory: trusted.overlay.opaque and trusted.varve.implied, both "y" security.* not the labels
 * that this host's security modules give security.capability      in one of its two forms
 *   system.posix_acl_access  not on links; well formed
 *   system.posix_acl_default directories; well formed
 *
 * The kernel parses capabilities and access lists on access, not at mount, and fails then.
 */
#pragma once

#include "erofs_reader.h"

int erofs_check_xattr(const struct erofs_inode *inode, const struct erofs_found_xattr *xattr,
                      struct err *err);
