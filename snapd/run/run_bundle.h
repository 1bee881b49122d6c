/* run_bundle.h - the config.json of an OCI runtime bundle on a run's root filesystem
 * (runtime-spec 1.0.2), which crun and runc start as it is.
 *
 * The command, environment, working directory and user are the image's, as far as the request has
 * no others; the user is resolved in the root filesystem (run_user.h). What a container gets is
 * what container engines give by default: its own pid, ipc, uts, mount, network (without an
 * interface) and cgroup namespace, fourteen capabilities, covered and read-only parts of /proc and
 * /sys, no device but the usual ones. There is no user namespace: ids on disk are ids of the host,
 * and root inside is the host's with few capabilities; no_new_privs keeps setuid files of an image
 * from being a way to more.
 *
 * Deterministic: the same run and request give the same document. Nothing is written here.
 */
#pragma once

#include "catalog_run.h"
#include "json_doc.h"
#include "node.h"

#define RUN_BUNDLE_OCI_VERSION "1.0.2"
/* An annotation that says how runsc has to be started: with its default overlay over the root
 * filesystem nothing that is written ever reaches the run. */
#define RUN_BUNDLE_RUNSC       "io.varve.runsc.flags"
#define RUN_BUNDLE_RUNSC_FLAGS "--overlay2=none"

struct run_bundle {
    const json_t *args; /* array of strings, in place of Entrypoint and Cmd; NULL: the image's */
    const json_t *env;  /* array of "K=V", over the image's; NULL: none */
    const char *cwd;    /* absolute; NULL: the image's */
    const char *user;   /* NULL: the image's */
    bool terminal;
};

/* The document; caller owns *ret. The run is ready and mounted, else ERR_CONFLICT. ERR_INVALID when
 * neither request nor image has a command. */
int run_bundle_make(struct node *node, const struct catalog_run *run,
                    const struct run_bundle *wanted, json_t **ret, struct err *err);
