/* volume_json.h - volume.json: what a volume is (docs/FORMAT.md, "Volumes").
 *
 * The smallest of the three files of a volume, read before anything else is believed of it, and
 * published whole (I1). `previous_size` stands in it while a resize is under way: it is written
 * with both sizes before anything grows, and without the old one when everything has grown.
 *
 * A volume that was made of a checkpoint has a `base`, and then format 2: what its absent chunks
 * are of. One that shows an epoch of another volume has format 3. Like all in the volume's
 * directory it can be changed by whoever serves the volume; what he must not choose, as where in
 * the remote bytes come from, is to be compared with another record.
 *
 * One writer at a time; readers see the old document or the new one. What it does not do: compare
 * with `data` and `map`.
 */
#pragma once

#include "digest.h"
#include "err.h"
#include "volume_format.h"

#include <stdbool.h>
#include <stdint.h>

#define VOLUME_JSON_NAME "volume.json"

/* What absent chunks are of: a checkpoint, or an epoch of a volume of this node. */
struct volume_base {
    char lineage[VOLUME_ID_LEN + 1]; /* "": there is none */
    struct digest checkpoint;        /* of its index; all zeros for an epoch */
    char volume[VOLUME_ID_LEN + 1];  /* whose epoch it is; "": a checkpoint */
    uint8_t uuid[VOLUME_UUID_LEN];   /* that the file system has in it */
};

struct volume_json {
    char id[VOLUME_ID_LEN + 1];
    uint8_t uuid[VOLUME_UUID_LEN];
    uint64_t size;          /* bytes; a multiple of VOLUME_SIZE_UNIT within the limits */
    uint64_t previous_size; /* smaller than `size`; 0: no resize is under way */
    struct volume_base base;
};

/* Reads the document in the volume's directory. ERR_TOO_NEW: another format. ERR_DAMAGED: there is
 * none, or a member of it (the message names it) is missing, malformed, out of its limits or
 * unknown, or the document is of another volume than `id`. */
int volume_json_read(int dir_fd, const char *id, struct volume_json *ret, struct err *err);
/* Publishes it, replacing the one that is there; it belongs to the directory's owner, mode 0600.
 * ERR_INTERNAL for values that the reader would refuse. */
int volume_json_write(int dir_fd, const struct volume_json *json, struct err *err);

/* A volume's ID: 12 lower-case hex digits. ERR_INVALID. */
int volume_json_check_id(const char *id, struct err *err);
