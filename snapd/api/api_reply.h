/* api_reply.h - answers of the API: a status, a JSON document or a file, and how errors become
 * them. */
#pragma once

#include "err.h"
#include "json_doc.h"

struct api_reply {
    int status;
    json_t *body;      /* owned */
    const char *allow; /* methods for a 405; NULL else */
    /* Bytes that are sent from a file instead of a document. */
    bool has_file;
    int file_fd; /* owned while has_file */
    uint64_t file_size;
};

void api_reply_free(struct api_reply *reply);
#define cleanup_api_reply cleanup_with(api_reply_free)

/* Takes the document over. A NULL document is a lack of memory. */
int api_reply_set(struct api_reply *reply, int status, json_t *body, struct err *err);

/* Takes a file over: its bytes from the beginning on are the answer. */
void api_reply_file(struct api_reply *reply, int fd, uint64_t size);

/* {"error": {...}}, with the status of the code unless one is set already. */
void api_reply_fail(struct api_reply *reply, const struct err *failure);

/* HTTP status of an error code. */
int api_status(enum err_code code);

/* A string for a document, null for NULL. Bytes that are no UTF-8 (file names in messages) become
 * '?', so that one odd name cannot take the whole answer away. */
json_t *api_text(const char *text);
/* RFC 3339 or, for 0, null. */
json_t *api_time(int64_t wall_ns);
/* {"code","message","hint"} */
json_t *api_error(const char *code, const char *message, const char *hint);
