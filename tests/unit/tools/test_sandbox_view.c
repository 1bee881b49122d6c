#include "sandbox_view.h"

#include "cleanup.h"
#include "scratch.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Calls `inside` in the view and gives what it returns; 100 when there is no view. */
static int in_view(const char *rootfs, const char *console, int (*inside)(const char *path),
                   const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct err err = ERR_INIT;
        if (sandbox_view_enter(rootfs, console, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            _exit(100);
        }
        _exit(inside(path));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* 0 made, else the errno. */
static int make_file(const char *path)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? errno : 0;
}

static int change_mode(const char *path)
{
    return chmod(path, 0600) < 0 ? errno : 0;
}

static int set_owner_of_devices(const char *path)
{
    (void)path;
    static const char *const names[] = {"/dev/null", "/dev/zero",    "/dev/full",
                                        "/dev/tty",  "/dev/urandom", "/dev/random"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (chown(names[i], 77, 77) < 0)
            return errno;
    return 0;
}

static int count_devices(const char *path)
{
    int count = 0;
    cleanup_dir DIR *dir = opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    return count;
}

static void test_only_the_root_filesystem_may_be_written(void **state)
{
    const struct scratch *scratch = *state;
    char rootfs[200];
    snprintf(rootfs, sizeof rootfs, "%s", scratch_path(scratch, "rootfs"));
    assert_int_equal(mkdir(rootfs, 0755), 0);
    scratch_write(scratch, "file", "", 0);
    assert_int_equal(in_view(rootfs, NULL, make_file, scratch_path(scratch, "rootfs/new")), 0);
    assert_int_equal(access(scratch_path(scratch, "rootfs/new"), F_OK), 0);
    static const char *const dirs[] = {"", "/tmp", "/run", "/dev/shm"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        char path[200];
        snprintf(path, sizeof path, "%s%s-new", dirs[i], strrchr(scratch->path, '/'));
        int num = in_view(rootfs, NULL, make_file, path);
        assert_true(num == EROFS || num == ENOENT);
        assert_int_equal(access(path, F_OK), -1);
    }
    assert_int_equal(in_view(rootfs, NULL, change_mode, scratch_path(scratch, "file")), EROFS);
    assert_int_equal(in_view(rootfs, NULL, make_file, scratch_path(scratch, "other")), EROFS);
}

/* What is mounted inside comes along, each mount with its own flags. */
static void test_mounts_inside_keep_their_flags(void **state)
{
    const struct scratch *scratch = *state;
    char rootfs[200];
    char text[3][200];
    static const char *const names[] = {"rootfs/rw", "rootfs/ro"};
    snprintf(rootfs, sizeof rootfs, "%s", scratch_path(scratch, "rootfs"));
    assert_int_equal(mkdir(rootfs, 0755), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(text[i], sizeof text[i], "%s", scratch_path(scratch, names[i]));
        assert_int_equal(mkdir(text[i], 0755), 0);
        assert_int_equal(mount("t", text[i], "tmpfs", i ? MS_RDONLY : 0, NULL), 0);
    }
    assert_int_equal(in_view(rootfs, NULL, make_file, scratch_path(scratch, "rootfs/rw/x")), 0);
    assert_int_equal(in_view(rootfs, NULL, make_file, scratch_path(scratch, "rootfs/ro/x")), EROFS);
}

static int count_mounts(const char *path)
{
    int count = 0;
    char *line = NULL;
    size_t room = 0;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    while (f && getline(&line, &room, f) > 0)
        count += strstr(line, path) != NULL;
    free(line);
    if (f)
        (void)fclose(f);
    return count;
}

/* bubblewrap reads the list of mounts again and again, and nobody's business are they. */
static void test_mounts_of_other_runs_are_gone(void **state)
{
    const struct scratch *scratch = *state;
    char run_dir[200];
    char rootfs[240];
    char other[240];
    snprintf(run_dir, sizeof run_dir, "%s", scratch_path(scratch, "run"));
    snprintf(rootfs, sizeof rootfs, "%s/runs/a/rootfs", run_dir);
    snprintf(other, sizeof other, "%s/runs/b", run_dir);
    assert_int_equal(mkdir(run_dir, 0755), 0);
    assert_int_equal(mount(run_dir, run_dir, NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, run_dir, NULL, MS_SHARED, NULL), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "run/runs"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "run/runs/a"), 0755), 0);
    assert_int_equal(mkdir(other, 0755), 0);
    assert_int_equal(mkdir(rootfs, 0755), 0);
    assert_int_equal(mount("t", rootfs, "tmpfs", 0, NULL), 0);
    assert_int_equal(mount("t", other, "tmpfs", 0, NULL), 0);
    char new_file[260];
    snprintf(new_file, sizeof new_file, "%s/new", rootfs);
    assert_int_equal(in_view(rootfs, NULL, make_file, new_file), 0);
    assert_int_equal(access(new_file, F_OK), 0);
    assert_int_equal(in_view(rootfs, NULL, count_mounts, run_dir), 1);
    assert_int_equal(count_mounts(run_dir), 3);
}

