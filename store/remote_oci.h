/* remote_oci.h - the `oci:DIR` remote: an OCI image layout directory shared by several daemons.
 *
 * Manifests are entries of index.json named "<repository>:<tag>", each name once. Every change of
 * index.json is a read, change and durable publish (I1) under an exclusive flock on
 * DIR/.varve/lock, so any number of daemons on one filesystem may share it; blobs need no lock, as
 * their names are their digests. Entries of other tools are kept as they are; an index that is
 * damaged is never written over.
 *
 * By tag a manifest is found through its entry. By digest it is found whenever its bytes are in
 * the layout, also when a tag has moved on or an entry was deleted, until collection takes them:
 * a reference "repository@sha256:..." lives as long as its blobs, as in a registry. A manifest
 * that was pushed by digest alone has an entry without a name, which notes its repository in the
 * annotation io.varve.repository.
 *
 * Stock tools read it (`skopeo inspect oci:DIR:images/debian:12`, `umoci unpack --image
 * DIR:images/debian:12`). They take names of the image-spec's grammar for ref.name only, which is
 * narrower than the registry's: no "__", no "---" and no separator at the end of a tag or two of
 * them in a row. Entries with such names work here and do not disturb them elsewhere. DIR holds no
 * ':', as stock tools end a path there.
 *
 * What it does not do: it never removes blobs; collection does.
 */
#pragma once

#include "remote.h"

enum {
    REMOTE_OCI_LOCK_WAIT_S = 60, /* a lock that is held longer is ERR_CONFLICT */
};

/* Opens "oci:DIR" (DIR absolute), making the layout when the directory is missing or empty (its
 * parent must be there), and removes temporary files that dead daemons left. A layout that is a
 * node's store is ERR_CONFLICT (blobs_role.h). */
int remote_oci_open(const char *url, struct remote **ret, struct err *err);
