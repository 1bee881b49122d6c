/* import.h - job "image.import": from a user's file to an image in the store.
 *
 * Params: {"path": absolute path} or {"upload": id}, {"name": "repo[:tag]" or absent}.
 * Accepts an OCI image layout directory, an archive of one (oci-archive), or a root filesystem tar
 * (plain, gzip, zstd, xz, bzip2), told apart by content. A layout's image keeps its manifest, so
 * its digest; a root filesystem becomes an image of one tar+zstd layer whose digest depends on
 * the tree alone. Archives are unpacked into DATA/tmp by the confined child of restore/unpack.h.
 * docker-archive files are refused with the command that converts them.
 *
 * Result: {"id": manifest digest, "digest", "names": [...], "layers": [digests], "size"}.
 */
#pragma once

#include "engine.h"

extern const struct job_kind import_job;
