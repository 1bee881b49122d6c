#include "whiteout.h"

#include "path_text.h"

#include <string.h>

enum {
    NAMES_MAX = 64 * 1024, /* bytes; the kernel lists no more for one inode */
};

static const char overlay_prefix[] = "trusted.overlay.";
static const char escaped_prefix[] = "trusted.overlay.overlay.";

/* Attributes that say: the upper directory does not hold what the merged view shows here. */
static const struct {
    const char *name;
    const char *what;
    const char *hint;
} refused[] = {
    {"redirect", "was renamed on an overlay with redirect_dir=on and its content is not here",
     "mount the overlay with redirect_dir=off"},
    {"metacopy", "is a copy of metadata alone, made by an overlay with metacopy=on",
     "mount the overlay with metacopy=off"},
    {"whiteout", "is a deletion marked by an extended attribute",
     "replace it by a 0:0 character device"},
};

int whiteout_init(struct whiteout *whiteout, struct err *err)
{
    *whiteout = (struct whiteout){.names = malloc(NAMES_MAX)};
    return whiteout->names ? 0 : err_errno(err, ENOMEM, "cannot hold names of attributes");
}

void whiteout_free(struct whiteout *whiteout)
{
    free(whiteout->xattrs);
    free(whiteout->names);
    *whiteout = (struct whiteout){0};
}

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

int whiteout_check_name(const struct walk_entry *entry, struct err *err)
{
    if (!begins_with(entry->name, WHITEOUT_PREFIX))
        return 0;
    int rc = err_fail(err, ERR_UNSUPPORTED,
                      "%s cannot be stored: in a layer, names that begin with \"" WHITEOUT_PREFIX
                      "\" are deletions",
                      path_text(entry->path).s);
    err_hint(err, "rename or remove it");
    return rc;
}

/* An attribute of overlayfs itself, `name` without its prefix. */
static int take_mark(const struct walk_entry *entry, const struct walk_xattr *xattr,
                     const char *name, struct whiteout_view *view, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        if (strcmp(name, refused[i].name) != 0)
            continue;
        int rc = err_fail(err, ERR_UNSUPPORTED, "%s %s (%s)", path_text(entry->path).s,
                          refused[i].what, xattr->name);
        err_hint(err, "%s", refused[i].hint);
        return rc;
    }
    /* Exactly as the kernel reads it: "x" and anything else do not hide. */
    if (strcmp(name, "opaque") == 0 && S_ISDIR(entry->stat.stx_mode))
        view->opaque = xattr->len == 1 && *(const char *)xattr->value == 'y';
    return 0;
}

static int reserve(struct whiteout *whiteout, size_t count, struct err *err)
{
    if (count <= whiteout->cap)
        return 0;
    struct walk_xattr *xattrs = reallocarray(whiteout->xattrs, count, sizeof *xattrs);
    if (!xattrs)
        return err_errno(err, ENOMEM, "cannot hold extended attributes");
    whiteout->xattrs = xattrs;
    whiteout->cap = count;
    return 0;
}

/* The name that a process inside the overlay gave to an attribute. It is shorter than what the
 * kernel listed, so all names of an inode fit. */
static const char *unescape(struct whiteout *whiteout, const char *name)
{
    char *ret = whiteout->names + whiteout->names_len;
    size_t room = NAMES_MAX - whiteout->names_len;
    int len = snprintf(ret, room, "%s%s", overlay_prefix, name + strlen(escaped_prefix));
    whiteout->names_len += (size_t)len + 1;
    return ret;
}

/* Takes over what belongs to the layer. Escaped names all get one prefix for another, so the order
 * stays right. */
static int filter(struct whiteout *whiteout, const struct walk_entry *entry,
                  struct whiteout_view *view, struct err *err)
{
    int rc = reserve(whiteout, entry->xattr_count, err);
    whiteout->names_len = 0;
    for (size_t i = 0; i < entry->xattr_count && rc == 0; i++) {
        const struct walk_xattr *xattr = &entry->xattrs[i];
        bool escaped = begins_with(xattr->name, escaped_prefix);
        if (!escaped && begins_with(xattr->name, overlay_prefix)) {
            rc = take_mark(entry, xattr, xattr->name + strlen(overlay_prefix), view, err);
            continue;
        }
        struct walk_xattr *taken = &whiteout->xattrs[view->xattr_count++];
        *taken = *xattr;
        if (escaped)
            taken->name = unescape(whiteout, xattr->name);
    }
    view->xattrs = whiteout->xattrs;
    return rc;
}

int whiteout_translate(struct whiteout *whiteout, const struct walk_entry *entry,
                       struct whiteout_view *ret, struct err *err)
{
    struct whiteout_view view = {0};
    int rc = whiteout_check_name(entry, err);
    if (rc == 0)
        rc = filter(whiteout, entry, &view, err);
    if (rc < 0)
        return rc;
    view.deleted = S_ISCHR(entry->stat.stx_mode) && entry->stat.stx_rdev_major == 0 &&
                   entry->stat.stx_rdev_minor == 0;
    *ret = view;
    return 0;
}

int whiteout_deletion_path(const struct walk_entry *entry, struct buf *ret, struct err *err)
{
    size_t parent = (size_t)(entry->name - entry->path);
    ret->len = 0;
    int rc = buf_add(ret, entry->path, parent, "the path", err);
    if (rc == 0)
        rc = buf_addf(ret, err, WHITEOUT_PREFIX "%s", entry->name);
    return rc;
}

int whiteout_opaque_path(const struct walk_entry *entry, struct buf *ret, struct err *err)
{
    ret->len = 0;
    if (entry->path[0] == '\0')
        return buf_addf(ret, err, WHITEOUT_OPAQUE);
    return buf_addf(ret, err, "%s/" WHITEOUT_OPAQUE, entry->path);
}
