#include "tar_header.h"

#include "base64.h"
#include "path_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* A header block of POSIX.1-1988 ustar. Numbers are octal text. */
struct ustar {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char mtime[12];
    char checksum[8];
    char type;
    char link[100];
    char magic[6];
    char version[2];
    char uname[32];
    char gname[32];
    char major[8];
    char minor[8];
    char prefix[155];
    char pad[12];
};
_Static_assert(sizeof(struct ustar) == TAR_BLOCK, "a header is one block");

static const uint64_t octal7_max = 07777777;
static const uint64_t octal11_max = 077777777777;
static const char padding[TAR_BLOCK];

/* Writes `value` as octal digits that fill the field but for its last byte. */
static void put_octal(char *field, size_t size, uint64_t value)
{
    field[size - 1] = '\0';
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
}

static void put_text(char *field, size_t size, const char *text, size_t len)
{
    memcpy(field, text, len < size ? len : size);
}

static void seal(struct ustar *header)
{
    memcpy(header->magic, "ustar", 6);
    memcpy(header->version, "00", 2);
    memset(header->checksum, ' ', sizeof header->checksum);
    const unsigned char *bytes = (const unsigned char *)header;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof *header; i++)
        sum += bytes[i];
    put_octal(header->checksum, 7, sum);
}

static bool is_ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

/* Whether a name or link target needs a record of its own. */
static bool is_long(const char *text, size_t len)
{
    return len > sizeof((struct ustar *)0)->name || !is_ascii(text, len);
}

static size_t digits_of(size_t value)
{
    size_t digits = 1;
    for (; value >= 10; value /= 10)
        digits++;
    return digits;
}

/* Appends "LEN KEY[SUFFIX]=VALUE\n", where LEN counts the whole record with its own digits. */
static int add_record(struct buf *records, const char *key, const char *suffix, const void *value,
                      size_t len, struct err *err)
{
    size_t rest = strlen(key) + strlen(suffix) + len + 3;
    size_t total = rest + digits_of(rest);
    total = rest + digits_of(total);
    int rc = buf_addf(records, err, "%zu %s%s=", total, key, suffix);
    if (rc == 0)
        rc = buf_add(records, value, len, "the extended header", err);
    return rc == 0 ? buf_add(records, "\n", 1, "the extended header", err) : rc;
}

static int add_number(struct buf *records, const char *key, uint64_t value, struct err *err)
{
    char text[32];
    int len = snprintf(text, sizeof text, "%" PRIu64, value);
    return add_record(records, key, "", text, (size_t)len, err);
}

static int add_mtime(struct buf *records, int64_t seconds, uint32_t ns, struct err *err)
{
    char text[48];
    int len = snprintf(text, sizeof text, "%" PRId64, seconds);
    if (ns > 0) {
        len += snprintf(text + len, sizeof text - (size_t)len, ".%09" PRIu32, ns);
        while (text[len - 1] == '0')
            len--;
    }
    return add_record(records, "mtime", "", text, (size_t)len, err);
}

/* Name and value of an attribute as libarchive encodes them: percent signs, and base64 without
 * padding. */
static int add_encoded_xattr(struct buf *records, const struct walk_xattr *xattr, struct err *err)
{
    cleanup_buf struct buf name = BUF_INIT(4096);
    cleanup_buf struct buf value = BUF_INIT(2 * WALK_XATTRS_MAX);
    int rc = 0;
    for (const unsigned char *s = (const unsigned char *)xattr->name; *s && rc == 0; s++) {
        bool plain = *s > ' ' && *s < 0x7F && *s != '=' && *s != '%';
        rc = buf_addf(&name, err, plain ? "%c" : "%%%02X", *s);
    }
    if (rc == 0)
        rc = base64_encode(xattr->value, xattr->len, false, &value, err);
    if (rc < 0)
        return rc;
    return add_record(records, "LIBARCHIVE.xattr.", buf_str(&name), buf_str(&value), value.len,
                      err);
}

static int add_xattr(struct buf *records, const struct walk_xattr *xattr, struct err *err)
{
    if (strchr(xattr->name, '='))
        return add_encoded_xattr(records, xattr, err);
    return add_record(records, "SCHILY.xattr.", xattr->name, xattr->value, xattr->len, err);
}

/* The path as it is stored. */
static int stored_path(const struct tar_entry *entry, struct buf *ret, struct err *err)
{
    const char *path = entry->path[0] == '\0' ? "." : entry->path;
    int rc = buf_add(ret, path, strlen(path), "the path", err);
    if (rc == 0 && entry->type == TAR_DIR)
        rc = buf_add(ret, "/", 1, "the path", err);
    return rc;
}

