/* node_internal.h - the steps of node_open(), for node*.c and their tests only. */
#pragma once

#include "node.h"

enum {
    NODE_FORMAT = 1, /* of the data directory, in DATA/format */
};

/* A data or run directory: made with mode 0700 if it is missing, opened, its real path in *ret_path
 * (caller frees). When it does not hold the regular file `marker`, so was never a varve's, it has
 * to be empty but for what a first start leaves when it is killed. `what` is "data" or "run".
 * Returns a descriptor. Changes nothing in a directory that exists. */
int node_dir_open(const char *path, const char *what, const char *marker, const char **ret_path,
                  struct err *err);
/* Takes mode bits of group and others away. */
int node_dir_protect(int dir_fd, const char *path, struct err *err);
/* Makes or opens a sub-directory on the same mount; never follows a link. */
int node_dir_sub(int dir_fd, const char *path, const char *name, struct err *err);
/* Reads DATA/format, or writes it at the first start. */
int node_dir_format(int data_fd, const char *path, struct err *err);
/* ERR_DAMAGED when the catalog is gone while the directory still holds runs, layers or blobs: an
 * empty catalog in its place would show an empty node, take all names out of the layout's index and
 * let new things collide with the old ones. */
int node_dir_check_catalog(int data_fd, const char *path, struct err *err);

enum {
    NODE_LOCK_WAIT_MS = 3000, /* for a lock whose holder is gone */
};

/* Takes the exclusive lock on the file "lock" in a directory and writes the own pid into it, for
 * people. Returns a descriptor that holds it, or ERR_CONFLICT. The lock is on the inode, so another
 * path to the same directory is no way around it. */
int node_lock_take(int dir_fd, const char *path, const char *what, struct err *err);

/* ERR_CONFLICT when this process is in another mount namespace than pid 1. */
int node_mount_check_namespace(struct err *err);
/* Makes the directory a shared mount of its own, unless it is one. */
int node_mount_share(const char *path, struct err *err);

/* Opens what the volumes of this node need: node->volumes, node->workspaces, node->boot_id. Their
 * files belong to the user "varve", or to nobody (65534) where the host has none. */
int node_volumes_open(struct node *node, struct err *err);
void node_volumes_close(struct node *node); /* harmless when nothing is open */
