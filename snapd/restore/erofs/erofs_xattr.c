#include "erofs_xattr.h"

#include "cleanup.h"
#include "erofs_format.h"

#include <errno.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_MAX_BYTES = 255,
    INDEX_COST = 8,                       /* bytes of the hash table per entry */
    SET_COST = 16,                        /* of malloc() per set */
    XATTR_COUNT_MAX = XATTR_LIST_MAX / 7, /* "user.x" and a NUL byte: the shortest in a list */
};

/* One attribute taken apart. Everything borrowed. */
struct erofs_xattr_item {
    uint8_t index;
    uint8_t name_len;
    uint16_t value_size;
    const char *name; /* without the prefix */
    const void *value;
};

void erofs_xattr_init(struct erofs_xattr_table *table, uint64_t max)
{
    *table = (struct erofs_xattr_table){.max = max, .key = erofs_hash_key()};
}

void erofs_xattr_free(struct erofs_xattr_table *table)
{
    free(table->bytes);
    free(table->slots);
    free(table->items);
    *table = (struct erofs_xattr_table){.max = 0};
}

void erofs_xattr_body_free(struct erofs_xattr_body *body)
{
    free(body->bytes);
    *body = (struct erofs_xattr_body){.bytes = NULL};
}

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot keep extended attributes");
}

static int parse(const struct erofs_xattr *xattr, struct erofs_xattr_item *ret, struct err *err)
{
    static const struct {
        const char *prefix;
        uint8_t index;
        bool is_whole;
    } prefixes[] = {
        {"user.", EROFS_XATTR_USER, false},
        {"trusted.", EROFS_XATTR_TRUSTED, false},
        {"security.", EROFS_XATTR_SECURITY, false},
        {"system.posix_acl_access", EROFS_XATTR_ACL_ACCESS, true},
        {"system.posix_acl_default", EROFS_XATTR_ACL_DEFAULT, true},
    };
    size_t len = strlen(xattr->name);
    if (len > NAME_MAX_BYTES)
        return err_fail(err, ERR_TOO_LARGE, "the name of extended attribute %.64s... has %zu bytes",
                        xattr->name, len);
    if (xattr->size > EROFS_XATTR_VALUE_MAX)
        return err_fail(err, ERR_TOO_LARGE,
                        "the value of extended attribute %s has %zu bytes, more than %d",
                        xattr->name, xattr->size, EROFS_XATTR_VALUE_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        size_t prefix = strlen(prefixes[i].prefix);
        if (strncmp(xattr->name, prefixes[i].prefix, prefix) != 0)
            continue;
        if (prefixes[i].is_whole != (len == prefix))
            break;
        *ret = (struct erofs_xattr_item){.index = prefixes[i].index,
                                         .name_len = (uint8_t)(len - prefix),
                                         .value_size = (uint16_t)xattr->size,
                                         .name = xattr->name + prefix,
                                         .value = xattr->value};
        return 0;
    }
    return err_fail(err, ERR_UNSUPPORTED, "a layer image cannot hold the extended attribute \"%s\"",
                    xattr->name);
}

/* Bytes of its name in the list that listxattr() gives, which the kernel bounds. */
static size_t listed(const struct erofs_xattr_item *item)
{
    static const uint8_t prefix[] = {
        [EROFS_XATTR_USER] = sizeof "user.",
        [EROFS_XATTR_ACL_ACCESS] = sizeof "system.posix_acl_access",
        [EROFS_XATTR_ACL_DEFAULT] = sizeof "system.posix_acl_default",
        [EROFS_XATTR_TRUSTED] = sizeof "trusted.",
        [EROFS_XATTR_SECURITY] = sizeof "security.",
    };
    return prefix[item->index] + item->name_len;
}

static int list_too_long(struct err *err)
{
    return err_fail(err, ERR_TOO_LARGE,
                    "the names of extended attributes of one file take more than %d bytes",
                    XATTR_LIST_MAX);
}

static int compare(const void *a, const void *b)
{
    const struct erofs_xattr_item *x = a;
    const struct erofs_xattr_item *y = b;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    size_t len = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->name, y->name, len);
    return order != 0 ? order : (int)x->name_len - (int)y->name_len;
}

