/* volumes_internal.h - what the files of volumes.h share: the table, and steps.
 *
 * Locks, in this order:
 *   `busy` of a volume   a flag under `table`, waited for with `changed`. Whoever set it may change
 *                        the volume, and read it without a lock. Held for as long as an
 *                        operation takes.
 *   `keeper_lock`        the connection to keeper; held while keeper is asked, with deadlines
 *   `table`              the list, flags, and every change of a field of a volume. For memory
 *                        alone: no call that can wait is made under it
 *
 * A volume is in the table while somebody uses the entry, it has the shared parts, or it is dead or
 * lost.
 */
#pragma once

#include "clock.h"
#include "keeper_client.h"
#include "live_map.h"
#include "loop_device.h"
#include "volume_fds.h"
#include "volume_json.h"
#include "volumes.h"

#include <pthread.h>

enum {
    VOLUMES_POINT_MAX = 4096, /* of a mount point */
    VOLUMES_PATH_MAX = 1024,  /* of RUN and of DATA/volumes, with names of ours below */
    VOLUMES_POLL_MS = 2,
    VOLUMES_STEP_MS = 15000,   /* a call that waits for a worker which may have to be replaced */
    VOLUMES_FS_MS = 120000,    /* a mount with its journal, an unmount after a sync */
    VOLUMES_SYNC_MS = 1800000, /* what the page cache holds, perhaps under a rate limit */
    VOLUMES_RESIZE_MS = 60000,
    VOLUMES_CHECK_MS = 3600000, /* e2fsck of a large volume */
    VOLUMES_KEEPER_MS = 3000,   /* for an answer of keeper: it does no disk I/O */
    VOLUMES_ROOM_MS = 10000,    /* that what a mount writes waits for room on the host's disk */
};

struct volume {
    struct volume *next; /* table */
    char id[VOLUME_ID_LEN + 1];
    unsigned users; /* table: calls that have the entry */
    unsigned waits; /* table: calls that wait for `busy` */
    bool busy;      /* table */
    uint64_t life;  /* table: the number of this attach; 0: none */
    unsigned pins;  /* table: calls that mean this life without `busy`; its end waits for them */
    bool ending;    /* table: its end has begun, nobody may pin it any more */

    /* The shared parts: all or none of them (volume_is_held()). */
    struct volume_fds fds;         /* .worker is always -1 */
    struct live_map live;          /* with words */
    uint8_t uuid[VOLUME_UUID_LEN]; /* as it was when they came; what the map has is its worker's */
    struct volume_base base;       /* of volume.json at that time */
    dev_t live_dev;                /* of the live map's memfd; 0 without one */
    ino_t live_ino;

    dev_t fuse_dev; /* of the mount RUN/volumes/ID; 0: nothing is mounted there */
    int loop_fd;    /* held from attach to mount; -1 */
    char device[LOOP_DEVICE_PATH_MAX]; /* of the loop device; "" */
    dev_t device_dev;
    bool wanted; /* a worker is to live; else keeper does not start one */
    /* Changed under `table`, also by those without `busy` (the watching thread, volumes_cut());
     * whoever has the entry may read them. */
    _Atomic bool detaching; /* a detach has begun */
    _Atomic bool dead;
    bool lost;           /* mounted and served, but nobody has given us the descriptors yet */
    int64_t unserved_ms; /* since when no worker serves, as the watching thread saw; 0: one does */
    uint64_t cut_number; /* of the newest epoch that this process has cut for a checkpoint, */
    uint64_t cut_life;   /* and in which life; both are of who has `busy` */
    pthread_mutex_t slots; /* whoever empties released slots of the live map */
    int unsynced_num;      /* errno of a sync at whose failure an unmount went on; 0 */