static int add_records(const struct tar_entry *entry, const struct buf *path, struct buf *records,
                       struct err *err)
{
    size_t link_len = entry->link ? strlen(entry->link) : 0;
    bool before_1970 = entry->mtime < 0;
    uint32_t ns = before_1970 ? 0 : entry->mtime_ns;
    int rc = 0;
    if (!path_text_is_utf8(path->data, path->len) ||
        (entry->link && !path_text_is_utf8(entry->link, link_len)))
        rc = add_record(records, "hdrcharset", "", "BINARY", 6, err);
    if (rc == 0 && is_long(path->data, path->len))
        rc = add_record(records, "path", "", path->data, path->len, err);
    if (rc == 0 && entry->link && is_long(entry->link, link_len))
        rc = add_record(records, "linkpath", "", entry->link, link_len, err);
    if (rc == 0 && entry->size > octal11_max)
        rc = add_number(records, "size", entry->size, err);
    if (rc == 0 && entry->uid > octal7_max)
        rc = add_number(records, "uid", entry->uid, err);
    if (rc == 0 && entry->gid > octal7_max)
        rc = add_number(records, "gid", entry->gid, err);
    if (rc == 0 && (before_1970 || ns > 0 || (uint64_t)entry->mtime > octal11_max))
        rc = add_mtime(records, entry->mtime, ns, err);
    for (size_t i = 0; i < entry->xattr_count && rc == 0; i++)
        rc = add_xattr(records, &entry->xattrs[i], err);
    return rc;
}

/* The header and the body that carry the records. */
static int put_records(const struct buf *records, struct buf *ret, struct err *err)
{
    struct ustar header = {.type = 'x'};
    put_text(header.name, sizeof header.name, "././@PaxHeader", 14);
    put_octal(header.mode, sizeof header.mode, 0);
    put_octal(header.uid, sizeof header.uid, 0);
    put_octal(header.gid, sizeof header.gid, 0);
    put_octal(header.size, sizeof header.size, records->len);
    put_octal(header.mtime, sizeof header.mtime, 0);
    put_octal(header.major, sizeof header.major, 0);
    put_octal(header.minor, sizeof header.minor, 0);
    seal(&header);
    int rc = buf_add(ret, &header, sizeof header, "a header", err);
    if (rc == 0)
        rc = buf_add(ret, records->data, records->len, "a header", err);
    size_t over = records->len % TAR_BLOCK;
    if (rc == 0 && over > 0)
        rc = buf_add(ret, padding, TAR_BLOCK - over, "a header", err);
    return rc;
}

/* What does not fit is in a record, and its field holds the nearest value that fits. */
static int put_entry(const struct tar_entry *entry, const struct buf *path, struct buf *ret,
                     struct err *err)
{
    struct ustar header = {.type = (char)entry->type};
    put_text(header.name, sizeof header.name, path->data, path->len);
    if (entry->link)
        put_text(header.link, sizeof header.link, entry->link, strlen(entry->link));
    uint64_t mtime = entry->mtime < 0 ? 0 : (uint64_t)entry->mtime;
    put_octal(header.mode, sizeof header.mode, entry->mode & 07777);
    put_octal(header.uid, sizeof header.uid, entry->uid > octal7_max ? octal7_max : entry->uid);
    put_octal(header.gid, sizeof header.gid, entry->gid > octal7_max ? octal7_max : entry->gid);
    put_octal(header.size, sizeof header.size, entry->size > octal11_max ? 0 : entry->size);
    put_octal(header.mtime, sizeof header.mtime, mtime > octal11_max ? octal11_max : mtime);
    bool device = entry->type == TAR_CHAR || entry->type == TAR_BLOCK_DEVICE;
    put_octal(header.major, sizeof header.major, device ? entry->major : 0);
    put_octal(header.minor, sizeof header.minor, device ? entry->minor : 0);
    seal(&header);
    return buf_add(ret, &header, sizeof header, "a header", err);
}

int tar_header_add(const struct tar_entry *entry, struct buf *scratch, struct buf *ret,
                   struct err *err)
{
    if ((entry->major | entry->minor) > octal7_max)
        return err_fail(err, ERR_UNSUPPORTED, "no archive can hold the device numbers of %s",
                        path_text(entry->path).s);
    cleanup_buf struct buf path = BUF_INIT(TAR_PAX_MAX);
    scratch->len = 0;
    int rc = stored_path(entry, &path, err);
    if (rc == 0)
        rc = add_records(entry, &path, scratch, err);
    if (rc == 0 && scratch->len > 0)
        rc = put_records(scratch, ret, err);
    if (rc == 0)
        rc = put_entry(entry, &path, ret, err);
    return rc < 0 ? err_wrap(err, rc, "cannot store %s", path_text(entry->path).s) : 0;
}
