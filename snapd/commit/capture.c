#include "capture.h"

#include "capture_body.h"
#include "capture_skipped.h"
#include "convert_path.h"
#include "layer_writer.h"
#include "path_text.h"
#include "walk.h"
#include "whiteout.h"

#include <inttypes.h>
#include <string.h>

enum {
    ENTRIES_PER_TICK = 64, /* how often progress is told */
};

/* Attributes that the security modules and the filesystem of this host give, not the tree: no other
 * machine could set them, and converting leaves them out as well, and
 * our own mark of an imported image. A name ending in '*' stands for all that begin so. */
static const char *const host_attributes[] = {
    "security.selinux",  "security.apparmor", "security.ima",          "security.evm",
    "security.SMACK64*", "system.nfs4_acl",   "trusted.varve.implied",
};

struct capture {
    enum capture_kind kind;
    struct walk *walk;
    struct layer_writer *writer;
    struct whiteout whiteout;
    struct capture_body body;
    struct capture_skipped skipped;
    struct buf mark;           /* path of a whiteout */
    struct walk_xattr *xattrs; /* owned; what is left without those of the host */
    size_t xattr_cap;
    uint64_t entries; /* that the source has, in the layer's terms */
    uint64_t bytes;   /* of content that the source has */
    struct capture_hooks hooks;
};

static int tick(void *arg, struct err *err)
{
    const struct capture *capture = arg;
    const struct capture_hooks *hooks = &capture->hooks;
    return hooks->progress ? hooks->progress(hooks->arg, capture->entries, err) : 0;
}

static void capture_free(struct capture *capture)
{
    walk_close(capture->walk);
    layer_writer_free(capture->writer);
    whiteout_free(&capture->whiteout);
    capture_body_free(&capture->body);
    capture_skipped_free(&capture->skipped);
    buf_free(&capture->mark);
    free(capture->xattrs);
}

static int capture_init(struct capture *capture, int root_fd, struct blobs *blobs, struct err *err)
{
    capture->mark = (struct buf)BUF_INIT(WALK_PATH_MAX + 16);
    int rc = whiteout_init(&capture->whiteout, err);
    if (rc == 0)
        rc = capture_body_init(&capture->body, err);
    capture->body.tick = tick;
    capture->body.arg = capture;
    if (rc == 0)
        rc = capture_skipped_init(&capture->skipped, err);
    if (rc == 0)
        rc = walk_open(root_fd, capture->kind == CAPTURE_UPPER, &capture->walk, err);
    if (rc == 0)
        rc = layer_writer_begin(blobs, &capture->writer, err);
    if (rc == 0)
        layer_writer_set_claim(capture->writer, capture->hooks.claim, capture->hooks.arg);
    return rc;
}

/* gVisor keeps what its sandbox writes in a file of its own unless it is told otherwise; then the
 * directory shows nothing of it. */
static int check_visible(const struct walk_entry *entry, struct err *err)
{
    static const char prefix[] = ".gvisor.filestore.";
    if (entry->name != entry->path || strncmp(entry->name, prefix, strlen(prefix)) != 0)
        return 0;
    int rc = err_fail(err, ERR_UNSUPPORTED,
                      "the sandbox's writes are not visible here: gVisor keeps them in %s",
                      path_text(entry->path).s);
    err_hint(err, "start runsc with --overlay2=none");
    return rc;
}

static bool is_host_attribute(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(host_attributes); i++) {
        const char *pattern = host_attributes[i];
        size_t len = strcspn(pattern, "*");
        if (strncmp(name, pattern, len) == 0 && (pattern[len] == '*' || name[len] == '\0'))
            return true;
    }
    return false;
}