    /* Of the watching thread alone, but for take_fds(), which begins them anew; table. */
    uint64_t seen_starts;
    uint64_t waits_starts; /* the worker whose requests are counted, */
    pid_t waits_worker;
    uint64_t waits_ns;        /* and since when it is that one */
    uint64_t progress;        /* of its worker, as the watching thread saw it, */
    int64_t progress_ms;      /* when it changed or nothing waited; table */
    bool suspected;           /* requests wait and none is answered; table */
    uint64_t unserved_starts; /* of workers, at `unserved_ms` */
    /* Of the watching thread alone. */
    uint64_t told_life; /* what follows was told of this one */
    bool told_silent, told_dead, told_refused, told_failed, told_unserved, told_lost;
    bool told_io, told_fs;
};

struct volumes {
    int data_fd;    /* borrowed */
    int run_fd;     /* borrowed */
    int workers_fd; /* RUN/workers */
    int mounts_fd;  /* RUN/volumes */
    int freezes_fd; /* RUN/freezes */
    char *data_path;
    char *run_path;
    uid_t uid;
    gid_t gid;

    pthread_mutex_t table;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    struct volume *first;
    uint64_t lives; /* table: that have begun */

    pthread_mutex_t keeper_lock;
    struct keeper_client *keeper;
    bool given; /* under keeper_lock: keeper has been given everything */

    _Atomic bool disk_is_fit; /* that of data_fd was looked at (local_disk.h) */
    int control_fd;           /* volume_mount_control(); of the watching thread; -1 */
    int room_ms;              /* VOLUMES_ROOM_MS; tests have less time */
    _Atomic bool stopping;    /* volumes_stop() */
    int wake_fd;              /* eventfd */
    int64_t keeper_silent_ms; /* since when it doesn't answer; of the watching thread; 0 */
};

/* Finds or makes the entry and waits until nobody else works on it. volume_leave() gives it back
 * and forgets an empty one. ERR_INVALID: no ID; ERR_CONFLICT: VOLUMES_BUSY_S are over. */
int volume_enter(struct volumes *volumes, const char *id, struct volume **ret, struct err *err);
/* Only if nobody works on it: for the thread that watches and must not wait for one of them. */
int volume_try_enter(struct volumes *volumes, const char *id, struct volume **ret);
void volume_leave(struct volumes *volumes, struct volume *volume);
/* The same for somebody who only looks at it later and must keep it from going: no `busy`. NULL:
 * there is none. */
struct volume *volume_peek(struct volumes *volumes, const char *id);
void volume_unpeek(struct volumes *volumes, struct volume *volume);
/* The same for somebody who does something to it: until volume_unpin() this life, as volume_status
 * has it, does not end. NULL: it has ended, or is about to. Whoever has pinned it does not wait for
 * `busy`. */
struct volume *volume_pin(struct volumes *volumes, const char *id, uint64_t life);
void volume_unpin(struct volumes *volumes, struct volume *volume);
#define VOLUME_ANY_LIFE UINT64_MAX
/* All of the table: the caller gives each back and frees the array. NULL without memory. */
struct volume **volumes_peek_all(struct volumes *volumes, size_t *ret_count);
/* Whether there is a volume with the shared parts. */
bool volumes_hold_any(struct volumes *volumes);
/* Somebody waits for `busy`. */
bool volume_is_awaited(struct volumes *volumes, const struct volume *volume);
static inline bool volume_is_held(const struct volume *volume)
{
    return volume->live.header != NULL;
}
/* volumes_epoch.c; with `busy`. ERR_CONFLICT: nobody can be asked to cut it, or to grow. */
int volume_must_be_attached(struct volumes *volumes, const struct volume *volume, struct err *err);
/* Ends what is open for a checkpoint, but for the epoch of a token (0: all) and that of a number
 * (0: likewise); gives released slots back. */
int volume_end_checkpoints(struct volumes *volumes, struct volume *volume, uint64_t but_token,
                           uint64_t but_number, struct err *err);

/* volumes_fds.c. Gives descriptors to a volume that has none; on success they are taken out of
 * `fds`, but for the pidfd. Each is checked to be what it is for, as a worker may have sent it: the
 * live map has to be this volume's and to keep its pages, and the program, which keeper starts as
 * root, one that the worker cannot have written. */
