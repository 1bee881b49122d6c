/* convert_wire.h - what varved and its child varve-convert say to each other.
 *
 * The child's descriptor CONVERT_WIRE_FD is a SOCK_SEQPACKET socket. varved sends
 *
 *   struct convert_wire_request    once, with descriptors: the archive (read-only) and the target;
 *                                  to check an image, the image alone (read-only)
 *   struct convert_wire_growth     any number of times, the last one with `end`; the sizes only
 * grow. Later ones replace earlier ones, so none has to arrive but the last struct
 * convert_wire_lowers     after the child has asked for them; with the images of the layers below
 * as descriptors (read-only), topmost first
 *
 * and the child answers with messages that are JSON objects of at most CONVERT_WIRE_REPLY_MAX
 * bytes:
 *
 *   {"needs_lowers": true}                                            then one of:
 *   {"diff_id": text, "tar_bytes": number, "image_bytes": number, "entries": number,
 *    "used_lowers": bool, "dropped": number, "dropped_first": text}   converted
 *   {"names": number}                                                 checked
 *   {"error": {"code", "message", "hint"}}                            failure
 *
 * A child that ends without an answer has crashed or was killed. Both programs come from one build,
 * so what varved sends are plain structures; an answer may come from a child that an archive has
 * taken over, so it is parsed with care.
 */
#pragma once

#include "digest.h"

#include <stdint.h>

enum {
    CONVERT_WIRE_FD = 3,
    CONVERT_WIRE_REQUEST_MAGIC = 0x76636e31, /* each changes with its structure */
    CONVERT_WIRE_GROWTH_MAGIC = 0x76636731,
    CONVERT_WIRE_LOWERS_MAGIC = 0x76636c31,
    CONVERT_WIRE_DROPPED_MAX = 32 * 1024, /* bytes of "dropped_first" */
    CONVERT_WIRE_REPLY_MAX = 128 * 1024,
};

enum convert_wire_job {
    CONVERT_WIRE_CONVERT,
    CONVERT_WIRE_CHECK,
};

struct convert_wire_request {
    uint32_t magic;
    uint32_t job;  /* enum convert_wire_job */
    uint32_t mode; /* enum convert_mode */
    uint32_t is_lowest;
    uint32_t has_diff_id;
    int32_t parent; /* pid of varved: the child ends when another process is its parent */
    uint64_t archive_size;
    uint64_t bytes_max;
    uint64_t entries_max;
    uint64_t growth_free;
    struct digest diff_id;
};

struct convert_wire_growth {
    uint32_t magic;
    uint32_t end; /* 1: the archive has `size` bytes */
    uint64_t size;
};

struct convert_wire_lowers {
    uint32_t magic;
    uint32_t count;
};
