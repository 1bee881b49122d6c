/* import_docker.h - images out of a docker-archive: what `docker save`, `podman save` and
 * `skopeo copy docker-archive:` make.
 *
 * The archive is there as a directory tree (unpacked or mounted). manifest.json lists its images:
 * config, names (RepoTags) and layers. Of several images the one is taken whose name was given,
 * "PATH:NAME" or the name that the image is to get; where that does not decide, the failure lists
 * what there is.
 *
 * Nothing in the archive is trusted (I6). Documents are bounded. Files are opened inside the tree
 * only: `docker save` makes symbolic links between layers, and one that leads out is refused. A
 * config whose file name is a digest has to have it; every layer has to have the diff ID that the
 * config says.
 *
 * The image becomes an OCI image: the config stays as it is, byte by byte. A layer that is packed
 * with gzip or zstd stays as it is; others are packed as our own layers are (layer_pack.h). So
 * equal archives give equal images, and one that was exported here gets its own layers back.
 *
 * Not read: archives of Docker before 1.10, which have no manifest.json.
 */
#pragma once

#include "import_internal.h"

/* Whether the tree is a docker-archive and not a root filesystem: it has a file manifest.json or
 * repositories and no /etc, and manifest.json holds no object, as that of a web page would. */
bool import_docker_is(int dir_fd);

/* Takes one image of the archive in the tree below `dir_fd`. Blobs are leased before they have a
 * name (I5). */
int import_docker(struct import *import, int dir_fd, struct err *err);

/* --- between import_docker.c and import_docker_layer.c --- */

struct import_docker_layer {
    const char *name; /* in the archive, for messages; borrowed */
    int fd;           /* owned by the caller */
    uint64_t size;    /* of the file */
    struct digest diff_id;
};

/* Brings a layer into the store, checked. `done` and `total` are bytes of all layers, for the
 * progress. Media type in *ret is static. */
int import_docker_layer(struct import *import, const struct import_docker_layer *layer,
                        uint64_t done, uint64_t total, struct oci_descriptor *ret, struct err *err);
