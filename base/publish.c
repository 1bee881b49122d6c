#include "publish.h"

#include "fault.h"
#include "fdio.h"
#include "id.h"
#include "tree.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static const char temp_prefix[] = ".tmp-";

int publish_temp_name(char ret[32], struct err *err)
{
    char random[17];
    int rc = id_random_hex(random, 16, err);
    if (rc < 0)
        return rc;
    snprintf(ret, 32, "%s%s", temp_prefix, random);
    return 0;
}

/* Makes the file under the name that `publish` has already. */
static int make_temp(struct publish publish, mode_t mode, struct publish *ret, struct err *err)
{
    int temp_dir = publish.temp_dir;
    publish.fd = openat(temp_dir, publish.temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (publish.fd < 0)
        return err_errno(err, errno, "cannot make a temporary file");
    if (fchmod(publish.fd, mode) < 0) {
        int rc = err_errno(err, errno, "cannot set the mode of a temporary file");
        publish_abort(&publish);
        return rc;
    }
    *ret = publish;
    return 0;
}

int publish_begin(int temp_dir, mode_t mode, struct publish *ret, struct err *err)
{
    struct publish publish = {.fd = -1, .temp_dir = temp_dir};
    int rc = publish_temp_name(publish.temp, err);
    return rc < 0 ? rc : make_temp(publish, mode, ret, err);
}

int publish_begin_as(int temp_dir, const char *temp, mode_t mode, struct publish *ret,
                     struct err *err)
{
    struct publish publish = {.fd = -1, .temp_dir = temp_dir};
    size_t len = strlen(temp);
    if (strncmp(temp, temp_prefix, sizeof temp_prefix - 1) != 0 || len >= sizeof publish.temp)
        return err_fail(err, ERR_INTERNAL, "'%.64s' is no name for a temporary file", temp);
    memcpy(publish.temp, temp, len + 1);
    if (unlinkat(temp_dir, temp, 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove the temporary file %s", temp);
    return make_temp(publish, mode, ret, err);
}

static int sync_dir(int dir_fd, const char *name, struct err *err)
{
    if (fsync(dir_fd) < 0)
        return err_errno(err, errno, "cannot sync the directory of %s", name);
    return 0;
}

static int rename_into(int temp_dir, const char *temp, int dir_fd, const char *name,
                       enum publish_mode mode, struct err *err)
{
    unsigned flags = mode == PUBLISH_NOREPLACE ? RENAME_NOREPLACE : 0;
    if (renameat2(temp_dir, temp, dir_fd, name, flags) == 0)
        return 0;
    if (errno == EEXIST)
        return err_fail(err, ERR_EXISTS, "%s exists already", name);
    return err_errno(err, errno, "cannot rename a temporary name to %s", name);
}

int publish_commit(struct publish *publish, int dir_fd, const char *name, enum publish_mode mode,
                   struct err *err)
{
    int rc = FAULT_POINT("publish.before-sync", err);
    if (rc < 0)
        return rc;
    if (fsync(publish->fd) < 0)
        return err_errno(err, errno, "cannot sync %s", name);
    rc = FAULT_POINT("publish.before-rename", err);
    if (rc < 0)
        return rc;
    rc = rename_into(publish->temp_dir, publish->temp, dir_fd, name, mode, err);
    if (rc < 0)
        return rc;
    publish->temp[0] = '\0';
    rc = FAULT_POINT("publish.before-dir-sync", err);
    if (rc < 0)
        return rc;
    return sync_dir(dir_fd, name, err);
}

void publish_abort(struct publish *publish)
{
    int saved = errno;
    if (publish->temp[0] != '\0')
        (void)unlinkat(publish->temp_dir, publish->temp, 0);
    publish->temp[0] = '\0';
    if (publish->fd >= 0)
        (void)close(publish->fd);
    publish->fd = -1;
    errno = saved;
}

int publish_bytes(int dir_fd, const char *name, const void *bytes, size_t len, mode_t mode,
                  enum publish_mode how, struct err *err)
{
    cleanup_publish struct publish publish = PUBLISH_INIT;
    int rc = publish_begin(dir_fd, mode, &publish, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot write %s", name);
    rc = fdio_write_full(publish.fd, bytes, len);
    if (rc < 0)
        return err_errno(err, rc, "cannot write %s", name);
    return publish_commit(&publish, dir_fd, name, how, err);
}

static int open_tree_dir(int temp_dir, const char *temp, const char *name, struct err *err)
{
    int fd = openat(temp_dir, temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? err_errno(err, errno, "cannot open the tree for %s", name) : fd;
}

/* Of what is synced. */
static int name_tree(int temp_dir, const char *temp, int dir_fd, const char *name, struct err *err)
{
    int rc = FAULT_POINT("publish.tree-synced", err);
    if (rc < 0)
        return rc;
    rc = rename_into(temp_dir, temp, dir_fd, name, PUBLISH_NOREPLACE, err);
    if (rc < 0)
        return rc;
    return sync_dir(dir_fd, name, err);
}

int publish_tree(int temp_dir, const char *temp, int dir_fd, const char *name, struct err *err)
{
    cleanup_fd int fd = open_tree_dir(temp_dir, temp, name, err);
    if (fd < 0)
        return fd;
    if (syncfs(fd) < 0)
        return err_errno(err, errno, "cannot sync the tree for %s", name);
    return name_tree(temp_dir, temp, dir_fd, name, err);
}

int publish_files(int temp_dir, const char *temp, const char *const *files, size_t count,
                  int dir_fd, const char *name, struct err *err)
{
    cleanup_fd int fd = open_tree_dir(temp_dir, temp, name, err);
    if (fd < 0)
        return fd;
    for (size_t i = 0; i < count; i++) {
        cleanup_fd int file = openat(fd, files[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (file < 0 || fsync(file) < 0)
            return err_errno(err, errno, "cannot sync %s of %s", files[i], name);
    }
    if (fsync(fd) < 0)
        return err_errno(err, errno, "cannot sync the tree for %s", name);
    return name_tree(temp_dir, temp, dir_fd, name, err);
}

int publish_unlink(int dir_fd, const char *name, struct err *err)
{
    if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s", name);
    return sync_dir(dir_fd, name, err);
}

int publish_sweep(int dir_fd, struct err *err)
{
    cleanup_dir DIR *dir = fdio_list(dir_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list a directory of temporary files");
    int first = 0; /* failure; err keeps it too, and the others still go (I9) */
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            return err_errno(err, errno, "cannot list a directory of temporary files");
        if (!entry)
            return first;
        if (strncmp(entry->d_name, temp_prefix, sizeof temp_prefix - 1) != 0)
            continue;
        int rc = tree_remove(dir_fd, entry->d_name, err);
        if (rc < 0 && first == 0)
            first = rc;
    }
}
