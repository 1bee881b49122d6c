#include "volume_confine.h"

#include "cleanup.h"
#include "seccomp.h"
#include "volume_format.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

#define MEMORY_MAX ((rlim_t)256 << 20) /* ten times what it has for itself */

enum {
    FILES_MAX = 256, /* descriptors: 10, the rings, and what the control socket has */
};

static void ask_for_life(void)
{
    static const char score[] = "-900";
    cleanup_fd int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, score, sizeof score - 1) < 0)
        return;
}

/* What the kernel spares when memory is short must not take what it likes. A sanitizer's own memory
 * counts too, so there it has no bound. */
static void bound_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const struct rlimit most = {.rlim_cur = MEMORY_MAX, .rlim_max = MEMORY_MAX};
    (void)setrlimit(RLIMIT_DATA, &most);
#endif
}

void volume_confine_ask(void)
{
    bound_memory();
    /* Memory for this process is not waited for by writing to the disks that it serves. */
    (void)prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    ask_for_life();
    struct rlimit have;
    if (getrlimit(RLIMIT_NOFILE, &have) == 0 && have.rlim_max > FILES_MAX) {
        have.rlim_cur = have.rlim_max = FILES_MAX;
        (void)setrlimit(RLIMIT_NOFILE, &have);
    }
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    (void)setrlimit(RLIMIT_CORE, &none);
}

static int enter(int dir_fd, struct err *err)
{
    if (fchdir(dir_fd) < 0 || chroot(".") < 0)
        return err_errno(err, errno, "cannot make the volume's directory the root");
    return 0;
}

static int become_owner(const struct stat *st, struct err *err)
{
    if (setgroups(0, NULL) < 0 || setresgid(st->st_gid, st->st_gid, st->st_gid) < 0 ||
        setresuid(st->st_uid, st->st_uid, st->st_uid) < 0)
        return err_errno(err, errno, "cannot become user %u", (unsigned)st->st_uid);
    return 0;
}

static int drop_capabilities(const struct stat *st, struct err *err)
{
    for (cap_value_t cap = 0; cap_get_bound(cap) >= 0; cap++)
        if (cap_drop_bound(cap) < 0)
            return err_errno(err, errno, "cannot give up capability %d", cap);
    if (cap_reset_ambient() < 0)
        return err_errno(err, errno, "cannot give up capabilities");
    int rc = become_owner(st, err);
    if (rc < 0)
        return rc;
    cap_t none = cap_init();
    rc = !none || cap_set_proc(none) < 0 ? -errno : 0;
    cap_free(none);
    return rc < 0 ? err_errno(err, rc, "cannot give up capabilities") : 0;
}

int volume_confine_rights(int dir_fd, struct err *err)
{
    struct stat st;
    if (fstat(dir_fd, &st) < 0)
        return err_errno(err, errno, "cannot look at the volume's directory");
    int rc = enter(dir_fd, err);
    if (rc == 0)
        rc = drop_capabilities(&st, err);
    if (rc < 0)
        return rc;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot give up new privileges");
    return 0;
}

/* Most used first: requests, waiting, the control socket, the disk map's file. */
static const int allowed[] = {
    SYS_io_uring_enter, /* of rings that were made before: reads, writes, polls */
    SYS_read,           SYS_writev,
    SYS_pread64,        SYS_pwrite64,
    SYS_pwritev,        SYS_preadv,
    SYS_futex,          SYS_fdatasync,
    SYS_write,          SYS_clock_nanosleep,
    SYS_nanosleep,      SYS_accept4,
    SYS_getsockopt,     SYS_recvmsg,
    SYS_sendmsg,        SYS_close,
    SYS_openat,         SYS_fsync,
    SYS_fstat,          SYS_newfstatat, /* fstat() of some libcs */
    SYS_fchmod,         SYS_lseek,
    SYS_renameat2,
#ifdef SYS_renameat
    SYS_renameat, /* renameat2() without flags, of some libcs */
#endif
    SYS_unlinkat,       SYS_sync_file_range,
};

/* Signals go to this process alone: workers of other volumes run as the same user. */
static const int allowed_self[] = {SYS_kill, SYS_tgkill};

/* Not F_SETOWN, F_SETSIG and the like, which are another way to send signals, nor leases, which let
 * others wait. */
static const uint32_t allowed_fcntl[] = {F_GETFL, F_SETFL, F_GETFD, F_SETFD};

/* The live map keeps its pages, which others have locked; and the log that all workers share. */
static const uint32_t no_fallocate[] = {VOLUME_FD_LIVE, STDERR_FILENO};

int volume_confine_calls(int data_fd, struct err *err)
{
    const uint32_t self = (uint32_t)getpid();
    const uint32_t data = (uint32_t)data_fd;
    struct seccomp_filter filter;
    seccomp_begin(&filter);
    seccomp_allow(&filter, allowed, ARRAY_SIZE(allowed));
    for (size_t i = 0; i < ARRAY_SIZE(allowed_self); i++)
        seccomp_allow_values(&filter, allowed_self[i], 0, &self, 1);
    /* For a resize. Not of the live map, which is memory, nor of the log that all workers share. */
    seccomp_allow_values(&filter, SYS_ftruncate, 0, &data, 1);
    seccomp_allow_but(&filter, SYS_fallocate, 0, no_fallocate, ARRAY_SIZE(no_fallocate));
    seccomp_allow_values(&filter, SYS_fcntl, 1, allowed_fcntl, ARRAY_SIZE(allowed_fcntl));
    seccomp_allow_libc(&filter);
    return seccomp_apply(&filter, err);
}
