/* convert_codec.h - the ways in which archives are packed.
 *
 * A codec turns the input of a convert_source.h into the bytes that were packed, and checks what
 * its format has of checksums and lengths. convert_codec_open() tells the packing by the first
 * bytes. gzip goes through ISA-L, zstd through libzstd, xz and bzip2 through libarchive's own
 * decoders; no program is ever started.
 *
 * Limits: zstd windows of up to 128 MiB. The number of bytes that come out is the caller's
 * business.
 */
#pragma once

#include "convert_source.h"

enum {
    CONVERT_CODEC_ZSTD_WINDOW_LOG_MAX = 27,
};

struct convert_codec;

struct convert_codec_kind {
    const char *name;                                          /* for messages */
    int (*open)(struct convert_codec *codec, struct err *err); /* NULL: has no state */
    ssize_t (*read)(struct convert_codec *codec, void *buf, size_t cap, struct err *err);
    void (*close)(struct convert_codec *codec); /* NULL when there is nothing to free */
};

struct convert_codec {
    const struct convert_codec_kind *kind;
    struct convert_source *source; /* borrowed */
    void *state;                   /* the kind's; owned */
};

extern const struct convert_codec_kind convert_codec_gzip;
extern const struct convert_codec_kind convert_codec_zstd;
extern const struct convert_codec_kind convert_codec_other; /* xz and bzip2 */

/* Chooses by the first bytes of the source. `any_codec` also accepts xz and bzip2. */
int convert_codec_open(struct convert_source *source, bool any_codec, struct convert_codec *ret,
                       struct err *err);
/* Up to `cap` unpacked bytes. Returns their number, 0 at the end of the source, or -errno. Waits
 * for growth only while it has nothing to give. */
ssize_t convert_codec_read(struct convert_codec *codec, void *buf, size_t cap, struct err *err);
void convert_codec_close(struct convert_codec *codec);
