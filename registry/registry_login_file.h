/* registry_login_file.h - the file with credentials, which may lie on a file system that hangs. A
 * part of registry_credentials.c.
 *
 * Job: what the file says now, and whether it is another one than before (device, inode, size,
 * times of change). A thread of its own, begun with the first question, is the only one that
 * touches the file. Who asks waits for a look that began after the question, is asked meanwhile
 * whether to go on, and waits no longer than a limit; so a server of files that has gone away (a
 * system call on it cannot even be interrupted) holds no work with registries up for longer than
 * that:
 *
 *   which version it is   REGISTRY_LOGIN_FILE_LOOK_MS, then the last one that is known. While the
 *                         same look goes on nobody waits for it again
 *   what it says          REGISTRY_LOGIN_FILE_READ_MS, then it is a failure that names the file
 *
 * What is missing says nothing, and that is no failure. What cannot be read or understood is one,
 * at each question, until it is mended.
 *
 * Limits: one file; REGISTRY_DOCKER_CONFIG_MAX bytes of it.
 *
 * Threads: may be used by several at once, but for opening and closing.
 */
#pragma once

#include "registry_docker_config.h"
#include "registry_pool.h"

enum {
    REGISTRY_LOGIN_FILE_LOOK_MS = 1000,
    REGISTRY_LOGIN_FILE_READ_MS = 30 * 1000,
};

struct registry_login_file;

/* Touches nothing yet. Copies the path; "" stands for a file that is missing. */
int registry_login_file_open(const char *path, struct registry_login_file **ret, struct err *err);
/* Also while the thread hangs: what it uses goes with it. NULL is fine. */
void registry_login_file_close(struct registry_login_file *file);

const char *registry_login_file_path(const struct registry_login_file *file);

/* A number that grows whenever the file has changed. ERR_CANCELLED when the waiter (NULL: nobody)
 * asks for the end. */
int registry_login_file_version(struct registry_login_file *file,
                                const struct registry_waiter *waiter, uint64_t *ret,
                                struct err *err);

/* What the file says, NULL when it is missing; borrowed until registry_login_file_unlock(), which
 * has to follow soon. The version is that of *ret or an older one. On failure nothing is locked. */
int registry_login_file_lock(struct registry_login_file *file, const struct registry_waiter *waiter,
                             const struct registry_docker_config **ret, uint64_t *ret_version,
                             struct err *err);
void registry_login_file_unlock(struct registry_login_file *file);

/* Other limits, for tests; before the first question. */
void registry_login_file_set_limits(struct registry_login_file *file, int64_t look_ms,
                                    int64_t read_ms);
