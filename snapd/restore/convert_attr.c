#include "convert_attr.h"

#include "convert_list.h"
#include "path_text.h"

#include <endian.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/stat.h>

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_acl(const char *name)
{
    return strcmp(name, "system.posix_acl_access") == 0 ||
           strcmp(name, "system.posix_acl_default") == 0;
}

bool convert_attr_is_wanted(const char *name)
{
    static const char *const refused[] = {
        "trusted.overlay.", "trusted.varve.", "security.selinux", "security.apparmor",
        "security.SMACK64", "security.ima",   "security.evm",
    };
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (begins_with(name, refused[i]))
            return false;
    return begins_with(name, "user.") || begins_with(name, "trusted.") ||
           begins_with(name, "security.") || is_acl(name);
}

void convert_attr_free(struct convert_attr *attr)
{
    for (size_t i = 0; i < attr->xattr_count; i++)
        free((char *)attr->xattrs[i].name);
    free(attr->xattrs);
    *attr = (struct convert_attr){.xattrs = NULL};
}

/* The list is sorted by name, so that one of thousands is found soon. Returns the place of the
 * first attribute that is not before `name`. */
static size_t xattr_place(const struct convert_attr *attr, const char *name)
{
    size_t low = 0;
    size_t high = attr->xattr_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(attr->xattrs[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct erofs_xattr *convert_attr_find(const struct convert_attr *attr, const char *name)
{
    size_t i = xattr_place(attr, name);
    return i < attr->xattr_count && strcmp(attr->xattrs[i].name, name) == 0 ? &attr->xattrs[i]
                                                                            : NULL;
}

void convert_attr_remove(struct convert_attr *attr, const char *name)
{
    const struct erofs_xattr *found = convert_attr_find(attr, name);
    if (!found)
        return;
    size_t i = (size_t)(found - attr->xattrs);
    free((char *)found->name);
    attr->xattr_count--;
    memmove(&attr->xattrs[i], &attr->xattrs[i + 1], (attr->xattr_count - i) * sizeof *found);
}

/* Makes a gap in the list for a name that is not in it. */
static struct erofs_xattr *xattr_insert(struct convert_attr *attr, const char *name)
{
    if (convert_list_room((void **)&attr->xattrs, &attr->xattr_cap, attr->xattr_count + 1,
                          sizeof *attr->xattrs) < 0)
        return NULL;
    size_t i = xattr_place(attr, name);
    struct erofs_xattr *slot = &attr->xattrs[i];
    memmove(slot + 1, slot, (attr->xattr_count - i) * sizeof *slot);
    attr->xattr_count++;
    return slot;
}

static int check_size(const struct convert_attr *attr, const char *name, size_t name_len,
                      size_t size, struct err *err)
{
    if (name_len > CONVERT_ATTR_NAME_MAX || size > CONVERT_ATTR_VALUE_MAX)
        return err_fail(err, ERR_TOO_LARGE, "extended attribute %.64s of %zu bytes is too large",
                        path_text(name).s, size);
    if (size > EROFS_XATTR_VALUE_MAX)
        return err_fail(err, ERR_UNSUPPORTED,
                        "extended attribute %.64s has %zu bytes, and a layer image can hold %d",
                        path_text(name).s, size, EROFS_XATTR_VALUE_MAX);
    if (attr->xattr_count >= CONVERT_ATTR_XATTRS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "more than %d extended attributes on one file",
                        CONVERT_ATTR_XATTRS_MAX);
    return 0;
}

int convert_attr_add(struct convert_attr *attr, const char *name, const void *value, size_t size,
                     struct err *err)
{
    size_t name_size = strlen(name) + 1;
    int rc = check_size(attr, name, name_size - 1, size, err);
    if (rc < 0)
        return rc;
    if (convert_attr_find(attr, name))
        return 0;
    char *block = malloc(name_size + size);
    struct erofs_xattr *slot = block ? xattr_insert(attr, name) : NULL;
    if (!slot) {
        free(block);
        return err_errno(err, ENOMEM, "cannot keep an extended attribute");
    }
    memcpy(block, name, name_size);
    if (size > 0)
        memcpy(block + name_size, value, size);
    *slot = (struct erofs_xattr){.name = block, .value = block + name_size, .size = size};
    return 0;
}

/* The two forms that Linux knows; it refuses to start a file whose attribute has another. */
static bool is_capability(const void *value, size_t size)
{
    uint32_t magic;
    if (size < sizeof magic)
        return false;
    memcpy(&magic, value, sizeof magic);
    switch (le32toh(magic) & VFS_CAP_REVISION_MASK) {
    case VFS_CAP_REVISION_2:
        return size == XATTR_CAPS_SZ_2;
    case VFS_CAP_REVISION_3:
        return size == XATTR_CAPS_SZ_3;
    default:
        return false;
    }
}

static int unfit(const struct erofs_xattr *xattr, enum err_code code, const char *why,
                 struct err *err)
{
    return err_fail(err, code, "extended attribute %s (%zu bytes) is refused: %s",
                    path_text(xattr->name).s, xattr->size, why);
}

static int check_xattr(const struct erofs_xattr *xattr, mode_t type, struct err *err)
{
    const char *name = xattr->name;
    if (begins_with(name, "user.") && type != S_IFREG && type != S_IFDIR)
        return unfit(xattr, ERR_UNSUPPORTED,
                     "Linux knows attributes of users on files and directories only", err);
    if (is_acl(name) && type == S_IFLNK)
        return unfit(xattr, ERR_UNSUPPORTED, "links have no access control lists", err);
    if (strcmp(name, "system.posix_acl_default") == 0 && type != S_IFDIR)
        return unfit(xattr, ERR_UNSUPPORTED, "only directories have one", err);
    if (strchr(name, '.')[1] == '\0')
        return unfit(xattr, ERR_DAMAGED, "it has no name behind its class", err);
    if (strcmp(name, "security.capability") == 0 && !is_capability(xattr->value, xattr->size))
        return unfit(xattr, ERR_DAMAGED, "these are no file capabilities", err);
    return 0;
}

int convert_attr_check(const struct convert_attr *attr, mode_t type, struct err *err)
{
    size_t names = 0;
    for (size_t i = 0; i < attr->xattr_count; i++) {
        int rc = check_xattr(&attr->xattrs[i], type, err);
        if (rc < 0)
            return rc;
        names += strlen(attr->xattrs[i].name) + 1;
    }
    if (names > CONVERT_ATTR_NAMES_BYTES_MAX)
        return err_fail(err, ERR_UNSUPPORTED,
                        "the names of its extended attributes have %zu bytes, and Linux lists %d",
                        names, CONVERT_ATTR_NAMES_BYTES_MAX);
    return 0;
}

struct erofs_attr convert_attr_erofs(const struct convert_attr *attr)
{
    return (struct erofs_attr){
        .uid = attr->uid,
        .gid = attr->gid,
        .perm = attr->perm,
        .mtime = attr->mtime,
        .mtime_ns = attr->mtime_ns,
        .xattrs = attr->xattrs,
        .xattr_count = attr->xattr_count,
    };
}
