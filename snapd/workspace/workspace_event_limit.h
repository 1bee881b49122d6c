/* workspace_event_limit.h - how many events of one volume are recorded.
 *
 * Some events follow what a worker says of itself (its starts, its last heartbeat, how many of its
 * requests wait). One that was taken over can say something else each second, and every event is a
 * durable row. So each volume has WORKSPACE_EVENTS_AT_ONCE of them, and gets one back every
 * WORKSPACE_EVENT_SECONDS; what is beyond that is counted, and the number is told. The same holds
 * for how often one that has died is brought back (workspace_mend.h).
 *
 * Times are of the monotonic clock. Belongs to one thread.
 *
 * What it does not do: what is done about an event (mending, fencing) does not hang on its record.
 */
#pragma once

#include "volume_format.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    WORKSPACE_EVENTS_AT_ONCE = 32,
    WORKSPACE_EVENT_SECONDS = 60,
};

struct workspace_event_limit;

/* NULL without memory. */
struct workspace_event_limit *workspace_event_limit_new(void);
void workspace_event_limit_free(struct workspace_event_limit *limit); /* NULL is fine */

/* Whether an event of this volume is recorded now. *ret_left_out: how many were not, since the last
 * one that was. Without memory every event is. */
bool workspace_event_limit_take(struct workspace_event_limit *limit, const char *id, int64_t now_ns,
                                uint64_t *ret_left_out);
/* The next volume of which some were left out and one more may be recorded by now: true, its ID in
 * `ret_id`, and that one counts as taken. */
bool workspace_event_limit_due(struct workspace_event_limit *limit, int64_t now_ns,
                               char ret_id[VOLUME_ID_LEN + 1], uint64_t *ret_left_out);
