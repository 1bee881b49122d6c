/* Entries made from the input, written by tar_header and read by tar_count: the two must agree.
 *
 * The path, link target and mode of each entry are also looked for in the blocks themselves.
 */
#include "tar_header.h"

#include "cleanup.h"
#include "fuzz_check.h"
#include "tar_count.h"

#include <inttypes.h>

enum {
    PATH_BYTES_MAX = 6000,
    ENTRIES_MAX = 32,
    CONTENT_MAX = 4096, /* bytes of content that are really fed */
    XATTRS_MAX = 3,
    NAME_FIELD = 100,
    AT_MODE = 100,
    AT_LINK = 157,
};

struct source {
    const uint8_t *at;
    size_t left;
};

static uint64_t take(struct source *source, size_t width)
{
    uint64_t value = 0;
    for (; width > 0 && source->left > 0; width--, source->left--)
        value = value << 8 | *source->at++;
    return value;
}

/* A text of `len` bytes without NUL; a short run of the input, repeated. */
static char *take_text(struct source *source, size_t len)
{
    char *text = malloc(len + 1);
    CHECK(text);
    size_t period = 1 + (size_t)take(source, 1) % 16;
    for (size_t i = 0; i < len; i++) {
        text[i] = i < period ? (char)take(source, 1) : text[i - period];
        text[i] = text[i] ? text[i] : '_';
    }
    text[len] = '\0';
    return text;
}

static size_t take_len(struct source *source, size_t max)
{
    size_t len = (size_t)take(source, 1);
    if (len >= 0xF0) /* now and then a long one */
        len = (size_t)take(source, 2);
    return len % (max + 1);
}

/* A path as the walk gives them: no empty and no ".." components, no slash at the ends. */
static char *take_path(struct source *source)
{
    char *path = take_text(source, take_len(source, PATH_BYTES_MAX));
    size_t len = strlen(path);
    for (size_t i = 0; i < len; i++)
        if (path[i] == '/' && (i == 0 || i + 1 == len || path[i - 1] == '/'))
            path[i] = 'a';
    for (size_t i = 0; i + 1 < len; i++)
        if (path[i] == '.' && path[i + 1] == '.')
            path[i] = 'b';
    return path;
}

static void take_entry(struct source *source, struct tar_entry *ret)
{
    static const enum tar_type types[] = {TAR_FILE,         TAR_HARD_LINK, TAR_SYMLINK, TAR_CHAR,
                                          TAR_BLOCK_DEVICE, TAR_DIR,       TAR_FIFO};
    static const uint64_t edges[] = {TAR_BLOCK, CONTENT_MAX, 077777777777, 0100000000000,
                                     INT64_MAX};
    enum tar_type type = types[take(source, 1) % ARRAY_SIZE(types)];
    *ret = (struct tar_entry){.type = type, .mode = (uint32_t)take(source, 2)};
    uint64_t flags = take(source, 1);
    ret->path = take_path(source);
    if (ret->path[0] == '\0')
        ret->type = type = TAR_DIR; /* only the root has no name */
    ret->uid = (uint32_t)take(source, flags & 1 ? 4 : 1);
    ret->gid = (uint32_t)take(source, flags & 2 ? 4 : 1);
    ret->mtime = (int64_t)take(source, flags & 4 ? 8 : 4);
    ret->mtime_ns = flags & 8 ? (uint32_t)take(source, 4) % 1000000000 : 0;
    if (type == TAR_FILE)
        ret->size = flags & 32 ? edges[take(source, 1) % ARRAY_SIZE(edges)]
                               : take(source, flags & 16 ? 7 : 1);
    if (type == TAR_HARD_LINK || type == TAR_SYMLINK)
        ret->link = take_text(source, 1 + take_len(source, PATH_BYTES_MAX - 1));
    if (type == TAR_CHAR || type == TAR_BLOCK_DEVICE) {
        ret->major = (uint32_t)take(source, flags & 32 ? 4 : 1);
        ret->minor = (uint32_t)take(source, flags & 64 ? 4 : 1);
    }
}

static void take_xattrs(struct source *source, struct walk_xattr *list, struct tar_entry *entry)
{
    entry->xattr_count = take(source, 1) % (XATTRS_MAX + 1);
    entry->xattrs = list;
    for (size_t i = 0; i < entry->xattr_count; i++) {
        list[i].name = take_text(source, 1 + take_len(source, 254));
        list[i].len = take_len(source, 65535);
        list[i].value = take_text(source, list[i].len);
    }
}

static void free_entry(struct tar_entry *entry)
{
    for (size_t i = 0; i < entry->xattr_count; i++) {
        free((void *)entry->xattrs[i].name);
        free((void *)entry->xattrs[i].value);
    }
    free((void *)entry->path);
    free((void *)entry->link);
}

