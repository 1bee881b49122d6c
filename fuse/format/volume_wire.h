/* volume_wire.h - what varved says to a worker (control socket), and what varved and workers say to
 * keeper.
 *
 * Both are SOCK_SEQPACKET sockets; every message is one structure of fixed size, and is answered by
 * one or more of the same kind with `status` set (0 or -errno) and `text` saying why. The two ends
 * may come from different versions, as upgrades do not restart workers: magic and version are
 * compared (a worker hangs up on another version, keeper answers -EPROTONOSUPPORT), an unknown
 * operation is answered with -EOPNOTSUPP, fields are only added where 0 means what was before.
 * Whoever connects must be root (SO_PEERCRED): the sockets lie in the run directory, which is
 * closed.
 *
 * Control socket of a worker: RUN/workers/ID.sock. It was bound and listened on by varved, and is
 * held by keeper too, so that it outlives workers: what is said to a dead one waits for its
 * successor. What a dying one had taken and not answered is asked again, so every operation can be
 * repeated.
 *
 * Keeper's socket: RUN/keeper.sock. Keeper (keeper/keeper.h) answers the requests of a connection
 * one after the other; EVENT messages come in between, on connections that asked for them.
 */
#pragma once

#include "volume_format.h"

#include <stdint.h>

enum {
    VOLUME_WIRE_MAGIC = 0x56525657,
    VOLUME_WIRE_VERSION = 1,
    VOLUME_WIRE_TEXT_MAX = 512,
    VOLUME_WIRE_FDS_MAX = 5,
    KEEPER_WIRE_MAGIC = 0x5652564b,
    KEEPER_WIRE_VERSION = 1,
    KEEPER_WIRE_TEXT_MAX = 256,
    KEEPER_VOLUMES_MAX = 1024,
    KEEPER_EVENTS_KEPT = 256,
    KEEPER_DIRECTORY_MAX = 1024,
    KEEPER_FDS_MAX = 5,
};

enum volume_wire_op {
    /* Shows that the control thread lives (the heartbeat in the live map needs no message). */
    VOLUME_WIRE_PING = 1,
    /* The answer carries fuse, live map, listening socket, program, and a pidfd of the worker: for
     * a varved that has lost them. */
    VOLUME_WIRE_ATTACH,
    /* As the block layer's flush, also when nothing was written. */
    VOLUME_WIRE_FLUSH = 4, /* 3 was another one's */
    /* arg[0]: the new, larger size in bytes, within the live map's capacity. `data` grows, the map
     * is mapped again. */
    VOLUME_WIRE_RESIZE,
    /* The final cut. -EBUSY while `device` is open, unless arg[0] is 1 (when it is known that the
     * count of opens is wrong); then flush, and the disk map is closed; writes are refused from
     * here on. */
    VOLUME_WIRE_CLOSE,
    /* The worker answers and ends with VOLUME_EXIT_STOPPED; -EBUSY unless closed or arg[0] is 1. */
    VOLUME_WIRE_STOP,
    /* The cut: arg[0] the caller's token for it, not 0; arg[1] LIVE_USE_... Answer: arg[0] the
     * epoch that is open now. -EBUSY: too many are. */
    VOLUME_WIRE_CUT,
    /* arg[0]: an open epoch, which is not needed any more. */
    VOLUME_WIRE_RELEASE,
    /* After the answer this connection is the one over which absent chunks are asked for and
     * brought, until either side ends it; one that was there before is ended. The worker then sends
     * WANT, first for all that waits, and takes FILL. arg[0]: which live map the chunks are for
     * (live_map_number()), as the name of the socket is the same in each life of the volume, and
     * the checkpoint may be another one; 0: the one that is served. -ESTALE: the worker has another
     * one, and takes nothing; the connection before it goes on. */
    VOLUME_WIRE_FETCH,
    /* On that connection, from the worker, not answered: a read waits for chunks. arg[0] the first
     * one, arg[1] how many, all absent. Sent once for each read on each connection. */
    VOLUME_WIRE_WANT,
    /* On that connection, to the worker: arg[0] a chunk, arg[1] 1: its VOLUME_CHUNK bytes are the
     * next message; 0: it is zero. Answered with arg[0] when it is dealt with; a chunk that is not
     * absent any more is ignored. -ENOSPC: there is no room on the host's disk, to be brought again
     * later. Several may be under way, and are answered in order. */
    VOLUME_WIRE_FILL,
};