/* Takes all attributes of an inode apart, into table->items, in order. */
static int parse_all(struct erofs_xattr_table *table, const struct erofs_xattr *xattrs,
                     size_t count, struct err *err)
{
    if (count > XATTR_COUNT_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%zu extended attributes, more than %d", count,
                        XATTR_COUNT_MAX);
    if (count > table->item_cap) {
        struct erofs_xattr_item *items = realloc(table->items, count * sizeof *items);
        if (!items)
            return no_memory(err);
        table->items = items;
        table->item_cap = count;
    }
    size_t list = 0;
    for (size_t i = 0; i < count; i++) {
        int rc = parse(&xattrs[i], &table->items[i], err);
        if (rc < 0)
            return rc;
        list += listed(&table->items[i]);
    }
    if (list > XATTR_LIST_MAX)
        return list_too_long(err);
    qsort(table->items, count, sizeof *table->items, compare);
    for (size_t i = 1; i < count; i++) {
        if (compare(&table->items[i - 1], &table->items[i]) == 0)
            return err_fail(err, ERR_INVALID, "an extended attribute is there twice: %.*s",
                            table->items[i].name_len, table->items[i].name);
    }
    return 0;
}

static size_t padded(size_t len)
{
    return (len + 3) / 4 * 4;
}

static size_t entry_size(const struct erofs_xattr_item *item)
{
    return padded(sizeof(struct erofs_disk_xattr) + item->name_len + item->value_size);
}

static void put_entry(uint8_t *to, const struct erofs_xattr_item *item)
{
    struct erofs_disk_xattr head = {
        .name_len = item->name_len, .name_index = item->index, .value_size = item->value_size};
    memset(to, 0, entry_size(item));
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, item->name, item->name_len);
    if (item->value_size > 0)
        memcpy(to + sizeof head + item->name_len, item->value, item->value_size);
}

static struct erofs_xattr_item get_entry(const struct erofs_xattr_table *table, uint32_t id)
{
    const uint8_t *from = table->bytes + (size_t)id * 4;
    struct erofs_disk_xattr head;
    memcpy(&head, from, sizeof head);
    return (struct erofs_xattr_item){.index = head.name_index,
                                     .name_len = head.name_len,
                                     .value_size = head.value_size,
                                     .name = (const char *)from + sizeof head,
                                     .value = from + sizeof head + head.name_len};
}

static uint64_t hash_item(const struct erofs_xattr_table *table,
                          const struct erofs_xattr_item *item)
{
    uint64_t salt = item->index | (uint64_t)item->name_len << 8 | (uint64_t)item->value_size << 16;
    salt = erofs_hash(&table->key, salt, item->name, item->name_len);
    return erofs_hash(&table->key, salt, item->value, item->value_size);
}

static bool same(const struct erofs_xattr_item *a, const struct erofs_xattr_item *b)
{
    return a->value_size == b->value_size && compare(a, b) == 0 &&
           (a->value_size == 0 || memcmp(a->value, b->value, a->value_size) == 0);
}

/* The slot that holds the attribute or is free for it. */
static uint32_t *find_slot(const struct erofs_xattr_table *table,
                           const struct erofs_xattr_item *item)
{
    for (size_t i = (size_t)hash_item(table, item);; i++) {
        uint32_t *slot = &table->slots[i % table->slot_count];
        if (*slot == 0)
            return slot;
        struct erofs_xattr_item found = get_entry(table, *slot - 1);
        if (same(&found, item))
            return slot;
    }
}

/* Keeps a third of the slots free. */
static int grow_slots(struct erofs_xattr_table *table, struct err *err)
{
    if (table->slots && (table->entries + 1) * 3 < table->slot_count * 2)
        return 0;
    uint32_t *old = table->slots;
    size_t old_count = table->slot_count;
    size_t count = old_count > 0 ? old_count * 2 : 64;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (!slots)
        return no_memory(err);
    table->slots = slots;
    table->slot_count = count;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i] == 0)
            continue;
        struct erofs_xattr_item item = get_entry(table, old[i] - 1);
        *find_slot(table, &item) = old[i];
    }
    free(old);
    return 0;
}

static int grow_bytes(struct erofs_xattr_table *table, size_t more, struct err *err)
{
    if (table->cap - table->len >= more)
        return 0;
    size_t cap = table->cap * 2 + more + 4096;
    uint8_t *bytes = realloc(table->bytes, cap);
    if (!bytes)
        return no_memory(err);
    table->bytes = bytes;
    table->cap = cap;
    return 0;
}

