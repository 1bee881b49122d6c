#include "remote_checkpoint.h"

#include "cleanup.h"
#include "fdio.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static void ok(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

struct checkpoint_blob remote_checkpoint_blob(struct remote *remote, const char *repository,
                                              const char *text)
{
    struct err err = ERR_INIT;
    struct checkpoint_blob blob = {.size = strlen(text)};
    struct remote_upload upload = {0};
    cleanup_fd int fd = memfd_create("blob", MFD_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, text, blob.size), 0);
    assert_int_equal(digest_bytes(text, blob.size, &blob.digest, NULL), 0);
    ok(remote->ops->blob_put(remote, repository, &blob.digest, fd, blob.size, NULL, NULL, &upload,
                             &err),
       &err);
    return blob;
}

struct checkpoint_blob remote_checkpoint_manifest(struct remote *remote, const char *repository,
                                                  const char *tag, const char *bytes, size_t len)
{
    struct err err = ERR_INIT;
    struct checkpoint_blob blob = {.size = len};
    ok(remote_manifest_put(remote, repository, tag, NULL, bytes, len, &err), &err);
    assert_int_equal(digest_bytes(bytes, len, &blob.digest, NULL), 0);
    return blob;
}

struct checkpoint_blob remote_checkpoint_root(struct remote *remote, const char *repository,
                                              const char *config)
{
    struct err err = ERR_INIT;
    cleanup_free char *bytes = NULL;
    size_t len = 0;
    const struct checkpoint_root_manifest manifest = {
        remote_checkpoint_blob(remote, repository, config),
        remote_checkpoint_blob(remote, repository, "root")};
    ok(checkpoint_root_encode(&manifest, &bytes, &len, &err), &err);
    return remote_checkpoint_manifest(remote, repository, NULL, bytes, len);
}

void remote_checkpoint_index(struct remote *remote, const char *repository, const char *tag,
                             const char *volume, struct checkpoint_blob root, uint64_t generation,
                             uint64_t token)
{
    struct err err = ERR_INIT;
    cleanup_free char *bytes = NULL;
    size_t len = 0;
    struct checkpoint_index index = {
        .root_manifest = root, .node = "elsewhere", .generation = generation, .token = token};
    (void)snprintf(index.volume, sizeof index.volume, "%s", volume);
    ok(checkpoint_index_encode(&index, &bytes, &len, &err), &err);
    (void)remote_checkpoint_manifest(remote, repository, tag, bytes, len);
}
