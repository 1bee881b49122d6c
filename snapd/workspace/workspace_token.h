/* workspace_token.h - fencing tokens: which of several writers of a volume is the one that counts
 * (I8).
 *
 * On a node the catalog decides who writes a volume. Across nodes it is whoever places sandboxes:
 * it passes a token with each mount that is higher than any before it for that volume. The node
 * keeps it (catalog_line_set_token()), and it is in every checkpoint. Who has a lower token than
 * the remote shows, in whichever checkpoint of the volume, or than this node knows, is refused with
 * ERR_CONFLICT: at the attach, and at each checkpoint. 0 is no token; who has none is below
 * everybody who has.
 */
#pragma once

#include "catalog_checkpoint.h"
#include "checkpoint_head.h"
#include "engine.h"

enum {
    WORKSPACE_TOKEN_LOOK_MS = 30000, /* that a mount waits for what the remote shows */
};

/* "token" of a request; 0: it has none. */
int workspace_token_read(const json_t *params, const char *what, int64_t *ret, struct err *err);
/* Whether a writer may have a volume whose newest token, as far as this node knows, is the line's.
 */
int workspace_token_check(const char *name, const struct catalog_line *line, int64_t token,
                          struct err *err);
/* Whether a writer with `token` (0: none) may go on, as far as the remote shows. */
int workspace_token_compare(const char *name, const struct checkpoint_heads *heads, int64_t token,
                            struct err *err);
/* Whether the one before, `parent`, does not show the remote that the volume's writer has `token`,
 * so that a checkpoint has to, whatever has changed: who takes over fences with that. */
bool workspace_token_is_new(const struct checkpoint_config *parent, const char *volume,
                            int64_t token);
/* Both, for a writer who begins: the remote is asked now, without a claim, as it may let us wait.
 * One that cannot be asked is a failure. */
int workspace_token_look(struct job *job, const char *name, int64_t token, struct err *err);
/* Gives it to the volume, in the transaction that is open or one of its own; with the claim. 0:
 * nothing to do. */
int workspace_token_set(struct node *node, const char *name, const char *volume, int64_t token,
                        struct err *err);
