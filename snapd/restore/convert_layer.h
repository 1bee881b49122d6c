/* convert_layer.h - the members of a tar stream become an EROFS image.
 *
 * Input is a tar (convert_stream.h), output the image that erofs_writer.h writes; in between stand
 * the rules for names, attributes and layers (convert.h says which). Runs in the confined child, on
 * one thread; nothing is done but through the descriptor of the image.
 *
 *   convert_layer_open()
 *   convert_layer_read()      all members; files are in the image from here on
 *   convert_layer_needs_lowers()   true: what the layer means depends on the layers below
 *   convert_layer_finish()    with the images of the layers below, topmost first, or none: what
 *                             they decide is looked up in them, then the image is completed
 *   convert_layer_free()      in any state
 *
 * Lower images come from disk and are read with erofs_reader.h, which trusts nothing in them. They
 * are needed only when convert_layer_needs_lowers(); a lowest layer and CONVERT_PLAIN never need
 * any.
 *
 * Limits: the archive's bytes are bounded by the stream, names by entries_max, members (also those
 * that replace others) by CONVERT_MEMBERS_MAX, and the data of files, also what is copied out of
 * lower layers, by bytes_max; holes of sparse files count for nothing, but the image file may take
 * twice bytes_max at most. The last part of the disk stays free (ERR_NO_SPACE).
 *
 * What it does not do: digests (the caller gives the diff ID that goes into the image's UUID),
 * fsync, CONVERT_TAR.
 */
#pragma once

#include "convert.h"
#include "convert_stream.h"
#include "erofs_reader.h"

struct convert_layer;

struct convert_layer_limits {
    uint64_t bytes_max;
    uint64_t entries_max;
};

struct convert_layer_stats {
    uint64_t image_bytes;
    uint64_t entries; /* names in the image */
    bool used_lowers;
    uint64_t dropped;         /* extended attributes left out */
    const char *dropped_text; /* up to CONVERT_DROPPED_MAX of them, a line each; "" for none;
                                 borrowed until convert_layer_free() */
};

/* `target_fd` is an empty regular file, open for reading and writing; borrowed. `mode` is
 * CONVERT_LAYER or CONVERT_PLAIN. */
int convert_layer_open(int target_fd, enum convert_mode mode, bool is_lowest,
                       const struct convert_layer_limits *limits, struct convert_layer **ret,
                       struct err *err);
/* Reads the stream to its end, past the end-of-archive marker. Where the stream has no expected
 * digest, an empty archive and one without the marker are ERR_DAMAGED. */
int convert_layer_read(struct convert_layer *layer, struct convert_stream *stream, struct err *err);
bool convert_layer_needs_lowers(const struct convert_layer *layer);
/* Completes the image, whose UUID comes from `diff_id`. */
int convert_layer_finish(struct convert_layer *layer, const struct erofs_image *lowers,
                         size_t lower_count, const struct digest *diff_id,
                         struct convert_layer_stats *ret, struct err *err);
void convert_layer_free(struct convert_layer *layer); /* NULL is fine */
