#include "blobs.h"

#include "blobs_layout.h"
#include "fdio.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
    VERIFY_CHUNK = 256 * 1024, /* bytes per read */
};

static void blobs_closep(struct blobs **blobs)
{
    blobs_close(*blobs);
}

/* `dir_fd`: of the directory, or -1 for the one that has this path. */
static int open_layout(int dir_fd, const char *path, bool reader, struct blobs **ret,
                       struct err *err)
{
    cleanup_with(blobs_closep) struct blobs *blobs = calloc(1, sizeof *blobs);
    if (!blobs)
        return err_errno(err, ENOMEM, "cannot open the image layout %s", path);
    *blobs = (struct blobs){.path = strdup(path), .dir_fd = -1, .blobs_fd = -1, .temp_fd = -1};
    if (!blobs->path)
        return err_errno(err, ENOMEM, "cannot open the image layout %s", path);
    if (dir_fd >= 0)
        blobs->dir_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd >= 0 && blobs->dir_fd < 0)
        return err_errno(err, errno, "cannot open the image layout %s", path);
    int rc = blobs_layout_open(blobs, reader, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(blobs);
    return 0;
}

int blobs_open(const char *path, struct blobs **ret, struct err *err)
{
    return open_layout(-1, path, false, ret, err);
}

int blobs_open_reader(const char *path, struct blobs **ret, struct err *err)
{
    return open_layout(-1, path, true, ret, err);
}

int blobs_open_reader_at(int dir_fd, const char *path, struct blobs **ret, struct err *err)
{
    return open_layout(dir_fd, path, true, ret, err);
}

void blobs_close(struct blobs *blobs)
{
    if (!blobs)
        return;
    cleanup_fdp(&blobs->dir_fd);
    cleanup_fdp(&blobs->blobs_fd);
    cleanup_fdp(&blobs->temp_fd);
    free(blobs->path);
    free(blobs);
}

const char *blobs_path(const struct blobs *blobs)
{
    return blobs->path;
}

int blobs_temp_fd(const struct blobs *blobs)
{
    return blobs->temp_fd;
}

/* The failure to open or stat the file of a blob. */
static int fail_blob(const struct blobs *blobs, const struct digest *digest, int num,
                     struct err *err)
{
    struct digest_text text = digest_format(digest);
    if (num == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "blob %s is not in %s", text.s, blobs->path);
    if (num == ELOOP || num == ENXIO)
        return err_fail(err, ERR_DAMAGED, "blob %s in %s is not a regular file", text.s,
                        blobs->path);
    return err_errno(err, num, "cannot open blob %s in %s", text.s, blobs->path);
}

