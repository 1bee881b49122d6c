/* api_request.h - one request as the handlers see it, free of the HTTP library.
 *
 * Everything in it came from a client. The path is split at its slashes first and then each part
 * is decoded, so an escaped slash never makes a part; what is no UTF-8 or holds a NUL byte is
 * refused. Bodies are JSON objects; members that a route does not know are refused by name, so
 * that a misspelt option is not silently without effect.
 */
#pragma once

#include "api_reply.h"
#include "node.h"

#include <stdatomic.h>

enum {
    API_SEGMENTS_MAX = 24,  /* parts of a path */
    API_KEY_MAX = 128,      /* bytes of an Idempotency-Key */
    API_COMMENT_MAX = 4096, /* bytes of a snapshot's comment */
    API_LABELS_MAX = 64,
    API_LABEL_KEY_MAX = 128,
    API_LABEL_VALUE_MAX = 1024,
    API_STRINGS_MAX = 4096,
    API_WAITERS_MAX = 128, /* long polls at once; more are answered at once */
};

/* What the handlers share for the life of the server. */
struct api_context {
    struct node *node;
    atomic_bool stopping; /* long polls end */
    atomic_int waiters;   /* long polls that are being held */
};

struct api_path {
    char *storage; /* owned */
    const char *segments[API_SEGMENTS_MAX];
    size_t count;
};

struct api_request {
    struct api_context *context; /* borrowed */
    struct node *node;           /* the context's */
    int fd;                      /* of the connection, to see whether the client has gone */
    int64_t uid;                 /* of the peer */
    pid_t pid;                   /* its process */
    const char *key;             /* Idempotency-Key or NULL; borrowed */
    char *arg;                   /* the variable part of the path; NULL without one */
    int wait_s;                  /* of the query; 0 without it */
    bool head;                   /* HEAD: the body of the answer is not sent */
    json_t *body;                /* object; NULL without a body */
};

void api_request_free(struct api_request *request);

/* Splits and decodes "/v1/runs/r-1" (no query). ERR_INVALID for bad escapes. */
int api_path_parse(const char *raw, struct api_path *ret, struct err *err);
void api_path_free(struct api_path *path);
#define cleanup_api_path cleanup_with(api_path_free)

/* Takes a body over as JSON. */
int api_request_set_body(struct api_request *request, const char *bytes, size_t len,
                         struct err *err);

/* Takes one parameter of the query; only "wait", and only where `takes_wait`. */
int api_request_set_query(struct api_request *request, const char *name, const char *value,
                          bool takes_wait, struct err *err);

/* Checks and takes the Idempotency-Key; NULL is fine. */
int api_request_set_key(struct api_request *request, const char *key, struct err *err);

enum api_type {
    API_STRING,
    API_BOOL,
    API_INTEGER, /* from 0 on */
    API_LABELS,  /* an object of strings */
    API_STRINGS, /* an array of at most API_STRINGS_MAX strings */
};

struct api_member {
    const char *name;
    enum api_type type;
    bool required;
    size_t max; /* bytes of a string; 0: any */
};

/* Checks the body against what the route knows. *ret (caller owns) holds its members without those
 * that are null, so that two ways of saying one thing are equal. */
int api_request_params(const struct api_request *request, const struct api_member *members,
                       size_t count, json_t **ret, struct err *err);

/* A failure over what the client sent (a damaged document, a digest of another kind) is a bad
 * request whatever the callee calls it: the code becomes ERR_INVALID. Others stay. A `word` of the
 * client that is to blame (NULL: none) is put into the message unless it is there. Returns the
 * failure, or `rc` as it was when it is none. */
int api_request_blame(struct err *err, int rc, const char *word);
