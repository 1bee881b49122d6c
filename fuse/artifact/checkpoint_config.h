/* checkpoint_config.h - the config of a checkpoint: what it is of, what came before it, and who
 * vouches for it (docs/FORMAT.md, "Checkpoint config").
 *
 * Job: between the structure and its bytes; the HMAC. Writing is deterministic and knows no clock.
 * Everything that is read comes from a registry: unknown members, wrong types, null, numbers out of
 * their limits, an index root that is no digest, a chunk that was first touched twice: ERR_DAMAGED;
 * another format: ERR_TOO_NEW. An HMAC is
 * checked by checkpoint_config_verify() alone, which whoever has a key calls before he believes
 * anything.
 */
#pragma once

#include "digest.h"
#include "hmac.h"
#include "volume_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHECKPOINT_FORMAT = 1,
    CHECKPOINT_NODE_MAX = 255, /* bytes of a node's ID */
    CHECKPOINT_TOUCH_MAX = 4096,
    CHECKPOINT_CONFIG_BYTES_MAX = 128 * 1024,
};
#define CHECKPOINT_MEDIA_CONFIG "application/vnd.varve.checkpoint.config.v1+json"

struct checkpoint_config {
    char volume[VOLUME_ID_LEN + 1];
    char lineage[VOLUME_ID_LEN + 1];
    uint8_t uuid[VOLUME_UUID_LEN]; /* of the file system */
    uint64_t size;                 /* bytes */
    uint64_t generation;           /* from 1 on, one more than the parent's of the same volume */
    bool has_parent;
    struct digest parent; /* index of the checkpoint before it */
    uint64_t token;       /* fencing token; 0: none */
    char node[CHECKPOINT_NODE_MAX + 1];
    struct digest root; /* of the index tree */
    int64_t created_ns; /* wall clock; whole seconds are kept */
    uint32_t *touched;  /* chunks in the order of their first reads; owned; NULL */
    size_t touched_count;
    bool is_signed; /* an HMAC stood there */
    uint8_t hmac[HMAC_BYTES];
};
void checkpoint_config_free(struct checkpoint_config *config);
#define cleanup_checkpoint_config cleanup_with(checkpoint_config_free)

/* The bytes, signed when there is a key (NULL: none). Caller frees. ERR_INTERNAL for what the
 * reader would refuse. */
int checkpoint_config_encode(const struct checkpoint_config *config, const struct hmac_key *key,
                             char **ret, size_t *ret_len, struct err *err);
int checkpoint_config_decode(const char *bytes, size_t len, struct checkpoint_config *ret,
                             struct err *err);
/* ERR_DENIED: it has no HMAC, or one of another key or of other bytes. */
int checkpoint_config_verify(const struct checkpoint_config *config, const struct hmac_key *key,
                             struct err *err);
