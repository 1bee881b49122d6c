/* Pending links: their targets are found in the layers below and copied into this one. */
#include "convert_copy.h"
#include "convert_link.h"
#include "path_text.h"

#include <string.h>
#include <sys/stat.h>

static int by_placeholder(const struct convert_link_target *a, const struct convert_link_target *b)
{
    return (a->placeholder > b->placeholder) - (a->placeholder < b->placeholder);
}

/* For walks that share their directories. */
static int by_path(const void *va, const void *vb, void *arg)
{
    const struct convert_links *links = arg;
    const struct convert_link_target *a = &links->targets[*(const uint32_t *)va];
    const struct convert_link_target *b = &links->targets[*(const uint32_t *)vb];
    int order = convert_path_compare(links->text + a->path, links->text + b->path);
    return order != 0 ? order : by_placeholder(a, b);
}

static bool is_same_inode(const struct convert_link_target *a, const struct convert_link_target *b)
{
    return a->image == b->image && a->lower_nid == b->lower_nid;
}

/* What is the same inode comes together. Images lie in one array. */
static int by_inode(const void *va, const void *vb, void *arg)
{
    const struct convert_links *links = arg;
    const struct convert_link_target *a = &links->targets[*(const uint32_t *)va];
    const struct convert_link_target *b = &links->targets[*(const uint32_t *)vb];
    if (a->image != b->image)
        return a->image < b->image ? -1 : 1;
    if (a->lower_nid != b->lower_nid)
        return a->lower_nid < b->lower_nid ? -1 : 1;
    return by_placeholder(a, b);
}

static int refuse_found(const char *link, const char *target, mode_t mode, struct err *err)
{
    return convert_link_refuse(
        link, target,
        S_ISDIR(mode) ? "the target is a directory" : "a lower layer has a socket there", err);
}

static int find_target(struct convert_links *links, const struct convert_tree *tree,
                       struct convert_lower *lower, struct convert_link_target *target,
                       struct err *err)
{
    struct convert_lower_found found;
    const char *path = links->text + target->path;
    int rc = convert_lower_find(lower, path, &found, err);
    if (rc < 0)
        return rc;
    if (rc == 1 && !S_ISDIR(found.inode.mode) && !S_ISSOCK(found.inode.mode)) {
        target->image = found.image;
        target->lower_nid = found.inode.nid;
        target->type = found.inode.mode & S_IFMT;
        return 0;
    }
    char link[CONVERT_PATH_MAX];
    const struct convert_link_name *first = &links->names[target->first];
    convert_tree_path(tree, first->dir, links->text + first->name, link);
    return rc == 0 ? convert_link_refuse_missing(tree, link, path, err)
                   : refuse_found(link, path, found.inode.mode, err);
}

static int find_targets(struct convert_links *links, const struct convert_tree *tree,
                        struct convert_lower *lower, struct err *err)
{
    size_t count = links->target_count;
    cleanup_free uint32_t *order = calloc(count, sizeof *order);
    if (!order)
        return err_errno(err, ENOMEM, "cannot look hard links up in lower layers");
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, count, sizeof *order, by_path, links);
    for (size_t i = 0; i < count; i++) {
        int rc = find_target(links, tree, lower, &links->targets[order[i]], err);
        if (rc < 0)
            return rc;
    }
    qsort_r(order, count, sizeof *order, by_inode, links);
    for (size_t i = 0; i < count; i++) {
        struct convert_link_target *target = &links->targets[order[i]];
        bool goes_on = i > 0 && is_same_inode(target, &links->targets[order[i - 1]]);
        target->leader = goes_on ? links->targets[order[i - 1]].leader : order[i];
    }
    return 0;
}

static int compare_placeholder(const void *key, const void *item)
{
    uint64_t a = *(const uint64_t *)key;
    uint64_t b = ((const struct convert_link_target *)item)->placeholder;
    return (a > b) - (a < b);
}

static int copy_target(const struct convert_links *links, struct convert_tree *tree,
                       struct convert_link_target *target, struct err *err)
{
    struct erofs_inode inode;
    int rc = erofs_inode_read(target->image, target->lower_nid, &inode, err);
    if (rc == 0)
        rc = convert_copy(tree, target->image, &inode, &target->nid, err);
    return rc < 0 ? err_wrap(err, rc, "cannot copy %s from a lower layer",
                             path_text(links->text + target->path).s)
                  : 0;
}

/* One name that was pending, unless a later member has replaced it. */
static int resolve_name(struct convert_links *links, struct convert_tree *tree,
                        const struct convert_link_name *pending, struct err *err)
{
    const char *name = links->text + pending->name;
    struct erofs_entry now;
    if (!erofs_writer_dir_is_live(tree->writer, pending->dir) ||
        erofs_writer_find(tree->writer, pending->dir, name, strlen(name), &now) == 0 ||
        !S_ISSOCK(now.type) || now.nid != pending->placeholder)
        return 0;
    const struct convert_link_target *target =
        bsearch(&pending->placeholder, links->targets, links->target_count, sizeof *links->targets,
                compare_placeholder);
    if (!target)
        return err_fail(err, ERR_INTERNAL, "hard link %s is lost", path_text(name).s);
    struct convert_link_target *leader = &links->targets[target->leader];
    int rc = leader->nid == 0 ? copy_target(links, tree, leader, err) : 0;
    return rc < 0 ? rc
                  : convert_link_give(tree, pending->dir, name, leader->type, leader->nid, err);
}

int convert_link_resolve(struct convert_links *links, struct convert_tree *tree,
                         struct convert_lower *lower, struct err *err)
{
    if (links->target_count == 0)
        return 0;
    int rc = find_targets(links, tree, lower, err);
    for (size_t i = 0; i < links->name_count && rc == 0; i++)
        rc = resolve_name(links, tree, &links->names[i], err);
    return rc;
}
