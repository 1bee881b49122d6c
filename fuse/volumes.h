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
 * The loop device goes by itself when nobody has it open (autoclear). Between attach and mount this
 * module holds it open; after an unmount, or when varved was restarted in between, it is gone, and
 * the next mount makes it again. So "attached" means FUSE mount and worker.
 *
 * Who holds what: worker, keeper and varved each hold the /dev/fuse descriptor, the live map, the
 * listening socket and the program, so any two of them may die (I10). This module is varved's
 * share: it starts keeper when there is none or it has died and gives it everything (for workers
 * that live, with a pidfd), and after a start of varved gets the descriptors back from keeper, or
 * from the workers themselves. Nothing here touches a path inside a mounted volume but statfs, sync
 * and ioctl calls on the mount itself.
 *
 * Attach, in this order, each step undone when a later one fails:
 *
 *   1 volume.json; a resize left half done is finished; size of `data`; its lock is free
 *   2 the disk map is read into a new live map
 *   3 FUSE mount
 *   4 listening socket, program opened
 *   5 keeper: HOLD, START; wait until the worker serves (LIVE_FACT_READY)
 *   6 loop device
 *
 * Detach: loop device let go; wait until the worker saw RELEASE of `device`, as umount returning
 * does not mean that (LIVE_FACT_OPEN); CLOSE; keeper STAY; worker STOP; FUSE unmount; socket and
 * directory removed; keeper DROP. Killed between two steps, the next detach goes on: each
 * step looks whether its effect is there.
 *
 * Threads and deadlines: any function from any thread. What changes a volume holds that volume's
 * `busy` lock, for which others wait at most VOLUMES_BUSY_S (then ERR_CONFLICT); the table has a
 * lock of its own that is held for memory alone. A worker or keeper that is stopped or dies is met
 * by a deadline in each step, and the step is repeated where a successor can answer. volumes_status
 * waits for neither. What ends a volume's connection or fences it cannot wait for `busy`, as
 * whoever has that may wait for just this; it says which life of the volume it means, from attach
 * to detach, and the end of a life waits for it.
 *
 * What waits in volumes_create(), _attach(), _mount() and _unmount() asks whether it should
 * (wait_stop.h). An unmount decides after its sync, before it takes anything away.
 *
 * One varved per DATA and RUN: the caller holds the locks of both directories.
 *
 * Durable state is the caller's (the catalog): this module finds out what is attached by looking.
 * DATA/volumes has to be on a local disk (local_disk.h): on others nothing is made or attached.
 *
 * What it does not do: jobs, names, the catalog (snapd/workspace).
 */
#pragma once

#include "err.h"
#include "volume_create.h"
#include "volume_format.h"
#include "volume_fs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    VOLUMES_BUSY_S = 120,  /* that one call waits for another one on the same volume */
    VOLUMES_READY_S = 20,  /* until a worker serves */
    VOLUMES_CLOSE_S = 120, /* flush and close of the disk map */
};

struct volumes;

struct volumes_options {
    int data_fd;           /* DATA/volumes; borrowed */
    const char *data_path; /* the same, absolute */
    int run_fd;            /* RUN; borrowed */
    const char *run_path;
    uid_t uid; /* of the workers, and owner of the volumes' files */
    gid_t gid;
};

/* Opens the module; makes RUN/volumes and RUN/workers, starts nothing. Strings are copied. */
int volumes_open(const struct volumes_options *options, struct volumes **ret, struct err *err);
/* Lets go of everything; keeper and workers go on. No other call is under way. NULL is fine. */
void volumes_close(struct volumes *volumes);

/* Makes DATA/volumes/ID with an ext4 of its own in it, durably: a directory that is there is
 * complete (I1), and then this does nothing. ERR_INVALID: a size outside the limits (it is rounded
 * up to VOLUME_SIZE_UNIT). ERR_UNSUPPORTED: the file system cannot hold volumes. */
int volumes_create(struct volumes *volumes, const char *id, uint64_t size, struct err *err);
/* The same of a checkpoint (volume_create_from()): a volume of which nothing is here. */
int volumes_create_from(struct volumes *volumes, const char *id, uint64_t size,
                        const struct volume_base *base, volume_create_give *give, void *arg,
                        struct err *err);
/* Puts a volume that is made of a checkpoint in the place of one that is not attached
 * (volume_create_replace()). ERR_CONFLICT: it is attached. */
int volumes_replace_from(struct volumes *volumes, const char *id, uint64_t size,
                         const struct volume_base *base, volume_create_give *give, void *arg,
                         struct err *err);
/* Removes the directory of a volume that is not attached (ERR_CONFLICT); a missing one is no
 * failure. */
int volumes_remove(struct volumes *volumes, const char *id, struct err *err);

