/* keeper_start.h - the start of varve-keeper, and the end of one that does not answer.
 *
 * Keeper puts itself in the background, in a session of its own, and outlives whoever started it.
 * What it says before it answers becomes the error. Used by keeper_client.c.
 */
#pragma once

#include "err.h"

#include <stdint.h>

/* Starts keeper and waits until it answers on RUN/keeper.sock, or finds that another one does.
 * `program` NULL: as spawn_find() finds it. `run_path` is absolute. ERR_UNREACHABLE: not by
 * `deadline` (wire_call.h). */
int keeper_start(const char *program, const char *run_path, int64_t deadline, struct err *err);

/* Kills the peer of a connection and waits until it has ended. */
int keeper_start_kill(int socket, int64_t deadline, struct err *err);
