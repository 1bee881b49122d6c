/* export.h - job "image.export": from an image in the store to one file that other tools read.
 *
 * Params: {"reference"} or {"snapshot"}; {"path"}: absolute, or absent for a client that fetches
 * the archive; {"format"}: "oci-archive" (default) or "docker-archive"; {"force"}: replace a file
 * that is there.
 *
 *   oci-archive     tar of an OCI image layout with this one image. Every blob is as it is in the
 *                   store, so the image keeps its digest.
 *   docker-archive  what `docker save` of all versions since 1.10 makes: manifest.json, the config,
 *                   and uncompressed layers. The image keeps its config (Docker's image ID) and its
 *                   diff IDs.
 *
 * The bytes depend on the image, its name and the format alone: entries are sorted, times are 0,
 * owners are root. An image that was asked for by its digest has no name in the archive.
 *
 * The image must be on this node; nothing is pulled. Its blobs are leased in the transaction that
 * finds it, so a removal meanwhile changes nothing (I5). Each blob's digest is checked while it is
 * copied, and the diff ID of an unpacked layer; a damaged one is ERR_DIGEST (I6).
 *
 * The file is written beside PATH as ".tmp-<job ID>", synced and renamed (I1), with mode 0600: an
 * image may hold what no other user of the host may read, which is why DATA is closed too. A
 * failure leaves nothing; a job that a kill ends writes over what it left. Without a path the file
 * is DATA/exports/<job ID>, for GET /v1/exports (api_exports.h).
 *
 * Steps: open -> write -> publish.
 * Result: {"id", "digest" (null when a removal came between a kill and the repeat), "name" (null
 * without one), "format", "size": bytes of the archive, "path" or "export": ID}.
 */
#pragma once

#include "engine.h"

#include <stdbool.h>

enum export_format {
    EXPORT_OCI,
    EXPORT_DOCKER,
};

/* NULL is the default. ERR_INVALID lists the formats. */
int export_format_parse(const char *name, enum export_format *ret, struct err *err);

/* What can be known at once of the file that an export is to make: its directory is there and
 * none of the node's own, as a slip could replace the catalog (ERR_CONFLICT; the root filesystem
 * of a run is fine); the file is no directory or device; it is not there at all unless `force`. */
int export_check_path(const struct node *node, const char *path, bool force, struct err *err);

extern const struct job_kind export_job;
