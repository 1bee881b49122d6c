/* remote_oci.h - the `oci:DIR` remote: an OCI image layout directory shared by several daemons.
 *
 * Manifests are entries of index.json named "<repository>:<tag>" (or nameless when pushed by
 * digest alone). Every change of index.json is a read, change and durable publish under an
 * exclusive flock on DIR/.varve/lock, so any number of daemons on one filesystem may share it;
 * blobs need no lock, as their names are their digests. Stock tools read it (`skopeo inspect
 * oci:DIR:images/debian:12`).
 *
 * What it does not do: it never removes blobs; collection does.
 */
#pragma once

#include "remote.h"

/* Opens "oci:DIR" (DIR absolute), making the layout when the directory is missing or empty. */
int remote_oci_open(const char *url, struct remote **ret, struct err *err);
