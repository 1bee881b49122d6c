/* registry_server.h - the real docker-registry, for one test program.
 *
 * Storage, configuration and log lie in a directory of the caller. The kernel chooses the port,
 * and the server ends with the test program, whatever becomes of that.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <sys/types.h>

struct registry_server_options {
    bool delete_enabled;
    const char *tls_cert; /* PEM files; NULL: plain http */
    const char *tls_key;
    const char *tls_client_ca; /* demands client certificates of this authority; NULL: none */
};

struct registry_server {
    pid_t pid;
    char host[32]; /* "127.0.0.1:PORT" */
};

/* Starts the server with its files below `dir` (an absolute path, existing) and waits until it
 * listens. */
int registry_server_start(const char *dir, const struct registry_server_options *options,
                          struct registry_server *ret, struct err *err);
/* Ends the process and waits for it. */
void registry_server_stop(struct registry_server *server);
