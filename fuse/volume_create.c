#include "volume_create.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "ext4_super.h"
#include "fault.h"
#include "fdio.h"
#include "map_log.h"
#include "publish.h"
#include "spawn.h"
#include "tree.h"
#include "volume_json.h"
#include "volume_names.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

enum {
    MKE2FS_WAIT_MS = 600 * 1000, /* it takes 10 ms; a disk may be slow */
    JOURNAL_MIB = 64,
    JOURNAL_SMALL_MIB = 16,
    FD_DATA = 3, /* of mke2fs */
    FD_CONFIG = 4,
};
#define JOURNAL_SMALL_BELOW ((uint64_t)2 << 30)

/* Descriptors are reserved for a growth to a little more than the largest volume: without, ext4
 * turns meta_bg on when it grows by far. */
#define RESIZE_MAX_BLOCKS ((VOLUME_SIZE_MAX + VOLUME_SIZE_MAX / 16) / VOLUME_BLOCK)

static const char features[] = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,"
                               "64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,"
                               "extra_isize,metadata_csum,metadata_csum_seed";

/* mke2fs wants to find the types that it is told in its configuration. All else is said by words.
 */
static const char config[] = "[defaults]\n"
                             "\tenable_periodic_fsck = 0\n"
                             "[fs_types]\n"
                             "\text4 = {\n\t\tblocksize = 4096\n\t}\n"
                             "\tvarve = {\n\t\tblocksize = 4096\n\t}\n";

int volume_create_size(uint64_t size, uint64_t *ret, struct err *err)
{
    if (size < VOLUME_SIZE_MIN || size > VOLUME_SIZE_MAX) {
        int rc = err_fail(err, ERR_INVALID, "%" PRIu64 " bytes are no size for a volume", size);
        err_hint(err, "it can be between 64M and 1T");
        return rc;
    }
    *ret = volume_round_size(size);
    return 0;
}

/* A random one, of version 4 (RFC 9562). */
static int make_uuid(uint8_t ret[VOLUME_UUID_LEN], struct err *err)
{
    if (getrandom(ret, VOLUME_UUID_LEN, 0) != VOLUME_UUID_LEN)
        return err_errno(err, errno, "cannot get random bytes");
    ret[6] = (uint8_t)((ret[6] & 0x0f) | 0x40);
    ret[8] = (uint8_t)((ret[8] & 0x3f) | 0x80);
    return 0;
}

static int make_config(struct err *err)
{
    cleanup_fd int fd = memfd_create("mke2fs.conf", MFD_CLOEXEC);
    int rc = fd < 0 ? -errno : fdio_write_full(fd, config, sizeof config - 1);
    return rc < 0 ? err_errno(err, rc, "cannot make a configuration for mke2fs") : steal_fd(&fd);
}

static int find_mke2fs(char ret[4096], struct err *err)
{
    if (spawn_find_tool("mke2fs", ret, NULL) == 0)
        return 0;
    int rc = err_fail(err, ERR_UNSUPPORTED, "the program mke2fs is not installed");
    err_hint(err, "install e2fsprogs");
    return rc;
}

static int fail_mke2fs(int status, const char *said, struct err *err)
{
    if (strstr(said, strerror(ENOSPC)))
        return err_errno(err, ENOSPC, "cannot make the file system of a volume");
    const char *line = strrchr(said, '\n');
    return err_fail(err, ERR_IO, "mke2fs ended with status %d: %s", status, line ? line + 1 : said);
}

