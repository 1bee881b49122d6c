#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "deadline_child.h"
#include "mountinfo.h"
#include "scratch.h"
#include "volume_mount.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nobody serves these mounts: as with a worker that is stopped. */

enum {
    WAIT_MS = 30000
};

static void path_of(const struct scratch *scratch, char ret[128])
{
    snprintf(ret, 128, "%s/volume", scratch->path);
    if (mkdir(ret, 0700) < 0)
        assert_int_equal(errno, EEXIST);
}

static int make(const char *path)
{
    struct err err = ERR_INIT;
    int fd = volume_mount_make(path, &err);
    if (fd < 0)
        fail_msg("%s", err.text);
    return fd;
}

static void refused(int rc, enum err_code code, struct err *err)
{
    if (rc >= 0 || err->code != code)
        fail_msg("%d %s: %s (wanted %s)", rc, err_code_name(err->code), err->text,
                 err_code_name(code));
    err_clear(err);
}

static void test_make_and_remove(void **state)
{
    char path[128];
    char byte[8192];
    dev_t device = 42;
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    bool found = false;
    path_of(*state, path);
    assert_int_equal(volume_mount_look(path, &device, NULL), 0);
    assert_int_equal(device, 42);
    cleanup_fd int fd = make(path);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(volume_mount_look(path, &device, NULL), 1);
    assert_int_equal(major(device), 0);
    assert_int_equal(mountinfo_open("self", &info, NULL), 0);
    while (mountinfo_next(&info, &entry, NULL) > 0) {
        if (strcmp(entry.point, path) != 0)
            continue;
        found = true;
        assert_string_equal(entry.type, "fuse.varve");
        assert_string_equal(entry.source, "varve");
        assert_true(mountinfo_has_option(entry.options, "nosuid"));
        assert_true(mountinfo_has_option(entry.options, "nodev"));
        assert_true(mountinfo_has_option(entry.options, "noexec"));
        assert_false(mountinfo_has_option(entry.super_options, "allow_other"));
        assert_int_equal(entry.dev_minor, minor(device));
    }
    assert_true(found);
    /* The kernel's first request is there: FUSE_INIT. */
    ssize_t n = read(fd, byte, sizeof byte);
    assert_true(n > 40);
    assert_int_equal(byte[4], 26);
    assert_int_equal(volume_mount_remove(path, false, WAIT_MS, NULL), 0);
    assert_int_equal(volume_mount_look(path, &device, NULL), 0);
    assert_int_equal(volume_mount_remove(path, false, WAIT_MS, NULL), 0);
    /* The connection is gone with it. */
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 5000), 1);
    assert_true(poll_fd.revents & POLLERR);
}

/* The connection of the descriptor has ended. */
static bool is_cut(int fd)
{
    struct pollfd at = {.fd = fd};
    return poll(&at, 1, 0) == 1 && (at.revents & POLLERR) != 0;
}

static void test_a_server_that_does_not_answer(void **state)
{
    char path[128];
    dev_t device;
    struct err err = ERR_INIT;
    path_of(*state, path);
    cleanup_fd int fd = make(path);
    /* None of these asks it. */
    assert_int_equal(volume_mount_look(path, &device, NULL), 1);
    refused(volume_mount_make(path, &err), ERR_CONFLICT, &err);
    assert_false(is_cut(fd));
    assert_int_equal(volume_mount_abort(device, NULL), 0);
    assert_true(is_cut(fd));
    assert_int_equal(volume_mount_look(path, &device, NULL), 1);
    assert_int_equal(volume_mount_abort(device, NULL), 0);
    assert_int_equal(volume_mount_remove(path, false, WAIT_MS, NULL), 0);
    assert_int_equal(volume_mount_abort(device, NULL), 0);
    assert_int_equal(deadline_child_reap(), 0);
}

