/* live_map_load.h - a live map made of what the disk map says: at attach, after a detach, a power
 * cut, or the death of all who held the old one.
 *
 * Input: a volume's directory that nobody serves. Everything in the result is logged, but that a
 * chunk which the map says to be clean is changed, unless the volume was closed in an orderly way
 * (the record of a later write may be lost) and the map says of which checkpoint it is clean. It
 * knows nothing of `data`.
 */
#pragma once

#include "live_map.h"

struct live_map_loaded {
    int fd;          /* of the live map; the caller owns it */
    bool closed;     /* the volume was closed in an orderly way */
    bool torn;       /* the last flush was incomplete: a power cut, or a kill of all holders */
    uint64_t local;  /* chunks that are in `data` whole */
    uint64_t absent; /* chunks that are only in the remote, or partly */
};

/* Failures as map_log_open() and live_map_make(). */
int live_map_load(int dir_fd, const char *id, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                  struct live_map_loaded *ret, struct err *err);
