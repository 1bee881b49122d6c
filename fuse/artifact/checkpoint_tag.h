/* checkpoint_tag.h - the tags of checkpoints in the repository of their lineage (docs/FORMAT.md,
 * "Checkpoints").
 *
 * Job: from what a tag says to its text, and back. A node's ID stands in tags as it is where it can
 * be part of one (OCI distribution-spec 1.1, "Pulling manifests":
 * [A-Za-z0-9_][A-Za-z0-9._-]{0,127}) and cannot be taken for an encoded one; else by the hex digits
 * of its bytes, or of its digest when it is long, which nobody can turn back: whose it is stands in
 * the index.
 */
#pragma once

#include "digest.h"
#include "volume_format.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CHECKPOINT_TAG_MAX = 128,   /* with the NUL byte */
    CHECKPOINT_NODE_PLAIN = 64, /* bytes of a node's ID that stand in a tag */
};

enum checkpoint_tag_kind {
    CHECKPOINT_TAG_KEPT,     /* V-g<generation>-<node> */
    CHECKPOINT_TAG_LIVE,     /* V-live-<node> */
    CHECKPOINT_TAG_DIVERGED, /* V-d<generation>-<node> */
    CHECKPOINT_TAG_HOLD,     /* V-hold-<12 hex of the holder> */
};

struct checkpoint_tag {
    enum checkpoint_tag_kind kind;
    char volume[VOLUME_ID_LEN + 1];
    uint64_t generation;           /* of kept and diverged ones */
    char node[CHECKPOINT_TAG_MAX]; /* as it stands in the tag; of a hold the holder's ID */
};

/* How a node's ID stands in a tag; equal for equal IDs alone. */
void checkpoint_tag_node(const char *node, char ret[CHECKPOINT_TAG_MAX]);
/* The text of a tag whose `node` was made by checkpoint_tag_node(). */
void checkpoint_tag_format(const struct checkpoint_tag *tag, char ret[CHECKPOINT_TAG_MAX]);
/* False: it is no tag of a checkpoint; others may have tags here too. */
bool checkpoint_tag_parse(const char *text, struct checkpoint_tag *ret);
/* "r-<12 hex>", "p-<12 hex>": of a root manifest and of a pack list. */
void checkpoint_tag_of_digest(char kind, const struct digest *digest, char ret[CHECKPOINT_TAG_MAX]);
