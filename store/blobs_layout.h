/* blobs_layout.h - the directory below struct blobs: making it, checking it, files in it.
 *
 * Shared by blobs.c, blob_writer.c and blobs_index.c; everybody else uses blobs.h.
 *
 * Making: .varve, blobs/sha256, index.json, and oci-layout last, so a directory that has oci-layout
 * is complete, and one that has only the others is the remains of a crash (or the work of another
 * daemon at this moment) and is completed. Nothing that is there is ever replaced, so any number
 * of daemons may do it at once.
 */
#pragma once

#include "blobs.h"

struct blobs {
    char *path;   /* as given; owned */
    int dir_fd;   /* DIR */
    int blobs_fd; /* DIR/blobs/sha256 */
    int temp_fd;  /* DIR/.varve; -1 for a reader */
};

/* Opens (and for a writer makes) the layout at blobs->path. Descriptors that were opened before a
 * failure stay in `blobs` for blobs_close(). */
int blobs_layout_open(struct blobs *blobs, bool reader, struct err *err);

/* Publishes a file of DIR itself; its temporary name lies in DIR/.varve. */
int blobs_layout_publish(struct blobs *blobs, const char *name, const void *bytes, size_t len,
                         enum publish_mode how, struct err *err);
