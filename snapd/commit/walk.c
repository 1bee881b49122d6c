#include "walk.h"

#include "path_text.h"
#include "walk_links.h"
#include "walk_names.h"

#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

enum {
    STAT_MASK = STATX_BASIC_STATS | STATX_MNT_ID,
};

/* A directory on the way from the root to the current entry. */
struct frame {
    int fd; /* -1 while more than WALK_OPEN_MAX are open below it; the root's stays open */
    struct statx stat;
    struct walk_names names;
    size_t next;     /* index of the next name */
    size_t path_len; /* of this directory's path */
    bool loaded;     /* names were read */
};

struct walk {
    int root_fd; /* borrowed */
    bool overlay;
    bool started;
    struct frame *frames; /* owned; the current directory is the last one */
    size_t depth;
    size_t frame_cap;
    size_t oldest_open; /* lowest frame but the root whose descriptor is open */
    size_t names_bytes; /* of all frames' names; never above WALK_NAMES_MAX */
    char *path;         /* owned */
    size_t path_cap;
    struct walk_links links;
    struct walk_xattrs xattrs;
    char link_target[WALK_LINK_TARGET_MAX];
    struct walk_entry entry; /* what the caller sees; entry.fd is owned */
};

static bool is_dir(const struct statx *stat)
{
    return S_ISDIR(stat->stx_mode);
}

static bool same_time(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_inode(const struct statx *a, const struct statx *b)
{
    return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major &&
           a->stx_dev_minor == b->stx_dev_minor && a->stx_mnt_id == b->stx_mnt_id &&
           (a->stx_mode & S_IFMT) == (b->stx_mode & S_IFMT);
}

/* Times of the inode are enough to see a change of a directory; a file can also be compared by
 * size, as its times have the resolution of the kernel's clock tick. */
static bool same_state(const struct statx *a, const struct statx *b)
{
    return same_inode(a, b) && same_time(&a->stx_mtime, &b->stx_mtime) &&
           same_time(&a->stx_ctime, &b->stx_ctime) && (is_dir(a) || a->stx_size == b->stx_size);
}

static int fail_changed(const char *path, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT, "%s changed while it was read", path_text(path).s);
    err_hint(err, "end the processes that write there and try again");
    return rc;
}

/* The status of `name` in `dir_fd`, or of `dir_fd` itself when the name is "". */
static int get_stat(int dir_fd, const char *name, struct statx *ret, const char *path,
                    struct err *err)
{
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH;
    if (statx(dir_fd, name, flags, STAT_MASK, ret) < 0) {
        if (errno == ENOENT)
            return fail_changed(path, err);
        return err_errno(err, errno, "cannot stat %s", path_text(path).s);
    }
    if (!(ret->stx_mask & STATX_MNT_ID))
        return err_fail(err, ERR_UNSUPPORTED,
                        "the kernel does not tell mounts apart (statx without mount ID)");
    return 0;
}

/* Opens a name for reading without touching its access time where the kernel allows that. */
static int open_quietly(int dir_fd, const char *name, int flags)
{
    flags |= O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = openat(dir_fd, name, flags | O_NOATIME);
    if (fd < 0 && errno == EPERM)
        fd = openat(dir_fd, name, flags);
    return fd;
}

/* Opens what `want` describes. Returns a descriptor, or -errno with the path in the message. */
static int open_checked(int dir_fd, const char *name, const struct statx *want, const char *path,
                        struct err *err)
{
    cleanup_fd int fd = open_quietly(dir_fd, name, is_dir(want) ? O_DIRECTORY : 0);
    if (fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENOTDIR))
        return fail_changed(path, err);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path_text(path).s);
    struct statx have;
    int rc = get_stat(fd, "", &have, path, err);
    if (rc < 0)
        return rc;
    if (!same_inode(want, &have))
        return fail_changed(path, err);
    return steal_fd(&fd);
}

int walk_open(int root_fd, bool overlay, struct walk **ret, struct err *err)
{
    struct walk *walk = calloc(1, sizeof *walk);
    if (!walk)
        return err_errno(err, ENOMEM, "cannot begin to walk a directory");
    walk->root_fd = root_fd;
    walk->overlay = overlay;
    walk->entry.fd = -1;
    walk->links.bytes_max = WALK_LINKS_MAX;
    walk->path_cap = 4096;
    walk->path = calloc(1, walk->path_cap);
    int rc = walk->path ? walk_xattrs_init(&walk->xattrs, err)
                        : err_errno(err, ENOMEM, "cannot begin to walk a directory");
    if (rc < 0) {
        walk_close(walk);
        return rc;
    }
    *ret = walk;
    return 0;
}

static void frame_free(struct frame *frame)
{
    if (frame->fd >= 0)
        (void)close(frame->fd);
    walk_names_free(&frame->names);
}

