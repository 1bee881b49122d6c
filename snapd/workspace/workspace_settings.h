/* workspace_settings.h - what the configuration file says about volumes ([volume] and [limits]).
 *
 * A rate of 0 is none. Of the others 0 stands for the default (workspace_settings_fill()).
 */
#pragma once

#include "clock.h"

#include <stdint.h>

#define WORKSPACE_SIZE_DEFAULT         ((uint64_t)10 << 30)
#define WORKSPACE_OVERCOMMIT_DEFAULT   4
#define WORKSPACE_OVERCOMMIT_MAX       1000
#define WORKSPACE_DISK_WAIT_DEFAULT_NS (600 * CLOCK_NS_PER_S)

struct workspace_settings {
    uint64_t size;       /* bytes of a new workspace that names none */
    uint64_t overcommit; /* bytes that volumes may still grow by, for each free byte of the disk */
    int64_t
        disk_wait_ns; /* that writes wait for the host's full disk before a workspace is fenced */
    uint64_t volume_bandwidth;  /* bytes a second of each volume */
    uint64_t volume_iops;       /* requests a second of each volume */
    uint64_t volumes_bandwidth; /* the same of all volumes of the node together */
    uint64_t volumes_iops;
    uint64_t hydration; /* bytes a second that each volume is filled with in the background */
};

static inline void workspace_settings_fill(struct workspace_settings *settings)
{
    if (!settings->size)
        settings->size = WORKSPACE_SIZE_DEFAULT;
    if (!settings->overcommit)
        settings->overcommit = WORKSPACE_OVERCOMMIT_DEFAULT;
    if (!settings->disk_wait_ns)
        settings->disk_wait_ns = WORKSPACE_DISK_WAIT_DEFAULT_NS;
}