static int run_mke2fs(int data_fd, uint64_t size, const uint8_t uuid[VOLUME_UUID_LEN],
                      struct err *err)
{
    char path[4096];
    char said[1024];
    char journal[32];
    char extended[256];
    struct volume_uuid_text text = volume_names_uuid(uuid);
    cleanup_fd int config_fd = -1;
    int rc = find_mke2fs(path, err);
    if (rc == 0)
        rc = config_fd = make_config(err);
    if (rc < 0)
        return rc;
    snprintf(journal, sizeof journal, "size=%d",
             size < JOURNAL_SMALL_BELOW ? JOURNAL_SMALL_MIB : JOURNAL_MIB);
    snprintf(extended, sizeof extended,
             "assume_storage_prezeroed=1,lazy_itable_init=0,lazy_journal_init=0,nodiscard,"
             "root_owner=0:0,hash_seed=%s,resize=%" PRIu64,
             text.s, (uint64_t)RESIZE_MAX_BLOCKS);
    const char *const argv[] = {
        path, "-q",     "-F",       "-t",   "ext4",  "-T",     "varve",
        "-b", "4096",   "-I",       "256",  "-i",    "8192",   "-m",
        "0",  "-e",     "continue", "-o",   "Linux", "-J",     journal,
        "-O", features, "-U",       text.s, "-E",    extended, "/proc/self/fd/3",
        NULL};
    static const char *const envp[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
                                       "MKE2FS_CONFIG=/proc/self/fd/4", NULL};
    const int keep[] = {[FD_DATA - 3] = data_fd, [FD_CONFIG - 3] = config_fd};
    const struct deadline_child child = {.what = "run mke2fs",
                                         .wait_ms = MKE2FS_WAIT_MS,
                                         .keep = keep,
                                         .keep_count = ARRAY_SIZE(keep)};
    int status = deadline_child_tool(&child, argv, envp, said, sizeof said, err);
    return status > 0 ? fail_mke2fs(status, said, err) : status;
}

static const char *const file_names[] = {VOLUME_JSON_NAME, "data", MAP_LOG_NAME};

/* Reading which chunks of `data` mke2fs has written to. */
struct written {
    int fd;
    off_t size;
    off_t at;  /* chunks before it are dealt with */
    off_t end; /* of the data that `at` lies in; <= at: look for the next */
    int failure;
};

