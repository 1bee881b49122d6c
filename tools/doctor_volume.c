/* What workspaces need of a host: FUSE, loop devices, e2fsprogs, and what keeps their processes
 * alive and resident. */
#include "doctor.h"

#include "cleanup.h"
#include "loop_device.h"
#include "spawn.h"
#include "text.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

enum {
    INIT_WAIT_MS = 2000,
    REQUEST_MAX = 64 << 10,   /* bytes; no request is longer before INIT is answered */
    RESEND_BIT = 39,          /* FUSE_HAS_RESEND; the header of Debian 12 lacks it */
    LOCKED_NEEDED = 24 << 20, /* bytes that a worker locks, at most */
    FDS_PER_VOLUME = 6,       /* that varved and keeper each hold */
    FDS_OTHER = 256,          /* of varved besides */
    VOLUMES_WANTED = 128,     /* at once; fewer are worth a warning */
    LOOP_FILE_BYTES = 1 << 20,
    MKE2FS_FILE_BYTES = 64 << 20,
};

/* --- FUSE --- */

struct fuse_facts {
    const char *dir;
    unsigned major;
    unsigned minor;
    bool resend;
};

bool doctor_volume_resends(unsigned minor, unsigned flags2)
{
    /* The second word of flags stands behind the first from 7.36 on. */
    return minor >= 36 && (flags2 >> (RESEND_BIT - 32) & 1);
}

/* Mounts a FUSE in this child's own mount namespace and reads the kernel's first request, which
 * says what it can. */
static int try_fuse(const void *arg, struct err *err)
{
    struct fuse_facts *facts = *(struct fuse_facts *const *)arg;
    cleanup_fd int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
        return err_fail(err, ERR_UNSUPPORTED,
                        "/dev/fuse does not exist (load the module fuse, or pass it in)");
    if (fd < 0)
        return err_fail(err, ERR_DENIED, "/dev/fuse is forbidden: %s", strerror(errno));
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    if (mount("varve-doctor", facts->dir, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
        return err_errno(err, errno, "/dev/fuse can be opened, but not mounted");
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    cleanup_free char *bytes = calloc(1, REQUEST_MAX);
    if (!bytes)
        return err_fail(err, ERR_INTERNAL, "no memory");
    ssize_t n = poll(&poll_fd, 1, INIT_WAIT_MS) == 1 ? read(fd, bytes, REQUEST_MAX) : 0;
    struct fuse_in_header header;
    struct fuse_init_in init = {0};
    if (n < (ssize_t)(sizeof header + 16))
        return err_fail(err, ERR_UNSUPPORTED, "the kernel does not speak FUSE's protocol");
    size_t rest = (size_t)n - sizeof header;
    memcpy(&header, bytes, sizeof header);
    memcpy(&init, bytes + sizeof header, rest < sizeof init ? rest : sizeof init);
    facts->major = init.major;
    facts->minor = init.minor;
    facts->resend = doctor_volume_resends(init.minor, init.flags2);
    return header.opcode == FUSE_INIT
               ? 0
               : err_fail(err, ERR_UNSUPPORTED, "the kernel does not begin with FUSE_INIT");
}

/* What the child finds out is in memory that it shares with this process. */
static int probe_fuse(struct fuse_facts *ret, struct err *err)
{
    char dir[] = "/tmp/varve-doctor-XXXXXX";
    struct fuse_facts *facts =
        mmap(NULL, sizeof *facts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (facts == MAP_FAILED)
        return err_errno(err, errno, "no memory");
    int rc = mkdtemp(dir) ? 0 : err_errno(err, errno, "no directory in /tmp");
    if (rc == 0) {
        facts->dir = dir;
        rc = doctor_in_child(try_fuse, &facts, err);
        rmdir(dir);
    }
    *ret = *facts;
    (void)munmap(facts, sizeof *facts);
    return rc;
}

void doctor_volume_fuse(struct doctor_check *ret)
{
    struct fuse_facts facts;
    struct err err = ERR_INIT;
    if (probe_fuse(&facts, &err) == 0) {
        doctor_found(ret, DOCTOR_OK, "/dev/fuse can be opened and mounted, protocol %u.%u",
                     facts.major, facts.minor);
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "%.390s", err.text);
    doctor_effect(ret, "workspaces will not work");
}

void doctor_volume_resend(struct doctor_check *ret)
{
    struct fuse_facts facts;
    struct err err = ERR_INIT;
    if (probe_fuse(&facts, &err) < 0) {
        doctor_found(ret, DOCTOR_WARN, "not known without /dev/fuse");
        doctor_effect(ret, "workspaces will not work");
    } else if (facts.resend) {
        doctor_found(ret, DOCTOR_OK, "requests of a process that died are sent again");
    } else {
        doctor_found(ret, DOCTOR_WARN, "not in this kernel (Linux 6.9)");
        doctor_effect(ret, "a worker's death interrupts its workspace: it is mounted anew");
    }
}

/* --- Loop devices --- */

static int try_loop(struct err *err)
{
    cleanup_fd int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, LOOP_FILE_BYTES) < 0)
        return err_errno(err, errno, "cannot be tried: no file in /tmp");
    const struct loop_device_options options = {.read_only = true, .autoclear = true};
    struct loop_device loop;
    cleanup_fd int device = loop_device_attach(file, &options, &loop, err);
    return device < 0 ? device : 0; /* it goes with its last descriptor */
}

void doctor_volume_loop(struct doctor_check *ret)
{
    struct err err = ERR_INIT;
    if (try_loop(&err) == 0) {
        doctor_found(ret, DOCTOR_OK, "can be made");
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "%.300s%s%.80s", err.text, err.hint[0] ? "; " : "", err.hint);
    doctor_effect(ret, "workspaces will not work; plain uppers do");
}

/* --- e2fsprogs --- */

/* Runs a program of e2fsprogs; `line` gets the first line of what it says, which it writes to
 * standard error. The exit status, or -errno. */
static int ask(const char *const *argv, char line[100], struct err *err)
{
    cleanup_fd int said = memfd_create("said", MFD_CLOEXEC);
    if (said < 0)
        return err_errno(err, errno, "no memory file");
    struct spawn spawn = {.argv = argv, .stdin_fd = -1, .stdout_fd = said, .stderr_fd = said};
    pid_t pid = spawn_start(&spawn, err);
    int status = pid < 0 ? pid : spawn_wait(pid, err);
    ssize_t n = status < 0 ? 0 : pread(said, line, 99, 0);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    return status;
}

/* Whether mke2fs knows what volumes are made with; it writes nothing. */
static int try_mke2fs(const char *path, struct err *err)
{
    char file[] = "/tmp/varve-doctor-XXXXXX";
    char line[100];
    int fd = mkostemp(file, O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, MKE2FS_FILE_BYTES) < 0)
        return err_errno(err, errno, "cannot be tried: no file in /tmp");
    const char *const argv[] = {path, "-n",
                                "-q", "-F",
                                "-t", "ext4",
                                "-O", "metadata_csum,metadata_csum_seed,64bit",
                                "-E", "assume_storage_prezeroed=1,lazy_itable_init=0",
                                file, NULL};
    int status = ask(argv, line, err);
    close(fd);
    unlink(file);
    if (status <= 0)
        return status;
    return err_fail(err, ERR_UNSUPPORTED, "too old, 1.47 is needed (%s)", line);
}

