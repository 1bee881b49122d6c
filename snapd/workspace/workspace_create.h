/* workspace_create.h - making a workspace, whatever its volume is made of: the steps that jobs of
 * several kinds share. */
#pragma once

#include "engine.h"
#include "volume_format.h"

struct workspace_creation {
    const char *name;
    uint64_t size; /* bytes, as the volume will have */
    char volume[VOLUME_ID_LEN + 1];
    const char *lineage; /* NULL: a line of its own */
    const char *parent;  /* digest of the checkpoint that it is made of; NULL: none */
    int64_t token;       /* fencing token of its first writer; 0: none */
    const char *view_of; /* ID of the volume of which it shows an epoch; NULL: of none */
    /* Makes the directory of the volume, durably; can be repeated. */
    int (*make)(void *arg, struct node *node, const struct workspace_creation *creation,
                struct err *err);
    void *arg;
    bool part; /* of a job that goes on, and settles by itself */
};

/* "size" of a request, rounded to what volumes have; the default without it. ERR_INVALID. */
int workspace_create_size(const struct node *node, const json_t *params, uint64_t *ret,
                          struct err *err);
/* The ID of the volume that a job makes: the same each time that it runs. */
int workspace_create_id(struct job *job, char ret[VOLUME_ID_LEN + 1], struct err *err);
/* Takes back what an attempt of this job has left half made. An interrupted job goes on at the next
 * start, so its work stays. For jobs that fail before they come to workspace_create_run(). */
void workspace_create_undo(struct node *node, const struct workspace_creation *creation,
                           const struct err *cause);
/* Admission, rows, the directory; or what of it is left to do. What fails is undone. The result is
 * the workspace's document. */
int workspace_create_run(struct job *job, const struct workspace_creation *creation,
                         json_t **ret_result, struct err *err);
