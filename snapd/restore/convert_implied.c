#include "convert_implied.h"

#include "convert_copy.h"
#include "path_text.h"

#include <string.h>
#include <sys/stat.h>

/* The implied directories and what leads to them, as a tree that can be walked: looked up in the
 * order of a walk, they share the directories of the layers below. Handles of parents are smaller
 * than those of their children. */
struct walk {
    struct convert_tree *tree;
    struct convert_lower *lower;
    uint32_t *child;   /* of each directory, its first child in the walk, 0: none; owned */
    uint32_t *sibling; /* the next one with its parent, 0: none; owned */
    char path[CONVERT_PATH_MAX];
    size_t len;
};

static void walk_free(struct walk *walk)
{
    free(walk->child);
    free(walk->sibling);
}
#define cleanup_walk cleanup_with(walk_free)

static bool is_implied(const struct convert_tree *tree, erofs_dir dir)
{
    return (erofs_writer_dir_note(tree->writer, dir) & CONVERT_DIR_IMPLIED) != 0 &&
           erofs_writer_dir_is_live(tree->writer, dir);
}

uint32_t convert_implied_count(const struct convert_tree *tree)
{
    uint32_t found = 0;
    uint32_t count = erofs_writer_dir_count(tree->writer);
    for (erofs_dir dir = EROFS_ROOT + 1; dir < count; dir++)
        found += is_implied(tree, dir);
    return found;
}

/* From the last to the first, so that a parent's turn comes when it is known whether it is in. */
static int walk_init(struct walk *walk, struct err *err)
{
    uint32_t count = erofs_writer_dir_count(walk->tree->writer);
    walk->child = calloc(count, sizeof *walk->child);
    walk->sibling = calloc(count, sizeof *walk->sibling);
    if (!walk->child || !walk->sibling)
        return err_errno(err, ENOMEM, "cannot look directories up in lower layers");
    for (erofs_dir dir = count - 1; dir > EROFS_ROOT; dir--) {
        if (walk->child[dir] == 0 && !is_implied(walk->tree, dir))
            continue;
        erofs_dir parent = erofs_writer_dir_parent(walk->tree->writer, dir);
        walk->sibling[dir] = walk->child[parent];
        walk->child[parent] = dir;
    }
    return 0;
}

static int dress(struct walk *walk, erofs_dir dir, struct err *err)
{
    struct convert_lower_found found;
    cleanup_convert_attr struct convert_attr attr = {.xattrs = NULL};
    int rc = convert_lower_find(walk->lower, walk->path, &found, err);
    if (rc <= 0 || !S_ISDIR(found.inode.mode))
        return rc < 0 ? rc : 0;
    rc = convert_copy_attr(found.image, &found.inode, &attr, err);
    if (rc < 0)
        return rc;
    const struct erofs_attr out = convert_attr_erofs(&attr);
    return erofs_writer_dir_set(walk->tree->writer, dir, &out, err);
}

static int enter(struct walk *walk, erofs_dir dir, struct err *err)
{
    size_t len;
    const char *name = erofs_writer_dir_name(walk->tree->writer, dir, &len);
    size_t slash = walk->len > 0;
    if (walk->len + slash + len + 1 > sizeof walk->path)
        return err_fail(err, ERR_INTERNAL, "a directory lies too deep");
    if (slash)
        walk->path[walk->len++] = '/';
    memcpy(walk->path + walk->len, name, len);
    walk->len += len;
    walk->path[walk->len] = '\0';
    int rc = is_implied(walk->tree, dir) ? dress(walk, dir, err) : 0;
    return rc < 0 ? err_wrap(err, rc, "cannot make directory %s", path_text(walk->path).s) : 0;
}

static void leave(struct walk *walk)
{
    walk->path[walk->len] = '\0';
    walk->len = convert_path_parent_len(walk->path);
    walk->path[walk->len] = '\0';
}

int convert_implied_apply(struct convert_tree *tree, struct convert_lower *lower, struct err *err)
{
    cleanup_walk struct walk walk = {.tree = tree, .lower = lower};
    int rc = walk_init(&walk, err);
    if (rc < 0)
        return rc;
    erofs_dir dir = walk.child[EROFS_ROOT];
    while (dir != EROFS_ROOT) {
        rc = enter(&walk, dir, err);
        if (rc < 0)
            return rc;
        if (walk.child[dir] != 0) {
            dir = walk.child[dir];
            continue;
        }
        leave(&walk);
        while (dir != EROFS_ROOT && walk.sibling[dir] == 0) {
            dir = erofs_writer_dir_parent(tree->writer, dir);
            leave(&walk);
        }
        if (dir != EROFS_ROOT)
            dir = walk.sibling[dir];
    }
    return 0;
}
