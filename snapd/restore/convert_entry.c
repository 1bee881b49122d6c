#include "convert_entry.h"

#include "path_text.h"

#include <string.h>
#include <sys/stat.h>

/* The data of the file that was begun. Its pieces come in ascending order, or the archive is
 * damaged. */
static int write_data(struct convert_tree *tree, uint64_t size, convert_source source, void *arg,
                      struct err *err)
{
    uint64_t end = 0;
    for (;;) {
        const void *bytes;
        uint64_t offset;
        ssize_t n = source(arg, &bytes, &offset, err);
        if (n <= 0)
            return (int)n;
        if (offset > size || (uint64_t)n > size - offset)
            return err_fail(err, ERR_DAMAGED, "its data goes beyond its size");
        if (offset < end)
            return err_fail(err, ERR_DAMAGED, "two pieces of its data are at the same place");
        end = offset + (uint64_t)n;
        int rc = convert_tree_account(tree, (uint64_t)n, err);
        if (rc == 0)
            rc = erofs_writer_file_data(tree->writer, offset, bytes, (size_t)n, err);
        if (rc < 0)
            return rc;
    }
}

static int make_file(struct convert_tree *tree, const struct convert_member *member,
                     convert_source source, void *arg, uint64_t *ret_nid, struct err *err)
{
    const struct erofs_attr attr = convert_attr_erofs(&member->attr);
    int rc = erofs_writer_file_begin(tree->writer, &attr, member->size, err);
    if (rc == 0)
        rc = write_data(tree, member->size, source, arg, err);
    return rc < 0 ? rc : erofs_writer_file_end(tree->writer, ret_nid, err);
}

static int make_node(struct convert_tree *tree, const struct convert_member *member,
                     uint64_t *ret_nid, struct err *err)
{
    const struct erofs_attr attr = convert_attr_erofs(&member->attr);
    return erofs_writer_node(tree->writer, member->type, &attr, member->target, member->rdev,
                             ret_nid, err);
}

/* Replaces the attributes of a directory that a member lists. What makes it opaque is a note and
 * stays. */
static int list_dir(struct convert_tree *tree, erofs_dir dir, const struct convert_member *member,
                    struct err *err)
{
    const struct erofs_attr attr = convert_attr_erofs(&member->attr);
    uint32_t note = erofs_writer_dir_note(tree->writer, dir);
    erofs_writer_dir_set_note(tree->writer, dir, note & ~(uint32_t)CONVERT_DIR_IMPLIED);
    return erofs_writer_dir_set(tree->writer, dir, &attr, err);
}

static int make_dir(struct convert_tree *tree, erofs_dir parent,
                    const struct convert_member *member, struct err *err)
{
    const char *name = convert_path_base(member->path);
    size_t len = strlen(name);
    struct erofs_entry old;
    bool was_there = erofs_writer_find(tree->writer, parent, name, len, &old) == 1;
    if (was_there && S_ISDIR(old.type))
        return list_dir(tree, old.dir, member, err);
    const struct erofs_attr attr = convert_attr_erofs(&member->attr);
    erofs_dir dir;
    int rc = erofs_writer_mkdir(tree->writer, parent, name, len, &attr, &dir, err);
    if (rc == 0 && was_there && tree->is_layer)
        erofs_writer_dir_set_note(tree->writer, dir, CONVERT_DIR_OPAQUE);
    return rc;
}

static int make_entry(struct convert_tree *tree, const struct convert_member *member,
                      convert_source source, void *arg, struct err *err)
{
    erofs_dir parent;
    uint64_t nid;
    int rc = convert_tree_parent(tree, member->path, &parent, err);
    if (rc < 0)
        return rc;
    if (member->type == S_IFDIR)
        rc = make_dir(tree, parent, member, err);
    else if (member->type == S_IFREG)
        rc = make_file(tree, member, source, arg, &nid, err);
    else
        rc = make_node(tree, member, &nid, err);
    if (rc == 0 && member->type != S_IFDIR) {
        const char *name = convert_path_base(member->path);
        rc = erofs_writer_link(tree->writer, parent, name, strlen(name), member->type, nid, err);
    }
    if (rc == 0)
        rc = convert_tree_account(tree, 0, err);
    return rc < 0 ? err_wrap(err, rc, "cannot unpack %s", path_text(member->path).s) : 0;
}

int convert_entry(struct convert_tree *tree, const struct convert_member *member,
                  convert_source source, void *arg, struct err *err)
{
    if (member->path[0] != '\0')
        return make_entry(tree, member, source, arg, err);
    if (member->type != S_IFDIR)
        return err_fail(err, ERR_DAMAGED,
                        "the archive has an entry for its root that is not a directory");
    int rc = list_dir(tree, EROFS_ROOT, member, err);
    return rc < 0 ? err_wrap(err, rc, "cannot unpack the root directory") : 0;
}
