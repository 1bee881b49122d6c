#include "doctor.h"

#include "cgroup.h"
#include "cleanup.h"
#include "fdio.h"
#include "spawn.h"
#include "userns.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

enum {
    PROC_FILE_MAX = 64 << 10, /* bytes of /proc/filesystems */
};

/* 6.12 is 612. */
static int release_number(const char *release)
{
    int major;
    int minor;
    if (sscanf(release, "%d.%d", &major, &minor) != 2 || major < 0 || minor < 0 || minor > 99)
        return 0;
    return major * 100 + minor;
}

void doctor_kernel_release(const char *release, struct doctor_check *ret)
{
    int number = release_number(release);
    if (number == 0) {
        doctor_found(ret, DOCTOR_WARN, "Linux %.80s, a version that cannot be read", release);
        return;
    }
    if (number < 515) {
        doctor_found(ret, DOCTOR_MISSING, "Linux %.80s, older than 5.15", release);
        doctor_effect(ret, "it cannot read layer images with sparse files");
    } else if (number < 601) {
        doctor_found(ret, DOCTOR_WARN, "Linux %.80s, older than 6.1 of Debian 12", release);
        doctor_effect(ret, "varve is not tested there");
    } else if (number < 609) {
        doctor_found(ret, DOCTOR_WARN, "Linux %.80s, older than 6.9", release);
        doctor_effect(ret, "a worker's death interrupts workspaces");
    } else if (number < 612) {
        doctor_found(ret, DOCTOR_OK, "Linux %.80s (layer images need loop devices: 6.12)", release);
    } else {
        doctor_found(ret, DOCTOR_OK, "Linux %.80s", release);
    }
}

void doctor_kernel(struct doctor_check *ret)
{
    struct utsname name;
    if (uname(&name) < 0)
        doctor_found(ret, DOCTOR_WARN, "uname failed");
    else
        doctor_kernel_release(name.release, ret);
}

static bool read_proc(const char *path, struct buf *ret)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && fdio_read_all(fd, path, ret, NULL) == 0;
}

/* Whether /proc/filesystems names it, at the end of a line. */
static bool has_filesystem(const char *name)
{
    cleanup_buf struct buf text = BUF_INIT(PROC_FILE_MAX);
    char line[64];
    snprintf(line, sizeof line, "\t%s\n", name);
    return read_proc("/proc/filesystems", &text) && strstr(buf_str(&text), line);
}

/* Mounts an overlay with the options of runs on a tmpfs, removes a file of the lower directory and
 * looks for the whiteout. */
static int try_overlay(const void *arg, struct err *err)
{
    const char *dir = arg;
    struct stat st;
    if (mount("varve-doctor", dir, "tmpfs", 0, "size=1m,mode=0700") < 0)
        return err_errno(err, errno, "cannot mount a tmpfs");
    if (chdir(dir) < 0 || mkdir("lower", 0755) < 0 || mkdir("upper", 0755) < 0 ||
        mkdir("work", 0755) < 0 || mkdir("merged", 0755) < 0 || mkdir("lower/gone", 0755) < 0)
        return err_errno(err, errno, "cannot make directories");
    if (mount("overlay", "merged", "overlay", 0,
              "lowerdir=lower,upperdir=upper,workdir=work,index=off,metacopy=off,redirect_dir=off,"
              "nfs_export=off,xino=on") < 0)
        return errno == ENODEV
                   ? err_fail(err, ERR_UNSUPPORTED, "not in this kernel, nor a module that loads")
                   : err_errno(err, errno, "cannot mount an overlay");
    if (rmdir("merged/gone") < 0)
        return err_errno(err, errno, "cannot remove a file in an overlay");
    if (lstat("upper/gone", &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(0, 0))
        return err_fail(err, ERR_UNSUPPORTED, "an overlay without whiteouts");
    return 0;
}

void doctor_kernel_overlay(struct doctor_check *ret)
{
    char dir[] = "/tmp/varve-doctor-XXXXXX";
    struct err err = ERR_INIT;
    if (!mkdtemp(dir)) {
        doctor_found(ret, DOCTOR_WARN, "cannot be tried: no directory in /tmp: %m");
        return;
    }
    int rc = doctor_in_child(try_overlay, dir, &err);
    rmdir(dir);
    if (rc == 0) {
        doctor_found(ret, DOCTOR_OK, "mounts with the options of runs");
        return;
    }
    doctor_found(ret, DOCTOR_MISSING, "%s%s", err.code == ERR_DENIED ? "forbidden: " : "",
                 err.text);
    doctor_effect(ret, "no run can be made");
}

void doctor_kernel_erofs(struct doctor_check *ret)
{
    const char *const modprobe[] = {"modprobe", "--dry-run", "--quiet", "erofs", NULL};
    struct err ignored = ERR_INIT;
    if (has_filesystem("erofs")) {
        doctor_found(ret, DOCTOR_OK, "in this kernel");
    } else if (spawn_tool(modprobe, NULL, &ignored) == 0) {
        doctor_found(ret, DOCTOR_OK, "a module that can be loaded");
    } else {
        doctor_found(ret, DOCTOR_MISSING, "neither in this kernel nor a module for it");
        doctor_effect(ret, "layer images cannot be mounted, so no run can be made");
    }
}

void doctor_kernel_io_uring(struct doctor_check *ret)
{
    struct io_uring_params params = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 1, &params);
    int num = errno;
    if (fd >= 0) {
        close(fd);
        doctor_found(ret, DOCTOR_OK, "can be used");
        return;
    }
    cleanup_buf struct buf text = BUF_INIT(64);
    bool off = read_proc("/proc/sys/kernel/io_uring_disabled", &text) && buf_str(&text)[0] != '0';
    if (num == ENOSYS)
        doctor_found(ret, DOCTOR_WARN, "not in this kernel");
    else if (num == EPERM || num == EACCES)
        doctor_found(ret, DOCTOR_WARN, "forbidden by %s",
                     off ? "the sysctl kernel.io_uring_disabled" : "a seccomp filter or LSM");
    else
        doctor_found(ret, DOCTOR_WARN, "io_uring_setup: %s", strerror(num));
    doctor_effect(ret, "large trees are read file by file, which is slower");
}

void doctor_kernel_userns(struct doctor_check *ret)
{
    struct err err = ERR_INIT;
    if (userns_probe(&err) == 0) {
        doctor_found(ret, DOCTOR_OK, "can be made, with the ids 0 to %d", USERNS_IDS - 1);
        return;
    }
    doctor_found(ret, DOCTOR_MISSING, "%.300s%s%.200s", err.text, err.hint[0] ? "; " : "",
                 err.hint);
    doctor_effect(ret, "run exec will not work");
}

void doctor_kernel_freezer(struct doctor_check *ret)
{
    struct cgroup_tree tree;
    struct err err = ERR_INIT;
    if (cgroup_tree_pick(&tree, &err) < 0)
        doctor_found(ret, DOCTOR_WARN, "%.300s", err.text);
    else if (tree.version == 1 || access(tree.path, W_OK) == 0) {
        doctor_found(ret, DOCTOR_OK, "cgroup v%d at %s", tree.version, tree.path);
        return;
    } else
        doctor_found(ret, DOCTOR_WARN, "cgroup v2 at %s, which may not be written", tree.path);
    doctor_effect(ret, "sandboxes have no cgroup of their own and cannot be frozen");
}
