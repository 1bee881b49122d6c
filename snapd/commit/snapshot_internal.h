/* snapshot_internal.h - what the jobs of snapshots share, for snapshot*.c and their tests only. */
#pragma once

#include "catalog_snapshot.h"
#include "cleanup.h"
#include "engine.h"

/* The snapshot that a job's parameter "snapshot" names. */
int snapshot_of_params(struct job *job, struct catalog_snapshot *ret, struct err *err);

/* The level that a job's optional parameter "durability" asks for; *ret stays without one. */
int snapshot_level_of(const json_t *params, enum catalog_durability *ret, struct err *err);
/* Pushes a snapshot as the last part of `job`, proves it and records the level. *ret_result is its
 * document with the members of push_image_json(). Ends the job's leases. */
int snapshot_push(struct job *job, struct catalog_snapshot *row, enum catalog_durability level,
                  json_t **ret_result, struct err *err);

/* Result of a job: the document of the snapshot as the catalog has it now. */
int snapshot_result(struct node *node, const char *id, json_t **ret, struct err *err);

/* The name that the snapshot's image has on this node, "NAME:TAG": the repository without the
 * remote's prefix and "images/". Caller frees; NULL without memory. */
char *snapshot_local_name(const struct node *node, const struct catalog_snapshot *snapshot);
