#include "convert_lower.h"

#include <string.h>
#include <sys/stat.h>

/* A directory of the open path in one layer. */
struct lower_dir {
    size_t layer;
    struct erofs_inode inode;
};

struct convert_lower {
    const struct erofs_image *images; /* borrowed */
    size_t count;
    uint64_t steps;
    /* The open path, and for the root and each of its components the end of its directories in
     * `dirs`, topmost layer first. The directories of depth n lie behind those of depth n - 1. */
    char path[CONVERT_PATH_MAX];
    size_t path_len;
    size_t ends[CONVERT_DEPTH_MAX + 2];
    size_t depth;           /* components of the open path */
    struct lower_dir *dirs; /* owned */
    size_t dirs_cap;
};

static int count_step(struct convert_lower *lower, struct err *err)
{
    if (++lower->steps > CONVERT_LOWER_STEPS_MAX)
        return err_fail(err, ERR_TOO_LARGE,
                        "what the layer hides and links to takes too long to find in the layers "
                        "below");
    return 0;
}

static int push_dir(struct convert_lower *lower, size_t at, const struct lower_dir *dir,
                    struct err *err)
{
    if (at == lower->dirs_cap) {
        size_t cap = lower->dirs_cap == 0 ? 64 : 2 * lower->dirs_cap;
        struct lower_dir *dirs = realloc(lower->dirs, cap * sizeof *dirs);
        if (!dirs)
            return err_errno(err, ENOMEM, "cannot look into a lower layer");
        lower->dirs = dirs;
        lower->dirs_cap = cap;
    }
    lower->dirs[at] = *dir;
    return 0;
}

int convert_lower_open(const struct erofs_image *images, size_t count, struct convert_lower **ret,
                       struct err *err)
{
    struct convert_lower *lower = calloc(1, sizeof *lower);
    if (!lower)
        return err_errno(err, ENOMEM, "cannot look into lower layers");
    lower->images = images;
    lower->count = count;
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        struct lower_dir root = {.layer = i};
        rc = erofs_inode_read(&images[i], images[i].root, &root.inode, err);
        if (rc == 0 && !S_ISDIR(root.inode.mode))
            rc = err_fail(err, ERR_DAMAGED, "the root of a lower layer is no directory");
        if (rc == 0)
            rc = push_dir(lower, i, &root, err);
    }
    if (rc < 0) {
        convert_lower_free(lower);
        return err_wrap(err, rc, "cannot read a lower layer");
    }
    lower->ends[0] = count;
    *ret = lower;
    return 0;
}

void convert_lower_free(struct convert_lower *lower)
{
    if (!lower)
        return;
    free(lower->dirs);
    free(lower);
}

struct xattr_search {
    const char *name;
    bool is_yes; /* it is there and is "y" */
};

static int match_xattr(void *arg, const struct erofs_found_xattr *xattr, struct err *err)
{
    (void)err;
    struct xattr_search *search = arg;
    if (strcmp(xattr->name, search->name) == 0)
        search->is_yes = xattr->size == 1 && *(const char *)xattr->value == 'y';
    return 0;
}

/* 1 when the attribute is set to "y". */
static int has_mark(const struct convert_lower *lower, const struct lower_dir *dir,
                    const char *name, struct err *err)
{
    if (dir->inode.xattr_len == 0)
        return 0;
    struct xattr_search search = {.name = name};
    int rc = erofs_xattr_each(&lower->images[dir->layer], &dir->inode, match_xattr, &search, err);
    return rc < 0 ? rc : search.is_yes;
}

/* Looks for a name in one layer's directory: 1 and its inode, or 0. */
static int peek(struct convert_lower *lower, const struct lower_dir *dir, const char *name,
                size_t len, struct lower_dir *ret, struct err *err)
{
    const struct erofs_image *image = &lower->images[dir->layer];
    struct lower_dir found = {.layer = dir->layer};
    uint64_t nid;
    int rc = count_step(lower, err);
    if (rc == 0)
        rc = erofs_dir_lookup(image, &dir->inode, name, len, &nid, err);
    if (rc <= 0)
        return rc;
    rc = erofs_inode_read(image, nid, &found.inode, err);
    if (rc < 0)
        return rc;
    *ret = found;
    return 1;
}