int volume_take_fds(struct volumes *volumes, struct volume *volume, struct volume_fds *fds,
                    struct err *err);
/* Closes them, and the live map. */
void volume_drop_fds(struct volumes *volumes, struct volume *volume);
/* The connection has ended: it was aborted. */
bool volume_is_cut(struct volumes *volumes, const struct volume *volume);
/* Ends the connection of a volume that the caller has pinned: else it could be a later one, or that
 * of another volume, as the kernel gives their numbers again. */
void volume_cut(struct volumes *volumes, const struct volume *volume);

/* Names. `ret` has VOLUMES_PATH_MAX bytes; all fit, as volumes_open() checks the lengths. */
void volume_mount_path(const struct volumes *volumes, const char *id, char *ret);
void volume_device_path(const struct volumes *volumes, const char *id, char *ret);
void volume_data_path(const struct volumes *volumes, const char *id, char *ret);
/* Opens DATA/volumes/ID. ERR_NOT_FOUND. */
int volume_open_dir(const struct volumes *volumes, const char *id, struct err *err);

/* The disk of DATA/volumes can hold volumes; looked at once. ERR_UNSUPPORTED. */
int volumes_check_disk(struct volumes *volumes, struct err *err);

void volumes_sleep_ms(int ms);

/* volumes_loop.c. Sets volume->device and device_dev from what the kernel shows; asks no worker. 1:
 * there is a loop device, 0: there is none. */
int volume_loop_look(struct volumes *volumes, struct volume *volume, struct err *err);
/* The same for a volume that the caller has not entered: the device number, 0 for none. */
int volume_loop_find(const struct volumes *volumes, const char *id, dev_t *ret, struct err *err);
/* Whether it is that over this file, `device` of a volume, by the name that it has now or had. */
bool volume_loop_is(const struct loop_device *loop, const char *path);
/* Opens the one that volume_loop_look() has found: while it is open it is of this file, and nobody
 * else gets its number. False: it has gone. *ret_fd is the caller's, -1 where it cannot be opened.
 */
bool volume_loop_keep(const struct volumes *volumes, const struct volume *volume, int *ret_fd);
/* Makes the loop device unless there is one, and holds it in volume->loop_fd. */
int volume_loop_ensure(struct volumes *volumes, struct volume *volume, struct err *err);
/* Lets go of volume->loop_fd. */
void volume_loop_release(struct volumes *volumes, struct volume *volume);
/* Takes the size of `device` over; it has to be `size`. */
int volume_loop_grow(struct volumes *volumes, struct volume *volume, uint64_t size,
                     struct err *err);

/* volumes_worker.c. Whether this process runs varve-volume, whichever volume it serves. */
bool volume_worker_runs(pid_t pid);
/* Its worker is gone, and the kernel loses the requests that it had: nobody may go on. */
bool volume_is_orphan(struct volumes *volumes, const struct volume *volume);
/* A pidfd of a process that serves this volume, the one that the live map names before others;
 * -ESRCH when there is none. */
int volume_worker_pidfd(struct volumes *volumes, const struct volume *volume);
/* 1 when it has ended, 0 when the time is over. */
int volume_worker_ended(int pidfd, int wait_ms);
/* Waits until a worker serves. ERR_UNSUPPORTED: it refuses, with its text; ERR_UNREACHABLE: none
 * does within VOLUMES_READY_S. */
int volume_worker_wait(struct volumes *volumes, const struct volume *volume, struct err *err);
/* Kills every process that serves this volume, and waits until they are gone. */
int volume_worker_kill(struct volumes *volumes, const struct volume *volume, int wait_ms,
                       struct err *err);

/* volumes_keeper.c. Keeper is there and has everything; it is started, or replaced when it doesn't
 * answer. 1 when it is another one than before. */
