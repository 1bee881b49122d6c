#include "import_docker.h"

#include "convert.h"
#include "fdio.h"
#include "layer_pack.h"
#include "publish.h"

#include <string.h>

enum {
    CHUNK = 1 << 20, /* bytes */
};

enum packing {
    PACKED_NOT,
    PACKED_GZIP,
    PACKED_ZSTD,
    PACKED_OTHER, /* which no OCI layer is */
};

struct taking {
    struct import *import;
    const struct import_docker_layer *layer;
    uint64_t done; /* of the layers before */
    uint64_t total;
};

static int find_packing(const struct import_docker_layer *layer, enum packing *ret, struct err *err)
{
    static const struct {
        const char *magic;
        size_t len;
        enum packing packing;
    } kinds[] = {
        {"\x1f\x8b", 2, PACKED_GZIP},
        {"\x28\xb5\x2f\xfd", 4, PACKED_ZSTD},
        {"\xfd"
         "7zXZ",
         6, PACKED_OTHER},
        {"BZh", 3, PACKED_OTHER},
    };
    char start[8] = "";
    ssize_t n = pread(layer->fd, start, sizeof start, 0);
    if (n < 0)
        return err_errno(err, errno, "cannot read layer %.300s", layer->name);
    *ret = PACKED_NOT;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if ((size_t)n >= kinds[i].len && memcmp(start, kinds[i].magic, kinds[i].len) == 0)
            *ret = kinds[i].packing;
    return 0;
}

static int on_tick(void *arg, struct err *err)
{
    const struct taking *taking = arg;
    return job_progress(taking->import->job, taking->done, taking->total, "bytes", err);
}

static int on_bytes(void *arg, uint64_t bytes, struct err *err)
{
    const struct taking *taking = arg;
    uint64_t done = bytes < taking->layer->size ? bytes : taking->layer->size;
    return job_progress(taking->import->job, taking->done + done, taking->total, "bytes", err);
}

static int claim(void *arg, const struct digest *digest, struct err *err)
{
    const struct taking *taking = arg;
    return commit_blobs_lease(taking->import->job, digest, err);
}

/* Unpacks a layer into `target_fd`, in a confined child, which compares the diff ID. */
static int unpack(struct taking *taking, int target_fd, uint64_t *ret_size, struct err *err)
{
    const struct import_docker_layer *layer = taking->layer;
    const struct convert_request request = {.blob_fd = layer->fd,
                                            .target_fd = target_fd,
                                            .mode = CONVERT_TAR,
                                            .diff_id = &layer->diff_id,
                                            .blob_size = layer->size};
    struct convert_result result = {0};
    int rc = convert_file(&request, on_tick, taking, &result, err);
    if (rc < 0)
        return rc;
    *ret_size = result.tar_bytes;
    convert_result_free(&result);
    return 0;
}

static int pack(struct taking *taking, int fd, uint64_t size, struct oci_descriptor *ret,
                struct err *err)
{
    const struct layer_pack request = {.blobs = taking->import->node->blobs,
                                       .fd = fd,
                                       .size = size,
                                       .diff_id = &taking->layer->diff_id,
                                       .claim = claim,
                                       .progress = on_bytes,
                                       .arg = taking};
    struct layer_packed packed;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_errno(err, errno, "cannot read the tar of a layer");
    int rc = layer_pack(&request, &packed, err);
    if (rc == 0)
        *ret = (struct oci_descriptor){.media_type = (char *)OCI_MEDIA_LAYER_ZSTD,
                                       .digest = packed.digest,
                                       .size = (int64_t)packed.size};
    return rc;
}

/* Copies the file as it is. */
static int store(struct taking *taking, struct digest *ret, struct err *err)
{
    const struct import_docker_layer *layer = taking->layer;
    cleanup_free char *chunk = malloc(CHUNK);
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot copy a layer");
    if (lseek(layer->fd, 0, SEEK_SET) < 0)
        return err_errno(err, errno, "cannot read a layer");
    int rc = blob_writer_begin(taking->import->node->blobs, layer->size, &writer, err);
    if (rc < 0)
        return rc;
    writer.claim = claim;
    writer.claim_arg = taking;
    for (uint64_t done = 0; done < layer->size && rc == 0;) {
        uint64_t left = layer->size - done;
        ssize_t n = fdio_read_full(layer->fd, chunk, left < CHUNK ? (size_t)left : CHUNK);
        if (n < 0)
            return err_errno(err, (int)n, "cannot read a layer");
        if (n == 0)
            return err_fail(err, ERR_DAMAGED, "the file ends early");
        rc = blob_writer_write(&writer, chunk, (size_t)n, err);
        done += (uint64_t)n;
        if (rc == 0)
            rc = on_bytes(taking, done, err);
    }
    return rc == 0 ? blob_writer_commit(&writer, NULL, layer->size, ret, err) : rc;
}

static int take_packed(struct taking *taking, enum packing packing, struct oci_descriptor *ret,
                       struct err *err)
{
    cleanup_publish struct publish unpacked = PUBLISH_INIT;
    uint64_t size = 0;
    int rc = publish_begin(taking->import->node->temp_fd, 0600, &unpacked, err);
    if (rc == 0)
        rc = unpack(taking, unpacked.fd, &size, err);
    if (rc == 0 && packing == PACKED_OTHER)
        return pack(taking, unpacked.fd, size, ret, err);
    publish_abort(&unpacked);
    struct digest digest;
    if (rc == 0)
        rc = store(taking, &digest, err);
    if (rc == 0)
        *ret = (struct oci_descriptor){
            .media_type =
                (char *)(packing == PACKED_GZIP ? OCI_MEDIA_LAYER_GZIP : OCI_MEDIA_LAYER_ZSTD),
            .digest = digest,
            .size = (int64_t)taking->layer->size};
    return rc;
}

int import_docker_layer(struct import *import, const struct import_docker_layer *layer,
                        uint64_t done, uint64_t total, struct oci_descriptor *ret, struct err *err)
{
    struct taking taking = {.import = import, .layer = layer, .done = done, .total = total};
    enum packing packing = PACKED_NOT;
    int rc = find_packing(layer, &packing, err);
    if (rc == 0)
        rc = packing == PACKED_NOT ? pack(&taking, layer->fd, layer->size, ret, err)
                                   : take_packed(&taking, packing, ret, err);
    return rc < 0 ? err_wrap(err, rc, "layer %.300s", layer->name) : 0;
}
