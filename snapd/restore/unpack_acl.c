#include "unpack_acl.h"

#include "cleanup.h"

#include <archive.h>
#include <archive_entry.h>
#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <string.h>

struct acl_entry {
    uint16_t tag;
    uint16_t perm;
    uint32_t id;
};

static uint16_t kernel_tag(int tag)
{
    switch (tag) {
    case ARCHIVE_ENTRY_ACL_USER:
        return ACL_USER;
    case ARCHIVE_ENTRY_ACL_USER_OBJ:
        return ACL_USER_OBJ;
    case ARCHIVE_ENTRY_ACL_GROUP:
        return ACL_GROUP;
    case ARCHIVE_ENTRY_ACL_GROUP_OBJ:
        return ACL_GROUP_OBJ;
    case ARCHIVE_ENTRY_ACL_MASK:
        return ACL_MASK;
    case ARCHIVE_ENTRY_ACL_OTHER:
        return ACL_OTHER;
    default:
        return 0;
    }
}

static int compare(const void *va, const void *vb)
{
    const struct acl_entry *a = va;
    const struct acl_entry *b = vb;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Reads the entries of one list. Returns their number, or -errno. */
static int collect(struct archive_entry *entry, int type, struct acl_entry *list, struct err *err)
{
    int count = 0;
    int entry_type;
    int perm;
    int tag;
    int id;
    const char *name;
    while (archive_entry_acl_next(entry, type, &entry_type, &perm, &tag, &id, &name) == 0) {
        uint16_t kernel = kernel_tag(tag);
        bool named = kernel == ACL_USER || kernel == ACL_GROUP;
        if (kernel == 0 || (perm & ~7) != 0 || (named && id < 0))
            return err_fail(err, ERR_DAMAGED,
                            "the archive has an access control list with an entry that has no "
                            "numeric ID or is not POSIX");
        if (count == UNPACK_ACL_ENTRIES_MAX)
            return err_fail(err, ERR_TOO_LARGE, "an access control list has too many entries");
        list[count++] = (struct acl_entry){kernel, (uint16_t)perm,
                                           named ? (uint32_t)id : (uint32_t)ACL_UNDEFINED_ID};
    }
    qsort(list, (size_t)count, sizeof *list, compare);
    return count;
}

static int add_list(struct archive_entry *entry, int type, const char *xattr,
                    struct unpack_attr *attr, struct err *err)
{
    if (archive_entry_acl_reset(entry, type) == 0)
        return 0;
    for (size_t i = 0; i < attr->xattr_count; i++)
        if (strcmp(attr->xattrs[i].name, xattr) == 0)
            return 0;
    cleanup_free struct acl_entry *list = calloc(UNPACK_ACL_ENTRIES_MAX, sizeof *list);
    cleanup_free char *bytes =
        malloc(sizeof(struct posix_acl_xattr_header) +
               UNPACK_ACL_ENTRIES_MAX * sizeof(struct posix_acl_xattr_entry));
    if (!list || !bytes)
        return err_errno(err, ENOMEM, "cannot keep an access control list");
    int count = collect(entry, type, list, err);
    if (count <= 0)
        return count;
    struct posix_acl_xattr_header header = {.a_version = htole32(POSIX_ACL_XATTR_VERSION)};
    memcpy(bytes, &header, sizeof header);
    size_t used = sizeof header;
    for (int i = 0; i < count; i++) {
        struct posix_acl_xattr_entry out = {.e_tag = htole16(list[i].tag),
                                            .e_perm = htole16(list[i].perm),
                                            .e_id = htole32(list[i].id)};
        memcpy(bytes + used, &out, sizeof out);
        used += sizeof out;
    }
    return unpack_attr_add(attr, xattr, bytes, used, err);
}

int unpack_acl_add(struct archive_entry *entry, struct unpack_attr *attr, struct err *err)
{
    int rc = add_list(entry, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, "system.posix_acl_access", attr, err);
    if (rc < 0)
        return rc;
    return add_list(entry, ARCHIVE_ENTRY_ACL_TYPE_DEFAULT, "system.posix_acl_default", attr, err);
}
