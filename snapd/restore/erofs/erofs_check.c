#include "erofs_check.h"

#include "cleanup.h"
#include "erofs_bytes.h"
#include "erofs_check_inode.h"
#include "erofs_check_seen.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

enum {
    STACK_STEP = 1024, /* directories */
};

/* A directory whose own fields are checked and whose names are still to be looked at. */
struct waiting {
    uint64_t nid;
    uint64_t parent;
    uint32_t depth; /* 0: the root */
};

struct check {
    const struct erofs_image *image;
    struct erofs_check_inode *inodes;
    struct erofs_seen seen;
    struct waiting *stack; /* owned */
    size_t stack_count;
    size_t stack_room;
    uint64_t names; /* without "." and ".." */
};

/* The directory that is looked at. */
struct reading {
    struct check *check;
    struct waiting dir;
    const char *last; /* the name before, NULL: none */
    size_t last_len;
    bool has_dot;
    bool has_dot_dot;
    uint32_t subdirs;
};

static void free_check(struct check *check)
{
    erofs_check_inode_free(check->inodes);
    erofs_seen_free(&check->seen);
    free(check->stack);
}

static int push(struct check *check, struct waiting dir, struct err *err)
{
    if (check->stack_count == check->stack_room) {
        size_t room = check->stack_room == 0 ? STACK_STEP : check->stack_room * 2;
        struct waiting *stack = reallocarray(check->stack, room, sizeof *stack);
        if (!stack)
            return err_errno(err, ENOMEM, "cannot check an image");
        check->stack = stack;
        check->stack_room = room;
    }
    check->stack[check->stack_count++] = dir;
    return 0;
}

/* For messages: names are bytes from outside. err_fail() takes care of control characters. */
static int bad_name(const struct reading *reading, const struct erofs_dirent *entry,
                    const char *what, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "the name \"%.*s\" in the directory inode %" PRIu64 " %s",
                    (int)entry->len, entry->name, reading->dir.nid, what);
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static int check_name(struct reading *reading, const struct erofs_dirent *entry, struct err *err)
{
    if (memchr(entry->name, '/', entry->len) || memchr(entry->name, '\0', entry->len))
        return bad_name(reading, entry, "holds a slash or NUL", err);
    if (reading->last && compare(reading->last, reading->last_len, entry->name, entry->len) >= 0)
        return bad_name(reading, entry, "is not in its order", err);
    reading->last = entry->name;
    reading->last_len = entry->len;
    return 0;
}

/* 1 when the entry is "." or ".." and as it must be, 0 when it is another one. */
static int check_dots(struct reading *reading, const struct erofs_dirent *entry, struct err *err)
{
    bool is_dot = entry->len == 1 && entry->name[0] == '.';
    bool is_dot_dot = entry->len == 2 && memcmp(entry->name, "..", 2) == 0;
    if (!is_dot && !is_dot_dot)
        return 0;
    if (entry->nid != (is_dot ? reading->dir.nid : reading->dir.parent) ||
        entry->type != EROFS_FT_DIR)
        return bad_name(reading, entry, "does not lead where it must", err);
    reading->has_dot = reading->has_dot || is_dot;
    reading->has_dot_dot = reading->has_dot_dot || is_dot_dot;
    return 1;
}

static int check_type(const struct reading *reading, const struct erofs_dirent *entry, uint8_t type,
                      struct err *err)
{
    if (entry->type != type)
        return bad_name(reading, entry, "has another type than its inode", err);
    return 0;
}

/* All whiteouts of an image may be one inode. */
static uint32_t missing_names(const struct erofs_inode *inode)
{
    if (S_ISDIR(inode->mode))
        return 0;
    if (S_ISCHR(inode->mode) && inode->rdev == 0)
        return EROFS_SEEN_UNCOUNTED;
    return inode->nlink - 1;
}

/* An inode that no name has led to yet, and its slot. */
static int take_new(struct check *check, const struct erofs_inode *inode, uint64_t slot,
                    struct err *err)
{
    if (check->seen.count == check->seen.max)
        return err_fail(err, ERR_DAMAGED,
                        "the image has more than the %" PRIu64
                        " inodes that its superblock tells of (%" PRIu64 " too)",
                        check->image->inodes, inode->nid);
    int rc = erofs_check_inode_all(check->inodes, inode, err);
    if (rc < 0)
        return rc;
    erofs_seen_add(&check->seen, slot, inode->nid, erofs_format_file_type(inode->mode),
                   missing_names(inode));
    return 0;
}

static int take_known(const struct reading *reading, const struct erofs_dirent *entry,
                      uint64_t slot, struct err *err)
{
    struct erofs_seen *seen = &reading->check->seen;
    uint8_t type = erofs_seen_type(seen, slot);
    int rc = check_type(reading, entry, type, err);
    if (rc < 0)
        return rc;
    if (type == EROFS_FT_DIR)
        return bad_name(reading, entry, "is a second one of a directory", err);
    if (seen->missing[slot] == 0)
        return bad_name(reading, entry, "is one more than the inode's link count", err);
    if (seen->missing[slot] != EROFS_SEEN_UNCOUNTED)
        seen->missing[slot]--;
    return 0;
}