int blobs_stat(struct blobs *blobs, const struct digest *digest, uint64_t *ret_size,
               struct err *err)
{
    struct stat st;
    if (fstatat(blobs->blobs_fd, digest_hex(digest).s, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_blob(blobs, digest, errno, err);
    if (!S_ISREG(st.st_mode))
        return fail_blob(blobs, digest, ELOOP, err);
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

int blobs_open_blob(struct blobs *blobs, const struct digest *digest, uint64_t *ret_size,
                    struct err *err)
{
    /* O_NONBLOCK: a fifo of that name must not hold us up before it is refused. */
    cleanup_fd int fd = openat(blobs->blobs_fd, digest_hex(digest).s,
                               O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_blob(blobs, digest, errno, err);
    if (!S_ISREG(st.st_mode))
        return fail_blob(blobs, digest, ELOOP, err);
    *ret_size = (uint64_t)st.st_size;
    return steal_fd(&fd);
}

int blobs_settle(struct blobs *blobs, const struct digest *digest, uint64_t size, struct err *err)
{
    uint64_t have;
    cleanup_fd int fd = blobs_open_blob(blobs, digest, &have, NULL);
    if (fd < 0 || (size != UINT64_MAX && have != size))
        return 0;
    if (fsync(fd) < 0 || fsync(blobs->blobs_fd) < 0)
        return err_errno(err, errno, "cannot sync blob %s in %s", digest_format(digest).s,
                         blobs->path);
    return 1;
}

static int check_digest(const struct blobs *blobs, const struct digest *wanted,
                        const struct digest *found, struct err *err)
{
    if (digest_equal(wanted, found))
        return 0;
    struct digest_text wanted_text = digest_format(wanted);
    struct digest_text found_text = digest_format(found);
    int rc = err_fail(err, ERR_DIGEST, "blob %s in %s is damaged: its bytes have the digest %s",
                      wanted_text.s, blobs->path, found_text.s);
    err_hint(err, "move away %.300s/blobs/sha256/%s, then get the image again", blobs->path,
             digest_hex(wanted).s);
    return rc;
}

int blobs_read(struct blobs *blobs, const struct digest *digest, struct buf *ret, struct err *err)
{
    char what[sizeof "blob " + DIGEST_TEXT_LEN];
    snprintf(what, sizeof what, "blob %s", digest_format(digest).s);
    uint64_t size;
    cleanup_fd int fd = blobs_open_blob(blobs, digest, &size, err);
    if (fd < 0)
        return fd;
    cleanup_buf struct buf bytes = BUF_INIT(ret->max);
    if (size > bytes.max)
        return err_fail(err, ERR_TOO_LARGE, "%s has %" PRIu64 " bytes, more than the limit of %zu",
                        what, size, bytes.max);
    struct digest found;
    int rc = fdio_read_all(fd, what, &bytes, err);
    if (rc == 0)
        rc = digest_bytes(buf_str(&bytes), bytes.len, &found, err);
    if (rc == 0)
        rc = check_digest(blobs, digest, &found, err);
    if (rc < 0)
        return rc;
    buf_free(ret);
    *ret = bytes;
    bytes = (struct buf)BUF_INIT(0);
    return 0;
}

static int hash_file(int fd, struct digest *ret, struct err *err)
{
    cleanup_free char *chunk = malloc(VERIFY_CHUNK);
    cleanup_digest_stream struct digest_stream stream = {.ctx = NULL};
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot hash");
    int rc = digest_stream_init(&stream, err);
    if (rc < 0)
        return rc;
    for (;;) {
        ssize_t n = fdio_read_full(fd, chunk, VERIFY_CHUNK);
        if (n < 0)
            return err_errno(err, (int)n, "cannot read");
        if (n == 0)
            return digest_stream_finish(&stream, ret, err);
        rc = digest_stream_update(&stream, chunk, (size_t)n, err);
        if (rc < 0)
            return rc;
    }
}

int blobs_verify(struct blobs *blobs, const struct digest *digest, struct err *err)
{
    uint64_t size;
    cleanup_fd int fd = blobs_open_blob(blobs, digest, &size, err);
    if (fd < 0)
        return fd;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    struct digest found;
    int rc = hash_file(fd, &found, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot verify blob %s in %s", digest_format(digest).s,
                        blobs->path);
    return check_digest(blobs, digest, &found, err);
}

int blobs_put(struct blobs *blobs, const void *bytes, size_t len, struct digest *ret,
              struct err *err)
{
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    int rc = blob_writer_begin(blobs, len, &writer, err);
    if (rc == 0)
        rc = blob_writer_write(&writer, bytes, len, err);
    if (rc == 0)
        rc = blob_writer_commit(&writer, NULL, len, ret, err);
    return rc;
}

int blobs_remove(struct blobs *blobs, const struct digest *digest, struct err *err)
{
    int rc = publish_unlink(blobs->blobs_fd, digest_hex(digest).s, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot remove blob %s from %s", digest_format(digest).s,
                        blobs->path);
    return 0;
}

/* The present as the file system with the temporary files sees it: clocks of hosts that share a
 * directory may differ. */
static int temp_clock(const struct blobs *blobs, time_t *ret, struct err *err)
{
    cleanup_publish struct publish probe = PUBLISH_INIT;
    int rc = publish_begin(blobs->temp_fd, 0600, &probe, err);
    if (rc < 0)
        return rc;
    struct stat st;
    if (fstat(probe.fd, &st) < 0)
        return err_errno(err, errno, "cannot stat a temporary file");
    *ret = st.st_mtime;
    return 0;
}

/* Removes a temporary file if it is old and nobody holds its lock. */
static int sweep_one(const struct blobs *blobs, const char *name, time_t now, struct err *err)
{
    cleanup_fd int fd =
        openat(blobs->temp_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0; /* gone, or nothing that a writer made */
    if (now - st.st_mtime < BLOBS_STALE_AGE_S || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return 0;
    if (unlinkat(blobs->temp_fd, name, 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s/.varve/%s", blobs->path, name);
    return 0;
}

int blobs_sweep_stale(struct blobs *blobs, struct err *err)
{
    time_t now = 0;
    int rc = temp_clock(blobs, &now, err);
    if (rc < 0)
        return rc;
    cleanup_dir DIR *dir = fdio_list(blobs->temp_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list %s/.varve", blobs->path);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list %s/.varve", blobs->path) : 0;
        if (strncmp(entry->d_name, ".tmp-", 5) == 0)
            rc = sweep_one(blobs, entry->d_name, now, err);
        if (rc < 0)
            return rc;
    }
}
