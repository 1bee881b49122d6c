/* remote_checkpoint.h - what stands under a checkpoint's tag in a remote, made by hand: for tests
 * of who believes what. Nothing of it can be read as a volume. A failure ends the test.
 */
#pragma once

#include "checkpoint_manifest.h"
#include "remote.h"

#include <stdint.h>

struct checkpoint_blob remote_checkpoint_blob(struct remote *remote, const char *repository,
                                              const char *text);
/* `tag` may be NULL. */
struct checkpoint_blob remote_checkpoint_manifest(struct remote *remote, const char *repository,
                                                  const char *tag, const char *bytes, size_t len);
/* A root manifest with a config of this text. */
struct checkpoint_blob remote_checkpoint_root(struct remote *remote, const char *repository,
                                              const char *config);
/* The index of a checkpoint; of node "elsewhere". */
void remote_checkpoint_index(struct remote *remote, const char *repository, const char *tag,
                             const char *volume, struct checkpoint_blob root, uint64_t generation,
                             uint64_t token);
