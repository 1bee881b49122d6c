/* erofs_names.h - the names and directories of an image that is being written, in memory.
 *
 * A name costs 20 bytes, its text, and 4 to 11 bytes of the hash table; a directory 40 more.
 * A name that is taken away stays as a dead one (type 0) and is used again when it comes back.
 * Directories stay too; one is in the tree if its name still stands for it and its parent
 * is in the tree. A parent's number is always smaller than its directories'.
 *
 * An internal header of this library.
 */
#pragma once

#include "erofs_hash.h"
#include "erofs_writer.h"

struct erofs_xattr_set;

#define EROFS_NO_NAME UINT32_MAX

struct erofs_name {
    uint32_t parent;
    uint32_t text; /* offset */
    uint32_t hash;
    uint32_t target; /* a directory's number, or the low half of a nid */
    uint8_t target_high;
    uint8_t len;
    uint8_t type; /* EROFS_FT_*; 0: taken away */
};

struct erofs_dir_info {
    uint32_t name; /* EROFS_NO_NAME for the root */
    uint32_t uid;
    uint32_t gid;
    uint32_t mtime_ns;
    int64_t mtime;
    struct erofs_xattr_set *xattrs; /* owned by the writer; NULL: none */
    uint32_t note;
    uint16_t perm;
};

struct erofs_names {
    struct erofs_name *names; /* owned */
    uint32_t count;
    uint32_t cap;
    char *text; /* owned */
    uint64_t text_len;
    uint64_t text_cap;
    uint32_t *slots; /* owned; hash table of index + 1; 0 is free */
    uint32_t slot_count;
    struct erofs_dir_info *dirs; /* owned */
    uint32_t dir_count;
    uint32_t dir_cap;
    uint32_t names_max; /* names and directories together */
    uint64_t text_max;
    struct erofs_hash_key key;
};

/* The root is there afterwards. */
int erofs_names_init(struct erofs_names *names, uint32_t names_max, uint64_t text_max,
                     struct err *err);
void erofs_names_free(struct erofs_names *names);
/* The hash table is not needed any more. */
void erofs_names_drop_index(struct erofs_names *names);

/* The number of a name that is not taken away, or EROFS_NO_NAME. */
uint32_t erofs_names_find(const struct erofs_names *names, uint32_t dir, const char *text,
                          size_t len);
/* The number of a name; a new one has type 0. ERR_INVALID for what cannot be a name. */
int erofs_names_add(struct erofs_names *names, uint32_t dir, const char *text, size_t len,
                    uint32_t *ret, struct err *err);
/* A directory more, all of it 0 but its name. */
int erofs_names_add_dir(struct erofs_names *names, uint32_t name, uint32_t *ret, struct err *err);

static inline uint64_t erofs_name_nid(const struct erofs_name *name)
{
    return (uint64_t)name->target_high << 32 | name->target;
}
