/* convert.h - from a packed tar to an EROFS image, in a confined child (the program varve-convert).
 *
 * The child gets two files, the archive to read and the image to write, and a socket; it gives up
 * everything else before it reads the first byte (convert_confine.h), so nothing of an archive can
 * reach the host (I6). Names are resolved in the image's own tree in memory. It unpacks, checks
 * the digest of the tar, parses and writes at the same time, each on its own thread.
 *
 * The archive may still be growing: the caller says how many of its bytes are there, so a layer is
 * converted while it is downloaded.
 *
 *   convert_start()      -> running
 *   convert_feed()       any number of times, the last one with `end`
 *   convert_wait()       -> CONVERT_DONE, or CONVERT_NEEDS_LOWERS: what the layer means depends on
 *                           the layers below (implied parents, links into them, whiteouts)
 *   convert_continue()   with the images of the layers below; then convert_wait() again
 *   convert_free()       in any state; kills a child that is not through
 *
 * CONVERT_DONE: the image is complete and a second child, which has read nothing but the image, has
 * checked it (erofs_check.h). It is not synced and has no name; that is the caller's (I1).
 *
 *   CONVERT_LAYER  OCI and Docker layers: whiteouts become overlayfs ones (0:0 character device;
 *                  trusted.overlay.opaque); parents that the archive does not list take the
 *                  attributes they have in the layers below, else 0755 0:0; hard links to files of
 *                  layers below become files with their bytes, one for all links to one file
 *   CONVERT_PLAIN  an archive of a user: members are what they are; ".wh." names are refused; never
 *                  needs lowers
 *   CONVERT_TAR    no image: the uncompressed bytes themselves, digest checked, into the target
 *
 * Refused with a sentence that names the member: absolute and dot-dot names, hard links to nothing
 * or to the outside, members below a file or link of the same archive, damaged or truncated data,
 * more bytes, entries or growth than the limits. Left out and listed: overlayfs's own and other
 * dangerous attributes (convert_attr.h).
 *
 * Times before 1970 keep their whole seconds alone, as readers differ in what a fraction of them
 * means. Names are bytes, and stay what they are in the archive.
 *
 * Growth: an archive may always hold CONVERT_GROWTH_FREE bytes, however small its blob is, and
 * beyond that CONVERT_GROWTH_MAX times the size of the blob. Zeros become holes, and the last part
 * of the disk stays free, so one that is made to fill disks does not.
 *
 * A conversion belongs to one thread, but for convert_feed(), which another one may call. The child
 * ends with the thread that has started it (the one of convert_start(), then of convert_wait()).
 */
#pragma once

#include "digest.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum convert_mode {
    CONVERT_LAYER,
    CONVERT_PLAIN,
    CONVERT_TAR,
};

enum {
    CONVERT_LOWERS_MAX = 127,
    CONVERT_ENTRIES_MAX = 5000000,  /* EROFS_NAMES_MAX: names, those of directories count twice */
    CONVERT_MEMBERS_MAX = 20000000, /* members of an archive, also those that replace others */
    CONVERT_GROWTH_MAX = 5000,
    CONVERT_DROPPED_MAX = 16, /* listed by name; the others are counted */
};
#define CONVERT_BYTES_MAX   (UINT64_C(1) << 40)   /* of uncompressed data */
#define CONVERT_GROWTH_FREE (UINT64_C(128) << 30) /* bytes */

struct convert_request {
    int blob_fd;   /* the archive, a regular file opened for reading; borrowed for the call */
    int target_fd; /* an empty file, opened for reading and writing; borrowed for the call */
    enum convert_mode mode;
    bool is_lowest; /* of a layer: there are no layers below, so none are waited for */
    const struct digest *diff_id; /* expected digest of the tar, or NULL */
    uint64_t blob_size;           /* bytes that the archive will have; for the limit on growth */
    /* Of the tar, and of the data of files, also those copied from layers below, without what is a
     * hole in tar or lower image. The image file may take up to twice as much of the disk: pieces
     * of sparse files and their maps take whole blocks. 0: CONVERT_BYTES_MAX. */
    uint64_t bytes_max;
    uint64_t entries_max; /* 0: CONVERT_ENTRIES_MAX */
    uint64_t growth_free; /* 0: CONVERT_GROWTH_FREE */
};

enum convert_state {
    CONVERT_DONE,
    CONVERT_NEEDS_LOWERS,
};

struct convert_result {
    struct digest diff_id; /* of the tar that came out */
    uint64_t tar_bytes;
    uint64_t image_bytes; /* of the image file, holes included */
    uint64_t entries;     /* names in the image */
    bool used_lowers;     /* the image is good for this chain of layers alone */
    uint64_t dropped;     /* extended attributes left out */
    char *dropped_first;  /* up to CONVERT_DROPPED_MAX of them, a line each; "" for none; owned */
};
void convert_result_free(struct convert_result *result);

struct convert;

int convert_start(const struct convert_request *request, struct convert **ret, struct err *err);
/* The first `size` bytes of the archive are there; with `end` these are all. Never blocks for
 * long. A child that has failed meanwhile is no failure here: convert_wait() tells. */
int convert_feed(struct convert *convert, uint64_t size, bool end, struct err *err);
/* Waits for the child. `stop` (may be NULL) is asked ten times a second; when it returns other than
 * 0, the child is killed and the failure is the one it has set. Returns an enum convert_state or
 * -errno; the result is written with CONVERT_DONE only, and is the caller's to free. */
typedef int convert_stop(void *arg, struct err *err);
int convert_wait(struct convert *convert, convert_stop *stop, void *arg, struct convert_result *ret,
                 struct err *err);
/* Gives the images of the layers below, topmost first (files opened for reading; borrowed). */
int convert_continue(struct convert *convert, const int *lower_fds, size_t lower_count,
                     struct err *err);
void convert_free(struct convert *convert); /* NULL is fine */

/* All of it for an archive that is there whole: CONVERT_PLAIN, CONVERT_TAR, or a lowest layer. */
int convert_file(const struct convert_request *request, convert_stop *stop, void *arg,
                 struct convert_result *ret, struct err *err);

/* Whether a blob of `size` bytes that holds `bytes` of tar is refused for its growth. */
static inline bool convert_grows_too_much(uint64_t bytes, uint64_t size, uint64_t growth_free)
{
    return bytes > growth_free && bytes / CONVERT_GROWTH_MAX > size;
}
