/* node.h - what every part of the daemon works with: one data directory, one run directory, one
 * remote, one catalog.
 *
 * Made by main, handed down, never global. Descriptors of directories stay open for the life of
 * the daemon. docs/FORMAT.md describes the directories.
 *
 * Both directories have mode 0700: layers and mounts below them hold setuid files and device
 * nodes of images, which other users of the host must not reach. A directory that holds something
 * else than a varve's files is refused, so that a wrong setting changes nothing of anybody.
 *
 * The run directory becomes a shared mount of its own and stays one after node_close(): runtimes
 * in other mount namespaces would lose sight of later mounts otherwise.
 *
 * Threads: the structure does not change after node_open(), except `engine`, which main sets.
 */
#pragma once

#include "blobs.h"
#include "catalog.h"
#include "clock.h"
#include "hmac.h"
#include "registry.h"
#include "remote.h"
#include "workspace_settings.h"

#include <pthread.h>
#include <stdbool.h>

struct engine;
struct layers_mounts;
struct volumes;
struct workspace_fetches;
struct workspaces;

struct node {
    const char *id; /* [node] id; default the host name */
    struct clock clock;
    struct catalog *catalog;
    struct blobs *blobs;
    struct registry_pool *pool;       /* the transport to all registries; owned */
    struct remote *remote;            /* where pushed things live */
    struct registry_options registry; /* for references that name another registry */
    struct engine *engine;       /* while jobs run; for who is neither a job nor a request, under */
    pthread_mutex_t engine_lock; /* this lock */
    const char *data_dir;        /* absolute, without symbolic links */
    const char *run_dir;         /* the same */
    int data_fd;
    int layers_fd;                 /* DATA/layers: layer images */
    int runs_fd;                   /* DATA/runs: writable layers of runs */
    int temp_fd;                   /* DATA/tmp: unfinished things, emptied at start */
    int uploads_fd;                /* DATA/uploads: bodies that clients streamed in */
    int exports_fd;                /* DATA/exports: archives that clients have not fetched yet */
    int volumes_fd;                /* DATA/volumes */
    int run_fd;                    /* RUN */
    int run_runs_fd;               /* RUN/runs: mount points of runs */
    int run_layers_fd;             /* RUN/layers: mount points of layer images */
    struct layers_mounts *mounts;  /* who uses which of them (layers_mount.h); owned */
    struct volumes *volumes;       /* volumes.h; owned */
    struct workspaces *workspaces; /* workspace_claim.h; owned */
    struct workspace_fetches *fetches; /* workspace_fetch.h; owned */
    struct hmac_key *trust_key; /* the cluster's, which checkpoints are signed with; NULL: none;
                                   owned */
    struct workspace_settings volume;
    char boot_id[64]; /* of the host: another one after each of its starts */
    /* For node.c and node_index.c alone. */
    int data_lock;
    int run_lock;
    pthread_mutex_t index_lock; /* held while DATA/layout/index.json is compared and written */
};

/* Opens directories, locks, store, catalog and remote as the options say; one daemon per data and
 * per run directory (ERR_CONFLICT names the directory). Sweeps what a crash left under temporary
 * names. On failure everything is closed again.
 *
 * Refuses to start in another mount namespace than that of pid 1, where nobody would see the
 * mounts of runs. Strings are copied. A missing data or run directory is made, its parent is not.
 */
struct node_options {
    const char *data_dir;
    const char *run_dir;
    const char *id;     /* NULL: host name */
    const char *remote; /* "oci:DIR", "https://..." or "http://..."; NULL: "oci:DATA/remote" */
    struct registry_options registry; /* its pool is the node's */
    struct registry_pool_options transport;
    struct workspace_settings volume; /* what is 0 becomes the default */
    const char *key_file;             /* NULL: no checkpoint is signed or checked */
    bool allow_other_mount_namespace; /* for tests: start although pid 1's is another */
};
int node_open(const struct node_options *options, struct node **ret, struct err *err);
void node_close(struct node *node); /* NULL is fine; the engine has been stopped */

/* Makes DATA/layout/index.json, by which stock tools find the images of this node, say what the
 * catalog says: one line per name, one without a name for an image that has none. Writes only what
 * differs. Called after each change of images or names, outside of catalog transactions. The
 * catalog is the truth, so a failure harms nothing but those tools until the next call. */
int node_sync_index(struct node *node, struct err *err);

/* A file of this size, DATA/reserve, is kept so that a full disk can be emptied: also a removal has
 * to be written to the catalog first, and runs share the disk with it. */
enum {
    NODE_RESERVE_BYTES = 1 << 20,
};
/* Makes the reserve what it should be, if the disk has room for that. */
void node_reserve_fill(struct node *node);
/* Gives it back to the disk; false when there is nothing to give. */
bool node_reserve_release(struct node *node);
/* Whether what the catalog writes about a job will find room: the reserve is whole, or as much is
 * free. */
bool node_reserve_has_room(struct node *node);
