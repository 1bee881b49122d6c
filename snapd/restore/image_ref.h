/* image_ref.h - what a user's word for an image means on this node.
 *
 * Order: a snapshot's ID; a local name; a digest of a local image; then a place in a remote: the
 * reference's own host, or this node's remote when it has none. A name without a host and
 * "images/" stands for "<prefix>/images/<name>" in this node's remote; a reference with this
 * remote's host and prefix is the same as the one without.
 *
 *   word (remote https://r:5000/team)     local name     place
 *   debian:12                             debian:12      team/images/debian : 12
 *   images/debian:12                      debian:12      the same
 *   r:5000/team/images/debian:12          debian:12      the same
 *   r:5000/other/debian:12                as it stands   other/debian : 12 in r:5000
 *   docker.io/library/debian:12           as it stands   library/debian : 12 in docker.io
 *   debian@sha256:..., debian:12@sha256:...   none       team/images/debian @ sha256:...
 *   sha256:...                            none           none: only a local image has it
 *   s-0123456789ab                        none           where the snapshot was pushed, by digest
 *
 * A digest decides alone, also beside a tag. "latest" stands for a missing tag.
 */
#pragma once

#include "node.h"
#include "reference.h"

struct image_ref {
    char *text;         /* as the user gave it */
    char *local_digest; /* of an image that is in the catalog; NULL when it must be pulled */
    char *name;         /* local name it will get or has; NULL for a digest */
    /* Where to pull from; unused when local_digest is set and nobody insists. */
    char *host;       /* NULL: this node's remote */
    char *repository; /* full; NULL when nobody knows a place */
    char *reference;  /* tag or digest */
};
void image_ref_free(struct image_ref *ref);
#define cleanup_image_ref cleanup_with(image_ref_free)

/* ERR_INVALID for a word that is none; never ERR_NOT_FOUND, as only the remote can know. */
int image_ref_resolve(struct node *node, const char *text, struct image_ref *ret, struct err *err);

/* The word must be an image in this catalog. ERR_NOT_FOUND else. Caller frees the digest. */
int image_ref_local(struct node *node, const char *text, char **ret_digest, struct err *err);
