#include "pack_frame.h"

#include "cleanup.h"

#include <endian.h>
#include <string.h>
#include <zstd.h>

struct pack_frame {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
};

static void free_codecp(struct pack_frame **codec)
{
    pack_frame_free(*codec);
}

int pack_frame_new(struct pack_frame **ret, struct err *err)
{
    cleanup_with(free_codecp) struct pack_frame *codec = calloc(1, sizeof *codec);
    if (codec) {
        codec->compress = ZSTD_createCCtx();
        codec->decompress = ZSTD_createDCtx();
    }
    if (!codec || !codec->compress || !codec->decompress ||
        ZSTD_isError(
            ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_compressionLevel, PACK_FRAME_LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_contentSizeFlag, 1)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_checksumFlag, 0)))
        return err_errno(err, ENOMEM, "cannot set up the compression of chunks");
    *ret = steal_ptr(codec);
    return 0;
}

void pack_frame_free(struct pack_frame *codec)
{
    if (!codec)
        return;
    ZSTD_freeCCtx(codec->compress);
    ZSTD_freeDCtx(codec->decompress);
    free(codec);
}

/* Less than a chunk, or the chunk: whatever keeps libzstd from the former ends in the latter. */
size_t pack_frame_encode(struct pack_frame *codec, const void *chunk, void *ret)
{
    size_t len = ZSTD_compress2(codec->compress, ret, VOLUME_CHUNK - 1, chunk, VOLUME_CHUNK);
    if (!ZSTD_isError(len))
        return len;
    memcpy(ret, chunk, VOLUME_CHUNK);
    return VOLUME_CHUNK;
}

/* Formats of zstd before 0.8 are known to the library, too, and not what FORMAT.md says. */
static bool is_frame(const void *bytes, size_t len)
{
    uint32_t magic;
    if (len < sizeof magic)
        return false;
    memcpy(&magic, bytes, sizeof magic);
    return le32toh(magic) == ZSTD_MAGICNUMBER &&
           ZSTD_getFrameContentSize(bytes, len) == VOLUME_CHUNK &&
           ZSTD_getDictID_fromFrame(bytes, len) == 0 &&
           ZSTD_findFrameCompressedSize(bytes, len) == len;
}

int pack_frame_decode(struct pack_frame *codec, const void *bytes, size_t len,
                      const struct digest *digest, void *ret, struct err *err)
{
    struct digest got;
    if (len == VOLUME_CHUNK)
        memcpy(ret, bytes, VOLUME_CHUNK);
    else if (len > VOLUME_CHUNK || !is_frame(bytes, len))
        return err_fail(err, ERR_DAMAGED, "%zu bytes are no frame of a chunk", len);
    else if (ZSTD_decompressDCtx(codec->decompress, ret, VOLUME_CHUNK, bytes, len) != VOLUME_CHUNK)
        return err_fail(err, ERR_DAMAGED, "the frame of a chunk is damaged");
    int rc = digest_bytes(ret, VOLUME_CHUNK, &got, err);
    if (rc < 0)
        return rc;
    if (!digest_equal(&got, digest))
        return err_fail(err, ERR_DAMAGED, "the bytes of a chunk have the digest %s instead of %s",
                        digest_format(&got).s, digest_format(digest).s);
    return 0;
}