/* Points `tar` at the attributes without those of the host. */
static int set_xattrs(struct capture *capture, const struct walk_xattr *xattrs, size_t count,
                      struct tar_entry *tar, struct err *err)
{
    if (count > capture->xattr_cap) {
        struct walk_xattr *grown = reallocarray(capture->xattrs, count, sizeof *grown);
        if (!grown)
            return err_errno(err, ENOMEM, "cannot hold extended attributes");
        capture->xattrs = grown;
        capture->xattr_cap = count;
    }
    for (size_t i = 0; i < count; i++)
        if (!is_host_attribute(xattrs[i].name))
            capture->xattrs[tar->xattr_count++] = xattrs[i];
    tar->xattrs = capture->xattrs;
    return 0;
}

/* A layer that could not be restored is not made: these are the limits of converting. */
static int check_path(const struct walk_entry *entry, struct err *err)
{
    size_t depth = 1;
    for (const char *s = entry->path; *s; s++)
        depth += *s == '/';
    if (entry->name - entry->path + strlen(entry->name) < CONVERT_PATH_MAX &&
        depth <= CONVERT_DEPTH_MAX)
        return 0;
    int rc = err_fail(err, ERR_TOO_LARGE,
                      "the path %s cannot be restored: it has more than %d bytes or %d components",
                      path_text(entry->path).s, CONVERT_PATH_MAX - 1, CONVERT_DEPTH_MAX);
    err_hint(err, "remove or shorten it");
    return rc;
}

static int tar_type_of(const struct walk_entry *entry, enum tar_type *ret, struct err *err)
{
    static const struct {
        mode_t format;
        enum tar_type type;
    } types[] = {{S_IFREG, TAR_FILE}, {S_IFDIR, TAR_DIR},          {S_IFLNK, TAR_SYMLINK},
                 {S_IFCHR, TAR_CHAR}, {S_IFBLK, TAR_BLOCK_DEVICE}, {S_IFIFO, TAR_FIFO}};
    if (entry->hard_link) {
        *ret = TAR_HARD_LINK;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if ((entry->stat.stx_mode & S_IFMT) == types[i].format) {
            *ret = types[i].type;
            return 0;
        }
    }
    return err_fail(err, ERR_UNSUPPORTED, "%s has a file type that is not known (%o)",
                    path_text(entry->path).s, entry->stat.stx_mode & S_IFMT);
}

/* The layer's header for an entry of the tree. */
static int describe(struct capture *capture, const struct walk_entry *entry,
                    const struct walk_xattr *xattrs, size_t xattr_count, struct tar_entry *ret,
                    struct err *err)
{
    const struct statx *stat = &entry->stat;
    *ret = (struct tar_entry){
        .path = entry->path,
        .mode = stat->stx_mode & 07777,
        .uid = stat->stx_uid,
        .gid = stat->stx_gid,
        .mtime = stat->stx_mtime.tv_sec,
        .mtime_ns = stat->stx_mtime.tv_nsec,
        .major = stat->stx_rdev_major,
        .minor = stat->stx_rdev_minor,
        .link = entry->hard_link ? entry->hard_link : entry->link_target,
    };
    int rc = tar_type_of(entry, &ret->type, err);
    if (rc == 0 && ret->type == TAR_FILE)
        ret->size = stat->stx_size;
    if (ret->type != TAR_CHAR && ret->type != TAR_BLOCK_DEVICE)
        ret->major = ret->minor = 0;
    return rc == 0 ? set_xattrs(capture, xattrs, xattr_count, ret, err) : rc;
}

static int add_file(struct capture *capture, const struct walk_entry *entry,
                    const struct tar_entry *tar, struct err *err)
{
    int rc = capture_body_check(&capture->body, entry, err);
    if (rc == 0)
        rc = layer_writer_add(capture->writer, tar, err);
    if (rc == 0)
        rc = capture_body_copy(&capture->body, entry, capture->writer, err);
    if (rc == 0)
        rc = walk_check(capture->walk, err);
    capture->bytes += tar->size;
    return rc;
}

