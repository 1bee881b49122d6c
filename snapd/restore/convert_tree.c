#include "convert_tree.h"

#include "convert_space.h"
#include "path_text.h"

#include <string.h>
#include <sys/stat.h>

enum {
    SPACE_CHECK_BYTES = CONVERT_TREE_PIECE, /* look at the free space after so many bytes */
    OWN_BYTES = 1 << 20,                    /* of the smallest image */
};

/* The first `len` bytes of a path, for messages. */
static struct path_text prefix_text(const char *path, size_t len)
{
    char text[CONVERT_PATH_MAX];
    memcpy(text, path, len);
    text[len] = '\0';
    return path_text(text);
}

/* From a directory to the one that `name` is in it, made when missing. */
static int step(struct convert_tree *tree, erofs_dir *dir, const char *path, const char *name,
                size_t len, struct err *err)
{
    static const struct erofs_attr implied = {.perm = 0755};
    struct erofs_entry entry;
    if (erofs_writer_find(tree->writer, *dir, name, len, &entry) == 0) {
        int rc = erofs_writer_mkdir(tree->writer, *dir, name, len, &implied, dir, err);
        if (rc < 0)
            return err_wrap(err, rc, "cannot make directory %s",
                            prefix_text(path, (size_t)(name - path) + len).s);
        erofs_writer_dir_set_note(tree->writer, *dir, CONVERT_DIR_IMPLIED);
        return 0;
    }
    if (!S_ISDIR(entry.type))
        return err_fail(err, ERR_DAMAGED, "%s is not a directory in this archive",
                        prefix_text(path, (size_t)(name - path) + len).s);
    *dir = entry.dir;
    return 0;
}

/* To the directory whose path is the first `len` bytes of `path`. */
static int enter(struct convert_tree *tree, const char *path, size_t len, erofs_dir *ret,
                 struct err *err)
{
    if (tree->has_dir && tree->dir_len == len && memcmp(tree->dir_path, path, len) == 0) {
        *ret = tree->dir;
        return 0;
    }
    erofs_dir dir = EROFS_ROOT;
    for (size_t at = 0; at < len;) {
        size_t part = strcspn(path + at, "/");
        int rc = step(tree, &dir, path, path + at, part, err);
        if (rc < 0)
            return rc;
        at += part + 1;
    }
    memcpy(tree->dir_path, path, len);
    tree->dir_len = len;
    tree->dir = dir;
    tree->has_dir = true;
    *ret = dir;
    return 0;
}

int convert_tree_parent(struct convert_tree *tree, const char *path, erofs_dir *ret,
                        struct err *err)
{
    int rc = enter(tree, path, convert_path_parent_len(path), ret, err);
    return rc < 0 ? err_wrap(err, rc, "cannot unpack %s", path_text(path).s) : 0;
}

int convert_tree_dir(struct convert_tree *tree, const char *path, erofs_dir *ret, struct err *err)
{
    return enter(tree, path, strlen(path), ret, err);
}

enum convert_tree_sight convert_tree_find(const struct convert_tree *tree, const char *path,
                                          struct erofs_entry *ret)
{
    struct erofs_entry entry = {.type = S_IFDIR, .dir = EROFS_ROOT};
    bool hides = false;
    for (const char *at = path; *at != '\0';) {
        size_t len = strcspn(at, "/");
        if (!S_ISDIR(entry.type))
            return CONVERT_TREE_HIDDEN;
        hides = hides || (erofs_writer_dir_note(tree->writer, entry.dir) & CONVERT_DIR_OPAQUE) != 0;
        if (erofs_writer_find(tree->writer, entry.dir, at, len, &entry) == 0)
            return hides ? CONVERT_TREE_HIDDEN : CONVERT_TREE_ABSENT;
        at += len + (at[len] == '/');
    }
    *ret = entry;
    return CONVERT_TREE_HERE;
}

void convert_tree_path(const struct convert_tree *tree, erofs_dir dir, const char *name,
                       char ret[CONVERT_PATH_MAX])
{
    char text[CONVERT_PATH_MAX];
    size_t at = sizeof text - 1;
    text[at] = '\0';
    for (;;) {
        size_t len = name ? strlen(name) : 0;
        if (!name && dir != EROFS_ROOT) {
            name = erofs_writer_dir_name(tree->writer, dir, &len);
            dir = erofs_writer_dir_parent(tree->writer, dir);
        }
        if (!name || len + 1 > at)
            break;
        if (text[at] != '\0')
            text[--at] = '/';
        at -= len;
        memcpy(text + at, name, len);
        name = NULL;
    }
    memcpy(ret, text + at, sizeof text - at);
}

/* Blocks and inodes take less than twice the bytes of archive and lower files that they hold. More
 * comes of sparse files alone: each of their pieces takes a block, and their maps are no data. */
static uint64_t written_max(const struct convert_tree *tree)
{
    return tree->bytes_max > (UINT64_MAX - OWN_BYTES) / 2 ? UINT64_MAX
                                                          : 2 * tree->bytes_max + OWN_BYTES;
}

int convert_tree_account(struct convert_tree *tree, uint64_t bytes, struct err *err)
{
    tree->bytes += bytes;
    if (tree->bytes > tree->bytes_max)
        return err_fail(err, ERR_TOO_LARGE, "the archive holds more than %llu bytes of data",
                        (unsigned long long)tree->bytes_max);
    if (erofs_writer_written(tree->writer) > written_max(tree))
        return err_fail(err, ERR_TOO_LARGE,
                        "the image takes more than twice the %llu bytes that the archive may hold, "
                        "as its sparse files are of too many pieces",
                        (unsigned long long)tree->bytes_max);
    uint64_t image = erofs_writer_bytes(tree->writer);
    if (image - tree->bytes_checked < SPACE_CHECK_BYTES)
        return 0;
    tree->bytes_checked = image;
    return convert_space_check(tree->fd, err);
}
