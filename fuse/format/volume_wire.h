/* volume_wire.h - what varved says to a worker (control socket), and what varved and workers say to
 * keeper.
 *
 * Both are SOCK_SEQPACKET sockets; every message is one structure of fixed size, and is answered by
 * one or more of the same kind with `status` set (0 or -errno) and `text` saying why. The two ends
 * may come from different versions, as upgrades do not restart workers: magic and version are
 * compared, an unknown operation is answered with -EOPNOTSUPP, fields are only added where 0 means
 * what was before. Whoever connects must be root (SO_PEERCRED): the sockets lie in the run
 * directory, which is closed.
 *
 * Control socket of a worker: RUN/workers/ID.sock. It was bound and listened on by varved, and is
 * held by keeper too, so that it outlives workers: what is said to a dead one waits for its
 * successor.
 *
 *   PING     nothing; the answer shows that the control thread lives (the heartbeat in the live map
 *            needs no message)
 *   ATTACH   the answer carries descriptors: fuse, live map, listening socket, program, pidfd of
 * the worker. For a varved that has lost them STATS    makes exact what the live map's counters say
 *   FLUSH    as the block layer's flush, also when nothing was written
 *   RESIZE   arg[0] new size in bytes, larger; the memfd has been extended. `data` grows, the map
 *            is mapped again
 *   CLOSE    the final cut. -EBUSY while `device` is open; then flush, the disk map closed; writes
 *            are refused from here on. Repeating it is fine
 *   STOP     the worker ends with VOLUME_EXIT_STOPPED; -EBUSY unless closed or arg[0] is 1
 *
 * Keeper's socket: RUN/keeper.sock.
 *
 *   HELLO    who is there; the answer's arg[0] is keeper's pid, arg[1] how many volumes it holds
 *   HOLD     `id`, `directory`; descriptors: fuse, live map, listening socket, program, and the
 * pidfd of a worker that lives already, if there is one. Keeper holds them, and watches that
 * worker. Repeating it is fine START    `id`: a worker is started unless one lives; from here on it
 * is started again whenever it dies, until STAY or DROP STAY     `id`: not started again DROP `id`:
 * keeper lets go of the descriptors; a worker that lives goes on LIST     one answer for each
 * volume with `more` = 1 and its descriptors, then one with `more` = 0 EVENTS   this connection
 * gets an EVENT message, without asking, for what happens to workers; first those that nobody has
 * heard of (at most KEEPER_EVENTS_KEPT)
 */
#pragma once

#include "volume_format.h"

#include <stdint.h>

enum {
    VOLUME_WIRE_MAGIC = 0x56525657,
    VOLUME_WIRE_VERSION = 1,
    VOLUME_WIRE_TEXT_MAX = 512,
    KEEPER_WIRE_MAGIC = 0x5652564b,
    KEEPER_WIRE_VERSION = 1,
    KEEPER_VOLUMES_MAX = 1024,
    KEEPER_EVENTS_KEPT = 256,
    KEEPER_DIRECTORY_MAX = 1024,
    KEEPER_FDS_MAX = 5,
};

enum volume_wire_op {
    VOLUME_WIRE_PING = 1,
    VOLUME_WIRE_ATTACH,
    VOLUME_WIRE_STATS,
    VOLUME_WIRE_FLUSH,
    VOLUME_WIRE_RESIZE,
    VOLUME_WIRE_CLOSE,
    VOLUME_WIRE_STOP,
};

struct volume_wire {
    uint32_t magic;
    uint32_t version;
    uint32_t op;
    int32_t status; /* of an answer: 0 or -errno */
    uint64_t arg[6];
    char text[VOLUME_WIRE_TEXT_MAX]; /* NUL-terminated */
};

enum keeper_wire_op {
    KEEPER_WIRE_HELLO = 1,
    KEEPER_WIRE_HOLD,
    KEEPER_WIRE_START,
    KEEPER_WIRE_STAY,
    KEEPER_WIRE_DROP,
    KEEPER_WIRE_LIST,
    KEEPER_WIRE_EVENTS,
    KEEPER_WIRE_EVENT,
};

/* What happened to a worker; in arg[0] of an event. */
enum keeper_event {
    KEEPER_STARTED = 1, /* arg[1] pid, arg[2] 1 when another one served before */
    KEEPER_DIED,        /* arg[1] pid, arg[2] exit status or 128 + signal */
    KEEPER_SILENT,      /* arg[1] pid: no heartbeat for KEEPER_SILENCE_S, killed */
    KEEPER_REFUSED,  /* it ended with VOLUME_EXIT_REFUSED; why is in the live map. Not started again
                      */
    KEEPER_STOPPED,  /* it ended with VOLUME_EXIT_STOPPED. Not started again */
    KEEPER_NO_START, /* arg[2] errno: no process could be made; tried again */
};

enum {
    KEEPER_SILENCE_S = 10,
    KEEPER_HEARTBEAT_MS = 1000, /* of workers */
};

struct keeper_wire {
    uint32_t magic;
    uint32_t version;
    uint32_t op;
    int32_t status;
    uint32_t more;
    uint32_t fds; /* descriptors with this message */
    uint64_t arg[4];
    char id[16];
    char directory[KEEPER_DIRECTORY_MAX]; /* of the volume, absolute */
    char text[256];
};
