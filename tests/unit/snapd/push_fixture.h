/* push_fixture.h - one snapshot, and what is known of it here and in the remote, for the tests of
 * pushes; on a commit_fixture.h.
 */
#pragma once

#include "commit_fixture.h"

/* A run "r1" with a snapshot "agent:v1"; its document, which the caller owns. */
json_t *push_fixture_snapshot(struct commit_world *world);
/* The parameters of a job on it. Caller owns them. */
json_t *push_fixture_of(const json_t *snapshot);
/* What a removal's result says of "remote" or "image"; borrowed. */
const char *push_fixture_state_of(const json_t *result, const char *part);
void push_fixture_durability_is(struct commit_world *world, const json_t *snapshot,
                                enum catalog_durability expected);
void push_fixture_is_gone(struct commit_world *world, const json_t *snapshot);
/* What the remote has under images/agent:v1: this digest; "": nothing. */
void push_fixture_remote_has(struct commit_world *world, const char *expected);
/* Starts the world anew with another remote; NULL: the embedded one. */
void push_fixture_use_remote(struct commit_world *world, const char *url);