/* map_log_give of all chunks that hold data. */
static int give_written(void *arg, struct map_record *ret)
{
    struct written *written = arg;
    if (written->at >= written->end) {
        off_t data = written->at >= written->size ? -1 : lseek(written->fd, written->at, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(written->fd, data, SEEK_HOLE);
        if (data < 0 || hole < 0) {
            /* ENXIO: there is nothing but a hole up to the end. */
            written->failure = written->at >= written->size || errno == ENXIO ? 0 : -errno;
            return 0;
        }
        written->at = data / VOLUME_CHUNK * VOLUME_CHUNK;
        written->end = hole;
    }
    *ret = (struct map_record){.chunk = (uint32_t)(written->at / VOLUME_CHUNK),
                               .mask = VOLUME_MASK_ALL,
                               .state = VOLUME_CHANGED};
    written->at += VOLUME_CHUNK;
    return 1;
}

static int make_map(int dir_fd, int data_fd, const struct volume_json *volume, struct err *err)
{
    struct written written = {.fd = data_fd, .size = (off_t)volume->size};
    int rc = map_log_create(dir_fd, volume->uuid, volume->size, true, give_written, &written, err);
    if (rc == 0 && written.failure < 0)
        rc = err_errno(err, written.failure, "cannot see what is written in the data of a volume");
    return rc;
}

static int make_data(int dir_fd, const struct volume_json *volume, struct err *err)
{
    struct ext4_super super;
    cleanup_fd int fd = openat(dir_fd, "data", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make the data of a volume");
    if (ftruncate(fd, (off_t)volume->size) < 0)
        return err_errno(err, errno, "cannot give the data of a volume its size");
    int rc = run_mke2fs(fd, volume->size, volume->uuid, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-create.made", err);
    /* Another version of mke2fs may understand the words in another way. */
    if (rc == 0 && (rc = ext4_super_read(fd, volume->uuid, volume->size, false, &super, err)) < 0)
        err_wrap(err, rc, "mke2fs did not make what it was told to");
    return rc < 0 ? rc : make_map(dir_fd, fd, volume, err);
}

/* The chunks of a checkpoint. */
struct absent {
    volume_create_give *give;
    void *arg;
    uint64_t next; /* chunks before it were given */
    uint64_t end;  /* of the volume */
};

/* map_log_give of what only the remote has. */
static int give_absent(void *arg, struct map_record *ret)
{
    struct absent *absent = arg;
    uint64_t chunk;
    int rc = absent->give(absent->arg, &chunk);
    if (rc <= 0)
        return rc;
    if (chunk < absent->next || chunk >= absent->end)
        return -EINVAL;
    absent->next = chunk + 1;
    *ret = (struct map_record){.chunk = (uint32_t)chunk, .state = VOLUME_ABSENT};
    return 1;
}

static int make_absent(int dir_fd, const struct volume_json *volume, struct absent *absent,
                       struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, "data", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make the data of a volume");
    if (ftruncate(fd, (off_t)volume->size) < 0)
        return err_errno(err, errno, "cannot give the data of a volume its size");
    absent->end = volume->size / VOLUME_CHUNK;
    return map_log_create(dir_fd, volume->uuid, volume->size, true, give_absent, absent, err);
}

static int give_away(int dir_fd, uid_t uid, gid_t gid, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(file_names); i++)
        if (fchownat(dir_fd, file_names[i], uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ||
            fchmodat(dir_fd, file_names[i], 0600, 0) < 0)
            return err_errno(err, errno, "cannot give %s of a volume to its user", file_names[i]);
    return 0;
}

/* `absent`: of a checkpoint; NULL: with an ext4 of its own. */
static int fill(int dir_fd, const struct volume_json *volume, struct absent *absent, uid_t uid,
                gid_t gid, struct err *err)
{
    if (fchown(dir_fd, uid, gid) < 0 || fchmod(dir_fd, 0700) < 0)
        return err_errno(err, errno, "cannot give the directory of a volume to its user");
    int rc = volume_json_write(dir_fd, volume, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-create.described", err);
    if (rc == 0)
        rc = absent ? make_absent(dir_fd, volume, absent, err) : make_data(dir_fd, volume, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-create.mapped", err);
    return rc < 0 ? rc : give_away(dir_fd, uid, gid, err);
}

/* 1 it is there, 0 it is not. */
static int is_there(int volumes_fd, const char *id, struct err *err)
{
    struct stat st;
    if (fstatat(volumes_fd, id, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return S_ISDIR(st.st_mode)
                   ? 1
                   : err_fail(err, ERR_DAMAGED, "%s among the volumes is not a directory", id);
    return errno == ENOENT ? 0 : err_errno(err, errno, "cannot look for volume %s", id);
}

static int make(int volumes_fd, const char *name, const struct volume_json *volume,
                struct absent *absent, uid_t uid, gid_t gid, struct err *err)
{
    char temp[32];
    snprintf(temp, sizeof temp, ".tmp-%s", volume->id);
    int rc = tree_remove(volumes_fd, temp, err); /* what a crash has left */
    if (rc < 0)
        return rc;
    if (mkdirat(volumes_fd, temp, 0700) < 0)
        return err_errno(err, errno, "cannot make the directory of a volume");
    cleanup_fd int dir = openat(volumes_fd, temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    rc = dir < 0 ? err_errno(err, errno, "cannot open the directory of a volume")
                 : fill(dir, volume, absent, uid, gid, err);
    if (rc == 0)
        rc = publish_files(volumes_fd, temp, file_names, ARRAY_SIZE(file_names), volumes_fd, name,
                           err);
    if (rc < 0)
        (void)tree_remove(volumes_fd, temp, NULL);
    return rc;
}

static int read_json(int volumes_fd, const char *id, struct volume_json *ret, struct err *err)
{
    cleanup_fd int dir = openat(volumes_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return dir < 0 ? err_errno(err, errno, "cannot open the directory of a volume")
                   : volume_json_read(dir, id, ret, err);
}

/* Who shows another volume's epoch has that one's: its file system has it, or gets it when its
 * journal is replayed. */
static int choose_uuid(int volumes_fd, struct volume_json *volume, struct err *err)
{
    struct volume_json of;
    if (!volume->base.volume[0])
        return make_uuid(volume->uuid, err);
    int rc = read_json(volumes_fd, volume->base.volume, &of, err);
    if (rc == 0)
        memcpy(volume->uuid, of.uuid, sizeof volume->uuid);
    return rc;
}

static int create(int volumes_fd, const char *id, struct volume_json *volume, struct absent *absent,
                  uid_t uid, gid_t gid, struct err *err)
{
    int rc = is_there(volumes_fd, id, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    memcpy(volume->id, id, VOLUME_ID_LEN + 1);
    rc = choose_uuid(volumes_fd, volume, err);
    return rc < 0 ? rc : make(volumes_fd, id, volume, absent, uid, gid, err);
}

int volume_create(int volumes_fd, const char *id, uint64_t size, uid_t uid, gid_t gid,
                  struct err *err)
{
    struct volume_json volume = {.previous_size = 0};
    int rc = volume_json_check_id(id, err);
    if (rc == 0)
        rc = volume_create_size(size, &volume.size, err);
    if (rc == 0)
        rc = create(volumes_fd, id, &volume, NULL, uid, gid, err);
    return rc < 0 ? err_wrap(err, rc, "cannot make volume %s", id) : 0;
}

static int check_base(uint64_t size, const struct volume_base *base, struct volume_json *volume,
                      struct err *err)
{
    int rc = volume_create_size(size, &volume->size, err);
    if (rc == 0 && volume->size != size)
        rc = err_fail(err, ERR_INVALID, "%" PRIu64 " bytes is no size of a checkpoint", size);
    if (rc == 0 && volume_json_check_id(base->lineage, NULL) < 0)
        rc = err_fail(err, ERR_INVALID, "the checkpoint is of no lineage");
    volume->base = *base;
    return rc;
}

int volume_create_from(int volumes_fd, const char *id, uint64_t size,
                       const struct volume_base *base, volume_create_give *give, void *arg,
                       uid_t uid, gid_t gid, struct err *err)
{
    struct volume_json volume = {.size = 0};
    struct absent absent = {.give = give, .arg = arg};
    int rc = volume_json_check_id(id, err);
    if (rc == 0)
        rc = check_base(size, base, &volume, err);
    if (rc == 0)
        rc = create(volumes_fd, id, &volume, &absent, uid, gid, err);
    return rc < 0 ? err_wrap(err, rc, "cannot make volume %s", id) : 0;
}

/* The name of what is to take the place of a volume, and of what has lost it. */
static void next_name(const char *id, char ret[32])
{
    snprintf(ret, 32, "%s.next", id);
}

/* One name has the old or the new, whole, at every moment. */
static int exchange(int volumes_fd, const char *id, const char *next, struct err *err)
{
    if (renameat2(volumes_fd, next, volumes_fd, id, RENAME_EXCHANGE) < 0)
        return err_errno(err, errno, "cannot put the new volume in its place");
    if (fsync(volumes_fd) < 0)
        return err_errno(err, errno, "cannot sync the directory of the volumes");
    return FAULT_POINT("volume-replace.exchanged", err);
}

static int replace(int volumes_fd, const char *id, struct volume_json *volume,
                   struct absent *absent, uid_t uid, gid_t gid, struct err *err)
{
    char next[32];
    struct volume_json now;
    next_name(id, next);
    int rc = read_json(volumes_fd, id, &now, err);
    if (rc == 0)
        rc = tree_remove(volumes_fd, next, err); /* what a crash has left, on whichever side */
    if (rc < 0)
        return rc;
    memcpy(volume->id, id, VOLUME_ID_LEN + 1);
    memcpy(volume->uuid, now.uuid, sizeof volume->uuid);
    rc = make(volumes_fd, next, volume, absent, uid, gid, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-replace.made", err);
    if (rc == 0)
        rc = exchange(volumes_fd, id, next, err);
    return rc < 0 ? rc : tree_remove(volumes_fd, next, err);
}

int volume_create_replace(int volumes_fd, const char *id, uint64_t size,
                          const struct volume_base *base, volume_create_give *give, void *arg,
                          uid_t uid, gid_t gid, struct err *err)
{
    struct volume_json volume = {.size = 0};
    struct absent absent = {.give = give, .arg = arg};
    int rc = volume_json_check_id(id, err);
    if (rc == 0)
        rc = check_base(size, base, &volume, err);
    if (rc == 0)
        rc = replace(volumes_fd, id, &volume, &absent, uid, gid, err);
    return rc < 0 ? err_wrap(err, rc, "cannot replace volume %s", id) : 0;
}

int volume_create_sweep(int volumes_fd, const char *id, struct err *err)
{
    char next[32];
    next_name(id, next);
    return tree_remove(volumes_fd, next, err);
}
