/* import.h - job "image.import": from a user's file to an image in the store.
 *
 * Params: {"path": absolute path} or {"upload": id}, {"name": "repo[:tag]" or absent}.
 * Accepts an OCI image layout directory, an archive of one (oci-archive), a docker-archive
 * (import_docker.h), or a root filesystem tar; archives plain or packed (gzip, zstd, xz, bzip2);
 * told apart by content. A layout's image keeps its manifest, so its digest; that of a
 * docker-archive its config; a root filesystem becomes an image of one tar+zstd layer whose digest
 * depends on the tree alone. An archive is converted by the confined child of restore/convert.h
 * into an image in DATA/tmp, which is mounted where nobody else sees it, read like any tree, and
 * removed: nothing of an archive gets a name on the host. Layers of the new image are converted
 * when a run first needs them.
 *
 * A layout with several images needs "PATH:NAME", NAME being an org.opencontainers.image.ref.name
 * in its index.json, or in RepoTags of a docker-archive; images of one name differ in their
 * platform and the one for this machine is taken. Without a name for the new image it is made of
 * the path (commit_name.h); an upload needs one. A name that stands for another image is
 * ERR_EXISTS: at once where the source tells its digest, else at the end.
 *
 * Steps: open -> convert (archives) -> copy (images) or capture (trees) -> record -> remove-upload.
 * A job that fails leaves no blob, name or temporary file behind; an upload stays then, so that the
 * same request can be made again.
 *
 * Result: {"id": manifest digest, "digest", "names": [...], "layers": [digests], "size"}.
 */
#pragma once

#include "engine.h"

extern const struct job_kind import_job;
