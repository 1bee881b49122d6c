/* registry_credentials.h - where user names and secrets come from.
 *
 * Job: for a registry (and a repository of it) finds what to log in with, in a file in the format
 * of Docker's config.json or of containers' auth.json (registry_docker_config.h):
 *
 *   the node's auth_file, else $REGISTRY_AUTH_FILE, else $DOCKER_CONFIG/config.json,
 *   else $HOME/.docker/config.json
 *
 * and in the credential helpers that it names: the helper of the host, then the one of all hosts,
 * then what stands in the file itself. The environment is read once, when this is opened.
 *
 * The file is read when something is asked for and it is another one than before, so a log-in or a
 * rotated password holds from the next look on; registry_login_file.h does that, so that a file
 * system that hangs holds nobody up for long. States:
 *
 *   missing               nobody is logged in: no failure
 *   unreadable, empty, no JSON, of another shape, too large, no regular file, no answer in time
 *                         a failure that names the file, each time, until it is mended: going on
 *                         as nobody would hide why a registry refuses
 *   can be read by others used, with one warning in the log
 *
 * A helper that does not work is a failure too, also when it was asked for nothing.
 *
 * Secrets are in memory only; no message or log line has one.
 *
 * Threads: may be used by several at once. A helper runs in the calling thread, without the lock.
 */
#pragma once

#include "registry_credential.h"
#include "registry_pool.h"

struct registry_credentials;

/* `auth_file` NULL: the places of the environment. Reads nothing yet. Copies the name. */
int registry_credentials_open(const char *auth_file, struct registry_credentials **ret,
                              struct err *err);
void registry_credentials_close(struct registry_credentials *credentials); /* NULL is fine */

/* The file that is meant, for messages; "" when neither an option nor the environment names one. */
const char *registry_credentials_file(const struct registry_credentials *credentials);

/* What to log in with at a canonical host[:port], for a repository (NULL: any). 1 and *ret, or 0
 * when there is nothing. *ret_version is that of the file as it was read, or an older one; written
 * also when a helper fails afterwards. */
int registry_credentials_find(struct registry_credentials *credentials, const char *host,
                              const char *repository, const struct registry_waiter *waiter,
                              struct registry_credential *ret, uint64_t *ret_version,
                              struct err *err);

/* Looks at the file: a number that grows whenever the file has changed, and stays what it was where
 * the file cannot be looked at in time. ERR_CANCELLED when the waiter asks for the end. */
int registry_credentials_version(struct registry_credentials *credentials,
                                 const struct registry_waiter *waiter, uint64_t *ret,
                                 struct err *err);

/* registry_login_file_set_limits(), for tests. */
void registry_credentials_set_limits(struct registry_credentials *credentials, int64_t look_ms,
                                     int64_t read_ms);