struct volume_wire {
    uint32_t magic;
    uint32_t version;
    uint32_t op;
    int32_t status; /* of an answer: 0 or -errno */
    uint64_t arg[6];
    char text[VOLUME_WIRE_TEXT_MAX]; /* NUL-terminated */
};

/* In RUN. */
#define KEEPER_SOCKET_NAME "keeper.sock"
#define KEEPER_LOCK_NAME   "keeper.lock" /* flock; holds the pid of who has it, for people */
#define KEEPER_LOG_NAME    "keeper.log"  /* standard error of keeper and workers */

/* How varve-keeper's first process ends: 0 when keeper answers on its socket. */
enum {
    KEEPER_EXIT_FAILED = 1,   /* standard error says why */
    KEEPER_EXIT_USAGE = 2,    /* wrong command line */
    KEEPER_EXIT_RUNNING = 66, /* another keeper holds RUN/keeper.lock */
};

enum keeper_wire_op {
    /* Who is there. Answer: arg[0] keeper's pid, arg[1] volumes held, arg[2] how many it can hold
     * with the descriptors it may have. */
    KEEPER_WIRE_HELLO = 1,
    /* `id`, `directory`, and descriptors: fuse, live map, listening socket, program; then the pidfd
     * of a worker that lives already, if there is one. Keeper holds them and watches that worker.
     * Repeating it is fine: it keeps what it has, and takes the pidfd when it knows no worker. A
     * pidfd of one that has died is as good as none. -EEXIST: it holds another live map for `id`
     * (DROP first). -EMFILE: no room. */
    KEEPER_WIRE_HOLD,
    /* `id`: a worker is started unless one lives; from here on it is started again whenever it
     * dies, until STAY or DROP. The process starts later than the answer when there is no memory
     * for it. -EOPNOTSUPP: the volume was served and the kernel does not send unanswered requests
     * again (before Linux 6.9), so another worker would not help. */
    KEEPER_WIRE_START,
    /* `id`: not started again. */
    KEEPER_WIRE_STAY,
    /* `id`: keeper lets go of the descriptors; a worker that lives goes on, unwatched. What is not
     * held is dropped already: 0. */
    KEEPER_WIRE_DROP,
    /* One answer for each volume with `more` = 1, `id`, `directory`, its descriptors (the fifth
     * when a worker lives), arg[0] the worker's pid or 0, arg[1] 1 when it is started again; then
     * one answer with `more` = 0. */
    KEEPER_WIRE_LIST,
    /* From here on this connection gets a KEEPER_WIRE_EVENT message, without asking, for what
     * happens to workers; first those that no connection has been sent (at most
     * KEEPER_EVENTS_KEPT). */
    KEEPER_WIRE_EVENTS,
    /* `id`; arg[0] enum keeper_event, arg[1] the worker's pid, arg[2] as below, arg[3] how many
     * events before this one are lost, as nobody read them in time. */
    KEEPER_WIRE_EVENT,
};

/* What happened to a worker. */
enum keeper_event {
    KEEPER_STARTED = 1, /* arg[2]: 1 when another one served before */
    KEEPER_DIED,        /* arg[2]: exit status (127: the program could not be executed), 128 +
                           signal, or KEEPER_STATUS_UNKNOWN for one that keeper did not start */
    KEEPER_SILENT,      /* no heartbeat for KEEPER_SILENCE_S. arg[2]: 1 killed; 0 left alone, as
                           before Linux 6.9 nobody could take over */
    KEEPER_REFUSED,  /* ended with VOLUME_EXIT_REFUSED; why is in the live map. Not started again */
    KEEPER_STOPPED,  /* ended with VOLUME_EXIT_STOPPED. Not started again */
    KEEPER_NO_START, /* arg[2]: errno. No process could be made; tried again, told once */
};

enum {
    KEEPER_SILENCE_S = 10,
    KEEPER_BEGIN_SILENCE_S = 60, /* until the first heartbeat of a worker */
    KEEPER_HEARTBEAT_MS = 1000,  /* of workers */
    KEEPER_IDLE_S = 10,          /* without volumes and connections, then keeper ends by itself */
    KEEPER_STATUS_UNKNOWN = 999,
};

struct keeper_wire {
    uint32_t magic;
    uint32_t version;
    uint32_t op;
    int32_t status; /* of an answer: 0 or -errno */
    uint32_t more;
    uint32_t fds; /* descriptors with this message */
    uint64_t arg[4];
    char id[16];                          /* NUL-terminated, as the next two */
    char directory[KEEPER_DIRECTORY_MAX]; /* of the volume, absolute */
    char text[KEEPER_WIRE_TEXT_MAX];
};
