#include "erofs_check_xattr.h"

#include "cleanup.h"
#include "erofs_check_acl.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/stat.h>

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Notes of overlayfs and of ours, which layers must not write as they like. */
static bool is_good_trusted(const struct erofs_inode *inode, const struct erofs_found_xattr *xattr)
{
    static const char *const marks[] = {"trusted.overlay.opaque", "trusted.varve.implied"};
    if (!begins_with(xattr->name, "trusted.overlay.") &&
        !begins_with(xattr->name, "trusted.varve."))
        return true;
    bool is_mark = false;
    for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
        is_mark = is_mark || strcmp(xattr->name, marks[i]) == 0;
    return is_mark && S_ISDIR(inode->mode) && xattr->size == 1 && memcmp(xattr->value, "y", 1) == 0;
}

static bool is_good_capability(const void *value, size_t size)
{
    uint32_t magic;
    if (size < sizeof magic)
        return false;
    memcpy(&magic, value, sizeof magic);
    uint32_t revision = magic & VFS_CAP_REVISION_MASK;
    return (revision == VFS_CAP_REVISION_2 && size == XATTR_CAPS_SZ_2) ||
           (revision == VFS_CAP_REVISION_3 && size == XATTR_CAPS_SZ_3);
}

static bool is_good_security(const struct erofs_found_xattr *xattr)
{
    static const char *const labels[] = {"security.selinux", "security.apparmor",
                                         "security.SMACK64", "security.ima", "security.evm"};
    for (size_t i = 0; i < ARRAY_SIZE(labels); i++)
        if (begins_with(xattr->name, labels[i]))
            return false;
    return strcmp(xattr->name, "security.capability") != 0 ||
           is_good_capability(xattr->value, xattr->size);
}

static bool is_good_acl(const struct erofs_inode *inode, const struct erofs_found_xattr *xattr)
{
    bool fits = strcmp(xattr->name, "system.posix_acl_default") == 0 ? S_ISDIR(inode->mode)
                                                                     : !S_ISLNK(inode->mode);
    return fits && erofs_check_acl_is_good(xattr->value, xattr->size);
}

static bool is_good(const struct erofs_inode *inode, const struct erofs_found_xattr *xattr)
{
    if (begins_with(xattr->name, "user."))
        return S_ISREG(inode->mode) || S_ISDIR(inode->mode);
    if (begins_with(xattr->name, "trusted."))
        return is_good_trusted(inode, xattr);
    if (begins_with(xattr->name, "security."))
        return is_good_security(xattr);
    return is_good_acl(inode, xattr);
}

int erofs_check_xattr(const struct erofs_inode *inode, const struct erofs_found_xattr *xattr,
                      struct err *err)
{
    if (!is_good(inode, xattr))
        return err_fail(err, ERR_DAMAGED,
                        "inode %" PRIu64 " has an attribute %s that it must not have", inode->nid,
                        xattr->name);
    return 0;
}
