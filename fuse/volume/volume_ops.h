/* volume_ops.h - what FUSE requests mean for a volume: one directory with one file.
 *
 * Node ids and handles are constants of the format (docs/FORMAT.md, "FUSE constants"), so a worker
 * knows what another one was asked. Everything that is not needed to serve `device` to a loop
 * device, or to look at it with ls and stat, is ENOSYS, which the kernel remembers and asks no
 * more. Requests that are not aligned to blocks are EINVAL.
 */
#pragma once

#include "volume.h"

#include <fuse_lowlevel.h>

/* For volume_session_open(); the user data is a struct volume. */
extern const struct fuse_lowlevel_ops volume_ops;

/* For volume_queue_init(): the argument is not used. */
void volume_ops_answer(void *arg, const struct volume_task *task, int result);