/* An empty file that says something about lower layers; it has no attributes of its own. */
static int add_mark(struct capture *capture, struct err *err)
{
    struct tar_entry tar = {.path = buf_str(&capture->mark), .type = TAR_FILE, .mode = 0600};
    capture->entries++;
    return layer_writer_add(capture->writer, &tar, err);
}

static int add_data(struct capture *capture, const struct walk_entry *entry,
                    const struct walk_xattr *xattrs, size_t xattr_count, struct err *err)
{
    struct tar_entry tar;
    int rc = describe(capture, entry, xattrs, xattr_count, &tar, err);
    if (rc < 0)
        return rc;
    capture->entries++;
    if (tar.type == TAR_FILE)
        return add_file(capture, entry, &tar, err);
    return layer_writer_add(capture->writer, &tar, err);
}

static int add_of_upper(struct capture *capture, const struct walk_entry *entry, struct err *err)
{
    struct whiteout_view view;
    int rc = whiteout_translate(&capture->whiteout, entry, &view, err);
    if (rc < 0)
        return rc;
    if (view.deleted) {
        rc = whiteout_deletion_path(entry, &capture->mark, err);
        return rc == 0 ? add_mark(capture, err) : rc;
    }
    rc = add_data(capture, entry, view.xattrs, view.xattr_count, err);
    if (rc == 0 && view.opaque) {
        rc = whiteout_opaque_path(entry, &capture->mark, err);
        if (rc == 0)
            rc = add_mark(capture, err);
    }
    return rc;
}

static int add_entry(struct capture *capture, const struct walk_entry *entry, struct err *err)
{
    int rc = check_visible(entry, err);
    if (rc == 0)
        rc = check_path(entry, err);
    if (rc == 0 && entry->skipped)
        rc = capture_skipped_add(&capture->skipped, entry->path, entry->skipped, err);
    if (rc < 0 || (entry->skipped && !S_ISDIR(entry->stat.stx_mode)))
        return rc;
    if (capture->kind == CAPTURE_UPPER)
        return add_of_upper(capture, entry, err);
    rc = whiteout_check_name(entry, err);
    return rc == 0 ? add_data(capture, entry, entry->xattrs, entry->xattr_count, err) : rc;
}

static int add_all(struct capture *capture, struct err *err)
{
    for (uint64_t count = 0;; count++) {
        const struct walk_entry *entry;
        int rc = walk_next(capture->walk, &entry, err);
        if (rc <= 0)
            return rc;
        rc = add_entry(capture, entry, err);
        if (rc == 0 && count % ENTRIES_PER_TICK == 0)
            rc = tick(capture, err);
        if (rc < 0)
            return rc;
    }
}

static int finish(struct capture *capture, struct capture_result *ret, struct err *err)
{
    struct layer_written written;
    int rc = layer_writer_finish(capture->writer, capture->entries, capture->bytes, &written, err);
    if (rc < 0)
        return rc;
    json_t *skipped = capture_skipped_finish(&capture->skipped, err);
    if (!skipped)
        return -ENOMEM;
    *ret = (struct capture_result){
        .digest = written.digest,
        .diff_id = written.diff_id,
        .size = written.size,
        .tar_size = written.tar_size,
        .entries = written.entries,
        .skipped = skipped,
    };
    return 0;
}

int capture_tree(int root_fd, enum capture_kind kind, struct blobs *blobs,
                 const struct capture_hooks *hooks, struct capture_result *ret, struct err *err)
{
    struct capture capture = {.kind = kind};
    if (hooks)
        capture.hooks = *hooks;
    int rc = capture_init(&capture, root_fd, blobs, err);
    if (rc == 0)
        rc = add_all(&capture, err);
    if (rc == 0)
        rc = finish(&capture, ret, err);
    capture_free(&capture);
    return rc;
}

void capture_result_free(struct capture_result *result)
{
    json_decref(result->skipped);
    result->skipped = NULL;
}
