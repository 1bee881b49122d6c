#include "erofs_check_acl.h"

#include "cleanup.h"

#include <stdint.h>
#include <string.h>

enum {
    ACL_VERSION = 2,
    ACL_HEADER_SIZE = 4,
    ACL_PERM_MASK = 7,
};

enum acl_tag {
    ACL_USER_OBJ = 0x01,
    ACL_USER = 0x02,
    ACL_GROUP_OBJ = 0x04,
    ACL_GROUP = 0x08,
    ACL_MASK = 0x10,
    ACL_OTHER = 0x20,
};

struct acl_entry { /* little endian */
    uint16_t tag;
    uint16_t perm;
    uint32_t id; /* of ACL_USER and ACL_GROUP */
};

/* Place of a tag in the order of a list; 0 for an unknown one. */
static int rank(uint16_t tag)
{
    static const uint16_t order[] = {ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ,
                                     ACL_GROUP,    ACL_MASK, ACL_OTHER};
    for (size_t i = 0; i < ARRAY_SIZE(order); i++)
        if (order[i] == tag)
            return (int)i + 1;
    return 0;
}

bool erofs_check_acl_is_good(const void *value, size_t size)
{
    uint32_t version;
    if (size < ACL_HEADER_SIZE || (size - ACL_HEADER_SIZE) % sizeof(struct acl_entry) != 0)
        return false;
    memcpy(&version, value, sizeof version);
    if (version != ACL_VERSION)
        return false;
    const uint8_t *at = (const uint8_t *)value + ACL_HEADER_SIZE;
    size_t count = (size - ACL_HEADER_SIZE) / sizeof(struct acl_entry);
    unsigned tags = 0;
    int last = 0;
    for (size_t i = 0; i < count; i++) {
        struct acl_entry entry;
        memcpy(&entry, at + i * sizeof entry, sizeof entry);
        bool is_named = entry.tag == ACL_USER || entry.tag == ACL_GROUP;
        int here = rank(entry.tag);
        if (here == 0 || here < last || (here == last && !is_named))
            return false;
        if (entry.perm > ACL_PERM_MASK || (is_named && entry.id == UINT32_MAX))
            return false;
        last = here;
        tags |= entry.tag;
    }
    unsigned needed = ACL_USER_OBJ | ACL_GROUP_OBJ | ACL_OTHER;
    if (tags & (ACL_USER | ACL_GROUP))
        needed |= ACL_MASK;
    return count == 0 || (tags & needed) == needed; /* an empty list is none */
}
