/* volume.h - one worker: what its parts share.
 *
 * Order of a start (volume_main.c):
 *
 *   heap, live map header    why it fails can be said in the live map from here on
 *   directory, data, map     `data` is locked: the predecessor's last write has ended
 *   region, locked           buffers, spares, stacks (volume_resident.h), rings
 *   session                  INIT recorded or replayed (volume_session.h)
 *   confined                 the directory's owner, no rights, few system calls (volume_confine.h)
 *   threads                  VOLUME_THREADS serve, one does what the control socket asks for, one
 *                            takes absent chunks (volume_fetch_io.h), the first one is the control
 *                            loop
 *
 * Two mappings of the live map: `header` stays where it is, and is what everybody counts in; the
 * one with the words belongs to chunk_io and moves when the volume grows.
 */
#pragma once

#include "chunk_io.h"
#include "volume_fetch_io.h"
#include "volume_queue.h"
#include "volume_resident.h"
#include "volume_session.h"

struct volume {
    int dir_fd;
    int data_fd; /* until chunk_io owns it */
    int pidfd;   /* of this process, to hand on */
    int end_fd;  /* eventfd: this process is to end, with exit_status */
    atomic_int exit_status;
    struct live_map facts;
    struct live_map_header *header; /* of `facts` */
    struct live_map live;
    struct map_log log;
    struct chunk_io io;
    struct volume_resident resident;
    struct volume_queue queue;
    struct volume_fetch_io fetch;
    struct volume_session session;
    pthread_mutex_t open_lock; /* around counting an OPEN or RELEASE and its answer */
};
