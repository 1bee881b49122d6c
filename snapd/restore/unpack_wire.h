/* unpack_wire.h - what varved and its child varve-unpack say to each other.
 *
 * The child's descriptor UNPACK_WIRE_FD is a SOCK_SEQPACKET socket. varved sends one message:
 * struct unpack_wire_request, with the target directory and the lower directories as descriptors.
 * The child reads the blob from its standard input and answers with one message, a JSON object of
 * at most UNPACK_WIRE_REPLY_MAX bytes:
 *
 *   {"dropped": number, "dropped_first": "name of member"}            success
 *   {"error": {"code", "message", "hint"}}                            failure
 *
 * A child that ends without an answer has crashed or was killed. Both programs come from one build,
 * so the request is a plain structure; the answer may come from a child that an archive has taken
 * over, so it is parsed with care.
 */
#pragma once

#include "digest.h"

#include <stdint.h>

enum {
    UNPACK_WIRE_FD = 3,
    UNPACK_WIRE_MAGIC = 0x76757032, /* changes with the structure */
    UNPACK_WIRE_REPLY_MAX = 32 * 1024,
};

struct unpack_wire_request {
    uint32_t magic;
    uint32_t mode; /* enum unpack_mode */
    uint32_t lower_count;
    uint32_t has_diff_id;
    int32_t parent; /* pid of varved: the child ends when another process is its parent */
    uint32_t reserved;
    uint64_t bytes_max;
    uint64_t entries_max;
    uint64_t growth_free;
    struct digest diff_id;
};
