#include "unpack_marker.h"

#include "path_text.h"

#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

static const char prefix[] = ".wh.";
static const char meta_prefix[] = ".wh..wh.";
static const char opaque_name[] = ".wh..wh..opq";

enum {
    PREFIX_LEN = sizeof prefix - 1,
    META_PREFIX_LEN = sizeof meta_prefix - 1,
};

void unpack_markers_free(struct unpack_markers *markers)
{
    for (size_t i = 0; i < markers->count; i++)
        free(markers->list[i].path);
    free(markers->list);
    *markers = (struct unpack_markers){.list = NULL};
}

static bool has_prefix(const char *name)
{
    return strncmp(name, prefix, PREFIX_LEN) == 0;
}

int unpack_marker_parse(const char *path, enum unpack_marker_kind *ret, struct err *err)
{
    const char *base = unpack_path_base(path);
    for (const char *at = path; at < base; at += strcspn(at, "/") + 1) {
        if (strncmp(at, meta_prefix, META_PREFIX_LEN) == 0) {
            *ret = UNPACK_MARKER_IGNORED;
            return 0;
        }
        if (has_prefix(at))
            return err_fail(err, ERR_DAMAGED, "member %s is refused: it lies below a whiteout",
                            path_text(path).s);
    }
    if (!has_prefix(base)) {
        *ret = UNPACK_MARKER_NONE;
    } else if (strcmp(base, opaque_name) == 0) {
        *ret = UNPACK_MARKER_OPAQUE;
    } else if (strncmp(base, meta_prefix, META_PREFIX_LEN) == 0) {
        *ret = UNPACK_MARKER_IGNORED;
    } else {
        const char *name = base + PREFIX_LEN;
        if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return err_fail(err, ERR_DAMAGED, "whiteout %s is refused: it names nothing",
                            path_text(path).s);
        *ret = UNPACK_MARKER_WHITEOUT;
    }
    return 0;
}

static int grow(struct unpack_markers *markers)
{
    if (markers->count < markers->cap)
        return 0;
    size_t cap = markers->cap == 0 ? 64 : 2 * markers->cap;
    struct unpack_marker *list = realloc(markers->list, cap * sizeof *list);
    if (!list)
        return -ENOMEM;
    markers->list = list;
    markers->cap = cap;
    return 0;
}

int unpack_marker_add(struct unpack_markers *markers, enum unpack_marker_kind kind,
                      const char *path, struct err *err)
{
    size_t parent = unpack_path_parent_len(path);
    const char *name = kind == UNPACK_MARKER_OPAQUE ? "" : unpack_path_base(path) + PREFIX_LEN;
    size_t size = parent + 1 + strlen(name) + 1;
    markers->bytes += size + 2 * sizeof *markers->list;
    if (markers->bytes > UNPACK_MARKER_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the layer has too many whiteouts (%zu)",
                        markers->count);
    char *text = malloc(size);
    if (!text || grow(markers) < 0) {
        free(text);
        return err_errno(err, ENOMEM, "cannot keep whiteout %s", path_text(path).s);
    }
    const char *slash = parent > 0 && name[0] != '\0' ? "/" : "";
    snprintf(text, size, "%.*s%s%s", (int)parent, path, slash, name);
    markers->list[markers->count++] =
        (struct unpack_marker){.path = text, .is_opaque = kind == UNPACK_MARKER_OPAQUE};
    return 0;
}

/* Parents before what lies in them: a path sorts before every path that it is the beginning of.
 * Whiteouts of a directory before its opaque marker, which then has nothing left to do. */
static int compare(const void *va, const void *vb)
{
    const struct unpack_marker *a = va;
    const struct unpack_marker *b = vb;
    int order = strcmp(a->path, b->path);
    return order != 0 ? order : (int)a->is_opaque - (int)b->is_opaque;
}

/* Looks a path up as the stack would now be seen, this layer on top. */
static int look(const struct unpack_tree *tree, const char *path, size_t *ret_layer,
                bool *ret_is_dir, struct err *err)
{
    cleanup_unpack_found struct unpack_found found = UNPACK_FOUND_INIT;
    int rc = unpack_lower_find(tree->roots, tree->root_count, path, &found, err);
    if (rc <= 0)
        return rc;
    *ret_layer = found.layer;
    *ret_is_dir = S_ISDIR(found.st.st_mode);
    return 1;
}

static int hide_dir(struct unpack_tree *tree, const char *path, struct err *err)
{
    int rc = unpack_tree_enter(tree, path, err);
    return rc < 0 ? rc : unpack_tree_set_opaque(tree->dir_fd, path, err);
}

static int apply_whiteout(struct unpack_tree *tree, const char *path, struct err *err)
{
    size_t layer;
    bool is_dir;
    int rc = look(tree, path, &layer, &is_dir, err);
    if (rc <= 0)
        return rc;
    if (layer == 0)
        return is_dir ? hide_dir(tree, path, err) : 0;
    rc = unpack_tree_enter_parent(tree, path, err);
    if (rc < 0)
        return rc;
    if (mknodat(tree->dir_fd, unpack_path_base(path), S_IFCHR, makedev(0, 0)) < 0)
        return err_errno(err, errno, "cannot make the whiteout of %s", path_text(path).s);
    return 0;
}

/* Hides every name that the root of one lower layer has. */
static int hide_root_of(struct unpack_tree *tree, int root, struct err *err)
{
    cleanup_fd int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return err_errno(err, errno, "cannot list a lower layer");
    (void)steal_fd(&fd);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list a lower layer") : 0;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int rc = apply_whiteout(tree, entry->d_name, err);
        if (rc < 0)
            return rc;
    }
}

static int apply_opaque(struct unpack_tree *tree, const char *path, struct err *err)
{
    int rc = 0;
    if (path[0] == '\0') {
        for (size_t i = 1; i < tree->root_count && rc == 0; i++)
            rc = hide_root_of(tree, tree->roots[i], err);
        return rc;
    }
    size_t layer;
    bool is_dir;
    rc = look(tree, path, &layer, &is_dir, err);
    if (rc <= 0 || !is_dir)
        return rc < 0 ? rc : 0;
    return hide_dir(tree, path, err);
}

int unpack_marker_apply(struct unpack_markers *markers, struct unpack_tree *tree, struct err *err)
{
    if (markers->count == 0 || tree->root_count < 2)
        return 0;
    qsort(markers->list, markers->count, sizeof *markers->list, compare);
    for (size_t i = 0; i < markers->count; i++) {
        const struct unpack_marker *marker = &markers->list[i];
        int rc = marker->is_opaque ? apply_opaque(tree, marker->path, err)
                                   : apply_whiteout(tree, marker->path, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
