#include "export_tar.h"

#include "fdio.h"

#include <string.h>

static const char zeros[2 * TAR_BLOCK];

void export_tar_begin(struct export_tar *tar, int fd)
{
    *tar = (struct export_tar){
        .fd = fd, .header = BUF_INIT(2 * TAR_PAX_MAX), .records = BUF_INIT(TAR_PAX_MAX)};
}

void export_tar_free(struct export_tar *tar)
{
    buf_free(&tar->header);
    buf_free(&tar->records);
}

static int put(struct export_tar *tar, const void *bytes, size_t len, struct err *err)
{
    int rc = fdio_write_full(tar->fd, bytes, len);
    if (rc < 0)
        return err_errno(err, rc, "cannot write the archive after %llu bytes",
                         (unsigned long long)tar->size);
    tar->size += len;
    return 0;
}

static int add(struct export_tar *tar, const struct tar_entry *entry, struct err *err)
{
    if (tar->left > 0)
        return err_fail(err, ERR_INTERNAL, "a file in the archive lacks %llu bytes",
                        (unsigned long long)tar->left);
    tar->header.len = 0;
    int rc = tar_header_add(entry, &tar->records, &tar->header, err);
    return rc == 0 ? put(tar, tar->header.data, tar->header.len, err) : rc;
}

int export_tar_dir(struct export_tar *tar, const char *path, struct err *err)
{
    const struct tar_entry entry = {.path = path, .type = TAR_DIR, .mode = 0755};
    return add(tar, &entry, err);
}

int export_tar_file(struct export_tar *tar, const char *path, uint64_t size, struct err *err)
{
    const struct tar_entry entry = {.path = path, .type = TAR_FILE, .mode = 0644, .size = size};
    int rc = add(tar, &entry, err);
    if (rc < 0)
        return rc;
    tar->left = size;
    tar->pad = (unsigned)(-size % TAR_BLOCK);
    return 0;
}

int export_tar_data(struct export_tar *tar, const void *bytes, size_t len, struct err *err)
{
    if (len > tar->left)
        return err_fail(err, ERR_INTERNAL, "a file in the archive has more bytes than announced");
    int rc = put(tar, bytes, len, err);
    if (rc < 0)
        return rc;
    tar->left -= len;
    return tar->left == 0 && len > 0 ? put(tar, zeros, tar->pad, err) : 0;
}

int export_tar_bytes(struct export_tar *tar, const char *path, const void *bytes, size_t len,
                     struct err *err)
{
    int rc = export_tar_file(tar, path, len, err);
    return rc == 0 ? export_tar_data(tar, bytes, len, err) : rc;
}

int export_tar_finish(struct export_tar *tar, struct err *err)
{
    if (tar->left > 0)
        return err_fail(err, ERR_INTERNAL, "a file in the archive lacks %llu bytes",
                        (unsigned long long)tar->left);
    return put(tar, zeros, sizeof zeros, err);
}