struct volume_status {
    bool attached;    /* FUSE mount and worker are there, or will be in a moment (a restart) */
    bool detaching;   /* a detach is under way, or was cut short after the map was closed, or
                         somebody has taken RUN/volumes/ID away: only detach helps */
    bool dead;        /* the connection is gone, or nobody will serve it: only abandon helps */
    char device[32];  /* "/dev/loop3"; "" while there is none, as after an unmount */
    dev_t device_dev; /* of the same; 0 */
    pid_t worker;     /* 0: none lives */
    uint64_t size;    /* bytes; of volume.json when detached */
    uint64_t local;   /* bytes on the host's disk: of chunks that are here whole, when attached; of
                         the file `data`, else */
    uint64_t absent;  /* chunks that are not here, or not all of their blocks; 0 when detached */
    uint64_t absent_waits;   /* reads that wait for the remote */
    struct volume_base base; /* what absent chunks are of, as volume.json says; lineage "": none */
    uint64_t held;           /* requests that wait for the host's disk */
    uint64_t held_ns; /* for how long the oldest waits, over the deaths of workers; so it may count
                         for a moment although none waits (volumes_watch() sees to it) */
    uint64_t silent_ns;   /* since the worker's last heartbeat */
    uint64_t unserved_ns; /* since a worker served that is to be served; 0: one does, or there was
                             none yet (volumes_watch() sees to it) */
    uint64_t starts;      /* of workers */
    uint64_t life; /* which attach this is, for calls that must not mean a later one; 0: it is
                      not attached */
    uint64_t read_bytes, write_bytes; /* since attach, both only grow */
    uint64_t reads, writes;           /* the same in requests */
    bool lost;        /* attached, but keeper is gone and the worker does not say anything: most of
                         this is not known */
    int unsynced_num; /* an unmount went on although its sync failed with this errno; 0 */
    bool suspected;   /* requests wait, and for a while none has been answered: volumes_probe() */
    bool resends;     /* a worker's death is invisible (Linux 6.9) */
    bool locked;      /* its memory could be locked */
    bool direct;      /* `data` is written with direct I/O */
    bool fenced;
    bool failed;    /* a sync of the host's disk has failed: nothing that is written now would be
                       kept, and the volume can only be abandoned */
    int failed_num; /* what the kernel said to it: an errno, or 0 */
    uint64_t locked_bytes;
    char text[512]; /* why the last worker refused, or could not begin; "" */
};

/* Attaches (above). Repeating it is fine, also from two threads: one does it, the other one finds
 * it. What an earlier life left half attached, with nothing mounted on it, is finished or removed
 * first, as is one that is fenced. ERR_NOT_FOUND, ERR_DAMAGED, ERR_TOO_NEW, ERR_UNSUPPORTED (no
 * /dev/fuse, no loop device, no local disk, a host that cannot read direct I/O back), ERR_CONFLICT
 * (somebody else has `data` locked; the volume is dead or detaching). On failure nothing is left.
 */
int volumes_attach(struct volumes *volumes, const char *id, struct err *err);
/* What a fetch (volume_fetch.h) of an attached volume needs. */
struct volumes_fetch_fds {
    int workers_fd; /* RUN/workers; borrowed, valid until volumes_close() */
    int live_fd;    /* of the live map; the caller closes it */
    uint64_t life;  /* which attach it is; a later one has another live map */
};
/* For a volume that is attached; else ERR_CONFLICT. Waits for nobody. An attach reads nothing of
 * the device, so a fetch that is started after it comes in time; mount, unmount and resize do, and
 * wait for the remote as long as that takes: while reads wait for it, their deadlines do not run.
 * What ends such a wait is volumes_cut(), volumes_abandon() or volumes_stop(). */
int volumes_fetch_fds(struct volumes *volumes, const char *id, struct volumes_fetch_fds *ret,
                      struct err *err);
/* What a program of e2fsprogs has done to a file system before it was mounted. */
struct volumes_mended {
    bool replayed;                 /* its journal */
    char said[VOLUME_FS_TEXT_MAX]; /* about what it has mended; "": nothing */
};
/* Mounts the ext4 of an attached volume at `path` (an existing directory, absolute, no symbolic
 * links), after a look at its superblock. Repeating it is fine; another file system mounted over it
 * is not looked at. `check`: run e2fsck -p before (after a death), as for one that has met an error
 * or was not unmounted. A resize that the ext4 has not seen yet is finished here. One that lives in
 * another mount namespace, or in use without a path, is mounted once more as it is. `ret` may be
 * NULL. ERR_NO_SPACE: what has to be written for that found no room on the host's disk for a while;
 * then it is of no use until it was detached, or discarded where there is no room for that. */
int volumes_mount(struct volumes *volumes, const char *id, const char *path, bool read_only,
                  bool check, struct volumes_mended *ret, struct err *err);
