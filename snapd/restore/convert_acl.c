#include "convert_acl.h"

#include <archive.h>
#include <archive_entry.h>
#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <string.h>

static const char acl_access[] = "system.posix_acl_access";
static const char acl_default[] = "system.posix_acl_default";

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
        if (count == CONVERT_ACL_ENTRIES_MAX)
            return err_fail(err, ERR_TOO_LARGE, "an access control list has too many entries");
        list[count++] = (struct acl_entry){kernel, (uint16_t)perm,
                                           named ? (uint32_t)id : (uint32_t)ACL_UNDEFINED_ID};
    }
    qsort(list, (size_t)count, sizeof *list, compare);
    return count;
}

static int add_list(struct archive_entry *entry, int type, const char *xattr,
                    struct convert_attr *attr, struct err *err)
{
    if (archive_entry_acl_reset(entry, type) == 0)
        return 0;
    if (convert_attr_find(attr, xattr))
        return 0;
    cleanup_free struct acl_entry *list = calloc(CONVERT_ACL_ENTRIES_MAX, sizeof *list);
    cleanup_free char *bytes =
        malloc(sizeof(struct posix_acl_xattr_header) +
               CONVERT_ACL_ENTRIES_MAX * sizeof(struct posix_acl_xattr_entry));
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
    return convert_attr_add(attr, xattr, bytes, used, err);
}

int convert_acl_add(struct archive_entry *entry, struct convert_attr *attr, struct err *err)
{
    int rc = add_list(entry, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, acl_access, attr, err);
    if (rc < 0)
        return rc;
    return add_list(entry, ARCHIVE_ENTRY_ACL_TYPE_DEFAULT, acl_default, attr, err);
}

/* What a list says about the mode. */
struct acl_sum {
    uint16_t owner;
    uint16_t group;
    uint16_t mask;
    uint16_t other;
    bool has_named;
    bool has_mask;
};

/* Takes the next entry. The order of tags is the kernel's (posix_acl_valid): owner, named users,
 * group, named groups, mask, others. `*state` is the tag up to which the list has come. */
static bool take_entry(const struct posix_acl_xattr_entry *raw, uint16_t *state,
                       struct acl_sum *sum)
{
    uint16_t tag = le16toh(raw->e_tag);
    uint16_t perm = le16toh(raw->e_perm);
    bool is_named = tag == ACL_USER || tag == ACL_GROUP;
    if ((perm & ~7) != 0 || (is_named && le32toh(raw->e_id) == (uint32_t)ACL_UNDEFINED_ID))
        return false;
    bool again = is_named && *state == tag;
    if (*state >= tag && !again)
        return false;
    /* The three that every list has. */
    if ((tag > ACL_USER_OBJ && *state < ACL_USER_OBJ) ||
        (tag > ACL_GROUP_OBJ && *state < ACL_GROUP_OBJ))
        return false;
    *state = tag;
    sum->has_named = sum->has_named || is_named;
    switch (tag) {
    case ACL_USER_OBJ:
        sum->owner = perm;
        return true;
    case ACL_GROUP_OBJ:
        sum->group = perm;
        return true;
    case ACL_MASK:
        sum->mask = perm;
        sum->has_mask = true;
        return true;
    case ACL_OTHER:
        sum->other = perm;
        return true;
    default:
        return is_named;
    }
}

/* 1 for a list, 0 for an empty one, or ERR_DAMAGED. */
static int read_list(const struct erofs_xattr *xattr, struct acl_sum *ret, struct err *err)
{
    struct acl_sum sum = {.owner = 0};
    struct posix_acl_xattr_header header = {.a_version = 0};
    const char *bytes = xattr->value;
    uint16_t state = 0;
    if (xattr->size >= sizeof header)
        memcpy(&header, bytes, sizeof header);
    bool good = le32toh(header.a_version) == POSIX_ACL_XATTR_VERSION &&
                (xattr->size - sizeof header) % sizeof(struct posix_acl_xattr_entry) == 0;
    if (good && xattr->size == sizeof header)
        return 0;
    struct posix_acl_xattr_entry raw;
    for (size_t at = sizeof header; good && at < xattr->size; at += sizeof raw) {
        memcpy(&raw, bytes + at, sizeof raw);
        good = take_entry(&raw, &state, &sum);
    }
    if (!good || state != ACL_OTHER || (sum.has_named && !sum.has_mask))
        return err_fail(err, ERR_DAMAGED,
                        "the archive has an access control list in %s that Linux "
                        "does not take",
                        xattr->name);
    *ret = sum;
    return 1;
}

int convert_acl_settle(struct convert_attr *attr, struct err *err)
{
    struct acl_sum sum;
    const struct erofs_xattr *xattr = convert_attr_find(attr, acl_default);
    int rc = xattr ? read_list(xattr, &sum, err) : 1;
    if (rc < 0)
        return rc;
    if (rc == 0)
        convert_attr_remove(attr, acl_default);
    xattr = convert_attr_find(attr, acl_access);
    if (!xattr)
        return 0;
    rc = read_list(xattr, &sum, err);
    if (rc < 0)
        return rc;
    if (rc == 1)
        attr->perm = (uint16_t)((attr->perm & 07000) | sum.owner << 6 |
                                (sum.has_mask ? sum.mask : sum.group) << 3 | sum.other);
    if (rc == 0 || (!sum.has_named && !sum.has_mask))
        convert_attr_remove(attr, acl_access);
    return 0;
}