/* The value of a record, by an own reading of "LEN KEY=VALUE\n". NULL when there is none. */
static const char *record(const struct buf *records, const char *key, size_t *ret_len)
{
    const char *found = NULL;
    for (size_t at = 0; at < records->len;) {
        const char *start = records->data + at;
        char *space;
        size_t total = strtoul(start, &space, 10);
        CHECK(*space == ' ' && total > 0 && total <= records->len - at);
        CHECK(start[total - 1] == '\n');
        const char *equals = memchr(space, '=', total);
        CHECK(equals);
        if ((size_t)(equals - space - 1) == strlen(key) &&
            memcmp(space + 1, key, strlen(key)) == 0) {
            CHECK(!found); /* never twice */
            found = equals + 1;
            *ret_len = (size_t)(start + total - 1 - found);
        }
        at += total;
    }
    return found;
}

/* A text must be in its record, or in its field of the header. */
static void check_text(const struct buf *records, const char *key, const char *field,
                       const char *want, size_t want_len)
{
    size_t len = 0;
    const char *text = record(records, key, &len);
    if (!text) {
        text = field;
        len = strnlen(field, NAME_FIELD);
    }
    CHECK(len == want_len && memcmp(text, want, len) == 0);
}

static void check_fields(const struct tar_entry *entry, const struct buf *records,
                         const struct buf *blocks)
{
    const char *header = blocks->data + blocks->len - TAR_BLOCK;
    cleanup_free char *path = NULL;
    CHECK(asprintf(&path, "%s%s", entry->path[0] ? entry->path : ".",
                   entry->type == TAR_DIR ? "/" : "") > 0);
    check_text(records, "path", header, path, strlen(path));
    if (entry->link)
        check_text(records, "linkpath", header + AT_LINK, entry->link, strlen(entry->link));
    CHECK(strtoul(header + AT_MODE, NULL, 8) == (entry->mode & 07777));
    for (size_t i = 0; i < entry->xattr_count; i++) {
        cleanup_free char *key = NULL;
        CHECK(asprintf(&key, "SCHILY.xattr.%s", entry->xattrs[i].name) > 0);
        size_t len = 0;
        const char *value = NULL;
        if (i == 0 && entry->xattr_count == 1 && !strchr(key, '='))
            value = record(records, key, &len);
        CHECK(!value ||
              (len == entry->xattrs[i].len && memcmp(value, entry->xattrs[i].value, len) == 0));
    }
}

/* Writes one entry and feeds it. False when it cannot be stored, or its content is too much. */
static bool check_entry(const struct tar_entry *entry, struct tar_count *count)
{
    static const char content[CONTENT_MAX + TAR_BLOCK];
    cleanup_buf struct buf records = BUF_INIT(TAR_PAX_MAX);
    cleanup_buf struct buf blocks = BUF_INIT(2 * TAR_PAX_MAX);
    struct err err = ERR_INIT;
    int rc = tar_header_add(entry, &records, &blocks, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(blocks.len == 0 && (err.code == ERR_UNSUPPORTED || err.code == ERR_TOO_LARGE));
        CHECK(err.code == ERR_UNSUPPORTED ? (entry->major | entry->minor) > 07777777
                                          : entry->xattr_count > 0);
        return false;
    }
    CHECK(blocks.len >= TAR_BLOCK && blocks.len % TAR_BLOCK == 0);
    check_fields(entry, &records, &blocks);
    uint64_t entries = count->entries;
    uint64_t bytes = count->bytes;
    rc = tar_count_feed(count, blocks.data, blocks.len, &err);
    CHECK(rc == 0);
    CHECK(count->entries == entries + 1 && count->bytes == bytes + entry->size);
    uint64_t padded = (entry->size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    CHECK(count->skip == padded);
    if (entry->size > CONTENT_MAX)
        return false;
    CHECK(tar_count_feed(count, content, padded, NULL) == 0);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const char end[2 * TAR_BLOCK];
    struct source source = {bytes, len};
    cleanup_with(tar_count_free) struct tar_count count;
    tar_count_init(&count);
    bool good = true;
    for (int i = 0; i < ENTRIES_MAX && source.left > 0 && good; i++) {
        struct tar_entry entry;
        struct walk_xattr xattrs[XATTRS_MAX];
        take_entry(&source, &entry);
        take_xattrs(&source, xattrs, &entry);
        good = check_entry(&entry, &count);
        free_entry(&entry);
    }
    if (!good)
        return 0;
    CHECK(tar_count_finish(&count, NULL) < 0);
    CHECK(tar_count_feed(&count, end, sizeof end, NULL) == 0);
    CHECK(tar_count_finish(&count, NULL) == 0);
    return 0;
}
