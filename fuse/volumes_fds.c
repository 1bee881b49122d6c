/* The descriptors of a volume: what comes from keeper, from the worker or from an attach is checked
 * here before it is used. A worker has no rights, and may have been taken over by what it serves;
 * its answer must not become root's program, nor memory that goes away under varved and keeper. */
#include "volumes_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
    FUSE_MAJOR = 10, /* of /dev/fuse: Documentation/admin-guide/devices.txt */
    FUSE_MINOR = 229,
};

static int refuse(const struct volume *volume, const char *what, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "a descriptor of volume %s is %s", volume->id, what);
}

static bool is_fuse(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
           st.st_rdev == makedev(FUSE_MAJOR, FUSE_MINOR);
}

static bool has_option(int fd, int option, int value)
{
    int have = 0;
    socklen_t len = sizeof have;
    return getsockopt(fd, SOL_SOCKET, option, &have, &len) == 0 && have == value;
}

static bool is_listener(int fd)
{
    return has_option(fd, SO_DOMAIN, AF_UNIX) && has_option(fd, SO_TYPE, SOCK_SEQPACKET) &&
           has_option(fd, SO_ACCEPTCONN, 1);
}

static bool can_change(uid_t uid, gid_t gid, const struct stat *st)
{
    return uid != 0 && (st->st_uid == uid || (st->st_gid == gid && (st->st_mode & S_IWGRP) != 0) ||
                        (st->st_mode & S_IWOTH) != 0);
}

/* A program that whoever serves the volume cannot have made or written. */
static bool is_program(const struct volumes *volumes, const struct volume *volume, int fd)
{
    struct stat st;
    struct stat dir;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || can_change(volumes->uid, volumes->gid, &st))
        return false;
    /* It may be another user's, when the data directory was brought from another host. */
    return fstatat(volumes->data_fd, volume->id, &dir, AT_SYMLINK_NOFOLLOW) < 0 ||
           !can_change(dir.st_uid, dir.st_gid, &st);
}

static bool is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

static int check(const struct volumes *volumes, const struct volume *volume,
                 const struct volume_fds *fds, struct err *err)
{
    if (!is_fuse(fds->fuse))
        return refuse(volume, "not /dev/fuse", err);
    if (!is_sealed(fds->live))
        return refuse(volume, "no live map: it could be cut while it is used", err);
    if (!is_listener(fds->listen))
        return refuse(volume, "no control socket", err);
    if (!is_program(volumes, volume, fds->program))
        return refuse(volume, "no program, or one that its worker could have written", err);
    return 0;
}

/* The live map, mapped, and which file it is. */
static int open_live(const struct volume *volume, int fd, struct live_map *ret, struct stat *ret_st,
                     struct err *err)
{
    struct live_map live;
    if (fstat(fd, ret_st) < 0)
        return err_errno(err, errno, "cannot stat the live map of volume %s", volume->id);
    int rc = live_map_open(fd, false, &live, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot read the live map of volume %s", volume->id);
    if (strcmp(live.header->id, volume->id) != 0) {
        rc = err_fail(err, ERR_DAMAGED, "the live map of volume %s is that of volume %.*s",
                      volume->id, VOLUME_ID_LEN, live.header->id);
        live_map_close(&live);
        return rc;
    }
    *ret = live;
    return 0;
}

/* Without volume.json it is as one that was made here; an attach has refused it then. */
static struct volume_base read_base(const struct volumes *volumes, const struct volume *volume)
{
    struct volume_json json = {.size = 0};
    cleanup_fd int dir = volume_open_dir(volumes, volume->id, NULL);
    if (dir >= 0)
        (void)volume_json_read(dir, volume->id, &json, NULL);
    return json.base;
}

int volume_take_fds(struct volumes *volumes, struct volume *volume, struct volume_fds *fds,
                    struct err *err)
{
    struct live_map live;
    struct stat st;
    int rc = check(volumes, volume, fds, err);
    if (rc == 0)
        rc = open_live(volume, fds->live, &live, &st, err);
    if (rc < 0)
        return rc;
    struct volume_base base = read_base(volumes, volume);
    (void)pthread_mutex_lock(&volumes->table);
    volume->base = base;
    volume->fds = (struct volume_fds){.fuse = steal_fd(&fds->fuse),
                                      .live = steal_fd(&fds->live),
                                      .listen = steal_fd(&fds->listen),
                                      .program = steal_fd(&fds->program),
                                      .worker = -1};
    volume->live = live;
    memcpy(volume->uuid, live.header->uuid, sizeof volume->uuid);
    volume->live_dev = st.st_dev;
    volume->live_ino = st.st_ino;
    volume->dead = false;
    volume->lost = false;
    volume->life = ++volumes->lives;
    /* What was seen of a life before, if somebody has kept the entry. */
    volume->seen_starts = volume->waits_starts = volume->progress = volume->unserved_starts = 0;
    volume->progress_ms = volume->unserved_ms = 0;
    volume->suspected = false;
    (void)pthread_mutex_unlock(&volumes->table);
    return 0;
}

void volume_drop_fds(struct volumes *volumes, struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    struct volume_fds fds = volume->fds;
    live_map_close(&volume->live);
    volume->fds = VOLUME_FDS_NONE;
    volume->live_dev = 0;
    volume->live_ino = 0;
    (void)pthread_mutex_unlock(&volumes->table);
    volume_fds_close(&fds);
}

int volumes_fetch_fds(struct volumes *volumes, const char *id, struct volumes_fetch_fds *ret,
                      struct err *err)
{
    struct volumes_fetch_fds fds = {.workers_fd = volumes->workers_fd, .live_fd = -1};
    struct volume *volume = volume_peek(volumes, id);
    int num = 0;
    if (volume) {
        (void)pthread_mutex_lock(&volumes->table);
        if (volume_is_held(volume) && !volume->dead && !volume->ending) {
            fds.live_fd = fcntl(volume->fds.live, F_DUPFD_CLOEXEC, 0);
            num = fds.live_fd < 0 ? errno : 0;
            fds.life = volume->life;
        }
        (void)pthread_mutex_unlock(&volumes->table);
        volume_unpeek(volumes, volume);
    }
    if (num != 0)
        return err_errno(err, num, "cannot fetch what volume %s lacks", id);
    if (fds.live_fd < 0)
        return err_fail(err, ERR_CONFLICT, "volume %s is not attached", id);
    *ret = fds;
    return 0;
}