/* Flushes and unmounts from `path`. A sync that fails because of the disk is not repeated, as the
 * kernel would say that all is well then: what it has lost is lost, and the unmount goes on
 * (volume_status.unsynced_num). ERR_CONFLICT names the processes that use it, or says that
 * somebody has frozen it (volume_frozen.h): that stays mounted until he thaws it. Not mounted is no
 * failure, but for one that is frozen and that somebody has unmounted. */
int volumes_unmount(struct volumes *volumes, const char *id, const char *path, struct err *err);
/* Waits until nobody has `device` open, at most `wait_ms`, closes the disk map, stops the worker,
 * and takes the FUSE mount away. With 0 for wait_ms the close gets 3 seconds too, else
 * VOLUMES_CLOSE_S; what the host's disk says about it (ERR_NO_SPACE, ERR_IO) is told at once.
 * Room for the flush of what changed is enough, and seldom needed after an unmount. ERR_IO for one
 * whose sync has failed (volume_status). ERR_CONFLICT when somebody holds on (another mount
 * namespace): says which processes; this is to be repeated, and until then the volume is attached
 * as before, for them. Not attached is no failure. A dead one with nothing mounted on it is cleaned
 * away; else ERR_CONFLICT. */
int volumes_detach(struct volumes *volumes, const char *id, int wait_ms, struct err *err);
/* Takes a volume down that will be removed: what was not written is not, so this needs neither room
 * on the host nor a disk that works. ERR_CONFLICT as for volumes_detach(): somebody holds on, or it
 * is mounted. Not attached is no failure. */
int volumes_discard(struct volumes *volumes, const char *id, struct err *err);
/* The same for one whose connection is gone, or to give up what was not written: nothing is waited
 * for. The ext4 is unmounted lazily everywhere in this namespace (`path` too, which may be NULL),
 * requests end with EIO, the worker is killed. Processes that still sit in the old mount keep the
 * old loop device, not the volume: it can be attached again at once.
 *
 * `frozen`: also one that somebody has frozen, else ERR_CONFLICT before anything is changed. Its
 * ext4 is shut down before it is thawed, so it writes nothing more; else nobody could reach it
 * afterwards, nor its loop device. */
int volumes_abandon(struct volumes *volumes, const char *id, const char *path, bool frozen,
                    struct err *err);
/* The first step of volumes_abandon() alone, which waits for nobody: the connection ends and the
 * worker is killed, so who hangs in a call on the volume comes back with an error, and can take
 * nothing back. For who waits for them and is to abandon it then. */
void volumes_cut(struct volumes *volumes, const char *id);
/* Grows an attached volume: volume.json (the old size beside the new one), live map, `data` by the
 * worker, volume.json (the new size alone), loop device (its size is read back), and the mounted
 * ext4 at `path` (NULL: not mounted; the next mount grows it). Repeating it goes on where it was.
 * The size is rounded up to VOLUME_SIZE_UNIT; a smaller one than now is ERR_INVALID.
 *
 * The kernel wants CAP_SYS_RESOURCE to grow a mounted ext4, which even root may lack in a
 * container. Then the result is 1: all but the ext4 has grown, and the next mount grows that. */
int volumes_resize(struct volumes *volumes, const char *id, uint64_t size, const char *path,
                   struct err *err);
/* What is so now; cheap, never waits for a worker, keeper or another call. ERR_NOT_FOUND: no such
 * volume. */
int volumes_status(struct volumes *volumes, const char *id, struct volume_status *ret,
                   struct err *err);
/* Whether the ext4 of this volume is what is mounted at `path`, or below what is mounted over it
 * there. Reads the mount table alone. */
int volumes_is_mounted(struct volumes *volumes, const char *id, const char *path, bool *ret,
                       struct err *err);
/* What the host's disk says of a volume, attached or not, and no worker can change alone: the size
 * in volume.json (the new one while it grows), and the bytes that the file `data` takes. */
int volumes_record(struct volumes *volumes, const char *id, uint64_t *ret_size,
                   uint64_t *ret_stored, struct err *err);
/* A place where the ext4 of a volume is to be. */
struct volumes_place {
    const char *id;
    const char *path;
    dev_t device_dev; /* of volume_status */
    bool mounted;     /* found, as volumes_is_mounted() does */
    bool read_only;   /* its file system takes no writes: so it is mounted, or it met an error */
    bool known;       /* the next one is: somebody answered in time */
    struct volume_fs_space space;
};
/* Looks at many places at once: one reading of the mount table, one process that asks all file
 * systems for their space. Waits for none that does not answer longer than volume_fs_spaces(). */
int volumes_look(struct volumes *volumes, struct volumes_place *places, size_t count,
                 struct err *err);
