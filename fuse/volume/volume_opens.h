/* volume_opens.h - how often `device` is open, counted in the live map, since detaching waits for
 * the last RELEASE.
 *
 * An OPEN or RELEASE may be sent again after a kill, counted or not. So its unique number and the
 * count after it are written down before, and a number that is known is not counted again. Each
 * kill can leave one that is counted and not answered, and others can be counted before that one
 * comes again: the last LIVE_MAP_OPENS_KEPT numbers before the newest are kept too.
 */
#pragma once

#include "live_map.h"

/* Counts a request whose number is `unique`; `by` is 1 for OPEN, -1 for RELEASE. One caller at a
 * time, who answers the request before he lets the next one in. */
void volume_opens_count(struct live_map_header *header, uint64_t unique, int by);
/* Finishes the counting that a killed worker had begun; at start. */
void volume_opens_settle(struct live_map_header *header);
