/* workspace_line.h - where the checkpoints of a volume are in the remote, and opening them.
 *
 * The repository of a line of forks is "volumes/LINEAGE" below the remote's prefix. Which
 * checkpoint a volume stands on is the catalog's to say (catalog_checkpoint.h), never the volume's
 * own directory, as its worker could write there what it likes.
 */
#pragma once

#include "catalog_checkpoint.h"
#include "checkpoint_head.h"
#include "checkpoint_walk.h"
#include "node.h"
#include "volume_json.h"

/* Caller frees; NULL without memory. */
char *workspace_line_repository(const struct node *node, const char *lineage);
/* What names a checkpoint on every node with this remote: "host/prefix/volumes/LINEAGE@sha256:..."
 * (remote_reference()). Caller frees. */
char *workspace_line_reference(const struct node *node, const char *lineage,
                               const struct digest *digest);
/* Opens a checkpoint, checked against the cluster's key where there is one, and against the
 * lineage. */
int workspace_line_open(const struct node *node, const char *lineage, const char *digest,
                        remote_progress stop, void *arg, struct checkpoint **ret, struct err *err);
/* Whether a failure to open or read a checkpoint says that the remote has lost or damaged it, which
 * no repeat mends. */
bool workspace_line_is_lost(const struct err *failure);
/* What the remote has of a volume. Where there is a key, a checkpoint that this node does not know
 * is taken for one only when its signature is right. `own`: the digest
 * of one that may be there unheard of (heads.own); NULL. The caller frees. */
int workspace_line_heads(struct node *node, const char *lineage, const char *volume,
                         const char *own, remote_progress stop, void *arg,
                         struct checkpoint_heads *ret, struct err *err);
/* The digest of the checkpoint that the next one of a volume stands on: its head, or what it was
 * made of. NULL: it has none. */
const char *workspace_line_base(const struct catalog_line *line);
/* ERR_CONFLICT unless a volume is made of what the catalog says (nothing, mostly): a rollback that
 * was cut short is to go on first. What its directory says alone counts for nothing. */
int workspace_line_check(const struct catalog_line *line, const struct volume_base *base,
                         struct err *err);
/* What a volume that is made of a checkpoint has as its base. */
struct volume_base workspace_line_volume_base(const struct checkpoint *checkpoint);
/* The failure of who made a volume of what the walk gave: the walk's own where that is the cause.
 */
int workspace_line_walked(const struct checkpoint_walk *walk, int rc, struct err *err);
