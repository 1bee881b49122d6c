#include "blobs_role.h"

#include "fdio.h"

#include <assert.h>
#include <string.h>

enum {
    ROLE_BYTES_MAX = 64, /* of the file; ours have 7 */
};

static const char role_file[] = "role";
static const char *const role_texts[] = {
    [BLOBS_ROLE_STORE] = "store\n",
    [BLOBS_ROLE_REMOTE] = "remote\n",
};

/* The role that the layout has: 1, 0 when it has none yet, or -errno. */
static int read_role(const struct blobs *blobs, enum blobs_role *ret, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(ROLE_BYTES_MAX);
    struct err cause = ERR_INIT;
    int rc = fdio_read_file(blobs_temp_fd(blobs), role_file, &text, &cause);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return err_pass(err, rc, &cause);
    for (size_t i = 0; i < ARRAY_SIZE(role_texts); i++) {
        if (strcmp(buf_str(&text), role_texts[i]) != 0)
            continue;
        *ret = (enum blobs_role)i;
        return 1;
    }
    return err_fail(err, ERR_DAMAGED, "%s/.varve/%s says neither 'store' nor 'remote'",
                    blobs_path(blobs), role_file);
}

/* Another daemon may be faster; then its word counts. */
static int write_role(const struct blobs *blobs, enum blobs_role role, struct err *err)
{
    const char *text = role_texts[role];
    struct err cause = ERR_INIT;
    int rc = publish_bytes(blobs_temp_fd(blobs), role_file, text, strlen(text), 0600,
                           PUBLISH_NOREPLACE, &cause);
    if (rc == 0 || cause.code == ERR_EXISTS)
        return 0;
    return err_pass(err, rc, &cause);
}

static int refuse(const struct blobs *blobs, enum blobs_role have, struct err *err)
{
    int rc;
    if (have == BLOBS_ROLE_STORE) {
        rc = err_fail(err, ERR_CONFLICT, "%s is the store of a node and cannot be a remote too",
                      blobs_path(blobs));
        err_hint(err, "name a directory of its own as the remote");
    } else {
        rc = err_fail(err, ERR_CONFLICT, "%s is a remote and cannot be the store of a node too",
                      blobs_path(blobs));
        err_hint(err, "give varved a data directory of its own");
    }
    return rc;
}

int blobs_role_take(struct blobs *blobs, enum blobs_role role, struct err *err)
{
    assert(role < ARRAY_SIZE(role_texts));
    enum blobs_role have = role;
    int rc = read_role(blobs, &have, err);
    if (rc == 0)
        rc = write_role(blobs, role, err);
    if (rc == 0)
        rc = read_role(blobs, &have, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot use the image layout %s", blobs_path(blobs));
    return have == role ? 0 : refuse(blobs, have, err);
}