static int take_subdir(struct reading *reading, const struct erofs_dirent *entry, struct err *err)
{
    struct waiting dir = {entry->nid, reading->dir.nid, reading->dir.depth + 1};
    if (dir.depth > EROFS_CHECK_DEPTH_MAX)
        return bad_name(reading, entry, "lies too deep", err);
    reading->subdirs++;
    return push(reading->check, dir, err);
}

static int take_entry(void *arg, const struct erofs_dirent *entry, struct err *err)
{
    struct reading *reading = arg;
    struct check *check = reading->check;
    int rc = check_name(reading, entry, err);
    if (rc == 0)
        rc = check_dots(reading, entry, err);
    if (rc != 0)
        return rc;
    check->names++;
    uint64_t slot;
    if (erofs_seen_find(&check->seen, entry->nid, &slot))
        return take_known(reading, entry, slot, err);
    struct erofs_inode inode;
    rc = erofs_inode_read(check->image, entry->nid, &inode, err);
    if (rc == 0)
        rc = check_type(reading, entry, erofs_format_file_type(inode.mode), err);
    if (rc == 0)
        rc = take_new(check, &inode, slot, err);
    if (rc < 0)
        return err_wrap(err, rc, "\"%.*s\" in the directory inode %" PRIu64, (int)entry->len,
                        entry->name, reading->dir.nid);
    return S_ISDIR(inode.mode) ? take_subdir(reading, entry, err) : 0;
}

static int check_dir(struct check *check, struct waiting dir, struct err *err)
{
    struct reading reading = {.check = check, .dir = dir};
    struct erofs_inode inode;
    int rc = erofs_inode_read(check->image, dir.nid, &inode, err);
    if (rc == 0)
        rc = erofs_dir_each(check->image, &inode, take_entry, &reading, err);
    if (rc < 0)
        return rc;
    if (!reading.has_dot || !reading.has_dot_dot)
        return err_fail(err, ERR_DAMAGED, "the directory inode %" PRIu64 " lacks \".\" or \"..\"",
                        dir.nid);
    if (inode.nlink != 2 + (uint64_t)reading.subdirs)
        return err_fail(err, ERR_DAMAGED,
                        "the directory inode %" PRIu64 " has a link count of %" PRIu32
                        ", but %" PRIu32 " subdirectories",
                        dir.nid, inode.nlink, reading.subdirs);
    return 0;
}

static int take_root(struct check *check, struct err *err)
{
    struct erofs_inode root;
    uint64_t slot;
    int rc = erofs_inode_read(check->image, check->image->root, &root, err);
    if (rc < 0)
        return rc;
    if (!S_ISDIR(root.mode))
        return err_fail(err, ERR_DAMAGED, "the root inode %" PRIu64 " is not a directory",
                        root.nid);
    erofs_seen_find(&check->seen, root.nid, &slot);
    rc = take_new(check, &root, slot, err);
    return rc < 0 ? rc : push(check, (struct waiting){root.nid, root.nid, 0}, err);
}

static int check_counts(const struct check *check, struct err *err)
{
    const struct erofs_seen *seen = &check->seen;
    for (uint64_t slot = 0; slot < seen->slots; slot++) {
        uint32_t missing = seen->missing[slot];
        if (missing != 0 && missing != EROFS_SEEN_UNCOUNTED)
            return err_fail(err, ERR_DAMAGED,
                            "inode %" PRIu64 " has a link count that is %" PRIu32
                            " above the number of its names",
                            erofs_seen_nid(seen, slot), missing);
    }
    if (seen->count != check->image->inodes)
        return err_fail(err, ERR_DAMAGED,
                        "the image has %" PRIu64 " inodes, but its superblock tells of %" PRIu64,
                        seen->count, check->image->inodes);
    return 0;
}

int erofs_check(const struct erofs_image *image, uint64_t inodes_max,
                struct erofs_check_result *ret, struct err *err)
{
    if (image->inodes > erofs_end(image) / EROFS_INODE_SIZE)
        return err_fail(err, ERR_DAMAGED, "the image has no room for %" PRIu64 " inodes",
                        image->inodes);
    if (image->inodes > inodes_max)
        return err_fail(err, ERR_TOO_LARGE, "the image has %" PRIu64 " inodes, more than %" PRIu64,
                        image->inodes, inodes_max);
    cleanup_with(free_check) struct check check = {.image = image};
    int rc = erofs_check_inode_new(image, &check.inodes, err);
    if (rc == 0)
        rc = erofs_seen_init(&check.seen, image->inodes, err);
    if (rc == 0)
        rc = take_root(&check, err);
    while (rc == 0 && check.stack_count > 0)
        rc = check_dir(&check, check.stack[--check.stack_count], err);
    if (rc == 0)
        rc = check_counts(&check, err);
    if (rc < 0)
        return rc;
    *ret = (struct erofs_check_result){.inodes = check.seen.count, .names = check.names};
    return 0;
}