/* 1 and the attribute's number, found or new; 0 when `max` leaves no room for a new one. */
static int intern(struct erofs_xattr_table *table, const struct erofs_xattr_item *item,
                  uint64_t max, uint32_t *ret, struct err *err)
{
    int rc = grow_slots(table, err);
    if (rc < 0)
        return rc;
    uint32_t *slot = find_slot(table, item);
    if (*slot == 0) {
        size_t size = entry_size(item);
        if (max < table->used || max - table->used < size + INDEX_COST)
            return 0;
        rc = grow_bytes(table, size, err);
        if (rc < 0)
            return rc;
        put_entry(table->bytes + table->len, item);
        *slot = (uint32_t)(table->len / 4) + 1;
        table->len += size;
        table->used += size + INDEX_COST;
        table->entries++;
    }
    *ret = *slot - 1;
    return 1;
}

/* Makes room for `len` more bytes of a body. */
static int body_reserve(struct erofs_xattr_body *body, size_t len, struct err *err)
{
    if (len > EROFS_XATTR_BODY_MAX - body->len)
        return err_fail(err, ERR_TOO_LARGE, "more than %u bytes of extended attributes of one file",
                        EROFS_XATTR_BODY_MAX);
    if (body->cap - body->len < len) {
        size_t cap = body->cap * 2 + len;
        uint8_t *bytes = realloc(body->bytes, cap);
        if (!bytes)
            return no_memory(err);
        body->bytes = bytes;
        body->cap = cap;
    }
    return 0;
}

static int body_begin(struct erofs_xattr_body *body, const uint32_t *ids, size_t count,
                      struct err *err)
{
    struct erofs_disk_xattr_header header = {.shared_count = (uint8_t)count};
    size_t ids_size = count * sizeof *ids;
    body->len = 0;
    int rc = body_reserve(body, sizeof header + ids_size, err);
    if (rc < 0)
        return rc;
    memcpy(body->bytes, &header, sizeof header);
    if (count > 0)
        memcpy(body->bytes + sizeof header, ids, ids_size);
    body->len = sizeof header + ids_size;
    return 0;
}

static int body_add_entry(struct erofs_xattr_body *body, const struct erofs_xattr_item *item,
                          struct err *err)
{
    int rc = body_reserve(body, entry_size(item), err);
    if (rc < 0)
        return rc;
    put_entry(body->bytes + body->len, item);
    body->len += entry_size(item);
    return 0;
}

int erofs_xattr_encode(struct erofs_xattr_table *table, const struct erofs_xattr *xattrs,
                       size_t count, struct erofs_xattr_body *ret, struct err *err)
{
    ret->len = 0;
    if (count == 0)
        return 0;
    int rc = parse_all(table, xattrs, count, err);
    if (rc < 0)
        return rc;
    uint32_t ids[EROFS_XATTR_SHARED_MAX];
    size_t shared = 0;
    size_t alone = 0; /* moved to the front of the items */
    for (size_t i = 0; i < count; i++) {
        rc = 0;
        if (shared < EROFS_XATTR_SHARED_MAX)
            rc = intern(table, &table->items[i], table->max / 2, &ids[shared], err);
        if (rc < 0)
            return rc;
        if (rc > 0)
            shared++;
        else
            table->items[alone++] = table->items[i];
    }
    rc = body_begin(ret, ids, shared, err);
    for (size_t i = 0; rc == 0 && i < alone; i++)
        rc = body_add_entry(ret, &table->items[i], err);
    return rc;
}

size_t erofs_xattr_set_size(const struct erofs_xattr_table *table,
                            const struct erofs_xattr_set *set)
{
    if (!set)
        return 0;
    size_t shared = set->count < EROFS_XATTR_SHARED_MAX ? set->count : EROFS_XATTR_SHARED_MAX;
    size_t size = sizeof(struct erofs_disk_xattr_header) + shared * sizeof *set->ids;
    for (size_t i = shared; i < set->count; i++) {
        struct erofs_xattr_item item = get_entry(table, set->ids[i]);
        size += entry_size(&item);
    }
    return size;
}

int erofs_xattr_set_encode(const struct erofs_xattr_table *table, const struct erofs_xattr_set *set,
                           struct erofs_xattr_body *ret, struct err *err)
{
    ret->len = 0;
    if (!set)
        return 0;
    size_t shared = set->count < EROFS_XATTR_SHARED_MAX ? set->count : EROFS_XATTR_SHARED_MAX;
    int rc = body_begin(ret, set->ids, shared, err);
    for (size_t i = shared; rc == 0 && i < set->count; i++) {
        struct erofs_xattr_item item = get_entry(table, set->ids[i]);
        rc = body_add_entry(ret, &item, err);
    }
    return rc;
}