static void test_devices_are_private(void **state)
{
    const struct scratch *scratch = *state;
    struct stat before;
    struct stat after;
    char rootfs[200];
    snprintf(rootfs, sizeof rootfs, "%s", scratch_path(scratch, "rootfs"));
    assert_int_equal(mkdir(rootfs, 0755), 0);
    assert_int_equal(stat("/dev/null", &before), 0);
    assert_int_equal(in_view(rootfs, NULL, set_owner_of_devices, NULL), 0);
    assert_int_equal(stat("/dev/null", &after), 0);
    assert_int_equal(after.st_uid, before.st_uid);
    assert_int_equal(in_view(rootfs, NULL, count_devices, "/dev"), 6);
}

static void test_the_terminal_is_the_console(void **state)
{
    const struct scratch *scratch = *state;
    char rootfs[200];
    snprintf(rootfs, sizeof rootfs, "%s", scratch_path(scratch, "rootfs"));
    assert_int_equal(mkdir(rootfs, 0755), 0);
    cleanup_fd int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    assert_int_equal(in_view(rootfs, ptsname(master), count_devices, "/dev"), 7);
    assert_int_equal(in_view(rootfs, ptsname(master), make_file, "/dev/console"), 0);
}

static void test_nothing_is_changed_for_the_host(void **state)
{
    const struct scratch *scratch = *state;
    char rootfs[200];
    snprintf(rootfs, sizeof rootfs, "%s", scratch_path(scratch, "rootfs"));
    assert_int_equal(mkdir(rootfs, 0755), 0);
    cleanup_file FILE *mounts = fopen("/proc/self/mountinfo", "re");
    int before = 0;
    int after = 0;
    for (int c; (c = fgetc(mounts)) != EOF;)
        before += c == '\n';
    assert_int_equal(in_view(rootfs, NULL, count_devices, "/dev"), 6);
    rewind(mounts);
    for (int c; (c = fgetc(mounts)) != EOF;)
        after += c == '\n';
    assert_int_equal(before, after);
}

static void test_a_missing_root_filesystem_is_named(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct err err = ERR_INIT;
        int rc = sandbox_view_enter("/no/such/rootfs", NULL, &err);
        _exit(rc == -ENOENT && err.code == ERR_IO ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A link could be turned by a process of another sandbox on the same root filesystem. */
static void test_a_link_at_proc_is_refused(void **state)
{
    const struct scratch *scratch = *state;
    char rootfs[200];
    snprintf(rootfs, sizeof rootfs, "%s", scratch_path(scratch, "rootfs"));
    assert_int_equal(mkdir(rootfs, 0755), 0);
    static const char *const targets[] = {"/etc", "sub", "/no/such/place", "proc"};
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        assert_int_equal(symlink(targets[i], scratch_path(scratch, "rootfs/proc")), 0);
        assert_int_equal(in_view(rootfs, NULL, count_devices, "/dev"), 100);
        assert_int_equal(unlink(scratch_path(scratch, "rootfs/proc")), 0);
    }
    assert_int_equal(mkdir(scratch_path(scratch, "rootfs/proc"), 0755), 0);
    assert_int_equal(in_view(rootfs, NULL, count_devices, "/dev"), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_link_at_proc_is_refused, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_only_the_root_filesystem_may_be_written, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_mounts_inside_keep_their_flags, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_mounts_of_other_runs_are_gone, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_devices_are_private, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_the_terminal_is_the_console, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_changed_for_the_host, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_a_missing_root_filesystem_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
