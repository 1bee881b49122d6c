#include "volume_fs.h"

#include "cleanup.h"
#include "clock.h"
#include "deadline_child.h"
#include "spawn.h"
#include "volume_format.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

/* After the headers of the C library, whose sys/mount.h has the same names as linux/mount.h. */
#include <sys/mount.h>

#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

/* e2fsck(8), "EXIT CODE": a sum. */
enum {
    FSCK_MENDED = 1,
    FSCK_REBOOT = 2,
    FSCK_LEFT = 4,
    FSCK_FAILED = 8,
};
enum {
    TOOL_USER = 65534, /* nobody, and its group, on every Linux */
    TOOL_DIRECTORY = 3,
    BUSY_MS = 2000, /* that one whose daemon was killed may take to be gone with it */
    BUSY_PAUSE_MS = 100,
};
#define TOOL_PREFIX "/proc/self/fd/3/"

static const char hint[] = "the volume's worker may be stopped";

/* Nothing of the host's configuration or environment has a say. */
static const char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
                                          "E2FSCK_CONFIG=/dev/null", "MKE2FS_CONFIG=/dev/null",
                                          NULL};

/* Many lines become one. */
static void join_lines(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '\n' && (to == text || from[1] == '\0' || from[1] == '\n'))
            continue;
        *to++ = (*from >= ' ' && *from <= '~') ? *from : *from == '\n' ? ';' : '?';
    }
    *to = '\0';
}

/* What a tool calls its device becomes what it is called here, which is shorter. */
static void rename_device(char *text, const char *its, const char *ours)
{
    size_t its_len = strlen(its);
    size_t ours_len = strlen(ours);
    for (char *at = strstr(text, its); at && ours_len <= its_len; at = strstr(at, its)) {
        memcpy(at, ours, ours_len);
        memmove(at + ours_len, at + its_len, strlen(at + its_len) + 1);
        at += ours_len;
    }
}

/* A directory with a node of the device that belongs to TOOL_USER: in a file system of its own that
 * is mounted nowhere and goes with the descriptor. */