/* Fences: EXT4_IOC_SHUTDOWN on the mount at `path` (default flag: what was written is kept), then
 * the worker refuses writes, held ones too. While writes are held the first would wait for them, so
 * after a moment the second goes on beside it. `path` NULL: the second alone. ERR_CONFLICT: `life`
 * (volume_status) has ended; a later one is left alone. */
int volumes_fence(struct volumes *volumes, const char *id, uint64_t life, const char *path,
                  struct err *err);
/* Finds out whether a worker that beats answers too, and kills one that does not, so that keeper
 * starts another one: 1. 0: it answers, or has ended, or the volume's `life` has. ERR_UNSUPPORTED
 * (before Linux 6.9), ERR_CONFLICT (it waits for the host's disk): it does not answer, and to kill
 * it would not help. Waits for KEEPER_SILENCE_S at most; needs nothing that others may have. */
int volumes_probe(struct volumes *volumes, const char *id, uint64_t life, struct err *err);
/* Whether the worker of one whose descriptors nobody has given us (`lost`) answers the kernel all
 * the same; then it counts as served up to now. Waits as volumes_probe() does. */
bool volumes_answers(struct volumes *volumes, const char *id);
/* Nobody has served it for too long: what waits for it ends with an error, and it is `dead`: 1. 0:
 * this `life` has ended, or somebody serves it by now. */
int volumes_give_up(struct volumes *volumes, const char *id, uint64_t life);
/* Chunks that are clean need not be read for a checkpoint, as an earlier one has them: the one that
 * the disk map names, or that was recorded since the attach (volumes_built()). Before each cut for
 * a checkpoint; `parent` is what that is to build on (NULL: nothing). 1: it is that one. 0: it is
 * not (an older catalog, a copy of the data directory, another checkpoint that ended differently):
 * from here on all that is here counts as dirty until a checkpoint has succeeded; an epoch that was
 * open for one is ended. ERR_CONFLICT: it is not attached. Takes the `busy` lock, as a cut does. */
int volumes_build_on(struct volumes *volumes, const char *id, const struct digest *parent,
                     struct err *err);
/* A checkpoint of the volume is recorded: right before volumes_epoch_clean(), so that who sees what
 * is clean sees of what. Without it the next checkpoint reads all that is here. Does nothing when
 * that life has ended. */
void volumes_built(struct volumes *volumes, const char *id, uint64_t life,
                   const struct digest *checkpoint);
/* The limits of a volume; 0 none. Does nothing when it is not attached. */
void volumes_limit(struct volumes *volumes, const char *id, uint64_t bytes, uint64_t ops);
/* Discards what the mounted ext4 does not use, in the chunks that were written since the last time.
 * Ends early, without a failure, when somebody waits for the volume, or reads wait for the remote:
 * the next time goes on. */
int volumes_trim(struct volumes *volumes, const char *id, const char *path, struct err *err);

/* After a start: descriptors back from keeper and workers, keeper started and told what it lacks,
 * when there is anything attached. Volumes whose three holders all died are `dead` afterwards;
 * those whose worker doesn't answer now are asked again by volumes_watch. What fails for one is
 * logged and does not stop the others (I9). */
int volumes_adopt(struct volumes *volumes, struct err *err);
/* Thaws what an earlier varved has left frozen and no process holds any more (freeze.h). Returns
 * how many freezes are left, which are to be looked at again. */
int volumes_thaw_left(struct volumes *volumes, int wait_ms);
/* Calls `take` with every ID that is attached or half attached, by looking: what is in the table,
 * and names below RUN/volumes and RUN/workers. */
typedef int volumes_take(void *arg, const char *id, struct err *err);
int volumes_each(struct volumes *volumes, volumes_take *take, void *arg, struct err *err);

/* To be called again and again from one thread: is keeper there (else it is started and given
 * everything), has a worker died or refused, is somebody silent. Waits by itself, at most
 * `timeout_ms` (1000 is right: other things are looked at once a call), and mends a dead keeper as
 * soon as its socket hangs up. Events go to `take`, in this thread with no lock held
 * ("worker-restarted", "worker-refused", "worker-failed", "worker-silent", "keeper-restarted",
 * "keeper-silent", "volume-dead", "volume-sync-failed", "volume-errors", "volume-read-only"); `id`
 * is NULL for those of keeper. One whose worker refuses is given up at once, as nobody will serve
 * it. */
typedef void volumes_event(void *arg, const char *id, const char *event, const char *detail);
void volumes_watch(struct volumes *volumes, int timeout_ms, volumes_event *take, void *arg);
/* From here on nothing waits long for a volume, as the program is to end: what is under way fails
 * within seconds, with ERR_INTERRUPTED where it was cut short. */
void volumes_stop(struct volumes *volumes);
/* Makes volumes_watch() return at once, now or the next time. */
void volumes_wake(struct volumes *volumes);
