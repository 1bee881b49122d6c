/* capture_body.h - the content of one regular file, into a layer.
 *
 * Holes are found with SEEK_HOLE and SEEK_DATA and never read: a hole costs the time to hash zeros.
 * The total of holes in one capture is limited to CAPTURE_HOLES_MAX, and a file that would pass it
 * is refused by name before anything of it is written, as a layer has no other form for it that
 * every tool can read.
 *
 * The file must have the size that its entry announced, from the first byte to the end.
 */
#pragma once

#include "layer_writer.h"
#include "walk.h"

#include <stdint.h>

#define CAPTURE_HOLES_MAX (UINT64_C(64) << 30) /* bytes; one to three minutes of hashing */

enum {
    CAPTURE_CHUNK = 1 << 20, /* bytes per read */
};

struct capture_body {
    unsigned char *chunk; /* owned */
    uint64_t holes;       /* bytes of holes so far */
    /* Called about every CAPTURE_CHUNK bytes; a failure ends the capture. May be NULL. */
    int (*tick)(void *arg, struct err *err);
    void *arg;
};

int capture_body_init(struct capture_body *body, struct err *err);
void capture_body_free(struct capture_body *body);
#define cleanup_capture_body cleanup_with(capture_body_free)

/* Whether the holes of this file fit below the limit; to be asked before its header is written. */
int capture_body_check(const struct capture_body *body, const struct walk_entry *entry,
                       struct err *err);
/* Writes the whole content of the entry's file, stx_size bytes. */
int capture_body_copy(struct capture_body *body, const struct walk_entry *entry,
                      struct layer_writer *writer, struct err *err);
