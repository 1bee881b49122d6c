/* volumes.h - varved's side of volumes: make, attach, mount, detach, resize, and find again.
 *
 *   detached --attach--> attached --mount--> mounted --unmount--> attached --detach--> detached
 *
 * Parts of an attached volume:
 *
 *   RUN/volumes/ID           FUSE mount with the one file `device`
 *   RUN/workers/ID.sock      the worker's control socket (format/volume_wire.h)
 *   /dev/loopN               over RUN/volumes/ID/device: block size 4096, direct I/O, autoclear
 *   a path on the host       the ext4 on it, mounted nosuid, nodev, noatime, errors=remount-ro
 *   RUN/keeper.sock          one varve-keeper for all volumes of the node
 *
 * Who holds what: worker, keeper and varved each hold the /dev/fuse descriptor and the live map, so
 * any two of them may die (I10). This module is varved's share: it holds the descriptors, starts
 * keeper when there is none or it has died, gives it what it lacks, and after a start of varved
 * gets the descriptors back from keeper, or from the workers themselves. Nothing here touches a
 * path inside a mounted volume but statfs and sync calls on the mount itself.
 *
 * Where a sync or an unmount can hang (a worker that is stopped), calls have a deadline of their
 * own or run where nobody else waits for them: no lock of this module is held meanwhile.
 *
 * Durable state is the caller's (the catalog): this module finds out what is attached by looking.
 *
 * What it does not do: jobs, names, the catalog (snapd/workspace).
 */
#pragma once

#include "err.h"
#include "volume_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct volumes;

struct volumes_options {
    int data_fd;           /* DATA/volumes; borrowed */
    const char *data_path; /* the same, absolute */
    int run_fd;            /* RUN; borrowed */
    const char *run_path;
    uid_t uid; /* of the workers, and owner of the volumes' files */
    gid_t gid;
};

/* Opens the module; starts nothing. Strings are copied. */
int volumes_open(const struct volumes_options *options, struct volumes **ret, struct err *err);
/* Lets go of everything; keeper and workers go on. NULL is fine. */
void volumes_close(struct volumes *volumes);

/* Makes DATA/volumes/ID with an ext4 of its own in it, durably: a directory that is there is
 * complete (I1), and then this does nothing. ERR_INVALID: a size outside the limits (it is rounded
 * up to VOLUME_SIZE_UNIT). */
int volumes_create(struct volumes *volumes, const char *id, uint64_t size, struct err *err);
/* Removes the directory of a volume that is not attached; a missing one is no failure. */
int volumes_remove(struct volumes *volumes, const char *id, struct err *err);

struct volume_status {
    bool attached;    /* FUSE mount, worker and loop device are there */
    bool detaching;   /* somebody still has `device` open, though nothing is mounted here */
    bool dead;        /* the connection is gone: only detach helps */
    char device[32];  /* "/dev/loop3", "" */
    pid_t worker;     /* 0: none lives */
    uint64_t size;    /* bytes; of volume.json when detached */
    uint64_t local;   /* bytes in chunks that are not zero; 0 when not attached and not known */
    uint64_t held;    /* requests that wait for the host's disk */
    uint64_t held_ns; /* for how long the oldest waits */
    uint64_t starts;  /* of workers */
    bool resends;     /* a worker's death is invisible (Linux 6.9) */
    bool locked;      /* its memory could be locked */
    bool direct;      /* `data` is written with direct I/O */
    bool fenced;
    uint64_t locked_bytes;
    char text[512]; /* why the worker refuses; "" */
};

/* Attaches: checks volume.json, data and map; FUSE mount, live map, worker, INIT answered, loop
 * device. Repeating it is fine. ERR_DAMAGED, ERR_TOO_NEW, ERR_UNSUPPORTED (no /dev/fuse, no loop
 * device, a host that cannot read direct I/O back), ERR_CONFLICT. On failure nothing is left. */
int volumes_attach(struct volumes *volumes, const char *id, struct err *err);
/* Mounts the ext4 of an attached volume at `path` (an existing directory, absolute, no symbolic
 * links), after a look at its superblock. Repeating it is fine; another file system mounted over it
 * is not looked at. `check`: run e2fsck -p before (after a death). */
int volumes_mount(struct volumes *volumes, const char *id, const char *path, bool read_only,
                  bool check, struct err *err);
/* Flushes and unmounts from `path`. ERR_CONFLICT names the processes that use it. Not mounted is no
 * failure. */
int volumes_unmount(struct volumes *volumes, const char *id, const char *path, struct err *err);
/* Waits until nobody has `device` open, at most `wait_ms`, closes the disk map, stops the worker,
 * and takes the FUSE mount away. ERR_CONFLICT when somebody holds on (another mount namespace):
 * says which processes. Not attached is no failure. */
int volumes_detach(struct volumes *volumes, const char *id, int wait_ms, struct err *err);
/* The same for one whose connection is gone, or to give up what was not written: nothing is waited
 * for, unmounts lazily. `path` may be NULL. */
int volumes_abandon(struct volumes *volumes, const char *id, const char *path, struct err *err);
/* Grows an attached volume: volume.json, live map, data, loop device (its size is read back), and
 * the mounted ext4 at `path` (NULL: not mounted; the next mount grows it). Repeating it goes on
 * where it was. */
int volumes_resize(struct volumes *volumes, const char *id, uint64_t size, const char *path,
                   struct err *err);
/* What is so now; cheap, never waits for a worker. */
int volumes_status(struct volumes *volumes, const char *id, struct volume_status *ret,
                   struct err *err);
/* Fences: EXT4_IOC_SHUTDOWN on the mount at `path` (default flag: what was written is kept), then
 * the worker refuses writes, held ones too. */
int volumes_fence(struct volumes *volumes, const char *id, const char *path, struct err *err);
/* The limits of a volume; 0 none. Does nothing when it is not attached. */
void volumes_limit(struct volumes *volumes, const char *id, uint64_t bytes, uint64_t ops);
/* Discards what the mounted ext4 does not use, in the chunks that were written since the last time.
 */
int volumes_trim(struct volumes *volumes, const char *id, const char *path, struct err *err);

/* After a start: descriptors back from keeper and workers, keeper started and told what it lacks,
 * when there is anything attached. Volumes whose three holders all died are `dead` afterwards. What
 * fails for one is logged and does not stop the others (I9). */
int volumes_adopt(struct volumes *volumes, struct err *err);
/* Calls `take` with every ID that is attached or half attached, by looking. */
typedef int volumes_take(void *arg, const char *id, struct err *err);
int volumes_each(struct volumes *volumes, volumes_take *take, void *arg, struct err *err);

/* To be called about once a second, from one thread: is keeper there (else it is started and given
 * everything), has a worker died or refused, is somebody silent. Events go to `take`
 * ("worker-restarted", "worker-refused", "worker-silent", "keeper-restarted", "volume-dead"). */
typedef void volumes_event(void *arg, const char *id, const char *event, const char *detail);
void volumes_watch(struct volumes *volumes, volumes_event *take, void *arg);
