#include "convert_member.h"

#include "convert_acl.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
    DEVICE_MAJOR_MAX = 0xFFF,   /* 12 bits in Linux's dev_t */
    DEVICE_MINOR_MAX = 0xFFFFF, /* 20 bits */
};

static int refuse(const char *path, const char *why, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "member %s of the archive is refused: %s", path_text(path).s,
                    why);
}

static int read_type(struct archive_entry *entry, struct convert_member *member, struct err *err)
{
    mode_t type = archive_entry_filetype(entry); /* AE_IF* are S_IF* on Linux */
    const char *raw = archive_entry_pathname(entry);
    /* Old archives mark directories so. libarchive knows, but not with names that are no ASCII. */
    if (type == S_IFREG && raw && raw[0] != '\0' && raw[strlen(raw) - 1] == '/')
        type = S_IFDIR;
    switch (type) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFCHR:
    case S_IFBLK:
        member->type = type;
        return 0;
    default:
        return refuse(member->path, "it is of a kind that no file system has", err);
    }
}

static int read_symlink(struct archive_entry *entry, struct convert_member_store *store,
                        struct convert_member *member, struct err *err)
{
    const char *target = archive_entry_symlink(entry);
    size_t len = target ? strlen(target) : 0;
    if (len == 0 || len >= sizeof store->target)
        return refuse(member->path, "its link target is empty or longer than 4095 bytes", err);
    memcpy(store->target, target, len + 1);
    member->target = store->target;
    return 0;
}

static int read_device(struct archive_entry *entry, struct convert_member *member, struct err *err)
{
    dev_t major_number = archive_entry_rdevmajor(entry);
    dev_t minor_number = archive_entry_rdevminor(entry);
    if (major_number > DEVICE_MAJOR_MAX || minor_number > DEVICE_MINOR_MAX)
        return refuse(member->path, "its device number does not exist", err);
    if (member->type == S_IFCHR && major_number == 0 && minor_number == 0)
        return refuse(member->path, "character device 0:0 is overlayfs's mark for a deleted name",
                      err);
    member->rdev = makedev((unsigned)major_number, (unsigned)minor_number);
    return 0;
}

static int read_kind(struct archive_entry *entry, struct convert_member_store *store,
                     struct convert_member *member, struct err *err)
{
    const char *link = archive_entry_hardlink(entry);
    if (link) {
        member->is_hardlink = true;
        member->target = store->target;
        int rc = convert_path_normalise(link, store->target, err);
        return rc < 0 ? err_wrap(err, rc, "hard link %s", path_text(member->path).s) : 0;
    }
    int rc = read_type(entry, member, err);
    if (rc < 0)
        return rc;
    switch (member->type) {
    case S_IFLNK:
        return read_symlink(entry, store, member, err);
    case S_IFCHR:
    case S_IFBLK:
        return read_device(entry, member, err);
    case S_IFREG: {
        la_int64_t size = archive_entry_size(entry);
        if (size < 0)
            return refuse(member->path, "its size is negative", err);
        if ((uint64_t)size > CONVERT_FILE_MAX)
            return err_fail(err, ERR_TOO_LARGE, "member %s is refused: it has %lld bytes",
                            path_text(member->path).s, (long long)size);
        member->size = (uint64_t)size;
        return 0;
    }
    default:
        return 0;
    }
}

static int read_owner_and_times(struct archive_entry *entry, struct convert_member *member,
                                struct err *err)
{
    la_int64_t uid = archive_entry_uid(entry);
    la_int64_t gid = archive_entry_gid(entry);
    /* 2^32 - 1 is "no owner" to the kernel. */
    if (uid < 0 || gid < 0 || uid >= UINT32_MAX || gid >= UINT32_MAX)
        return refuse(member->path, "its owner is no 32-bit ID", err);
    long ns = archive_entry_mtime_nsec(entry);
    member->attr.uid = (uint32_t)uid;
    member->attr.gid = (uint32_t)gid;
    /* Linux gives links no other mode, whatever archives say. */
    member->attr.perm = member->type == S_IFLNK ? 0777 : archive_entry_perm(entry) & 07777;
    member->attr.mtime = archive_entry_mtime(entry);
    /* Before 1970 versions of libarchive differ in what they make of a fraction. */
    bool exact = member->attr.mtime >= 0 && ns >= 0 && ns < 1000000000;
    member->attr.mtime_ns = exact ? (uint32_t)ns : 0;
    return 0;
}

static void note_dropped(struct convert_dropped *dropped, const char *name, const char *path)
{
    if (dropped->count++ >= CONVERT_DROPPED_MAX)
        return;
    int n = snprintf(dropped->text + dropped->text_len, sizeof dropped->text - dropped->text_len,
                     "%s%.*s of %s", dropped->text_len > 0 ? "\n" : "", CONVERT_ATTR_NAME_MAX,
                     path_text(name).s, path_text(path).s);
    dropped->text_len += (size_t)n;
}

static int read_xattrs(struct archive_entry *entry, struct convert_dropped *dropped,
                       struct convert_member *member, struct err *err)
{
    const char *name;
    const void *value;
    size_t size;
    archive_entry_xattr_reset(entry);
    while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
        if (!name || name[0] == '\0' || !convert_attr_is_wanted(name)) {
            note_dropped(dropped, name ? name : "", member->path);
            continue;
        }
        int rc = convert_attr_add(&member->attr, name, value, size, err);
        if (rc < 0)
            return rc;
    }
    if (archive_entry_acl_types(entry) & ARCHIVE_ENTRY_ACL_TYPE_NFS4)
        note_dropped(dropped, "SCHILY.acl.ace", member->path);
    int rc = convert_acl_add(entry, &member->attr, err);
    if (rc == 0)
        rc = convert_attr_check(&member->attr, member->type, err);
    return rc < 0 ? rc : convert_acl_settle(&member->attr, err);
}

int convert_member_read(struct archive_entry *entry, const char *path,
                        struct convert_member_store *store, struct convert_dropped *dropped,
                        struct convert_member *ret, struct err *err)
{
    struct convert_member member = {.path = path};
    int rc = read_kind(entry, store, &member, err);
    /* A hard link has the attributes of its target. */
    if (rc == 0 && !member.is_hardlink)
        rc = read_owner_and_times(entry, &member, err);
    if (rc == 0 && !member.is_hardlink) {
        rc = read_xattrs(entry, dropped, &member, err);
        if (rc < 0)
            rc = err_wrap(err, rc, "member %s", path_text(path).s);
    }
    if (rc < 0) {
        convert_attr_free(&member.attr);
        return rc;
    }
    *ret = member;
    return 0;
}
