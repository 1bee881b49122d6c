/* snapshot_internal.h - what the jobs of snapshots share, for snapshot*.c and their tests only. */
#pragma once

#include "catalog_snapshot.h"
#include "cleanup.h"
#include "engine.h"

/* The snapshot that a job's parameter "snapshot" names. */
int snapshot_of_params(struct job *job, struct catalog_snapshot *ret, struct err *err);

/* Result of a job: the document of the snapshot as the catalog has it now. */
int snapshot_result(struct node *node, const char *id, json_t **ret, struct err *err);

/* The name that the snapshot's image has on this node, "NAME:TAG": the repository without the
 * remote's prefix and "images/". Caller frees; NULL without memory. */
char *snapshot_local_name(const struct node *node, const struct catalog_snapshot *snapshot);
