#include "tar_count.h"

#include <string.h>

/* Where the fields of a header block are: offset and length. */
enum {
    AT_NAME = 0,
    NAME_LEN = 100,
    AT_SIZE = 124,
    SIZE_LEN = 12,
    AT_CHECKSUM = 148,
    CHECKSUM_LEN = 8,
    AT_TYPE = 156,
    AT_LINK = 157,
    AT_MAGIC = 257,
};

/* What the pax records before an entry say. */
struct overrides {
    bool has_size;
    uint64_t size;
    const char *path; /* in the records, not ended by a NUL byte; NULL when not said */
    size_t path_len;
    bool has_link;
};

static int fail(const struct tar_count *count, struct err *err, const char *what)
{
    return err_fail(err, ERR_DAMAGED, "the layer's tar stream is wrong near byte %llu: %s",
                    (unsigned long long)count->offset, what);
}

void tar_count_init(struct tar_count *count)
{
    *count = (struct tar_count){.pax = BUF_INIT(TAR_COUNT_PAX_MAX)};
}

void tar_count_free(struct tar_count *count)
{
    buf_free(&count->pax);
}

/* Octal digits up to a NUL byte or space, or a binary number marked by the highest bit. */
static bool parse_number(const unsigned char *field, size_t len, uint64_t *ret)
{
    uint64_t value = 0;
    if (field[0] == 0x80) {
        for (size_t i = 1; i < len; i++) {
            if (value >> 56)
                return false;
            value = value << 8 | field[i];
        }
        *ret = value;
        return true;
    }
    size_t i = 0;
    for (; i < len && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0');
    if (i == 0 || (i < len && field[i] != '\0' && field[i] != ' '))
        return false;
    *ret = value;
    return true;
}

static bool parse_decimal(const char *text, size_t len, uint64_t *ret)
{
    uint64_t value = 0;
    if (len == 0 || len > 19)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *ret = value;
    return true;
}

static bool checksum_is_right(const unsigned char *block)
{
    uint64_t sum = 0;
    uint64_t said;
    for (size_t i = 0; i < TAR_COUNT_BLOCK; i++)
        sum += i >= AT_CHECKSUM && i < AT_CHECKSUM + CHECKSUM_LEN ? ' ' : block[i];
    return parse_number(block + AT_CHECKSUM, CHECKSUM_LEN, &said) && said == sum;
}

static bool key_is(const char *key, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(key, name, len) == 0;
}

/* One record "LEN KEY=VALUE\n" at `text`; returns its length, or 0 when it is none. */
static size_t parse_record(const char *text, size_t left, struct overrides *ret)
{
    const char *space = memchr(text, ' ', left < 20 ? left : 20);
    uint64_t total;
    if (!space || !parse_decimal(text, (size_t)(space - text), &total) || total > left)
        return 0;
    const char *key = space + 1;
    const char *end = text + total - 1;
    if (key >= end || *end != '\n')
        return 0;
    const char *equal = memchr(key, '=', (size_t)(end - key));
    if (!equal || equal == key)
        return 0;
    size_t key_len = (size_t)(equal - key);
    const char *value = equal + 1;
    size_t value_len = (size_t)(end - value);
    if (key_is(key, key_len, "path")) {
        ret->path = value;
        ret->path_len = value_len;
    } else if (key_is(key, key_len, "linkpath")) {
        ret->has_link = value_len > 0;
    } else if (key_is(key, key_len, "size")) {
        ret->has_size = true;
        if (!parse_decimal(value, value_len, &ret->size))
            return 0;
    }
    return (size_t)total;
}

static int parse_records(const struct tar_count *count, struct overrides *ret, struct err *err)
{
    for (size_t at = 0; at < count->pax_len;) {
        size_t n = parse_record(count->pax.data + at, count->pax_len - at, ret);
        if (n == 0)
            return fail(count, err, "a pax record is malformed");
        at += n;
    }
    return 0;
}

static bool path_is_good(const char *path, size_t len)
{
    if (len == 0 || path[0] == '/' || memchr(path, '\0', len))
        return false;
    while (len > 0) {
        const char *slash = memchr(path, '/', len);
        size_t part = slash ? (size_t)(slash - path) : len;
        if (part == 0 || (part == 2 && memcmp(path, "..", 2) == 0))
            return false;
        size_t step = slash ? part + 1 : part;
        path += step;
        len -= step;
    }
    return true;
}

static int take_entry(struct tar_count *count, char type, uint64_t size, struct err *err)
{
    struct overrides said = {0};
    int rc = count->pax_pending ? parse_records(count, &said, err) : 0;
    if (rc < 0)
        return rc;
    count->pax_pending = false;
    if (said.has_size)
        size = said.size;
    const char *path = said.path ? said.path : (const char *)count->block + AT_NAME;
    size_t len = said.path ? said.path_len : strnlen(path, NAME_LEN);
    if (!path_is_good(path, len))
        return fail(count, err, "a path is empty, absolute or holds \"..\"");
    bool is_link = type == '1' || type == '2';
    if (is_link && !said.has_link && count->block[AT_LINK] == '\0')
        return fail(count, err, "a link has no target");
    if (type != '0' && size != 0)
        return fail(count, err, "an entry that is no file has content");
    if ((type == '5') != (path[len - 1] == '/'))
        return fail(count, err, "a path and its type do not fit");
    if (size > UINT64_MAX - TAR_COUNT_BLOCK || count->bytes + size < size)
        return fail(count, err, "a size is too large");
    count->entries++;
    count->bytes += size;
    count->skip = (size + TAR_COUNT_BLOCK - 1) / TAR_COUNT_BLOCK * TAR_COUNT_BLOCK;
    return 0;
}

static int begin_records(struct tar_count *count, uint64_t size, struct err *err)
{
    if (count->pax_pending)
        return fail(count, err, "pax records follow pax records");
    if (size == 0 || size > TAR_COUNT_PAX_MAX)
        return fail(count, err, "pax records have an impossible size");
    count->pax.len = 0;
    count->pax_len = size;
    count->pax_left = (size + TAR_COUNT_BLOCK - 1) / TAR_COUNT_BLOCK * TAR_COUNT_BLOCK;
    return 0;
}

static int take_block(struct tar_count *count, struct err *err)
{
    static const unsigned char zeros[TAR_COUNT_BLOCK];
    if (memcmp(count->block, zeros, sizeof zeros) == 0) {
        if (count->pax_pending)
            return fail(count, err, "pax records have no entry");
        count->zero_blocks++;
        return 0;
    }
    if (count->zero_blocks > 0)
        return fail(count, err, "something follows a block of zeros");
    if (!checksum_is_right(count->block))
        return fail(count, err, "the checksum of a header is wrong");
    uint64_t size;
    if (memcmp(count->block + AT_MAGIC, "ustar", 6) != 0 ||
        !parse_number(count->block + AT_SIZE, SIZE_LEN, &size))
        return fail(count, err, "a header is malformed");
    char type = (char)count->block[AT_TYPE];
    if (type == 'x')
        return begin_records(count, size, err);
    if (type < '0' || type > '6')
        return fail(count, err, "an entry has a type that layers do not have");
    return take_entry(count, type, size, err);
}

/* Collects records without their padding. */
static int take_records(struct tar_count *count, const unsigned char *bytes, size_t len,
                        struct err *err)
{
    uint64_t missing = count->pax_len - count->pax.len;
    int rc = buf_add(&count->pax, bytes, len < missing ? len : (size_t)missing, "pax records", err);
    if (rc < 0)
        return rc;
    count->pax_left -= len;
    if (count->pax_left == 0)
        count->pax_pending = true;
    return 0;
}

int tar_count_feed(struct tar_count *count, const void *bytes, size_t len, struct err *err)
{
    const unsigned char *at = bytes;
    while (len > 0) {
        size_t n;
        int rc = 0;
        if (count->zero_blocks == 2) {
            return fail(count, err, "something follows the end");
        } else if (count->skip > 0) {
            n = len < count->skip ? len : (size_t)count->skip;
            count->skip -= n;
        } else if (count->pax_left > 0) {
            n = len < count->pax_left ? len : (size_t)count->pax_left;
            rc = take_records(count, at, n, err);
        } else {
            size_t room = TAR_COUNT_BLOCK - count->have;
            n = len < room ? len : room;
            memcpy(count->block + count->have, at, n);
            count->have += n;
            if (count->have == TAR_COUNT_BLOCK) {
                count->have = 0;
                rc = take_block(count, err);
            }
        }
        if (rc < 0)
            return rc;
        at += n;
        len -= n;
        count->offset += n;
    }
    return 0;
}

int tar_count_finish(const struct tar_count *count, struct err *err)
{
    if (count->zero_blocks != 2 || count->have > 0)
        return fail(count, err, "it ends early");
    return 0;
}
