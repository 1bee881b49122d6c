#include "convert_link.h"

#include "convert_list.h"
#include "path_text.h"

#include <string.h>
#include <sys/stat.h>

void convert_links_free(struct convert_links *links)
{
    free(links->text);
    free(links->targets);
    free(links->names);
    *links = (struct convert_links){.text = NULL};
}

int convert_link_refuse(const char *path, const char *target, const char *why, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "cannot make %s a hard link to %s: %s", path_text(path).s,
                    path_text(target).s, why);
}

int convert_link_refuse_missing(const struct convert_tree *tree, const char *path,
                                const char *target, struct err *err)
{
    return convert_link_refuse(
        path, target,
        tree->is_layer ? "neither the archive up to here nor a lower layer has the target"
                       : "the archive up to here does not have the target",
        err);
}

/* Keeps a text; *ret is its place. */
static int keep_text(struct convert_links *links, const char *text, uint32_t *ret)
{
    size_t size = strlen(text) + 1;
    int rc = convert_list_room((void **)&links->text, &links->text_cap, links->text_len + size, 1);
    if (rc < 0)
        return rc;
    memcpy(links->text + links->text_len, text, size);
    *ret = (uint32_t)links->text_len;
    links->text_len += size;
    return 0;
}

static int check_memory(const struct convert_links *links, struct err *err)
{
    if (links->text_len + links->target_count * sizeof *links->targets +
            links->name_count * sizeof *links->names >
        CONVERT_LINK_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the layer has too many hard links into lower layers");
    return 0;
}

/* The placeholder for a target that this layer does not have. */
static int add_target(struct convert_links *links, struct convert_tree *tree, const char *path,
                      uint64_t *ret, struct err *err)
{
    static const struct erofs_attr attr = {.perm = 0};
    size_t last = links->target_count;
    if (last > 0 && strcmp(links->text + links->targets[last - 1].path, path) == 0) {
        *ret = links->targets[last - 1].placeholder;
        return 0;
    }
    struct convert_link_target target = {.first = (uint32_t)links->name_count};
    int rc = check_memory(links, err);
    if (rc == 0)
        rc = erofs_writer_node(tree->writer, S_IFSOCK, &attr, NULL, 0, &target.placeholder, err);
    if (rc < 0)
        return rc;
    if (keep_text(links, path, &target.path) < 0 ||
        convert_list_room((void **)&links->targets, &links->target_cap, links->target_count + 1,
                          sizeof *links->targets) < 0)
        return err_errno(err, ENOMEM, "cannot keep a hard link");
    links->targets[links->target_count++] = target;
    *ret = target.placeholder;
    return 0;
}

static int add_name(struct convert_links *links, erofs_dir dir, const char *name,
                    uint64_t placeholder, struct err *err)
{
    struct convert_link_name pending = {.dir = dir, .placeholder = placeholder};
    int rc = check_memory(links, err);
    if (rc < 0)
        return rc;
    if (keep_text(links, name, &pending.name) < 0 ||
        convert_list_room((void **)&links->names, &links->name_cap, links->name_count + 1,
                          sizeof *links->names) < 0)
        return err_errno(err, ENOMEM, "cannot keep a hard link");
    links->names[links->name_count++] = pending;
    return 0;
}

int convert_link_give(struct convert_tree *tree, erofs_dir dir, const char *name, mode_t type,
                      uint64_t nid, struct err *err)
{
    struct erofs_entry old;
    size_t len = strlen(name);
    if (erofs_writer_find(tree->writer, dir, name, len, &old) == 1 && !S_ISDIR(old.type) &&
        old.nid == nid)
        return 0;
    return erofs_writer_link(tree->writer, dir, name, len, type, nid, err);
}

/* Gives the member's name to its target. */
static int make_link(struct convert_links *links, struct convert_tree *tree,
                     const struct convert_member *member, bool is_here, struct erofs_entry target,
                     struct err *err)
{
    const char *name = convert_path_base(member->path);
    erofs_dir dir;
    int rc = convert_tree_parent(tree, member->path, &dir, err);
    if (rc == 0 && !is_here)
        rc = add_target(links, tree, member->target, &target.nid, err);
    if (rc == 0 && S_ISSOCK(target.type))
        rc = add_name(links, dir, name, target.nid, err);
    if (rc == 0)
        rc = convert_link_give(tree, dir, name, target.type, target.nid, err);
    return rc < 0 ? err_wrap(err, rc, "cannot make hard link %s", path_text(member->path).s) : 0;
}

int convert_link(struct convert_links *links, struct convert_tree *tree,
                 const struct convert_member *member, struct err *err)
{
    struct erofs_entry target = {.type = S_IFSOCK};
    if (strcmp(member->path, member->target) == 0)
        return convert_link_refuse(member->path, member->target, "that is its own name", err);
    if (convert_path_is_within(member->target, member->path))
        return convert_link_refuse(member->path, member->target, "the target lies below it", err);
    enum convert_tree_sight sight = convert_tree_find(tree, member->target, &target);
    bool has_lowers = tree->is_layer && !tree->is_lowest;
    if (sight == CONVERT_TREE_HIDDEN || (sight == CONVERT_TREE_ABSENT && !has_lowers))
        return convert_link_refuse_missing(tree, member->path, member->target, err);
    if (S_ISDIR(target.type))
        return convert_link_refuse(member->path, member->target, "the target is a directory", err);
    return make_link(links, tree, member, sight == CONVERT_TREE_HERE, target, err);
}
