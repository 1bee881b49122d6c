/* pull.h - job "image.pull", and pulling as a part of other jobs.
 *
 * Params: {"reference"}. Fetches manifest (selecting from an index for this machine), config and
 * layers, each leased before it is looked for (I5) and digest-checked before it has a name (I6),
 * then records the image and its name. What is there already is not fetched again.
 *
 * Result: {"id": manifest digest, "digest", "names", "layers", "size", "downloaded": bytes}.
 */
#pragma once

#include "catalog_image.h"
#include "engine.h"
#include "image_ref.h"

extern const struct job_kind pull_job;
/* Job "image.rm": {"reference"}. Drops the local copy: the name, and with the last name the image,
 * its blobs and unpacked layers that nothing else needs. */
extern const struct job_kind image_rm_job;

/* Pulls what a reference names; *ret_digest (caller frees) is the manifest digest. */
int pull_image(struct job *job, const struct image_ref *ref, char **ret_digest, struct err *err);

/* Removes the bytes of everything that is queued for deletion and unreferenced. */
int pull_run_deletions(struct node *node, struct err *err);

/* The image document for the API; caller owns it. */
json_t *image_json(const struct catalog_image *image);
