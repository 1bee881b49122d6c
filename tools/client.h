/* client.h - requests to varved over its unix socket (libcurl).
 *
 * One struct client is one connection that is opened when it is needed and again when the daemon
 * was restarted. Answers are JSON and bounded; an error document becomes a struct err with the
 * daemon's code, message and hint. A daemon that is not there is ERR_UNREACHABLE with
 * client->absent set, so that the caller can tell it from a remote that does not answer.
 *
 * Nothing is sent twice by itself: whether a request may be repeated only the caller knows (a key,
 * or a method that changes nothing).
 */
#pragma once

#include "err.h"
#include "json_doc.h"

#include <stdbool.h>
#include <stdint.h>

#define CLIENT_HOST_DEFAULT "unix:/run/varve/varved.sock"

enum {
    CLIENT_BODY_MAX = 256 << 20, /* bytes of an answer: lists of some hundred thousand objects */
    CLIENT_TIMEOUT_S = 60,       /* until the answer of a plain request is complete */
    CLIENT_WAIT_S = 30,          /* of one long poll; the daemon allows no more */
    CLIENT_RETRY_S = 60,         /* how long a waiting client looks for a daemon that went away */
    CLIENT_KEY_MAX = 128,        /* bytes of an idempotency key */
};

struct client {
    char *socket; /* path; owned */
    void *handle; /* CURL *; owned */
    bool absent;  /* the last failure was: nobody answers at the socket */
};

/* `host` is "unix:PATH"; NULL is CLIENT_HOST_DEFAULT. Does not connect. */
int client_open(const char *host, struct client *ret, struct err *err);
void client_close(struct client *client);
#define cleanup_client cleanup_with(client_close)

struct client_request {
    const char *method;
    const char *path;   /* encoded, with its query */
    const char *key;    /* Idempotency-Key or NULL */
    const json_t *body; /* or NULL */
    int timeout_s;      /* 0: CLIENT_TIMEOUT_S; -1: none */
    /* A body that is streamed instead: read from here to the end. */
    bool upload;
    int upload_fd;
    /* A good answer is written here as it comes instead of being read as a document; *ret of the
     * call is NULL then. */
    bool download;
    int download_fd;
    void (*moved)(void *arg, int64_t bytes); /* called as either goes on; may be NULL */
    void *arg;
};

/* Sends and gives the answer's document; caller owns it. */
int client_call(struct client *client, const struct client_request *request, json_t **ret,
                struct err *err);

/* GET with the path "<prefix><name>"; `name` is encoded, slashes stay when `slashes`. */
int client_get(struct client *client, const char *prefix, const char *name, bool slashes,
               json_t **ret, struct err *err);

/* "<prefix><name><suffix>" with the name encoded; caller frees. ERR_INVALID for an empty name. */
int client_path(const char *prefix, const char *name, const char *suffix, bool slashes, char **ret,
                struct err *err);

/* A failure from an error document {"code", "message", "hint"}; returns -errno. */
int client_error(const json_t *document, struct err *err);
