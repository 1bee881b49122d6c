#include "convert_marker.h"

#include "convert_list.h"
#include "path_text.h"

#include <string.h>
#include <sys/stat.h>

static const char prefix[] = ".wh.";
static const char meta_prefix[] = ".wh..wh.";
static const char opaque_name[] = ".wh..wh..opq";

enum {
    PREFIX_LEN = sizeof prefix - 1,
    META_PREFIX_LEN = sizeof meta_prefix - 1,
};

void convert_markers_free(struct convert_markers *markers)
{
    free(markers->text);
    free(markers->list);
    *markers = (struct convert_markers){.text = NULL};
}

static bool has_prefix(const char *name)
{
    return strncmp(name, prefix, PREFIX_LEN) == 0;
}

int convert_marker_parse(const char *path, enum convert_marker_kind *ret, struct err *err)
{
    const char *base = convert_path_base(path);
    for (const char *at = path; at < base; at += strcspn(at, "/") + 1) {
        if (strncmp(at, meta_prefix, META_PREFIX_LEN) == 0) {
            *ret = CONVERT_MARKER_IGNORED;
            return 0;
        }
        if (has_prefix(at))
            return err_fail(err, ERR_DAMAGED, "member %s is refused: it lies below a whiteout",
                            path_text(path).s);
    }
    if (!has_prefix(base)) {
        *ret = CONVERT_MARKER_NONE;
    } else if (strcmp(base, opaque_name) == 0) {
        *ret = CONVERT_MARKER_OPAQUE;
    } else if (strncmp(base, meta_prefix, META_PREFIX_LEN) == 0) {
        *ret = CONVERT_MARKER_IGNORED;
    } else {
        const char *name = base + PREFIX_LEN;
        if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return err_fail(err, ERR_DAMAGED, "whiteout %s is refused: it names nothing",
                            path_text(path).s);
        *ret = CONVERT_MARKER_WHITEOUT;
    }
    return 0;
}

int convert_marker_add(struct convert_markers *markers, enum convert_marker_kind kind,
                       const char *path, struct err *err)
{
    size_t parent = convert_path_parent_len(path);
    const char *name = kind == CONVERT_MARKER_OPAQUE ? "" : convert_path_base(path) + PREFIX_LEN;
    size_t size = 1 + parent + 1 + strlen(name) + 1;
    if (markers->text_len + size + markers->count * sizeof *markers->list >
        CONVERT_MARKER_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the layer has too many whiteouts (%zu)",
                        markers->count);
    if (convert_list_room((void **)&markers->text, &markers->text_cap, markers->text_len + size,
                          1) < 0 ||
        convert_list_room((void **)&markers->list, &markers->cap, markers->count + 1,
                          sizeof *markers->list) < 0)
        return err_errno(err, ENOMEM, "cannot keep whiteout %s", path_text(path).s);
    markers->list[markers->count++] = (uint32_t)markers->text_len;
    const char *slash = parent > 0 && name[0] != '\0' ? "/" : "";
    int n = snprintf(markers->text + markers->text_len, size, "%c%.*s%s%s",
                     kind == CONVERT_MARKER_OPAQUE ? 'o' : 'w', (int)parent, path, slash, name);
    markers->text_len += (size_t)n + 1;
    return 0;
}

static const char *marker_path(const struct convert_markers *markers, size_t index)
{
    return markers->text + markers->list[index] + 1;
}

static bool marker_is_opaque(const struct convert_markers *markers, size_t index)
{
    return markers->text[markers->list[index]] == 'o';
}

/* Parents before what lies in them. Whiteouts of a directory before its opaque marker, which then
 * has nothing left to do. */
static int compare(const void *va, const void *vb, void *arg)
{
    const char *a = (const char *)arg + *(const uint32_t *)va;
    const char *b = (const char *)arg + *(const uint32_t *)vb;
    int order = convert_path_compare(a + 1, b + 1);
    return order != 0 ? order : (*a == 'o') - (*b == 'o');
}

static void set_opaque(struct convert_tree *tree, erofs_dir dir)
{
    erofs_writer_dir_set_note(tree->writer, dir,
                              erofs_writer_dir_note(tree->writer, dir) | CONVERT_DIR_OPAQUE);
}

/* Applies a marker if the layer itself decides. */
static bool decide(struct convert_tree *tree, const char *path)
{
    struct erofs_entry entry;
    if (path[0] == '\0')
        return false;
    switch (convert_tree_find(tree, path, &entry)) {
    case CONVERT_TREE_HERE:
        if (S_ISDIR(entry.type))
            set_opaque(tree, entry.dir);
        return true;
    case CONVERT_TREE_HIDDEN:
        return true;
    case CONVERT_TREE_ABSENT:
        return false;
    }
    return false;
}

void convert_marker_settle(struct convert_markers *markers, struct convert_tree *tree)
{
    if (markers->count == 0)
        return;
    qsort_r(markers->list, markers->count, sizeof *markers->list, compare, markers->text);
    size_t kept = 0;
    for (size_t i = 0; i < markers->count; i++)
        if (!decide(tree, marker_path(markers, i)))
            markers->list[kept++] = markers->list[i];
    markers->count = kept;
}

struct application {
    struct convert_markers *markers;
    struct convert_tree *tree;
    struct convert_lower *lower;
};

static int make_whiteout(const struct application *app, const char *path, struct err *err)
{
    static const struct erofs_attr attr = {.perm = 0};
    struct erofs_writer *writer = app->tree->writer;
    uint64_t *nid = &app->markers->whiteout;
    const char *name = convert_path_base(path);
    erofs_dir dir;
    int rc = convert_tree_parent(app->tree, path, &dir, err);
    if (rc == 0 && *nid == 0)
        rc = erofs_writer_node(writer, S_IFCHR, &attr, NULL, 0, nid, err);
    if (rc == 0)
        rc = erofs_writer_link(writer, dir, name, strlen(name), S_IFCHR, *nid, err);
    return rc < 0 ? err_wrap(err, rc, "cannot make the whiteout of %s", path_text(path).s) : 0;
}

static int apply_one(const struct application *app, const char *path, bool is_opaque,
                     struct err *err)
{
    struct convert_lower_found found;
    if (decide(app->tree, path))
        return 0;
    int rc = convert_lower_find(app->lower, path, &found, err);
    if (rc <= 0 || (is_opaque && !S_ISDIR(found.inode.mode)))
        return rc < 0 ? rc : 0;
    if (!is_opaque)
        return make_whiteout(app, path, err);
    erofs_dir dir;
    rc = convert_tree_dir(app->tree, path, &dir, err);
    if (rc == 0)
        set_opaque(app->tree, dir);
    return rc;
}

/* Hides one name of a lower layer's root. */
static int hide_root_name(void *arg, const char *name, struct err *err)
{
    return apply_one(arg, name, false, err);
}

int convert_marker_apply(struct convert_markers *markers, struct convert_tree *tree,
                         struct convert_lower *lower, struct err *err)
{
    struct application app = {.markers = markers, .tree = tree, .lower = lower};
    for (size_t i = 0; i < markers->count; i++) {
        const char *path = marker_path(markers, i);
        int rc = path[0] == '\0' ? convert_lower_each_root_name(lower, hide_root_name, &app, err)
                                 : apply_one(&app, path, marker_is_opaque(markers, i), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