/* From the directories of the open path to those of `name` in it. */
static int descend(struct convert_lower *lower, const char *name, size_t len, struct err *err)
{
    size_t end = lower->ends[lower->depth];
    size_t next = end;
    for (size_t i = lower->depth == 0 ? 0 : lower->ends[lower->depth - 1]; i < end; i++) {
        struct lower_dir found;
        int rc = peek(lower, &lower->dirs[i], name, len, &found, err);
        if (rc == 0)
            continue;
        if (rc == 1 && !S_ISDIR(found.inode.mode))
            break;
        if (rc == 1)
            rc = push_dir(lower, next, &found, err);
        if (rc < 0)
            return rc;
        next++;
        rc = has_mark(lower, &found, "trusted.overlay.opaque", err);
        if (rc < 0)
            return rc;
        if (rc == 1)
            break;
    }
    lower->ends[++lower->depth] = next;
    return 0;
}

/* Closes what is open and not on the way to the directory whose path is the first `len` bytes of
 * `path`. Returns how much of that path is open. */
static size_t retreat(struct convert_lower *lower, const char *path, size_t len)
{
    size_t same = 0; /* end of the last component that both have */
    size_t depth = 0;
    for (size_t i = 0;; i++) {
        bool ends_here = i == len || path[i] == '/';
        bool ends_there = i == lower->path_len || lower->path[i] == '/';
        if (ends_here && ends_there && i > 0) {
            same = i;
            depth++;
        }
        if (i == len || i == lower->path_len || path[i] != lower->path[i])
            break;
    }
    lower->path_len = same;
    lower->depth = depth;
    return same;
}

static int open_dir(struct convert_lower *lower, const char *path, size_t len, struct err *err)
{
    size_t at = retreat(lower, path, len);
    if (at > 0 && at < len)
        at++;
    while (at < len) {
        size_t part = strcspn(path + at, "/");
        int rc = descend(lower, path + at, part, err);
        if (rc < 0)
            return rc;
        at += part;
        memcpy(lower->path + lower->path_len, path + lower->path_len, at - lower->path_len);
        lower->path_len = at;
        at++;
    }
    return 0;
}

static bool is_whiteout(const struct erofs_inode *inode)
{
    return S_ISCHR(inode->mode) && inode->rdev == 0;
}

static int find_root(struct convert_lower *lower, struct convert_lower_found *ret, struct err *err)
{
    for (size_t i = 0; i < lower->count; i++) {
        const struct lower_dir *root = &lower->dirs[i];
        int rc = has_mark(lower, root, "trusted.varve.implied", err);
        if (rc < 0)
            return rc;
        if (rc == 1)
            continue;
        *ret = (struct convert_lower_found){
            .layer = i, .image = &lower->images[i], .inode = root->inode};
        return 1;
    }
    return 0;
}

static int find(struct convert_lower *lower, const char *path, struct convert_lower_found *ret,
                struct err *err)
{
    const char *base = convert_path_base(path);
    size_t base_len = strlen(base);
    if (base_len == 0)
        return find_root(lower, ret, err);
    int rc = open_dir(lower, path, convert_path_parent_len(path), err);
    if (rc < 0)
        return rc;
    size_t end = lower->ends[lower->depth];
    for (size_t i = lower->depth == 0 ? 0 : lower->ends[lower->depth - 1]; i < end; i++) {
        struct lower_dir found;
        rc = peek(lower, &lower->dirs[i], base, base_len, &found, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (is_whiteout(&found.inode))
            return 0;
        *ret = (struct convert_lower_found){
            .layer = found.layer, .image = &lower->images[found.layer], .inode = found.inode};
        return 1;
    }
    return 0;
}

int convert_lower_find(struct convert_lower *lower, const char *path,
                       struct convert_lower_found *ret, struct err *err)
{
    int rc = find(lower, path, ret, err);
    return rc < 0 ? err_wrap(err, rc, "cannot look into a lower layer") : rc;
}

struct root_names {
    struct convert_lower *lower;
    convert_lower_take *take;
    void *arg;
};

static int take_root_name(void *arg, const struct erofs_dirent *entry, struct err *err)
{
    const struct root_names *names = arg;
    char name[CONVERT_NAME_MAX + 1];
    if (entry->len > CONVERT_NAME_MAX)
        return err_fail(err, ERR_DAMAGED, "a name in a lower layer is too long");
    memcpy(name, entry->name, entry->len);
    name[entry->len] = '\0';
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    int rc = count_step(names->lower, err);
    return rc < 0 ? rc : names->take(names->arg, name, err);
}

int convert_lower_each_root_name(struct convert_lower *lower, convert_lower_take *take, void *arg,
                                 struct err *err)
{
    struct root_names names = {.lower = lower, .take = take, .arg = arg};
    for (size_t i = 0; i < lower->count; i++) {
        /* A copy, as `take` may look names up, which moves the list. */
        const struct erofs_inode root = lower->dirs[i].inode;
        int rc = erofs_dir_each(&lower->images[i], &root, take_root_name, &names, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
