/* pull.h - job "image.pull", and pulling as a part of other jobs.
 *
 * Params: {"reference"}. Fetches manifest (selecting from an index for this machine), config and
 * layers, each leased before it is looked for (I5) and digest-checked before it has a name (I6),
 * then records the image and its name. What is there already is not fetched again; a digest that
 * is here is not asked for at all. A name moves to the image that the remote has under it now; the
 * image that it meant before stays.
 *
 *   steps: manifest -> config -> layers (several at a time) -> record
 *
 * Each layer is downloaded and converted as one stream (layers.h), so afterwards a run of the image
 * needs no further work than mounting.
 *
 * Several pulls may run at once, of one name too: a blob that one of them is downloading is waited
 * for by the others (layers_busy.h). Of two that move one name, the one that is recorded last
 * decides.
 *
 * The config is read before any layer is fetched, so that an image that cannot be used, also one
 * for another architecture, costs little. Progress is in bytes of config and layers together,
 * present ones too. What a failure leaves in the store is removed again; an interrupted job keeps
 * it and goes on with it.
 *
 * Result: {"id": manifest digest, "digest", "names", "layers", "size", "downloaded": bytes}.
 */
#pragma once

#include "catalog_image.h"
#include "engine.h"
#include "image_ref.h"

enum {
    PULL_INDEX_DEPTH_MAX = 4,  /* indexes in indexes */
    PULL_INDEX_LOOKS_MAX = 64, /* manifests and indexes that are fetched to find the image */
};

extern const struct job_kind pull_job;
/* Job "image.rm": {"reference"}. Drops the local copy: the name, and with the last name the image,
 * its blobs and layer images that nothing else needs. A digest or a snapshot's ID means the
 * image with all its names. The record of a snapshot and what the remote has stay. ERR_CONFLICT
 * while a run uses the image, or when it is the only copy of a snapshot.
 *
 * Result: {"digest", "names": [names that are gone], "removed": whether the image is gone}. */
extern const struct job_kind image_rm_job;

/* Pulls what a reference names; *ret_digest (caller frees) is the manifest digest. The job keeps
 * its leases on success, so that what it makes of the image can be recorded. */
int pull_image(struct job *job, const struct image_ref *ref, char **ret_digest, struct err *err);

/* Removes the bytes of everything that is queued for deletion and unreferenced. One that cannot be
 * removed does not stop the others (I9): it goes to the end of the queue, and the first such
 * failure is returned. */
int pull_run_deletions(struct node *node, struct err *err);

/* The image document for the API; caller owns it. NULL without memory. */
json_t *image_json(const struct catalog_image *image);
