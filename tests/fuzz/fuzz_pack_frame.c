/* Any bytes as the frame of a chunk: nothing is taken that does not give the digest's bytes. */
#include "pack_frame.h"

#include "fuzz_check.h"

static struct pack_frame *codec;
static uint8_t chunk[VOLUME_CHUNK];
static uint8_t again[VOLUME_CHUNK];
static uint8_t frame[VOLUME_CHUNK];

static void decode_or_fail(const void *bytes, size_t len, const struct digest *digest, bool good)
{
    struct err err = ERR_INIT;
    int rc = pack_frame_decode(codec, bytes, len, digest, again, &err);
    CHECK((rc == 0) == good);
    if (!good) {
        fuzz_check_failure(rc, &err);
        CHECK(err.code == ERR_DAMAGED);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (!codec)
        CHECK(pack_frame_new(&codec, NULL) == 0);
    static const struct digest nothing;
    struct err err = ERR_INIT;
    struct digest digest;
    CHECK(pack_frame_decode(codec, bytes, len, &nothing, chunk, &err) < 0);
    fuzz_check_failure(-err.num, &err);
    CHECK(err.code == ERR_DAMAGED);
    if (!strstr(err.text, "digest"))
        return 0;
    /* All is well but the digest: with the right one it is a chunk. */
    CHECK(digest_bytes(chunk, VOLUME_CHUNK, &digest, NULL) == 0);
    decode_or_fail(bytes, len, &digest, true);
    CHECK(memcmp(again, chunk, VOLUME_CHUNK) == 0);
    size_t encoded = pack_frame_encode(codec, chunk, frame);
    CHECK(encoded >= 1 && encoded <= VOLUME_CHUNK);
    decode_or_fail(frame, encoded, &digest, true);
    CHECK(memcmp(again, chunk, VOLUME_CHUNK) == 0);
    decode_or_fail(frame, encoded - 1, &digest, false);
    return 0;
}
