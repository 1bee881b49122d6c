#include "local_disk.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum {
    BLOCK = 4096,
    BLOCKS = 4, /* of the file that is tried */
};

/* linux/magic.h lacks most of them; the others are those that stat(1) knows. */
static const struct {
    uint32_t type;
    const char *name;
} refused[] = {
    {NFS_SUPER_MAGIC, "nfs"},
    {0xff534d42, "cifs"},
    {0xfe534d42, "smb2"},
    {SMB_SUPER_MAGIC, "smb"},
    {0x65735546, "fuse"}, /* and virtiofs */
    {OVERLAYFS_SUPER_MAGIC, "overlayfs"},
    {V9FS_MAGIC, "9p"},
    {0x00c36400, "ceph"},
    {0x0bd00bd0, "lustre"},
    {0x47504653, "gpfs"},
    {0x19830326, "beegfs"},
    {0x20030528, "orangefs"},
    {0xaad7aaea, "panfs"},
    {AFS_SUPER_MAGIC, "afs"},
    {0x6b414653, "kafs"},
    {CODA_SUPER_MAGIC, "coda"},
    {0x564c, "ncp"},
    {OCFS2_SUPER_MAGIC, "ocfs2"},
    {0x01161970, "gfs2"},
    {0x786f4256, "vboxsf"},
    {0xbacbacbc, "vmhgfs"},
    {0xf15f, "ecryptfs"},
};

const char *local_disk_refused(uint32_t type)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (refused[i].type == type)
            return refused[i].name;
    return NULL;
}

bool local_disk_is_memory(uint32_t type)
{
    return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

/* Whether a test wants a file system without this. */
static bool is_simulated(const char *what)
{
#ifdef VARVE_FAULT_POINTS
    const char *wanted = getenv("VARVE_LOCAL_DISK");
    return wanted && strcmp(wanted, what) == 0;
#else
    (void)what;
    return false;
#endif
}

static const char *find_refused(int dir_fd)
{
    struct statfs fs;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (is_simulated(refused[i].name))
            return refused[i].name;
    return fstatfs(dir_fd, &fs) == 0 ? local_disk_refused((uint32_t)fs.f_type) : NULL;
}

static int fail(const char *path, const char *what, struct err *err)
{
    int rc = err_fail(err, ERR_UNSUPPORTED, "workspaces cannot be kept in %s: %s", path, what);
    err_hint(err, "put the data directory on a local disk with ext4, xfs or btrfs");
    return rc;
}

/* A file that goes with its descriptor. */
static int open_unnamed(int dir_fd, const char *path, struct err *err)
{
    char name[40];
    uint64_t number = 0;
    int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)
        return err_errno(err, errno, "cannot make a file in %s", path);
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return err_errno(err, errno, "cannot get random bytes");
    snprintf(name, sizeof name, ".tmp-%016llx", (unsigned long long)number);
    fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a file in %s", path);
    (void)unlinkat(dir_fd, name, 0);
    return fd;
}

static int try_locks(int fd, const char *path, struct err *err)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    cleanup_fd int other = open(self, O_RDWR | O_CLOEXEC);
    if (other < 0)
        return err_errno(err, errno, "cannot open a file in %s again", path);
    bool works = flock(fd, LOCK_EX | LOCK_NB) == 0 && flock(other, LOCK_EX | LOCK_NB) < 0 &&
                 errno == EWOULDBLOCK && !is_simulated("no-locks");
    return works ? 0 : fail(path, "its file system has no locks that keep others out", err);
}

static bool is_filled(const unsigned char *bytes, unsigned char with)
{
    for (size_t i = 0; i < BLOCK; i++)
        if (bytes[i] != with)
            return false;
    return true;
}

static int try_hole(int fd, const char *path, struct err *err)
{
    unsigned char bytes[BLOCKS * BLOCK];
    bool works = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BLOCK, BLOCK) == 0 &&
                 pread(fd, bytes, sizeof bytes, 0) == sizeof bytes && is_filled(bytes, 'x') &&
                 is_filled(bytes + BLOCK, 0) && is_filled(bytes + (BLOCKS - 1) * BLOCK, 'x') &&
                 !is_simulated("no-holes");
    return works ? 0 : fail(path, "its file system cannot give back a part of a file", err);
}

static bool is_full(int num)
{
    return num == ENOSPC || num == EDQUOT;
}

static int try_bytes(int fd, const char *path, struct err *err)
{
    unsigned char bytes[BLOCKS * BLOCK];
    memset(bytes, 'x', sizeof bytes);
    int rc = fdio_write_full(fd, bytes, sizeof bytes);
    if (rc == 0 && fdatasync(fd) < 0)
        rc = -errno;
    if (rc < 0 && is_full(-rc))
        return 0;
    if (rc == -EINVAL || rc == -EOPNOTSUPP || is_simulated("no-sync"))
        return fail(path, "its file system cannot sync a file", err);
    return rc < 0 ? err_errno(err, rc, "cannot write a file in %s", path) : try_hole(fd, path, err);
}

int local_disk_check(int dir_fd, const char *path, struct err *err)
{
    const char *type = find_refused(dir_fd);
    if (type) {
        char what[96];
        snprintf(what, sizeof what, "it is on %s, where a write can outlive the process", type);
        return fail(path, what, err);
    }
    struct err why = ERR_INIT;
    cleanup_fd int fd = open_unnamed(dir_fd, path, &why);
    if (fd < 0 && why.code == ERR_NO_SPACE)
        return 0;
    if (fd < 0) {
        if (err && err->code == ERR_NONE)
            *err = why;
        return fd;
    }
    int rc = try_locks(fd, path, err);
    return rc == 0 ? try_bytes(fd, path, err) : rc;
}
