/* layer_list.h - what independent readers find in a layer blob.
 *
 * zstd(1) unpacks, Python's tarfile and GNU tar read; nothing of this program takes part. The list
 * is an array of objects: name (bytes that are no UTF-8 as \xhh), type (the tar type character),
 * mode, uid, gid, mtime (decimal text), size, link, major, minor, sha256 (of a file's content),
 * xattrs (name to hex digits of the value), pax (other extended keywords).
 */
#pragma once

#include "capture.h"

#include <jansson.h>

/* Fails the test when the blob cannot be read to its end. Caller owns the array. */
json_t *layer_list(struct blobs *blobs, const struct digest *digest);

/* The only entry with this name; fails the test when there is none or more than one. */
const json_t *layer_entry(const json_t *list, const char *name);
/* Position of a name, or -1. */
long layer_index(const json_t *list, const char *name);

const char *layer_str(const json_t *entry, const char *key);
long long layer_int(const json_t *entry, const char *key);
/* Value of an extended attribute in hex digits, or NULL. */
const char *layer_xattr(const json_t *entry, const char *name);

/* All names, one per line, in order; caller frees. */
char *layer_names(const json_t *list);

/* Unpacks with GNU tar, extended attributes and ACLs included, into the existing directory. */
void layer_extract(struct blobs *blobs, const struct digest *digest, const char *dir);
/* Runs a shell command and fails the test unless it succeeds. */
void layer_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same with its output, without the last newline; caller frees. */
char *layer_shell_output(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
