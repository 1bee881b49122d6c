#include "blobs_layout.h"

#include "fault.h"
#include "fdio.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static const char layout_version[] = "1.0.0";
static const char layout_text[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
static const char empty_index[] = "{\"manifests\":[],\"mediaType\":"
                                  "\"application/vnd.oci.image.index.v1+json\","
                                  "\"schemaVersion\":2}";

enum {
    LAYOUT_BYTES_MAX = 64 * 1024, /* of oci-layout; real ones have 31 */
};

int blobs_layout_publish(struct blobs *blobs, const char *name, const void *bytes, size_t len,
                         enum publish_mode how, struct err *err)
{
    cleanup_publish struct publish publish = PUBLISH_INIT;
    int rc = publish_begin(blobs->temp_fd, 0644, &publish, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot write %s/%s", blobs->path, name);
    rc = fdio_write_full(publish.fd, bytes, len);
    if (rc < 0)
        return err_errno(err, rc, "cannot write %s/%s", blobs->path, name);
    rc = publish_commit(&publish, blobs->dir_fd, name, how, err);
    return rc < 0 ? err_wrap(err, rc, "cannot write %s/%s", blobs->path, name) : 0;
}

/* Opens a directory of the layout, making it with exactly `mode`, whatever the umask is. */
static int open_or_make(const struct blobs *blobs, int dir_fd, const char *name, mode_t mode,
                        struct err *err)
{
    bool made = mkdirat(dir_fd, name, mode) == 0;
    if (!made && errno != EEXIST)
        return err_errno(err, errno, "cannot make directory %s in %s", name, blobs->path);
    cleanup_fd int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "cannot open directory %s in %s", name, blobs->path);
    if (made && fchmod(fd, mode) < 0)
        return err_errno(err, errno, "cannot set the mode of %s in %s", name, blobs->path);
    /* A layout of another tool counts as complete without it; what is published in it must not
     * be lost with it (I3). */
    if (made && fsync(dir_fd) < 0)
        return err_errno(err, errno, "cannot sync the directory of %s in %s", name, blobs->path);
    return steal_fd(&fd);
}

/* Makes DIR itself if it is missing. */
static int make_root(const char *path, struct err *err)
{
    if (mkdir(path, 0755) == 0) {
        if (chmod(path, 0755) < 0)
            return err_errno(err, errno, "cannot set the mode of %s", path);
        return 0;
    }
    if (errno == EEXIST)
        return 0;
    if (errno != ENOENT)
        return err_errno(err, errno, "cannot make the image layout %s", path);
    int rc = err_fail(err, ERR_NOT_FOUND,
                      "cannot make the image layout %s: its parent directory is missing", path);
    err_hint(err, "make the parent directory, or name another place");
    return rc;
}

static int open_root(struct blobs *blobs, struct err *err)
{
    if (blobs->dir_fd >= 0) /* the caller had it open */
        return 0;
    blobs->dir_fd = open(blobs->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (blobs->dir_fd >= 0)
        return 0;
    if (errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "the image layout %s does not exist", blobs->path);
    if (errno == ENOTDIR)
        return err_fail(err, ERR_INVALID, "%s is not a directory, so no image layout", blobs->path);
    return err_errno(err, errno, "cannot open the image layout %s", blobs->path);
}

/* Whether DIR is a layout: 1 yes, 0 it has no oci-layout; a bad or unknown one is a failure. */
static int check_version(const struct blobs *blobs, struct err *err)
{
    struct stat st;
    if (fstatat(blobs->dir_fd, "oci-layout", &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return 0;
        return err_errno(err, errno, "cannot stat %s/oci-layout", blobs->path);
    }
    cleanup_buf struct buf text = BUF_INIT(LAYOUT_BYTES_MAX);
    cleanup_json json_t *doc = NULL;
    const char *version = NULL;
    int rc = fdio_read_file(blobs->dir_fd, "oci-layout", &text, err);
    if (rc == 0)
        rc = json_doc_parse(buf_str(&text), text.len, "oci-layout", &doc, err);
    if (rc == 0)
        rc = json_doc_get_str(doc, "imageLayoutVersion", "oci-layout", &version, err);
    if (rc < 0)
        return err_wrap(err, rc, "%s is not an image layout that can be used", blobs->path);
    if (strcmp(version, layout_version) != 0)
        return err_fail(err, ERR_UNSUPPORTED,
                        "%s is an image layout of version '%.40s'; only version %s is known",
                        blobs->path, version, layout_version);
    return 1;
}

/* One name in a directory that has no oci-layout: may the layout be made around it? .varve is
 * made first, so the other parts of a layout without it are somebody else's. Asked after the name
 * was seen, as another daemon may be making them at this moment. */
static bool may_stand_in_new_layout(const struct blobs *blobs, const char *name)
{
    static const char *const parts[] = {".varve", "blobs", "index.json", "oci-layout"};
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lost+found") == 0)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        if (strcmp(name, parts[i]) == 0)
            return faccessat(blobs->dir_fd, ".varve", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    return false;
}

static int refuse_foreign_content(const struct blobs *blobs, struct err *err)
{
    cleanup_dir DIR *dir = fdio_list(blobs->dir_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list %s", blobs->path);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list %s", blobs->path) : 0;
        if (may_stand_in_new_layout(blobs, entry->d_name))
            continue;
        int rc =
            err_fail(err, ERR_EXISTS, "%s is not an image layout and not empty: it holds '%.100s'",
                     blobs->path, entry->d_name);
        err_hint(err, "name a new or empty directory, or an image layout");
        return rc;
    }
}

/* A name that another daemon made meanwhile is as good as ours. */
static int publish_once(struct blobs *blobs, const char *name, const char *text, struct err *err)
{
    struct err local = ERR_INIT;
    int rc = blobs_layout_publish(blobs, name, text, strlen(text), PUBLISH_NOREPLACE, &local);
    if (rc == 0 || local.code == ERR_EXISTS)
        return 0;
    return err_pass(err, rc, &local);
}

static int sync_at(const struct blobs *blobs, const char *name, struct err *err)
{
    cleanup_fd int fd = openat(blobs->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_errno(err, errno, "cannot sync %s/%s", blobs->path, name);
    return 0;
}

/* Opens the parts of the layout, making what is missing. */
static int open_parts(struct blobs *blobs, struct err *err)
{
    blobs->temp_fd = open_or_make(blobs, blobs->dir_fd, ".varve", 0700, err);
    if (blobs->temp_fd < 0)
        return blobs->temp_fd;
    cleanup_fd int parent = open_or_make(blobs, blobs->dir_fd, "blobs", 0755, err);
    if (parent < 0)
        return parent;
    blobs->blobs_fd = open_or_make(blobs, parent, "sha256", 0755, err);
    return blobs->blobs_fd < 0 ? blobs->blobs_fd : 0;
}

/* Completes a directory that has no oci-layout yet. */
static int complete(struct blobs *blobs, struct err *err)
{
    int rc = publish_once(blobs, "index.json", empty_index, err);
    if (rc < 0)
        return rc;
    rc = FAULT_POINT("blobs.layout-half", err);
    if (rc < 0)
        return rc;
    /* The names of the directories are durable before the name that says that they are there. */
    rc = sync_at(blobs, "blobs", err);
    if (rc == 0)
        rc = sync_at(blobs, "..", err);
    if (rc == 0)
        rc = publish_once(blobs, "oci-layout", layout_text, err);
    return rc;
}

/* The index of a complete layout can't be missing; an empty new one would hide a loss. */
static int check_index(const struct blobs *blobs, struct err *err)
{
    struct stat st;
    if (fstatat(blobs->dir_fd, "index.json", &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return err_errno(err, errno, "cannot stat %s/index.json", blobs->path);
        int rc = err_fail(err, ERR_DAMAGED, "the image layout %s has no index.json", blobs->path);
        err_hint(err, "put index.json back, or name another directory");
        return rc;
    }
    if (!S_ISREG(st.st_mode))
        return err_fail(err, ERR_DAMAGED, "%s/index.json is not a regular file", blobs->path);
    return 0;
}

static int open_reader_parts(struct blobs *blobs, struct err *err)
{
    int flags = O_RDONLY | O_DIRECTORY;
    int rc = fdio_open_beneath(blobs->dir_fd, "blobs/sha256", flags, 0);
    if (rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP)
        return err_fail(err, ERR_DAMAGED, "the image layout %s has no directory blobs/sha256",
                        blobs->path);
    if (rc < 0)
        return err_errno(err, rc, "cannot open %s/blobs/sha256", blobs->path);
    blobs->blobs_fd = rc;
    return 0;
}

static int open_reader(struct blobs *blobs, struct err *err)
{
    int rc = open_root(blobs, err);
    if (rc < 0)
        return rc;
    rc = check_version(blobs, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_fail(err, ERR_INVALID, "%s is not an image layout: it has no file oci-layout",
                        blobs->path);
    rc = check_index(blobs, err);
    return rc < 0 ? rc : open_reader_parts(blobs, err);
}

int blobs_layout_open(struct blobs *blobs, bool reader, struct err *err)
{
    if (reader)
        return open_reader(blobs, err);
    int rc = make_root(blobs->path, err);
    if (rc == 0)
        rc = open_root(blobs, err);
    if (rc < 0)
        return rc;
    int complete_already = check_version(blobs, err);
    if (complete_already < 0)
        return complete_already;
    rc = complete_already ? check_index(blobs, err) : refuse_foreign_content(blobs, err);
    if (rc == 0)
        rc = open_parts(blobs, err);
    if (rc == 0 && !complete_already)
        rc = complete(blobs, err);
    return rc;
}
