/* node.h - what every part of the daemon works with: one data directory, one run directory, one
 * remote, one catalog.
 *
 * Made by main, handed down, never global. Descriptors of directories stay open for the life of
 * the daemon. docs/FORMAT.md describes the directories.
 */
#pragma once

#include "blobs.h"
#include "catalog.h"
#include "clock.h"
#include "registry.h"
#include "remote.h"

struct engine;

struct node {
    const char *id; /* [node] id; default the host name */
    struct clock clock;
    struct catalog *catalog;
    struct blobs *blobs;
    struct remote *remote;             /* where pushed things live */
    struct registry_options registry;  /* for references that name another registry */
    struct engine *engine;
    const char *data_dir; /* absolute */
    const char *run_dir;  /* absolute */
    int data_fd;
    int layers_fd;   /* DATA/layers: unpacked layers */
    int runs_fd;     /* DATA/runs: writable layers of runs */
    int temp_fd;     /* DATA/tmp: unfinished things, emptied at start */
    int uploads_fd;  /* DATA/uploads: bodies that clients streamed in */
    int run_fd;      /* RUN */
    int run_runs_fd; /* RUN/runs: mount points of runs */
};

/* Opens directories, locks, store, catalog and remote as the options say; one daemon per data and
 * per run directory (ERR_CONFLICT names the directory). Sweeps what a crash left under temporary
 * names. On failure everything is closed again. */
struct node_options {
    const char *data_dir;
    const char *run_dir;
    const char *id;     /* NULL: host name */
    const char *remote; /* NULL: "oci:DATA/remote" */
    struct registry_options registry;
    bool allow_other_mount_namespace; /* for tests: start although pid 1's is another */
};
int node_open(const struct node_options *options, struct node **ret, struct err *err);
void node_close(struct node *node); /* NULL is fine */