void doctor_volume_e2fsprogs(struct doctor_check *ret)
{
    static const char *const names[] = {"mke2fs", "e2fsck", "resize2fs"};
    char paths[ARRAY_SIZE(names)][4096];
    char version[100] = "";
    struct err err = ERR_INIT;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(names); i++)
        rc = spawn_find_tool(names[i], paths[i], &err);
    if (rc == 0) {
        const char *const argv[] = {paths[0], "-V", NULL};
        rc = ask(argv, version, &err);
    }
    if (rc == 0)
        rc = try_mke2fs(paths[0], &err);
    if (rc == 0) {
        doctor_found(ret, DOCTOR_OK, "%.100s; e2fsck, resize2fs", version);
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "%s%s%.250s", version, *version ? ": " : "", err.text);
    doctor_effect(ret, "workspaces will not work (package e2fsprogs)");
}

/* --- What keeps the processes of workspaces alive --- */

void doctor_volume_locked(struct doctor_check *ret)
{
    struct rlimit limit = {0};
    void *memory = mmap(NULL, LOCKED_NEEDED, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    /* The call itself: AddressSanitizer's mlock() does nothing. */
    int num = memory == MAP_FAILED || syscall(SYS_mlock, memory, LOCKED_NEEDED) < 0 ? errno : 0;
    if (memory != MAP_FAILED)
        (void)munmap(memory, LOCKED_NEEDED);
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (num == 0) {
        doctor_found(ret, DOCTOR_OK, "%s can be locked, as a worker does",
                     text_size(LOCKED_NEEDED).s);
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "%s cannot be locked: %s (RLIMIT_MEMLOCK %s, no CAP_IPC_LOCK)",
                 text_size(LOCKED_NEEDED).s, strerror(num), text_size((int64_t)limit.rlim_cur).s);
    doctor_effect(ret, "a worker that dies can cost a read or write its answer");
}

/* Calls `fn` in a child, as what it sets would stay. Its errno, 0 for none. */
static int errno_in_child(int (*fn)(void))
{
    struct err err = ERR_INIT;
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0)
        _exit(fn());
    int status = spawn_wait(pid, &err);
    return status < 0 ? -status : status;
}

