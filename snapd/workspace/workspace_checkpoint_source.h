/* workspace_checkpoint_source.h - the chunks of an open epoch, for checkpoint_write.h. */
#pragma once

#include "checkpoint_write.h"
#include "volumes_epoch.h"

/* Chunks that may differ from the parent; `whole`: all that are not zero, for a checkpoint without
 * one. `epoch` is borrowed. */
struct workspace_checkpoint_source {
    struct volumes_epoch *epoch;
    bool whole;
};

struct checkpoint_source workspace_checkpoint_source(struct workspace_checkpoint_source *source);