void walk_close(struct walk *walk)
{
    if (!walk)
        return;
    for (size_t i = 0; i < walk->depth; i++)
        frame_free(&walk->frames[i]);
    free(walk->frames);
    free(walk->path);
    if (walk->entry.fd >= 0)
        (void)close(walk->entry.fd);
    walk_links_free(&walk->links);
    walk_xattrs_free(&walk->xattrs);
    free(walk);
}

/* Makes the path of `name` in the directory whose path has `parent_len` bytes. */
static int set_path(struct walk *walk, size_t parent_len, const char *name, struct err *err)
{
    size_t len = strlen(name);
    size_t need = parent_len + len + 2;
    if (need > WALK_PATH_MAX)
        return err_fail(err, ERR_TOO_LARGE, "a path below %s is longer than %d bytes",
                        path_text(walk->path).s, WALK_PATH_MAX);
    if (need > walk->path_cap) {
        size_t cap = 2 * need;
        char *path = realloc(walk->path, cap);
        if (!path)
            return err_errno(err, ENOMEM, "cannot hold a path");
        walk->path = path;
        walk->path_cap = cap;
    }
    size_t at = parent_len;
    if (at > 0)
        walk->path[at++] = '/';
    memcpy(walk->path + at, name, len + 1);
    walk->entry.name = walk->path + at;
    walk->entry.path = walk->path;
    return 0;
}

/* Enters a directory: takes `fd`. The descriptor highest in the tree makes room. */
static int push(struct walk *walk, int fd, const struct statx *stat, struct err *err)
{
    cleanup_fd int owned = fd;
    if (walk->depth == walk->frame_cap) {
        size_t cap = walk->frame_cap ? 2 * walk->frame_cap : 32;
        struct frame *frames = reallocarray(walk->frames, cap, sizeof *frames);
        if (!frames)
            return err_errno(err, ENOMEM, "cannot walk %s", path_text(walk->path).s);
        walk->frames = frames;
        walk->frame_cap = cap;
    }
    walk->frames[walk->depth++] =
        (struct frame){.fd = steal_fd(&owned), .stat = *stat, .path_len = strlen(walk->path)};
    if (walk->depth == 1)
        walk->oldest_open = 1;
    if (walk->depth - walk->oldest_open >= WALK_OPEN_MAX) {
        struct frame *oldest = &walk->frames[walk->oldest_open++];
        (void)close(oldest->fd);
        oldest->fd = -1;
    }
    return 0;
}

/* Opens the parent of the current directory again, through "..", and checks that it is the one. */
static int reopen_parent(struct walk *walk, struct err *err)
{
    const struct frame *frame = &walk->frames[walk->depth - 1];
    struct frame *parent = &walk->frames[walk->depth - 2];
    int fd = open_checked(frame->fd, "..", &parent->stat, walk->path, err);
    if (fd < 0)
        return fd;
    parent->fd = fd;
    walk->oldest_open = walk->depth - 2;
    return 0;
}

/* Leaves the current directory, whose names are used up. */
static int pop(struct walk *walk, struct err *err)
{
    struct frame *frame = &walk->frames[walk->depth - 1];
    walk->path[frame->path_len] = '\0';
    struct statx now;
    int rc = get_stat(frame->fd, "", &now, walk->path, err);
    if (rc < 0)
        return rc;
    if (!same_state(&frame->stat, &now))
        return fail_changed(walk->path, err);
    if (walk->depth > 1 && walk->frames[walk->depth - 2].fd < 0)
        rc = reopen_parent(walk, err);
    if (rc < 0)
        return rc;
    walk->names_bytes -= frame->names.len;
    frame_free(frame);
    walk->depth--;
    return 0;
}