static int try_flusher(void)
{
    return prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0 ? 0 : errno;
}

static int try_oom_score(void)
{
    cleanup_fd int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "-900", 4) == 4 ? 0 : errno;
}

void doctor_volume_flusher(struct doctor_check *ret)
{
    int num = errno_in_child(try_flusher);
    if (num == 0) {
        doctor_found(ret, DOCTOR_OK, "PR_SET_IO_FLUSHER is granted");
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "PR_SET_IO_FLUSHER is refused without CAP_SYS_RESOURCE: %s",
                 strerror(num));
    doctor_effect(ret, "where memory is short, workspaces may stand still for longer");
}

void doctor_volume_oom(struct doctor_check *ret)
{
    int num = errno_in_child(try_oom_score);
    if (num == 0) {
        doctor_found(ret, DOCTOR_OK, "oom_score_adj can be lowered");
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "oom_score_adj stays as it is without CAP_SYS_RESOURCE: %s",
                 strerror(num));
    doctor_effect(ret, "where memory ends, a worker may be killed like any process");
}

void doctor_volume_grow(struct doctor_check *ret)
{
    cap_t caps = cap_get_proc();
    cap_flag_value_t flag = CAP_CLEAR;
    (void)cap_get_flag(caps, CAP_SYS_RESOURCE, CAP_EFFECTIVE, &flag);
    cap_free(caps);
    if (flag == CAP_SET) {
        doctor_found(ret, DOCTOR_OK, "a mounted ext4 can be grown");
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "no CAP_SYS_RESOURCE");
    doctor_effect(ret, "the file system of a mounted workspace grows at its next mount");
}

/* As a worker makes them: limited before they are used, silent while they work (Linux 5.19). */
static int try_ring(void)
{
    struct io_uring_params params = {.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG};
    cleanup_fd int fd = (int)syscall(SYS_io_uring_setup, 8, &params);
    return fd < 0 ? errno : 0;
}

void doctor_volume_ring(struct doctor_check *ret)
{
    int num = errno_in_child(try_ring);
    if (num == 0) {
        doctor_found(ret, DOCTOR_OK, "rings can be made");
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "no ring can be made: %s%s", strerror(num),
                 num == EPERM    ? " (kernel.io_uring_disabled, or a filter of a container)"
                 : num == EINVAL ? " (Linux 5.19 and later do)"
                                 : "");
    doctor_effect(ret, "small reads and writes of workspaces are slower");
}

void doctor_volume_files_judge(unsigned long long limit, struct doctor_check *ret)
{
    unsigned long long volumes = limit < FDS_OTHER ? 0 : (limit - FDS_OTHER) / FDS_PER_VOLUME;
    if (volumes >= VOLUMES_WANTED) {
        doctor_found(ret, DOCTOR_OK, "%llu, enough", limit);
        return;
    }
    char effect[100];
    doctor_found(ret, DOCTOR_WARN, "at most %llu (RLIMIT_NOFILE)", limit);
    snprintf(effect, sizeof effect, "no more than about %llu workspaces at once", volumes);
    doctor_effect(ret, effect);
}

void doctor_volume_files(struct doctor_check *ret)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        doctor_found(ret, DOCTOR_WARN, "not known: %s", strerror(errno));
    else
        doctor_volume_files_judge(limit.rlim_max, ret);
}

/* --- udev --- */

void doctor_volume_udev_at(const char *root, struct doctor_check *ret)
{
    static const char *const dirs[] = {"etc/udev", "run/udev", "usr/local/lib/udev", "usr/lib/udev",
                                       "lib/udev"};
    char path[4096];
    snprintf(path, sizeof path, "%s/run/udev/control", root);
    if (access(path, F_OK) < 0) {
        doctor_found(ret, DOCTOR_OK, "udev does not run here");
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        snprintf(path, sizeof path, "%s/%s/rules.d/59-varve.rules", root, dirs[i]);
        if (access(path, R_OK) < 0)
            continue;
        doctor_found(ret, DOCTOR_OK, "%.300s", path);
        return;
    }
    doctor_found(ret, DOCTOR_WARN, "udev runs without 59-varve.rules");
    doctor_effect(ret, "it looks into workspaces' devices and may hold one that is unmounted");
}

void doctor_volume_udev(struct doctor_check *ret)
{
    doctor_volume_udev_at("", ret);
}
