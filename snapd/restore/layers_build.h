/* layers_build.h - making one layer's image; for layers*.c only.
 *
 * A struct layers_work is one call of layers_ensure(), shared by its threads.
 */
#pragma once

#include "layers.h"
#include "oci_image.h"

#include <pthread.h>
#include <stdbool.h>

struct layers_work {
    struct node *node;
    const struct catalog_image *image;
    const struct layers_fetch *fetch; /* may be NULL */
    convert_stop *stop;               /* of the caller; may be NULL */
    void *stop_arg;

    pthread_mutex_t lock; /* on what follows */
    pthread_cond_t changed;
    size_t next;                  /* first layer that nobody has taken */
    bool present[OCI_LAYERS_MAX]; /* the layer's image is there */
    bool failed;
    size_t failed_index;
    int failed_rc;
    struct err failure; /* the first one */
};

/* A convert_stop: whether the work on a layer is of no use any more, as another one failed or the
 * caller's `stop` says so. */
int layers_work_stop(void *arg, struct err *err);
/* Waits until all layers below number `index` are present. */
int layers_work_wait_below(struct layers_work *work, size_t index, struct err *err);

/* Makes the image of layer `index` present. */
int layers_build(struct layers_work *work, size_t index, struct err *err);
