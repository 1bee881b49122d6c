/* registry_credential_helper.h - asking a docker-credential-NAME program for what to log in with.
 *
 * Protocol (docker-credential-helpers): "docker-credential-NAME get", the server on standard input,
 * {"ServerURL","Username","Secret"} on standard output; a user "<token>" means that the secret is
 * an identity token. A helper that knows none fails and says "credentials not found".
 *
 * The program is found in the fixed search path of stock tools (spawn_find_tool()): the daemon runs
 * as root, so the PATH of whoever started it, or of a request, must not choose what it runs. The
 * helper gets the daemon's environment otherwise (HOME, AWS_PROFILE, ... are what helpers are
 * configured by), with that fixed PATH.
 *
 * Nothing that a helper writes gets into a message or the log, as it may hold the secret: its
 * standard error is discarded, and the hint of a failure says how to run it by hand. It is killed
 * after REGISTRY_HELPER_MS; what it writes is bounded.
 *
 * Threads: may be used by several at once.
 */
#pragma once

#include "registry_credential.h"
#include "registry_pool.h"

enum {
    REGISTRY_HELPER_MS = 30000,
    REGISTRY_HELPER_ANSWER_MAX = 64 * 1024, /* bytes of its standard output */
};

/* Asks the helper NAME for a server. 1 and *ret, 0 when it knows none, or a failure: ERR_NOT_FOUND
 * when there is no such program, ERR_UNREACHABLE when it does not answer in time, ERR_CANCELLED,
 * ERR_DAMAGED for an answer that is none, ERR_DENIED when it fails. */
int registry_credential_helper_get(const char *name, const char *server,
                                   const struct registry_waiter *waiter,
                                   struct registry_credential *ret, struct err *err);

/* The same with the program's path and another time; for tests. */
int registry_credential_helper_run(const char *path, const char *server, int64_t limit_ms,
                                   const struct registry_waiter *waiter,
                                   struct registry_credential *ret, struct err *err);
