/* pull_internal.h - the parts of a pull, for pull*.c only.
 *
 * pull.c goes through the steps; pull_blob.c brings blobs into the store, on several threads;
 * pull_rest.c starts them for what layers.h does not need.
 */
#pragma once

#include "commit_image.h"
#include "convert.h"
#include "engine.h"
#include "image_ref.h"

#include <pthread.h>

struct pull {
    struct job *job;
    struct node *node;
    const struct image_ref *ref;
    struct remote *remote; /* borrowed, or the same as `opened` */
    struct remote *opened; /* owned; NULL for the node's own */
    bool is_all;           /* the job's work is done with it */
    struct commit_image image;
    struct catalog_image row; /* of the image; owned, complete after the config */
    uint64_t total;           /* bytes of config and layers */

    pthread_mutex_t lock;              /* on what follows, the newest progress */
    uint64_t done[OCI_LAYERS_MAX + 1]; /* bytes of each layer, and of the config behind them */
    bool settled[OCI_LAYERS_MAX + 1];  /* the blob is in the store, durably */
    uint64_t downloaded;               /* bytes that came over the wire */
};

/* Brings a layer's blob, or with the index OCI_LAYERS_MAX the config's, into the store, digest
 * checked; one that is there is only made durable, and `watch` (may be NULL) hears nothing of it
 * then. `stop` is asked while bytes come and while none do. The caller has a lease on the blob. May
 * be called by several threads, for one index by one. */
int pull_blob(struct pull *pull, size_t index, const struct remote_watch *watch, convert_stop *stop,
              void *stop_arg, struct err *err);
/* Brings the blobs of all layers that are not settled into the store, several at a time. */
int pull_rest(struct pull *pull, struct err *err);
/* Counts a blob that is there with its size as done, for progress. */
void pull_blob_note_present(struct pull *pull, size_t index);
