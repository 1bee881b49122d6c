/* api_uploads.h - bodies that clients stream in, kept until a job has used them.
 *
 *   POST /v1/uploads   raw bytes, any length -> DATA/uploads/<id>
 *
 * Bytes go to a temporary file as they come; memory is bounded by the HTTP library's buffer. The
 * name appears when the body is complete and synced (I1); a client that goes away in the middle
 * leaves nothing. The job "image.import" reads it by its ID.
 *
 * Nobody is obliged to use an upload, so one that is older than API_UPLOADS_KEEP_S and that no
 * unfinished job names is removed, at start and with every new upload.
 */
#pragma once

#include "api_reply.h"
#include "id.h"
#include "node.h"

#include "publish.h"

enum {
    API_UPLOADS_KEEP_S = 24 * 3600,
};

struct api_upload {
    struct publish publish;
    uint64_t size;
    struct id id;
};

int api_uploads_begin(struct node *node, struct api_upload *ret, struct err *err);
int api_uploads_write(struct api_upload *upload, const void *bytes, size_t len, struct err *err);
/* Publishes and answers 201 {"upload","size"}. */
int api_uploads_finish(struct node *node, struct api_upload *upload, struct api_reply *reply,
                       struct err *err);
/* Removes what was not finished; harmless afterwards. */
void api_uploads_abort(struct api_upload *upload);

/* ERR_NOT_FOUND unless the upload is there. */
int api_uploads_check(struct node *node, const char *id, struct err *err);

/* Removes old uploads. Failures are logged. */
void api_uploads_sweep(struct node *node);
