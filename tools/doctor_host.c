#include "doctor.h"

#include "cleanup.h"
#include "local_disk.h"
#include "spawn.h"
#include "text.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>

enum {
    SPACE_WARN_PERCENT = 5, /* of a filesystem that is nearly full */
    OUTPUT_MAX = 64 << 10,  /* bytes of what a tool says about itself */
};

void doctor_found(struct doctor_check *check, enum doctor_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(check->found, sizeof check->found, fmt, ap);
    va_end(ap);
    check->status = status;
    check->effect[0] = '\0';
}

void doctor_effect(struct doctor_check *check, const char *text)
{
    snprintf(check->effect, sizeof check->effect, "%s", text);
}

static int enter_namespace(struct err *err)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_errno(err, errno, "cannot make a mount namespace");
    return 0;
}

int doctor_in_child(int (*fn)(const void *arg, struct err *err), const void *arg, struct err *err)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        struct err failure = ERR_INIT;
        int rc = enter_namespace(&failure);
        if (rc == 0)
            rc = fn(arg, &failure);
        /* Smaller than PIPE_BUF: written whole. */
        static_assert(sizeof failure <= PIPE_BUF, "a failure fits a pipe");
        ssize_t n = write(report[1], &failure, sizeof failure);
        _exit(rc < 0 || n < 0);
    }
    int num = errno;
    close(report[1]);
    struct err failure = ERR_INIT;
    ssize_t n = pid < 0 ? 0 : read(report[0], &failure, sizeof failure);
    close(report[0]);
    if (pid < 0)
        return err_errno(err, num, "cannot start a child");
    int status = spawn_wait(pid, err);
    if (status == 0)
        return 0;
    if (n != (ssize_t)sizeof failure || failure.code == ERR_NONE)
        return err_fail(err, ERR_INTERNAL, "the child of a check ended with %d", status);
    return err_pass(err, -failure.num, &failure);
}

/* The first line of what "<name> --version" says. */
static void check_program(const char *name, const char *package, enum doctor_status without,
                          struct doctor_check *ret)
{
    char path[4096];
    struct err err = ERR_INIT;
    if (spawn_find_tool(name, path, &err) < 0) {
        doctor_found(ret, without, "not installed (package %s)", package);
        return;
    }
    const char *const argv[] = {name, "--version", NULL};
    cleanup_buf struct buf out = BUF_INIT(OUTPUT_MAX);
    if (spawn_tool(argv, &out, &err) < 0) {
        doctor_found(ret, without, "%.100s does not run: %.200s", path, err.text);
        return;
    }
    int len = (int)strcspn(buf_str(&out), "\r\n");
    doctor_found(ret, DOCTOR_OK, "%.100s, %.*s", path, len > 100 ? 100 : len, buf_str(&out));
}

void doctor_host_bwrap(struct doctor_check *ret)
{
    check_program("bwrap", "bubblewrap", DOCTOR_MISSING, ret);
    if (ret->status != DOCTOR_OK)
        doctor_effect(ret, "run exec will not work");
}

void doctor_host_pasta(struct doctor_check *ret)
{
    check_program("pasta", "passt", DOCTOR_WARN, ret);
    if (ret->status != DOCTOR_OK)
        doctor_effect(ret, "run exec --net pasta will not work");
}

void doctor_host_helpers(struct doctor_check *ret)
{
    char path[4096];
    struct err err = ERR_INIT;
    if (spawn_find("varve-init", path, &err) == 0) {
        doctor_found(ret, DOCTOR_OK, "%.300s", path);
        return;
    }
    doctor_found(ret, DOCTOR_MISSING, "%.300s", err.text);
    doctor_effect(ret, "run exec will not work");
}

