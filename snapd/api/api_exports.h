/* api_exports.h - archives of images, made by the job "image.export" and fetched by clients.
 *
 *   POST /v1/images/export             an image, into a file of the host or for a client
 *   POST /v1/snapshots/{id}/export     the same for a snapshot
 *   GET  /v1/exports/{id}              the archive of a job that was given no path
 *
 * Such an archive is whole and checked before its first byte is sent, so a client never gets half
 * an image. It is handed out once: its name in DATA/exports goes when the answer begins, its bytes
 * go when the answer ends, whatever becomes of client or daemon. It is sent from the file by the
 * connection's own thread, so a slow client holds neither memory nor a job's thread. HEAD tells the
 * size and takes nothing away.
 *
 * One that nobody fetches within API_EXPORTS_KEEP_S is removed, at start and with every new export.
 */
#pragma once

#include "node.h"

enum {
    API_EXPORTS_KEEP_S = 3600,
};

/* Removes old archives. Failures are logged. */
void api_exports_sweep(struct node *node);
