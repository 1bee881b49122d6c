/* push_image_internal.h - one push in memory, for push_image*.c only. */
#pragma once

#include "layers_busy.h"
#include "push_image.h"

#include <pthread.h>

/* One blob of the image. */
struct push_blob {
    const struct oci_descriptor *descriptor; /* borrowed */
    struct remote_upload upload;             /* what came of it */
    uint64_t done;                           /* bytes; guarded by the lock */
};

struct push {
    const struct push_image *wanted;
    struct node *node;
    struct push_blob *blobs; /* each digest once; owned */
    size_t count;
    uint64_t total; /* bytes of all */
    bool untagged;  /* the tag does not name the image, as far as is known */

    pthread_mutex_t lock; /* on what follows */
    size_t next;          /* the blob that is begun next */
    bool failed;
    bool lost;          /* the remote lacks a blob, whatever was done about it */
    struct err failure; /* the first */
};

/* What is asked while the remote works on a blob: the job, and whether another blob has failed. */
struct push_transfer {
    struct push *push;
    struct push_blob *blob;
    struct err stop;                /* why the end was asked for */
    const struct layers_busy *busy; /* of an upload; borrowed */
};
int push_blob_progress(void *arg, uint64_t done, uint64_t total);
/* The failure of what was asked that way. Returns it, or `rc` when nobody asked for the end. */
int push_blob_end(const struct push_transfer *transfer, int rc, struct err *err);

/* Sends a blob unless it is there; `anew` sends it whatever the remote says. */
int push_blob_send(struct push *push, struct push_blob *blob, bool anew, struct err *err);
/* Forgets its upload that is on record, and tells the remote before `until_ms`, unless another job
 * sends the blob, or waits for that. */
void push_blob_give_up(struct push *push, const struct push_blob *blob, int64_t until_ms);
/* It is there with its size, or byte for byte; one that is lost, or another one, is sent once more,
 * if it is here. */
int push_blob_confirm(struct push *push, struct push_blob *blob, struct err *err);
int push_blob_verify(struct push *push, struct push_blob *blob, struct err *err);
