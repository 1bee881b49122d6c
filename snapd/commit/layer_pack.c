#include "layer_pack.h"

#include "fdio.h"
#include "layer_zstd.h"

enum {
    CHUNK = 1 << 20, /* bytes */
};

static int check_diff_id(struct digest_stream *stream, const struct digest *expected,
                         struct err *err)
{
    struct digest have;
    int rc = digest_stream_finish(stream, &have, err);
    if (rc < 0 || digest_equal(&have, expected))
        return rc;
    return err_fail(err, ERR_DIGEST, "the tar has the digest %s instead of %s",
                    digest_format(&have).s, digest_format(expected).s);
}

static int copy(const struct layer_pack *pack, struct layer_zstd *zstd, struct digest_stream *diff,
                struct blob_writer *blob, struct err *err)
{
    cleanup_free unsigned char *chunk = malloc(CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot pack a layer");
    for (uint64_t done = 0; done < pack->size;) {
        uint64_t left = pack->size - done;
        size_t len = left < CHUNK ? (size_t)left : CHUNK;
        ssize_t n = fdio_read_full(pack->fd, chunk, len);
        if (n < 0)
            return err_errno(err, (int)n, "cannot read the tar of a layer");
        if ((size_t)n < len)
            return err_fail(err, ERR_DAMAGED, "the tar of a layer ends early");
        int rc = digest_stream_update(diff, chunk, len, err);
        if (rc == 0)
            rc = layer_zstd_write(zstd, blob, chunk, len, err);
        done += len;
        if (rc == 0)
            rc = pack->progress(pack->arg, done, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int layer_pack(const struct layer_pack *pack, struct layer_packed *ret, struct err *err)
{
    cleanup_layer_zstd struct layer_zstd zstd = {0};
    cleanup_digest_stream struct digest_stream diff = {0};
    cleanup_blob_writer struct blob_writer blob = BLOB_WRITER_INIT;
    int rc = layer_zstd_begin(&zstd, err);
    if (rc == 0)
        rc = digest_stream_init(&diff, err);
    if (rc == 0)
        rc = blob_writer_begin(pack->blobs, UINT64_MAX, &blob, err);
    if (rc < 0)
        return rc;
    blob.claim = pack->claim;
    blob.claim_arg = pack->arg;
    rc = copy(pack, &zstd, &diff, &blob, err);
    if (rc == 0)
        rc = check_diff_id(&diff, pack->diff_id, err);
    if (rc == 0)
        rc = layer_zstd_finish(&zstd, &blob, err);
    struct layer_packed packed = {.size = blob.size};
    if (rc == 0)
        rc = blob_writer_commit(&blob, NULL, UINT64_MAX, &packed.digest, err);
    if (rc == 0)
        *ret = packed;
    return rc;
}
