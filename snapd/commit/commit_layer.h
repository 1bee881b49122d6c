/* commit_layer.h - captures a tree for a job, with the new layer leased. */
#pragma once

#include "capture.h"
#include "engine.h"

/* capture_tree() with the job's progress, and a lease on the layer before its blob has a name, so
 * that neither a removal nor a kill can come in between (I5). */
int commit_layer_capture(struct job *job, int root_fd, enum capture_kind kind,
                         struct capture_result *ret, struct err *err);

static inline void commit_layer_result_free(struct capture_result *result)
{
    capture_result_free(result);
}
#define cleanup_capture_result cleanup_with(commit_layer_result_free)
