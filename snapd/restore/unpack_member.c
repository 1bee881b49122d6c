#include "unpack_member.h"

#include "path_text.h"
#include "unpack_acl.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>
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

static int read_type(struct archive_entry *entry, struct unpack_member *member, struct err *err)
{
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        member->type = UNPACK_FILE;
        return 0;
    case AE_IFDIR:
        member->type = UNPACK_DIR;
        return 0;
    case AE_IFLNK:
        member->type = UNPACK_SYMLINK;
        return 0;
    case AE_IFIFO:
        member->type = UNPACK_FIFO;
        return 0;
    case AE_IFCHR:
        member->type = UNPACK_CHAR;
        return 0;
    case AE_IFBLK:
        member->type = UNPACK_BLOCK;
        return 0;
    default:
        return refuse(member->path, "it is of a kind that no file system has", err);
    }
}

static int read_symlink(struct archive_entry *entry, struct unpack_member_store *store,
                        struct unpack_member *member, struct err *err)
{
    const char *target = archive_entry_symlink(entry);
    size_t len = target ? strlen(target) : 0;
    if (len == 0 || len >= sizeof store->target)
        return refuse(member->path, "its link target is empty or longer than 4095 bytes", err);
    memcpy(store->target, target, len + 1);
    member->target = store->target;
    return 0;
}

static int read_device(struct archive_entry *entry, struct unpack_member *member, struct err *err)
{
    dev_t major_number = archive_entry_rdevmajor(entry);
    dev_t minor_number = archive_entry_rdevminor(entry);
    if (major_number > DEVICE_MAJOR_MAX || minor_number > DEVICE_MINOR_MAX)
        return refuse(member->path, "its device number does not exist", err);
    if (member->type == UNPACK_CHAR && major_number == 0 && minor_number == 0)
        return refuse(member->path, "character device 0:0 is overlayfs's mark for a deleted name",
                      err);
    member->rdev = makedev((unsigned)major_number, (unsigned)minor_number);
    return 0;
}

static int read_kind(struct archive_entry *entry, struct unpack_member_store *store,
                     struct unpack_member *member, struct err *err)
{
    const char *link = archive_entry_hardlink(entry);
    if (link) {
        member->type = UNPACK_HARDLINK;
        member->target = store->target;
        int rc = unpack_path_normalise(link, store->target, err);
        return rc < 0 ? err_wrap(err, rc, "hard link %s", path_text(member->path).s) : 0;
    }
    int rc = read_type(entry, member, err);
    if (rc < 0)
        return rc;
    switch (member->type) {
    case UNPACK_SYMLINK:
        return read_symlink(entry, store, member, err);
    case UNPACK_CHAR:
    case UNPACK_BLOCK:
        return read_device(entry, member, err);
    case UNPACK_FILE: {
        la_int64_t size = archive_entry_size(entry);
        if (size < 0)
            return refuse(member->path, "its size is negative", err);
        if ((uint64_t)size > UNPACK_FILE_MAX)
            return err_fail(err, ERR_TOO_LARGE, "member %s is refused: it has %lld bytes",
                            path_text(member->path).s, (long long)size);
        member->size = (uint64_t)size;
        return 0;
    }
    default:
        return 0;
    }
}

static int read_owner_and_times(struct archive_entry *entry, struct unpack_member *member,
                                struct err *err)
{
    la_int64_t uid = archive_entry_uid(entry);
    la_int64_t gid = archive_entry_gid(entry);
    /* 2^32 - 1 is "no owner" to the kernel. */
    if (uid < 0 || gid < 0 || uid >= UINT32_MAX || gid >= UINT32_MAX)
        return refuse(member->path, "its owner is no 32-bit ID", err);
    long ns = archive_entry_mtime_nsec(entry);
    member->attr.uid = (uid_t)uid;
    member->attr.gid = (gid_t)gid;
    member->attr.perm = archive_entry_perm(entry) & 07777;
    member->attr.mtime.tv_sec = archive_entry_mtime(entry);
    /* Before 1970 versions of libarchive differ in what they make of a fraction. */
    bool exact = member->attr.mtime.tv_sec >= 0 && ns >= 0 && ns < 1000000000;
    member->attr.mtime.tv_nsec = exact ? ns : 0;
    return 0;
}

static void note_dropped(struct unpack_tree *tree, const char *name, const char *path)
{
    if (tree->dropped++ == 0)
        snprintf(tree->dropped_first, sizeof tree->dropped_first, "%.*s of %s",
                 UNPACK_ATTR_NAME_MAX, path_text(name).s, path_text(path).s);
}

static int read_xattrs(struct unpack_tree *tree, struct archive_entry *entry,
                       struct unpack_member *member, struct err *err)
{
    const char *name;
    const void *value;
    size_t size;
    archive_entry_xattr_reset(entry);
    while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
        if (!name || name[0] == '\0' || !unpack_attr_is_wanted(name)) {
            note_dropped(tree, name ? name : "", member->path);
            continue;
        }
        int rc = unpack_attr_add(&member->attr, name, value, size, err);
        if (rc < 0)
            return err_wrap(err, rc, "member %s", path_text(member->path).s);
    }
    int rc = unpack_acl_add(entry, &member->attr, err);
    return rc < 0 ? err_wrap(err, rc, "member %s", path_text(member->path).s) : 0;
}

int unpack_member_read(struct unpack_tree *tree, struct archive_entry *entry, const char *path,
                       struct unpack_member_store *store, struct unpack_member *ret,
                       struct err *err)
{
    struct unpack_member member = {.path = path};
    int rc = read_kind(entry, store, &member, err);
    /* A hard link has the attributes of its target. */
    if (rc == 0 && member.type != UNPACK_HARDLINK)
        rc = read_owner_and_times(entry, &member, err);
    if (rc == 0 && member.type != UNPACK_HARDLINK)
        rc = read_xattrs(tree, entry, &member, err);
    if (rc < 0) {
        unpack_attr_free(&member.attr);
        return rc;
    }
    *ret = member;
    return 0;
}