static int make_node(const char *device_path, const char *name, struct err *err)
{
    struct stat st;
    if (stat(device_path, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", device_path);
    if (!S_ISBLK(st.st_mode))
        return err_fail(err, ERR_IO, "%s is no block device", device_path);
    cleanup_fd int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_errno(err, errno, "cannot use the file system tmpfs");
    cleanup_fd int dir = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    if (dir < 0)
        return err_errno(err, errno, "cannot mount the file system tmpfs");
    if (mknodat(dir, name, S_IFBLK | 0600, st.st_rdev) < 0 ||
        fchownat(dir, name, TOOL_USER, TOOL_USER, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "cannot make a node of %s", device_path);
    return steal_fd(&dir);
}

/* Runs a program of e2fsprogs on a device. Its exit status, or -errno. It reads what a sandbox has
 * written, and what whoever serves the device makes of it, so it has no rights but to the device.
 */
static int run_tool(const char *name, const char *const *options, const char *device_path,
                    int wait_ms, char ret_said[VOLUME_FS_TEXT_MAX], struct err *err)
{
    static const struct confine confine = {
        .uid = TOOL_USER, .gid = TOOL_USER, .writable = TOOL_DIRECTORY};
    char path[4096];
    char what[64];
    char node[256];
    const char *argv[8] = {path};
    const char *slash = strrchr(device_path, '/');
    size_t count = 1;
    (void)snprintf(node, sizeof node, TOOL_PREFIX "%s", slash ? slash + 1 : device_path);
    if (spawn_find_tool(name, path, NULL) < 0) {
        int rc = err_fail(err, ERR_UNSUPPORTED, "the program %s is not installed", name);
        err_hint(err, "install e2fsprogs");
        return rc;
    }
    for (; *options && count < ARRAY_SIZE(argv) - 2; options++)
        argv[count++] = *options;
    argv[count] = node;
    cleanup_fd int dir = make_node(device_path, node + sizeof TOOL_PREFIX - 1, err);
    if (dir < 0)
        return dir;
    snprintf(what, sizeof what, "run %s on a volume", name);
    const struct deadline_child child = {.what = what,
                                         .object = device_path,
                                         .wait_ms = wait_ms,
                                         .hint = hint,
                                         .keep = &dir,
                                         .keep_count = 1,
                                         .confine = &confine};
    int status = deadline_child_tool(&child, argv, environment, ret_said, VOLUME_FS_TEXT_MAX, err);
    if (status >= 0) {
        join_lines(ret_said);
        rename_device(ret_said, node, device_path);
    }
    return status;
}

static bool says_busy(int status, const char *said)
{
    return status >= FSCK_FAILED && (strstr(said, "in use") || strstr(said, "is mounted"));
}

static int run_fsck(const char *const *options, const char *device_path, int wait_ms,
                    char ret_said[VOLUME_FS_TEXT_MAX], struct err *err)
{
    const struct timespec pause = {.tv_nsec = BUSY_PAUSE_MS * 1000000L};
    int64_t until = clock_now_ms() + BUSY_MS;
    int status = run_tool("e2fsck", options, device_path, wait_ms, ret_said, err);
    while (status > 0 && says_busy(status, ret_said) && clock_now_ms() < until) {
        (void)nanosleep(&pause, NULL);
        status = run_tool("e2fsck", options, device_path, wait_ms, ret_said, err);
    }
    if (status <= 0)
        return status;
    if (status <= (FSCK_MENDED | FSCK_REBOOT))
        return 1;
    if (status < FSCK_FAILED) {
        int rc = err_fail(err, ERR_DAMAGED, "the file system on %s is damaged: %s", device_path,
                          ret_said);
        err_hint(err, "look at it with e2fsck -f %s", device_path);
        return rc;
    }
    if (says_busy(status, ret_said))
        return err_fail(err, ERR_CONFLICT, "%s is in use, it cannot be checked", device_path);
    return err_fail(err, ERR_IO, "e2fsck of %s ended with status %d: %s", device_path, status,
                    ret_said);
}

int volume_fs_check(const char *device_path, int wait_ms, char ret_said[VOLUME_FS_TEXT_MAX],
                    struct err *err)
{
    static const char *const options[] = {"-p", NULL};
    char said[VOLUME_FS_TEXT_MAX];
    int rc = run_fsck(options, device_path, wait_ms, said, err);
    if (rc == 1 && ret_said)
        memcpy(ret_said, said, sizeof said);
    return rc;
}

int volume_fs_grow_device(const char *device_path, int wait_ms, char ret_said[VOLUME_FS_TEXT_MAX],
                          struct err *err)
{
    static const char *const check[] = {"-f", "-p", NULL};
    static const char *const none[] = {NULL};
    char mended[VOLUME_FS_TEXT_MAX];
    char said[VOLUME_FS_TEXT_MAX];
    int rc = run_fsck(check, device_path, wait_ms, mended, err);
    int status = rc < 0 ? rc : run_tool("resize2fs", none, device_path, wait_ms, said, err);
    if (status > 0)
        return err_fail(err, ERR_IO, "resize2fs of %s ended with status %d: %s", device_path,
                        status, said);
    if (status == 0 && rc == 1 && ret_said)
        memcpy(ret_said, mended, sizeof mended);
    return status < 0 ? status : rc;
}

struct grow_args {
    const char *path;
    dev_t device;
    uint64_t blocks;
};

static int call_grow(void *arg, void *result, int *ret_fd, struct err *err)
{
    struct grow_args *args = arg;
    (void)result;
    (void)ret_fd;
    cleanup_fd int fd = volume_fs_open(args->path, args->device, err);
    if (fd < 0)
        return fd;
    if (ioctl(fd, EXT4_IOC_RESIZE_FS, &args->blocks) == 0)
        return 0;
    int rc = err_errno(err, errno, "cannot grow the file system at %s", args->path);
    if (rc == -EPERM || rc == -EACCES)
        err_hint(err, "the kernel wants CAP_SYS_RESOURCE; the file system grows unmounted");
    return rc;
}

int volume_fs_grow(const char *path, dev_t device, uint64_t size, int wait_ms, struct err *err)
{
    struct grow_args args = {.path = path, .device = device, .blocks = size / VOLUME_BLOCK};
    const struct deadline_child child = {.what = "grow the file system of a volume",
                                         .object = path,
                                         .wait_ms = wait_ms,
                                         .hint = hint};
    int rc = volume_fs_mounted(path, device, err);
    if (rc == 0)
        rc = err_fail(err, ERR_NOT_FOUND, "no volume is mounted at %s", path);
    return rc < 0 ? rc : deadline_child_run(&child, call_grow, &args, NULL, 0, NULL, err);
}
