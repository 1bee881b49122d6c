/* workspace_limits.h - how the volumes of a node share what it may read and write.
 *
 * A volume has a limit of its own ([limits] volume_bandwidth, volume_iops), and all of them share a
 * budget (volumes_bandwidth, volumes_iops), max-min fair by demand: nobody gets more than he uses
 * while another one waits, and those who want more than there is get equal parts. Demand is what a
 * volume did in the last second; one that came near its limit may want any amount. One that was
 * quiet may begin at once, with an equal part of the budget or twice what it did, so that after the
 * first seconds the sum is the budget again.
 *
 * Pure arithmetic; once a second the monitor feeds it and hands the outcome to volumes_limit().
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct workspace_share {
    uint64_t rate;  /* what it did in the last second, in bytes or requests */
    uint64_t limit; /* before: what it had then, 0 none; afterwards: from now on */
};

/* `budget` 0: each has `each` alone. `each` 0: the budget alone is shared. Both 0: no limits. */
void workspace_limits_share(uint64_t budget, uint64_t each, struct workspace_share *shares,
                            size_t count);