/* The descriptor keeps the connection, and nothing else does. */
static void test_the_last_descriptor(void **state)
{
    char path[128];
    struct stat st;
    path_of(*state, path);
    int fd = make(path);
    int second = dup(fd);
    close(fd);
    assert_false(is_cut(second));
    close(second);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(errno, ENOTCONN);
    assert_int_equal(volume_mount_remove(path, false, WAIT_MS, NULL), 0);
}

static void test_in_use(void **state)
{
    char path[128];
    dev_t device;
    struct err err = ERR_INIT;
    path_of(*state, path);
    cleanup_fd int fd = make(path);
    cleanup_fd int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    refused(volume_mount_remove(path, false, WAIT_MS, &err), ERR_CONFLICT, &err);
    assert_int_equal(volume_mount_look(path, &device, NULL), 1);
    assert_int_equal(volume_mount_remove(path, true, WAIT_MS, NULL), 0);
    assert_int_equal(volume_mount_look(path, &device, NULL), 0);
    /* The same path again, while somebody holds on to the first. */
    dev_t again;
    cleanup_fd int other = make(path);
    assert_int_equal(volume_mount_look(path, &again, NULL), 1);
    assert_int_not_equal(again, device);
    assert_int_equal(volume_mount_remove(path, false, WAIT_MS, NULL), 0);
}

static void test_other_things_at_the_path(void **state)
{
    const struct scratch *scratch = *state;
    char path[128];
    char link[128];
    dev_t device = 42;
    struct err err = ERR_INIT;
    path_of(scratch, path);
    assert_int_equal(mount("varve", path, "tmpfs", 0, NULL), 0);
    refused(volume_mount_look(path, &device, &err), ERR_CONFLICT, &err);
    refused(volume_mount_make(path, &err), ERR_CONFLICT, &err);
    refused(volume_mount_remove(path, true, WAIT_MS, &err), ERR_CONFLICT, &err);
    assert_int_equal(umount2(path, 0), 0);
    snprintf(link, sizeof link, "%s/link", scratch->path);
    assert_int_equal(symlink(path, link), 0);
    refused(volume_mount_make(link, &err), ERR_IO, &err);
    assert_int_equal(volume_mount_look(link, &device, NULL), 0);
    scratch_write(scratch, "file", "", 0);
    refused(volume_mount_make(scratch_path(scratch, "file"), &err), ERR_IO, &err);
    refused(volume_mount_make(scratch_path(scratch, "missing"), &err), ERR_IO, &err);
    assert_int_equal(volume_mount_look(scratch_path(scratch, "missing"), &device, NULL), 0);
    assert_int_equal(volume_mount_remove(scratch_path(scratch, "missing"), false, WAIT_MS, NULL),
                     0);
    assert_int_equal(device, 42);
}

/* In a child with a /dev of its own. */
static void test_no_fuse_device(void **state)
{
    char path[128];
    path_of(*state, path);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err err = ERR_INIT;
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("none", "/dev", "tmpfs", 0, NULL) < 0)
            _exit(90);
        if (volume_mount_make(path, &err) >= 0 || err.code != ERR_UNSUPPORTED ||
            !strstr(err.text, "/dev/fuse") || !strstr(err.hint, "module fuse"))
            _exit(91);
        /* On a file system with nodev the node is there and cannot be opened. */
        err_clear(&err);
        if (mknod("/dev/fuse", S_IFCHR | 0600, makedev(10, 229)) < 0 ||
            mount("none", "/dev", NULL, MS_REMOUNT | MS_BIND | MS_NODEV, NULL) < 0)
            _exit(92);
        if (volume_mount_make(path, &err) >= 0 || err.code != ERR_DENIED ||
            !strstr(err.hint, "10:229"))
            _exit(93);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch(test_make_and_remove),
        with_scratch(test_a_server_that_does_not_answer),
        with_scratch(test_the_last_descriptor),
        with_scratch(test_in_use),
        with_scratch(test_other_things_at_the_path),
        with_scratch(test_no_fuse_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
