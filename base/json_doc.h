/* json_doc.h - bounded reading and deterministic writing of JSON (jansson).
 *
 * Documents come from disk, network and users: size and nesting are limited, duplicate keys, NUL
 * bytes in strings and bytes after the document are refused. Reading members gives errors that
 * name the document and the member.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    JSON_DOC_BYTES_MAX = 4 << 20, /* manifests of docker-registry are at most 4 MiB */
    JSON_DOC_DEPTH_MAX = 32,
};

static inline void json_doc_decrefp(json_t **json)
{
    json_decref(*json);
}
#define cleanup_json cleanup_with(json_doc_decrefp)

/* Parses an object or array. `what` names the document in messages. Caller owns *ret. */
int json_doc_parse(const char *bytes, size_t len, const char *what, json_t **ret, struct err *err);
/* The same for a document that holds secrets: no piece of it gets into the message. Where a whole
 * number is too large for one, all become real numbers. */
int json_doc_parse_secret(const char *bytes, size_t len, const char *what, json_t **ret,
                          struct err *err);

/* Members of an object. A missing member is ERR_DAMAGED for the *_get_* functions and leaves
 * *ret as it was, returning 0, for the *_opt_* functions (null counts as missing). A member of
 * another type is ERR_DAMAGED for both. Strings and objects are borrowed from `object`. */
int json_doc_get_str(const json_t *object, const char *key, const char *what, const char **ret,
                     struct err *err);
int json_doc_get_int(const json_t *object, const char *key, const char *what, int64_t *ret,
                     struct err *err);
int json_doc_get_array(const json_t *object, const char *key, const char *what, json_t **ret,
                       struct err *err);
int json_doc_get_object(const json_t *object, const char *key, const char *what, json_t **ret,
                        struct err *err);
int json_doc_opt_str(const json_t *object, const char *key, const char *what, const char **ret,
                     struct err *err);
int json_doc_opt_int(const json_t *object, const char *key, const char *what, int64_t *ret,
                     struct err *err);
int json_doc_opt_bool(const json_t *object, const char *key, const char *what, bool *ret,
                      struct err *err);
int json_doc_opt_object(const json_t *object, const char *key, const char *what, json_t **ret,
                        struct err *err);

/* The one text that is written for a value: keys sorted, no white space, UTF-8 as it is. The same
 * value gives the same bytes on every machine. Caller frees; NULL without memory. */
char *json_doc_dump(const json_t *json);
