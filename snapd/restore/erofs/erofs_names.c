#include "erofs_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot keep the names of a layer");
}

int erofs_names_init(struct erofs_names *names, uint32_t names_max, uint64_t text_max,
                     struct err *err)
{
    *names = (struct erofs_names){
        .names_max = names_max,
        .text_max = text_max < UINT32_MAX ? text_max : UINT32_MAX, /* offsets have 32 bits */
        .key = erofs_hash_key()};
    uint32_t root;
    return erofs_names_add_dir(names, EROFS_NO_NAME, &root, err);
}

void erofs_names_free(struct erofs_names *names)
{
    free(names->names);
    free(names->text);
    free(names->slots);
    free(names->dirs);
    *names = (struct erofs_names){.names = NULL};
}

void erofs_names_drop_index(struct erofs_names *names)
{
    free(names->slots);
    names->slots = NULL;
    names->slot_count = 0;
}

static uint32_t hash_text(const struct erofs_names *names, uint32_t dir, const char *text,
                          size_t len)
{
    return (uint32_t)erofs_hash(&names->key, dir, text, len);
}

/* The slot of a name, or the free one where it belongs. There are free slots. */
static uint32_t *find_slot(const struct erofs_names *names, uint32_t hash, uint32_t dir,
                           const char *text, size_t len)
{
    uint32_t mask = names->slot_count - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        uint32_t slot = names->slots[i];
        if (slot == 0)
            return &names->slots[i];
        const struct erofs_name *name = &names->names[slot - 1];
        if (name->hash == hash && name->parent == dir && name->len == len &&
            memcmp(names->text + name->text, text, len) == 0)
            return &names->slots[i];
    }
}

uint32_t erofs_names_find(const struct erofs_names *names, uint32_t dir, const char *text,
                          size_t len)
{
    if (!names->slots)
        return EROFS_NO_NAME;
    uint32_t slot = *find_slot(names, hash_text(names, dir, text, len), dir, text, len);
    if (slot == 0 || names->names[slot - 1].type == 0)
        return EROFS_NO_NAME;
    return slot - 1;
}

static int check_text(const char *text, size_t len, struct err *err)
{
    if (len == 0)
        return err_fail(err, ERR_INVALID, "an empty name");
    if (len > EROFS_NAME_MAX)
        return err_fail(err, ERR_INVALID, "the name %.64s... has %zu bytes, more than %d", text,
                        len, EROFS_NAME_MAX);
    if (memchr(text, '/', len) || memchr(text, '\0', len))
        return err_fail(err, ERR_INVALID, "the name \"%.*s\" has a slash or a NUL byte", (int)len,
                        text);
    if (text[0] == '.' && (len == 1 || (len == 2 && text[1] == '.')))
        return err_fail(err, ERR_INVALID, "\"%.*s\" is not a name for a file", (int)len, text);
    return 0;
}

static int grow_slots(struct erofs_names *names, struct err *err)
{
    /* At most 4 of 5 are used. */
    if ((uint64_t)(names->count + 1) * 5 <= (uint64_t)names->slot_count * 4)
        return 0;
    uint32_t count = names->slot_count > 0 ? names->slot_count * 2 : 256;
    uint32_t *slots = count > 0 ? calloc(count, sizeof *slots) : NULL;
    if (!slots)
        return no_memory(err);
    for (uint32_t n = 0; n < names->count; n++) {
        uint32_t i = names->names[n].hash & (count - 1);
        while (slots[i] != 0)
            i = (i + 1) & (count - 1);
        slots[i] = n + 1;
    }
    free(names->slots);
    names->slots = slots;
    names->slot_count = count;
    return 0;
}

static int grow_names(struct erofs_names *names, size_t text_len, struct err *err)
{
    if (names->count == names->cap) {
        uint64_t cap = UINT64_C(256) + names->cap + names->cap / 2;
        if (cap > names->names_max)
            cap = names->names_max;
        struct erofs_name *bigger = realloc(names->names, cap * sizeof *bigger);
        if (!bigger)
            return no_memory(err);
        names->names = bigger;
        names->cap = (uint32_t)cap;
    }
    if (names->text_cap - names->text_len < text_len) {
        uint64_t cap = names->text_cap + names->text_cap / 2 + 4096;
        if (cap > names->text_max) /* which has room for the text, as the caller has seen */
            cap = names->text_max;
        char *bigger = realloc(names->text, cap);
        if (!bigger)
            return no_memory(err);
        names->text = bigger;
        names->text_cap = cap;
    }
    return 0;
}

static int check_room(const struct erofs_names *names, struct err *err)
{
    if ((uint64_t)names->count + names->dir_count < names->names_max + UINT64_C(1)) /* the root */
        return 0;
    return err_fail(err, ERR_TOO_LARGE, "more than %u names and directories", names->names_max);
}

int erofs_names_add(struct erofs_names *names, uint32_t dir, const char *text, size_t len,
                    uint32_t *ret, struct err *err)
{
    int rc = check_text(text, len, err);
    if (rc < 0)
        return rc;
    uint32_t hash = hash_text(names, dir, text, len);
    if (names->slots) {
        uint32_t slot = *find_slot(names, hash, dir, text, len);
        if (slot != 0) {
            *ret = slot - 1;
            return 0;
        }
    }
    rc = check_room(names, err);
    if (rc < 0)
        return rc;
    if (names->text_max - names->text_len < len)
        return err_fail(err, ERR_TOO_LARGE, "the names have more than %llu bytes",
                        (unsigned long long)names->text_max);
    rc = grow_slots(names, err);
    if (rc == 0)
        rc = grow_names(names, len, err);
    if (rc < 0)
        return rc;
    memcpy(names->text + names->text_len, text, len);
    names->names[names->count] = (struct erofs_name){
        .parent = dir, .text = (uint32_t)names->text_len, .hash = hash, .len = (uint8_t)len};
    names->text_len += len;
    *ret = names->count++;
    *find_slot(names, hash, dir, text, len) = *ret + 1;
    return 0;
}

int erofs_names_add_dir(struct erofs_names *names, uint32_t name, uint32_t *ret, struct err *err)
{
    int rc = check_room(names, err);
    if (rc < 0)
        return rc;
    if (names->dir_count == names->dir_cap) {
        uint64_t cap = UINT64_C(64) + names->dir_cap + names->dir_cap / 2;
        if (cap > names->names_max + UINT64_C(1))
            cap = names->names_max + UINT64_C(1);
        struct erofs_dir_info *bigger =
            cap < UINT32_MAX ? realloc(names->dirs, cap * sizeof *bigger) : NULL;
        if (!bigger)
            return no_memory(err);
        names->dirs = bigger;
        names->dir_cap = (uint32_t)cap;
    }
    names->dirs[names->dir_count] = (struct erofs_dir_info){.name = name};
    *ret = names->dir_count++;
    return 0;
}
