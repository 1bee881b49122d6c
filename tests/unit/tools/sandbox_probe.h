/* sandbox_probe.h - runs shell scripts in real sandboxes for tests.
 *
 * sandbox_run() is called in a child, as it takes over the standard streams. They are files of
 * the test's scratch directory unless the test gives descriptors.
 */
#pragma once

#include "sandbox.h"
#include "scratch.h"

#include <sys/types.h>

enum {
    SANDBOX_PROBE_FAILED = 200, /* exit status of a child whose sandbox_run() gave a failure */
};

struct sandbox_probe {
    const char *script; /* for sh -c; NULL: `argv` */
    const char *const *argv;
    const char *const *env;
    const char *cwd;
    struct sandbox_user user;
    enum sandbox_net net;
    const char *rootfs; /* NULL: the tiny root */
    int lock_fd;        /* 0: none */
    bool leaky;         /* what the test has open stays open in the child */
    int fds[3];         /* standard streams; 0: files in the scratch directory */
};

struct sandbox_probe_result {
    int status;      /* exit status of the child */
    char out[65536]; /* what was written to standard output, NUL-terminated */
    char err[8192];
};

/* Starts the child; sandbox_probe_wait() collects. */
pid_t sandbox_probe_start(const struct scratch *scratch, const struct sandbox_probe *probe);
void sandbox_probe_wait(const struct scratch *scratch, pid_t pid, struct sandbox_probe_result *ret);

/* Both for a script. */
void sandbox_probe_script(const struct scratch *scratch, const char *script,
                          struct sandbox_probe_result *ret);
void sandbox_probe_run(const struct scratch *scratch, const struct sandbox_probe *probe,
                       struct sandbox_probe_result *ret);

/* Waits until `condition` holds, at most 20 s; fails the test then. */
void sandbox_probe_await(bool (*condition)(void *arg), void *arg, const char *what);