void doctor_host_caps_judge(unsigned long long effective, struct doctor_check *ret)
{
    static const cap_value_t needed[] = {
        CAP_SYS_ADMIN, CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,
        CAP_FSETID,    CAP_SETFCAP, CAP_SETUID,       CAP_SETGID,          CAP_SETPCAP,
        CAP_KILL,      CAP_MKNOD,   CAP_SYS_CHROOT,   CAP_SYS_PTRACE,
    };
    char missing[300] = "";
    size_t len = 0;
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        if (effective >> needed[i] & 1)
            continue;
        char *name = cap_to_name(needed[i]);
        len += (size_t)snprintf(missing + len, sizeof missing - len, "%s%s", len ? ", " : "",
                                name ? name : "?");
        cap_free(name);
        if (len >= sizeof missing)
            break;
    }
    if (len == 0) {
        doctor_found(ret, DOCTOR_OK, "all that varved and run exec need");
        return;
    }
    doctor_found(ret, DOCTOR_MISSING, "this process lacks %s", missing);
    doctor_effect(ret, "varved and run exec need to be root with them");
}

void doctor_host_caps(struct doctor_check *ret)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    if (capget(&header, data) < 0)
        doctor_found(ret, DOCTOR_WARN, "cannot be read: %s", strerror(errno));
    else
        doctor_host_caps_judge((unsigned long long)data[1].effective << 32 | data[0].effective,
                               ret);
}

/* The directory, or the nearest one above it that exists. */
static void existing_parent(const char *dir, char ret[4096])
{
    snprintf(ret, 4096, "%s", dir);
    while (access(ret, F_OK) < 0 && ret[0] == '/' && ret[1] != '\0') {
        char *slash = strrchr(ret, '/');
        slash[slash == ret] = '\0';
    }
}

void doctor_host_space(const char *dir, bool for_data, struct doctor_check *ret)
{
    char path[4096];
    struct statvfs vfs;
    struct statfs fs;
    existing_parent(dir, path);
    if (statvfs(path, &vfs) < 0 || statfs(path, &fs) < 0) {
        doctor_found(ret, DOCTOR_WARN, "%.200s cannot be looked at: %s", path, strerror(errno));
        return;
    }
    int64_t free_bytes = (int64_t)(vfs.f_bavail * vfs.f_frsize);
    int64_t all_bytes = (int64_t)(vfs.f_blocks * vfs.f_frsize);
    int percent = vfs.f_blocks ? (int)(vfs.f_bavail * 100 / vfs.f_blocks) : 100;
    bool no_inodes = vfs.f_files > 0 && vfs.f_favail * 100 / vfs.f_files < SPACE_WARN_PERCENT;
    bool tight = percent < SPACE_WARN_PERCENT || no_inodes;
    doctor_found(ret, tight ? DOCTOR_WARN : DOCTOR_OK, "%s of %s free%s for %.200s",
                 text_size(free_bytes).s, text_size(all_bytes).s,
                 no_inodes ? " but hardly an inode" : "", dir);
    if (tight)
        doctor_effect(ret, "pulls, runs and snapshots will soon fail");
    if (vfs.f_flag & ST_RDONLY) {
        doctor_found(ret, DOCTOR_MISSING, "%.200s is on a read-only filesystem", dir);
        doctor_effect(ret, "varved will not start with it");
    } else if (for_data && fs.f_type == OVERLAYFS_SUPER_MAGIC) {
        doctor_found(ret, DOCTOR_MISSING, "%.200s is on an overlayfs, as in a container", dir);
        doctor_effect(ret, "runs cannot write there; put it on ext4 or xfs");
    }
}

void doctor_host_disk(const char *dir, struct doctor_check *ret)
{
    char path[4096];
    struct statfs fs = {0};
    struct err err = ERR_INIT;
    existing_parent(dir, path);
    cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstatfs(fd, &fs) < 0) {
        doctor_found(ret, DOCTOR_WARN, "%.200s cannot be looked at: %s", path, strerror(errno));
        doctor_effect(ret, "whether workspaces will work is not known");
    } else if (local_disk_check(fd, path, &err) < 0) {
        doctor_found(ret, DOCTOR_WARN, "%.390s", err.text);
        doctor_effect(ret, "workspaces will not work; put it on ext4, xfs or btrfs");
    } else if (local_disk_is_memory((uint32_t)fs.f_type)) {
        doctor_found(ret, DOCTOR_WARN, "%.200s is in memory", path);
        doctor_effect(ret, "nothing in it, workspaces either, outlives the host's restart");
    } else {
        doctor_found(ret, DOCTOR_OK, "locks, holes and syncs work for %.200s", dir);
    }
}
