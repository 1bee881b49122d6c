/* registry_docker_config.h - Docker's config.json, and the auth.json of containers, as documents.
 *
 *   {"credHelpers": {"host[:port]": "NAME", ...},   a program docker-credential-NAME for one host
 *    "credsStore": "NAME",                          one for all hosts
 *    "auths": {KEY: {"auth": base64 of "user:password", "username", "password",
 *                    "identitytoken", "registrytoken"}, ...}}
 *
 * A KEY is host[:port], the same with a scheme and any path ("https://host/v1/"), or, as containers
 * write it, host[:port]/path without a scheme, which holds for the repositories below this path; of
 * several that fit the longest counts. Port 443 is as none. Docker's own registry has four names,
 * docker.io, index.docker.io, registry-1.docker.io and https://index.docker.io/v1/, which are one
 * here. Entries without anything to log in with are as none. Keys that name no host are passed
 * over.
 *
 * No message has a piece of the document but names of hosts and helpers.
 *
 * Threads: reading a parsed document is safe for several at once.
 */
#pragma once

#include "registry_credential.h"

#include <stdbool.h>

enum {
    REGISTRY_DOCKER_CONFIG_MAX = 1 << 20, /* bytes of the file */
    REGISTRY_HELPER_NAME_MAX = 64,        /* bytes of NAME */
};

struct registry_docker_config;

/* Parses; `what` names the file in messages and as the source of what it holds. ERR_DAMAGED for
 * what is no JSON (an empty file is none), and for members of another type. */
int registry_docker_config_parse(const char *bytes, size_t len, const char *what,
                                 struct registry_docker_config **ret, struct err *err);
void registry_docker_config_free(struct registry_docker_config *config); /* NULL is fine */

/* The names of the helpers to ask for a canonical host[:port], in order: that of the host, then
 * that of all. Returns how many (0 to 2); `ret` is borrowed. An empty name for a host takes all out
 * for it. ERR_DAMAGED for a name that is none ([A-Za-z0-9_.-], no '.' in front). */
int registry_docker_config_helpers(const struct registry_docker_config *config, const char *host,
                                   const char *ret[2], struct err *err);

/* What the file itself holds for a repository of a host: 1 and *ret, or 0. ERR_DAMAGED when the
 * entry cannot be understood. `repository` may be NULL. */
int registry_docker_config_find(const struct registry_docker_config *config, const char *host,
                                const char *repository, struct registry_credential *ret,
                                struct err *err);

/* What a helper knows a host by: itself, but for Docker's own registry. */
const char *registry_docker_config_server(const char *host);