static size_t set_cost(size_t count)
{
    return SET_COST + sizeof(struct erofs_xattr_set) + count * sizeof(uint32_t);
}

void erofs_xattr_set_free(struct erofs_xattr_table *table, struct erofs_xattr_set *set)
{
    if (!set)
        return;
    table->used -= set_cost(set->count);
    free(set);
}

static int too_many(const struct erofs_xattr_table *table, struct err *err)
{
    return err_fail(err, ERR_TOO_LARGE,
                    "the extended attributes of directories take more than %llu bytes",
                    (unsigned long long)table->max);
}

static int set_new(struct erofs_xattr_table *table, size_t count, struct erofs_xattr_set **ret,
                   struct err *err)
{
    if (table->max - table->used < set_cost(count))
        return too_many(table, err);
    struct erofs_xattr_set *set = malloc(sizeof *set + count * sizeof *set->ids);
    if (!set)
        return no_memory(err);
    set->count = (uint32_t)count;
    table->used += set_cost(count);
    *ret = set;
    return 0;
}

/* Gives the set away if it fits behind an inode. */
static int set_done(struct erofs_xattr_table *table, struct erofs_xattr_set *set, size_t body_max,
                    struct erofs_xattr_set **ret, struct err *err)
{
    size_t size = erofs_xattr_set_size(table, set);
    size_t list = 0;
    for (size_t i = 0; i < set->count; i++) {
        struct erofs_xattr_item item = get_entry(table, set->ids[i]);
        list += listed(&item);
    }
    if (size > body_max || list > XATTR_LIST_MAX) {
        erofs_xattr_set_free(table, set);
        if (list > XATTR_LIST_MAX)
            return list_too_long(err);
        return err_fail(err, ERR_TOO_LARGE,
                        "the extended attributes of a directory take %zu bytes, more than %zu",
                        size, body_max);
    }
    *ret = set;
    return 0;
}

static int intern_for_set(struct erofs_xattr_table *table, const struct erofs_xattr_item *item,
                          uint32_t *ret, struct err *err)
{
    int rc = intern(table, item, table->max, ret, err);
    if (rc < 0)
        return rc;
    return rc > 0 ? 0 : too_many(table, err);
}

int erofs_xattr_set_make(struct erofs_xattr_table *table, const struct erofs_xattr *xattrs,
                         size_t count, size_t body_max, struct erofs_xattr_set **ret,
                         struct err *err)
{
    struct erofs_xattr_set *set = NULL;
    if (count == 0) {
        *ret = NULL;
        return 0;
    }
    int rc = parse_all(table, xattrs, count, err);
    if (rc == 0)
        rc = set_new(table, count, &set, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = intern_for_set(table, &table->items[i], &set->ids[i], err);
    if (rc < 0) {
        erofs_xattr_set_free(table, set);
        return rc;
    }
    return set_done(table, set, body_max, ret, err);
}

int erofs_xattr_set_with(struct erofs_xattr_table *table, const struct erofs_xattr_set *set,
                         const struct erofs_xattr *xattr, size_t body_max,
                         struct erofs_xattr_set **ret, struct err *err)
{
    struct erofs_xattr_item item;
    int rc = parse(xattr, &item, err);
    if (rc < 0)
        return rc;
    size_t old = set ? set->count : 0;
    size_t before = 0; /* attributes that stay before it */
    bool replaces = false;
    for (; before < old; before++) {
        struct erofs_xattr_item other = get_entry(table, set->ids[before]);
        int order = compare(&other, &item);
        replaces = order == 0;
        if (order >= 0)
            break;
    }
    if (old - replaces + 1 > XATTR_COUNT_MAX)
        return err_fail(err, ERR_TOO_LARGE, "more than %d extended attributes", XATTR_COUNT_MAX);
    uint32_t id = 0;
    struct erofs_xattr_set *copy = NULL;
    rc = intern_for_set(table, &item, &id, err);
    if (rc == 0)
        rc = set_new(table, old - replaces + 1, &copy, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < before; i++)
        copy->ids[i] = set->ids[i];
    copy->ids[before] = id;
    for (size_t i = before + replaces; i < old; i++)
        copy->ids[i + 1 - replaces] = set->ids[i];
    return set_done(table, copy, body_max, ret, err);
}