static int load_names(struct walk *walk, struct frame *frame, struct err *err)
{
    int rc = walk_names_read(frame->fd, walk->overlay, WALK_NAMES_MAX - walk->names_bytes,
                             &frame->names, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot read directory %s", path_text(walk->path).s);
    walk->names_bytes += frame->names.len;
    frame->loaded = true;
    return 0;
}

/* What is seen of a directory that something is mounted on. */
static void cover(struct walk_entry *entry)
{
    entry->skipped = "mount";
    entry->stat.stx_mtime = (struct statx_timestamp){0};
}

static bool is_whiteout(const struct walk *walk, const struct statx *stat)
{
    return walk->overlay && S_ISCHR(stat->stx_mode) && stat->stx_rdev_major == 0 &&
           stat->stx_rdev_minor == 0;
}

static int note_link(struct walk *walk, struct err *err)
{
    struct walk_entry *entry = &walk->entry;
    if (entry->stat.stx_nlink < 2 || is_whiteout(walk, &entry->stat))
        return 0;
    uint64_t dev = makedev(entry->stat.stx_dev_major, entry->stat.stx_dev_minor);
    int rc = walk_links_note(&walk->links, dev, entry->stat.stx_ino, entry->stat.stx_nlink,
                             entry->path, &entry->hard_link, err);
    return rc < 0 ? err_wrap(err, rc, "%s", path_text(entry->path).s) : 0;
}

static int read_target(struct walk *walk, int dir_fd, struct err *err)
{
    struct walk_entry *entry = &walk->entry;
    ssize_t n = readlinkat(dir_fd, entry->name, walk->link_target, WALK_LINK_TARGET_MAX);
    if (n < 0 && (errno == EINVAL || errno == ENOENT))
        return fail_changed(entry->path, err);
    if (n < 0)
        return err_errno(err, errno, "cannot read the link %s", path_text(entry->path).s);
    if (n == WALK_LINK_TARGET_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the target of the link %s is longer than %d bytes",
                        path_text(entry->path).s, WALK_LINK_TARGET_MAX - 1);
    walk->link_target[n] = '\0';
    entry->link_target = walk->link_target;
    return 0;
}

static int read_xattrs(struct walk *walk, int fd, int dir_fd, struct err *err)
{
    struct walk_entry *entry = &walk->entry;
    int rc = fd >= 0 ? walk_xattrs_of_fd(&walk->xattrs, fd, err)
                     : walk_xattrs_of_name(&walk->xattrs, dir_fd, entry->name, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot read %s", path_text(entry->path).s);
    entry->xattrs = walk->xattrs.list;
    entry->xattr_count = walk->xattrs.count;
    return 0;
}

static int take_dir(struct walk *walk, int dir_fd, struct err *err)
{
    struct walk_entry *entry = &walk->entry;
    cleanup_fd int fd = open_checked(dir_fd, entry->name, &entry->stat, entry->path, err);
    if (fd < 0)
        return fd;
    int rc = read_xattrs(walk, fd, dir_fd, err);
    if (rc < 0)
        return rc;
    return push(walk, steal_fd(&fd), &entry->stat, err);
}

/* Fills in the current entry, the child of an open directory, from its status. */
static int take(struct walk *walk, int dir_fd, uint64_t mount, struct err *err)
{
    struct walk_entry *entry = &walk->entry;
    if (entry->stat.stx_mnt_id != mount) {
        cover(entry);
        return 0;
    }
    if (is_dir(&entry->stat))
        return take_dir(walk, dir_fd, err);
    if (S_ISSOCK(entry->stat.stx_mode)) {
        entry->skipped = "socket";
        return 0;
    }
    int rc = note_link(walk, err);
    if (rc == 0 && S_ISLNK(entry->stat.stx_mode))
        rc = read_target(walk, dir_fd, err);
    if (rc < 0 || entry->hard_link)
        return rc;
    if (S_ISREG(entry->stat.stx_mode)) {
        entry->fd = open_checked(dir_fd, entry->name, &entry->stat, entry->path, err);
        if (entry->fd < 0)
            return entry->fd;
    }
    return read_xattrs(walk, entry->fd, dir_fd, err);
}

static int take_root(struct walk *walk, struct err *err)
{
    struct walk_entry *entry = &walk->entry;
    entry->path = walk->path;
    entry->name = walk->path;
    int rc = get_stat(walk->root_fd, "", &entry->stat, "", err);
    if (rc < 0)
        return rc;
    if (!is_dir(&entry->stat))
        return err_fail(err, ERR_INVALID, "the root of the tree is not a directory");
    cleanup_fd int fd = open_checked(walk->root_fd, ".", &entry->stat, "", err);
    if (fd < 0)
        return fd;
    rc = read_xattrs(walk, fd, -1, err);
    if (rc < 0)
        return rc;
    walk->started = true;
    return push(walk, steal_fd(&fd), &entry->stat, err);
}

int walk_next(struct walk *walk, const struct walk_entry **ret, struct err *err)
{
    if (walk->entry.fd >= 0)
        (void)close(walk->entry.fd);
    walk->entry = (struct walk_entry){.fd = -1};
    if (!walk->started) {
        int rc = take_root(walk, err);
        *ret = &walk->entry;
        return rc < 0 ? rc : 1;
    }
    while (walk->depth > 0) {
        struct frame *frame = &walk->frames[walk->depth - 1];
        int rc = frame->loaded ? 0 : load_names(walk, frame, err);
        if (rc < 0)
            return rc;
        if (frame->next == frame->names.count) {
            rc = pop(walk, err);
            if (rc < 0)
                return rc;
            continue;
        }
        rc = set_path(walk, frame->path_len, walk_names_get(&frame->names, frame->next++), err);
        int fd = frame->fd;
        if (rc == 0)
            rc = get_stat(fd, walk->entry.name, &walk->entry.stat, walk->path, err);
        if (rc == 0)
            rc = take(walk, fd, walk->frames[0].stat.stx_mnt_id, err);
        if (rc < 0)
            return rc;
        *ret = &walk->entry;
        return 1;
    }
    return 0;
}

int walk_check(struct walk *walk, struct err *err)
{
    struct statx now;
    int rc = get_stat(walk->entry.fd, "", &now, walk->entry.path, err);
    if (rc < 0)
        return rc;
    return same_state(&walk->entry.stat, &now) ? 0 : fail_changed(walk->entry.path, err);
}
