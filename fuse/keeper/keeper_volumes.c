#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_id(const char id[16])
{
    for (int i = 0; i < VOLUME_ID_LEN; i++)
        if (!((id[i] >= '0' && id[i] <= '9') || (id[i] >= 'a' && id[i] <= 'f')))
            return false;
    return id[VOLUME_ID_LEN] == '\0';
}

static struct keeper_volume *find(struct keeper *keeper, const char *id)
{
    for (int i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (keeper->volumes[i].id[0] != '\0' && strcmp(keeper->volumes[i].id, id) == 0)
            return &keeper->volumes[i];
    return NULL;
}

static struct keeper_volume *find_free(struct keeper *keeper)
{
    if (keeper->volume_count >= keeper->volumes_max)
        return NULL;
    for (int i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (keeper->volumes[i].id[0] == '\0')
            return &keeper->volumes[i];
    return NULL;
}

static bool is_same_file(int a, int b)
{
    struct stat x;
    struct stat y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The sizes and seals that keeper itself relies on; what the worker needs, the worker checks. */
static int check_fds(const int fds[KEEPER_FDS_MAX], int count, const char **ret_text)
{
    struct stat st;
    if (count != KEEPER_FD_PIDFD && count != KEEPER_FDS_MAX)
        *ret_text = "four or five descriptors belong to this request";
    else if (fstat(fds[1], &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < LIVE_MAP_HEADER_BYTES ||
             fcntl(fds[1], F_GET_SEALS) < 0 || (fcntl(fds[1], F_GET_SEALS) & F_SEAL_SHRINK) == 0)
        *ret_text = "the second descriptor is no live map";
    else if (fstat(fds[2], &st) < 0 || !S_ISSOCK(st.st_mode))
        *ret_text = "the third descriptor is no socket";
    else if (fstat(fds[3], &st) < 0 || !S_ISREG(st.st_mode))
        *ret_text = "the fourth descriptor is no program";
    else if (count == KEEPER_FDS_MAX &&
             syscall(SYS_pidfd_send_signal, fds[KEEPER_FD_PIDFD], 0, NULL, 0) < 0 && errno == EBADF)
        *ret_text = "the fifth descriptor is no pidfd";
    else
        return 0;
    return -EINVAL;
}

static struct live_map_header *map_header(int fd, const char *id, int *ret_num)
{
    struct live_map_header *live = mmap(NULL, LIVE_MAP_HEADER_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (live == MAP_FAILED) {
        *ret_num = -errno;
        return NULL;
    }
    if (memcmp(live->magic, LIVE_MAP_MAGIC, sizeof live->magic) == 0 &&
        live->version == LIVE_MAP_VERSION && memcmp(live->id, id, VOLUME_ID_LEN + 1) == 0)
        return live;
    (void)munmap(live, LIVE_MAP_HEADER_BYTES);
    *ret_num = -EINVAL;
    return NULL;
}

/* A worker that another keeper started. One that has ended already is as good as none. */
static void adopt(struct keeper *keeper, struct keeper_volume *volume, int *pidfd)
{
    if (keeper_has_worker(volume) || *pidfd < 0)
        return;
    volume->fds[KEEPER_FD_PIDFD] = *pidfd;
    *pidfd = -1;
    volume->due = 0;
    keeper_child_watch(keeper, volume, (pid_t)atomic_load(&volume->live->pid), false);
}

static int hold_again(struct keeper *keeper, struct keeper_volume *volume, int *fds,
                      const char **ret_text)
{
    if (!is_same_file(volume->fds[1], fds[1])) {
        *ret_text = "another live map is held for this volume";
        return -EEXIST;
    }
    adopt(keeper, volume, &fds[KEEPER_FD_PIDFD]);
    return 0;
}

int keeper_volumes_hold(struct keeper *keeper, const struct keeper_wire *request,
                        int fds[KEEPER_FDS_MAX], int count, const char **ret_text)
{
    if (!is_id(request->id) || request->directory[0] != '/' ||
        memchr(request->directory, '\0', sizeof request->directory) == NULL) {
        *ret_text = "no ID of a volume, or no absolute path of its directory";
        return -EINVAL;
    }
    int rc = check_fds(fds, count, ret_text);
    if (rc < 0)
        return rc;
    struct keeper_volume *volume = find(keeper, request->id);
    if (volume)
        return hold_again(keeper, volume, fds, ret_text);
    volume = find_free(keeper);
    if (!volume) {
        *ret_text = "keeper holds as many volumes as it can";
        return -EMFILE;
    }
    struct live_map_header *live = map_header(fds[1], request->id, &rc);
    if (!live) {
        *ret_text = "the live map cannot be mapped, or belongs to another volume or version";
        return rc;
    }
    *volume = (struct keeper_volume){.live = live};
    memcpy(volume->id, request->id, sizeof volume->id);
    memcpy(volume->directory, request->directory, sizeof volume->directory);
    for (int i = 0; i < KEEPER_FD_PIDFD; i++) {
        volume->fds[i] = fds[i];
        fds[i] = -1;
    }
    volume->fds[KEEPER_FD_PIDFD] = -1;
    keeper->volume_count++;
    adopt(keeper, volume, &fds[KEEPER_FD_PIDFD]);
    return 0;
}

static struct keeper_volume *find_or_say(struct keeper *keeper, const char *id,
                                         const char **ret_text)
{
    struct keeper_volume *volume = find(keeper, id);
    if (!volume)
        *ret_text = "keeper does not hold this volume";
    return volume;
}

int keeper_volumes_start(struct keeper *keeper, const char *id, const char **ret_text)
{
    struct keeper_volume *volume = find_or_say(keeper, id, ret_text);
    if (!volume)
        return -ENOENT;
    if (keeper_has_worker(volume)) /* which may have died without being looked at yet */
        keeper_child_reap(keeper, volume);
    if (!keeper_has_worker(volume) && !keeper_child_helps(volume)) {
        *ret_text = "the worker has died, and this kernel does not send its requests again";
        return -EOPNOTSUPP;
    }
    volume->is_wanted = true;
    if (!keeper_has_worker(volume)) {
        volume->quick = 0;
        keeper_child_start(keeper, volume);
    }
    return 0;
}

int keeper_volumes_stay(struct keeper *keeper, const char *id, const char **ret_text)
{
    struct keeper_volume *volume = find_or_say(keeper, id, ret_text);
    if (!volume)
        return -ENOENT;
    volume->is_wanted = false;
    volume->due = 0;
    return 0;
}

int keeper_volumes_drop(struct keeper *keeper, const char *id)
{
    struct keeper_volume *volume = find(keeper, id);
    if (!volume)
        return 0;
    keeper_child_release(keeper, volume);
    for (int i = 0; i < KEEPER_FD_PIDFD; i++)
        (void)close(volume->fds[i]);
    (void)munmap(volume->live, LIVE_MAP_HEADER_BYTES);
    *volume = (struct keeper_volume){.id = ""};
    keeper->volume_count--;
    return 0;
}