int volumes_keeper_ensure(struct volumes *volumes, struct err *err);
/* HOLD and START. */
int volumes_keeper_start(struct volumes *volumes, struct volume *volume, struct err *err);
/* The worker is not wanted any more: STAY, if there is a keeper. */
int volumes_keeper_stay(struct volumes *volumes, struct volume *volume, struct err *err);
/* Closes our descriptors; DROP, if there is a keeper. */
int volumes_keeper_drop(struct volumes *volumes, struct volume *volume, struct err *err);
/* Connects to a keeper that is there: 1, else 0. */
int volumes_keeper_find(struct volumes *volumes, int wait_ms, struct err *err);
/* Kills it, starts another one, gives it everything. */
int volumes_keeper_replace(struct volumes *volumes, struct err *err);
int volumes_silence_ms(void); /* after which a keeper that doesn't answer is replaced */

/* volumes_detach.c. The end of detach, abandon and of an attach that failed: kills what is left of
 * the worker, ends connection and mount, removes socket and directory, keeper lets go. Goes
 * on after a failure and returns the first one (I9). */
int volume_take_down(struct volumes *volumes, struct volume *volume, struct err *err);
/* Whether the control socket of its workers has its name, which only an attach makes. */
bool volume_has_socket(const struct volumes *volumes, const char *id);
/* volumes_detach() of a volume that the caller has entered. */
int volume_detach(struct volumes *volumes, struct volume *volume, int wait_ms, struct err *err);

/* volumes_adopt.c. Asks workers again whose descriptors we lack; `wait_ms` is for all. */
void volumes_find_lost(struct volumes *volumes, int wait_ms);

/* volumes_probe.c. Notes whether requests wait without any being answered; for the watching thread,
 * once a second. */
void volume_probe_note(struct volumes *volumes, struct volume *volume);

/* The same by a call that waits at most so long, for who knows already that something does not
 * answer. */
int volume_probe(struct volumes *volumes, const char *id, uint64_t life, int wait_ms,
                 struct err *err);

/* volumes_room.c. Between begin and end nobody but the caller's own e2fsck, resize2fs or mount
 * writes to the volume. When such writes have waited for the host's disk for volumes->room_ms, they
 * and all later ones get an error, so that the caller's call ends: the volume is of no use then
 * until it was taken down. room_guard_end() returns `rc`, or ERR_NO_SPACE in place of what came of
 * that, a success too: the volume is fenced. */
struct room_guard {
    struct volume *volume;
    int wait_ms;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t stopped; /* `stop` was set */
    bool stop;              /* under lock */
    _Atomic bool fired;
};
void room_guard_begin(const struct volumes *volumes, struct volume *volume,
                      struct room_guard *guard);
int room_guard_end(struct room_guard *guard, int rc, struct err *err);

/* volumes_wait.c. Until volume_wait_end() calls that this thread makes on the volume, which it has
 * entered, have no deadline while reads of it wait for the remote: they end when that is back, or
 * with the connection. */
void volume_wait_begin(struct volume *volume);
void volume_wait_end(void);
/* volume_fs_look() of the device: its UUID is the volume's, or that of what the volume was made of.
 */
int volume_look(const struct volume *volume, uint64_t size, struct ext4_super *ret,
                struct err *err);
/* volumes_uuid.c. A mounted file system that bears the UUID of what the volume was made of
 * (`borne`) gets its own, where the kernel can (Linux 6.0). Without it all works; two of one UUID
 * are hard to tell apart. */
void volume_give_uuid(const struct volume *volume, const char *path,
                      const uint8_t borne[VOLUME_UUID_LEN]);

/* volumes_mount.c. Where the file system on this device is mounted in our namespace: 1 and the
 * first such place in `ret` (VOLUMES_POINT_MAX), 0, or -errno. */
int volume_mounted_at(dev_t device, char *ret, struct err *err);
/* The device number of the loop device; 0: there is none. */
dev_t volume_device(struct volumes *volumes, const struct volume *volume);
