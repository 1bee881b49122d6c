#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "deadline_child.h"
#include "fs_site.h"
#include "mountinfo.h"
#include "spawn.h"
#include "volume_fs.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    WAIT_MS = 30000
};

static int64_t now_ms(void)
{
    struct clock clock = clock_system();
    return clock_mono_ns(&clock) / 1000000;
}

static void ok(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static void look(const struct fs_site *site, struct ext4_super *ret)
{
    struct err err = ERR_INIT;
    ok(volume_fs_look(site->loop.path, site->volume.uuid, site->loop.size, WAIT_MS, ret, &err),
       &err);
}

static void unmount(const struct fs_site *site)
{
    struct err err = ERR_INIT;
    ok(volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, &err), &err);
}

static void test_mount_and_unmount(void **state)
{
    struct fs_site *site = *state;
    struct volume_fs_space space;
    struct ext4_super super;
    struct err err = ERR_INIT;
    look(site, &super);
    assert_false(super.needs_recovery);
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 0);
    fs_site_mount(site);
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 1);
    fs_site_write(site, "f", 1 << 20, false);
    ok(volume_fs_sync(site->mount, site->loop.device, WAIT_MS, &err), &err);
    ok(volume_fs_space(site->mount, site->loop.device, &space, &err), &err);
    assert_true(space.size > 40 << 20 && space.size < VOLUME_SIZE_MIN);
    assert_true(space.used >= 1 << 20 && space.used < 2 << 20);
    assert_true(space.used + space.free <= space.size);
    assert_int_equal(space.inodes, VOLUME_SIZE_MIN / 8192);
    assert_int_equal(space.inodes_used, 12);
    assert_int_equal(volume_fs_errors(site->loop.device), 0);
    assert_false(space.read_only);
    unmount(site);
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 0);
    unmount(site);
    look(site, &super);
    assert_false(super.needs_recovery);
    fs_site_mount(site);
    ok(volume_fs_space(site->mount, site->loop.device, &space, &err), &err);
    assert_int_equal(space.inodes_used, 12);
}

static void test_options(void **state)
{
    struct fs_site *site = *state;
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    bool found = false;
    fs_site_mount(site);
    assert_int_equal(mountinfo_open("self", &info, NULL), 0);
    while (mountinfo_next(&info, &entry, NULL) > 0) {
        if (strcmp(entry.point, site->mount) != 0)
            continue;
        found = true;
        assert_string_equal(entry.type, "ext4");
        assert_string_equal(entry.source, site->loop.path);
        assert_true(mountinfo_has_option(entry.options, "nosuid"));
        assert_true(mountinfo_has_option(entry.options, "nodev"));
        assert_true(mountinfo_has_option(entry.options, "noatime"));
        assert_false(mountinfo_has_option(entry.options, "noexec"));
        assert_true(mountinfo_has_option(entry.options, "rw"));
        assert_string_equal(entry.super_options, "rw,errors=remount-ro");
    }
    assert_true(found);
}

static void test_read_only(void **state)
{
    struct fs_site *site = *state;
    const struct volume_fs_source source = fs_site_source(site);
    struct volume_fs_space space;
    struct err err = ERR_INIT;
    char path[256];
    fs_site_mount(site);
    fs_site_write(site, "f", 10, false);
    unmount(site);
    ok(volume_fs_mount(&source, site->mount, true, WAIT_MS, &err), &err);
    snprintf(path, sizeof path, "%s/f", site->mount);
    assert_int_equal(access(path, R_OK), 0);
    assert_int_equal(open(path, O_RDWR | O_CLOEXEC), -1);
    assert_int_equal(errno, EROFS);
    ok(volume_fs_space(site->mount, site->loop.device, &space, &err), &err);
    assert_true(space.read_only);
    unmount(site);
}

static void refused(int rc, enum err_code code, struct err *err)
{
    if (rc >= 0 || err->code != code)
        fail_msg("%d %s: %s (wanted %s)", rc, err_code_name(err->code), err->text,
                 err_code_name(code));
    err_clear(err);
}

static void test_places_that_are_none(void **state)
{
    struct fs_site *site = *state;
    const struct volume_fs_source source = fs_site_source(site);
    struct volume_fs_source none = source;
    char path[256];
    struct err err = ERR_INIT;
    snprintf(path, sizeof path, "%s/missing", site->scratch->path);
    refused(volume_fs_mount(&source, path, false, WAIT_MS, &err), ERR_IO, &err);
    assert_int_equal(volume_fs_mounted(path, site->loop.device, NULL), 0);
    assert_int_equal(volume_fs_unmount(path, site->loop.device, false, WAIT_MS, NULL), 0);
    refused(volume_fs_sync(path, site->loop.device, WAIT_MS, &err), ERR_NOT_FOUND, &err);
    snprintf(path, sizeof path, "%s/link", site->scratch->path);
    assert_int_equal(symlink(site->mount, path), 0);
    refused(volume_fs_mount(&source, path, false, WAIT_MS, &err), ERR_INVALID, &err);
    snprintf(path, sizeof path, "%s/file", site->scratch->path);
    scratch_write(site->scratch, "file", "", 0);
    refused(volume_fs_mount(&source, path, false, WAIT_MS, &err), ERR_IO, &err);
    none.device_path = "/dev/null";
    refused(volume_fs_mount(&none, site->mount, false, WAIT_MS, &err), ERR_IO, &err);
    none.device_path = "/nowhere";
    refused(volume_fs_mount(&none, site->mount, false, WAIT_MS, &err), ERR_IO, &err);
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 0);
}

/* Nothing is done to a mount that is not the volume's. */
static void test_something_else_is_mounted(void **state)
{
    struct fs_site *site = *state;
    const struct volume_fs_source source = fs_site_source(site);
    struct volume_fs_space space;
    uint64_t trimmed;
    struct err err = ERR_INIT;
    dev_t device = site->loop.device;
    fs_site_mount(site);
    refused(volume_fs_mount(&source, site->mount, false, WAIT_MS, &err), ERR_CONFLICT, &err);
    assert_int_equal(mount("none", site->mount, "tmpfs", 0, NULL), 0);
    refused(volume_fs_mounted(site->mount, device, &err), ERR_CONFLICT, &err);
    refused(volume_fs_unmount(site->mount, device, false, WAIT_MS, &err), ERR_CONFLICT, &err);
    refused(volume_fs_sync(site->mount, device, WAIT_MS, &err), ERR_CONFLICT, &err);
    refused(volume_fs_space(site->mount, device, &space, &err), ERR_CONFLICT, &err);
    refused(volume_fs_trim(site->mount, device, 0, UINT64_MAX, WAIT_MS, &trimmed, &err),
            ERR_CONFLICT, &err);
    refused(volume_fs_shutdown(site->mount, device, WAIT_MS, &err), ERR_CONFLICT, &err);
    refused(volume_fs_grow(site->mount, device, site->loop.size, WAIT_MS, &err), ERR_CONFLICT,
            &err);
    assert_int_equal(umount2(site->mount, 0), 0);
    assert_int_equal(volume_fs_mounted(site->mount, device, NULL), 1);
}

static void test_busy(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    fs_site_mount(site);
    cleanup_fd int fd = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    refused(volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, &err), ERR_CONFLICT,
            &err);
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 1);
    ok(volume_fs_unmount(site->mount, site->loop.device, true, WAIT_MS, &err), &err);
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 0);
    /* It is still there for whoever holds on. */
    refused(volume_fs_check(site->loop.path, WAIT_MS, NULL, &err), ERR_CONFLICT, &err);
    close(steal_fd(&fd));
    assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, NULL, &err), 0);
}

/* The check of a daemon that was killed ends a moment later. */
static void test_a_check_that_has_to_wait(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(site->loop.path, O_RDONLY | O_EXCL | O_CLOEXEC);
        (void)usleep(600000);
        _exit(fd < 0);
    }
    (void)usleep(200000);
    ok(volume_fs_check(site->loop.path, WAIT_MS, NULL, &err), &err);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Who owns a directory on the way can make it a link at any time; an unmount goes along none. */
static void test_a_link_on_the_way(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    char path[400];
    fs_site_mount(site);
    const char *name = strrchr(site->mount, '/');
    assert_int_equal(symlinkat(".", site->scratch->fd, "link"), 0);
    snprintf(path, sizeof path, "%.*s/link%s", (int)(name - site->mount), site->mount, name);
    for (int lazy = 0; lazy < 2; lazy++) {
        refused(volume_fs_unmount(path, site->loop.device, lazy != 0, WAIT_MS, &err), ERR_CONFLICT,
                &err);
        assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 1);
    }
    /* Without the directory nothing is mounted there. */
    snprintf(path, sizeof path, "%.*s/none%s", (int)(name - site->mount), site->mount, name);
    ok(volume_fs_unmount(path, site->loop.device, false, WAIT_MS, &err), &err);
    refused(volume_fs_unmount("mnt", site->loop.device, false, WAIT_MS, &err), ERR_INVALID, &err);
    unmount(site);
}

static void debugfs(const struct fs_site *site, const char *request)
{
    const char *const argv[] = {"debugfs", "-w", "-R", request, site->loop.path, NULL};
    struct err err = ERR_INIT;
    ok(spawn_tool(argv, NULL, &err), &err);
}

static void test_check(void **state)
{
    struct fs_site *site = *state;
    char said[VOLUME_FS_TEXT_MAX] = "untouched";
    struct err err = ERR_INIT;
    fs_site_mount(site);
    fs_site_write(site, "f", 10, false);
    refused(volume_fs_check(site->loop.path, WAIT_MS, said, &err), ERR_CONFLICT, &err);
    unmount(site);
    assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, said, NULL), 0);
    assert_string_equal(said, "untouched");
    /* A wrong count of links is mended, a root directory that is gone takes a person. */
    debugfs(site, "set_inode_field <12> links_count 5");
    debugfs(site, "set_super_value state 2");
    assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, said, &err), 1);
    assert_non_null(strstr(said, "ref count"));
    assert_null(strchr(said, '\n'));
    assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, NULL, &err), 0);
    debugfs(site, "clri <2>");
    debugfs(site, "set_super_value state 2");
    assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, NULL, &err), -EBADMSG);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.hint, "e2fsck -f"));
    err_clear(&err);
    refused(volume_fs_check("/dev/null", WAIT_MS, NULL, &err), ERR_IO, &err);
}

/* As after a power cut: the bytes of a mounted volume. */
static void test_a_journal_to_replay(void **state)
{
    struct fs_site *site = *state;
    struct ext4_super super;
    char copy[256];
    char data[256];
    struct err err = ERR_INIT;
    fs_site_mount(site);
    fs_site_write(site, "f", 10, true);
    snprintf(data, sizeof data, "/proc/%d/fd/%d", getpid(), site->data_fd);
    snprintf(copy, sizeof copy, "%s/copy", site->scratch->path);
    const char *const cp[] = {"cp", "-L", "--sparse=always", data, copy, NULL};
    ok(spawn_tool(cp, NULL, &err), &err);
    unmount(site);
    close(site->loop_fd);
    close(site->data_fd);
    site->data_fd = open(copy, O_RDWR | O_CLOEXEC);
    fs_site_attach(site);
    look(site, &super);
    assert_true(super.needs_recovery);
    assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, NULL, &err), 0);
    look(site, &super);
    assert_false(super.needs_recovery);
    fs_site_mount(site);
    snprintf(data, sizeof data, "%s/f", site->mount);
    assert_int_equal(access(data, F_OK), 0);
}

/* Without CAP_SYS_RESOURCE the kernel grows nothing that is mounted. */
static void test_grow_mounted(void **state)
{
    struct fs_site *site = *state;
    struct volume_fs_space before;
    struct volume_fs_space after;
    struct err err = ERR_INIT;
    fs_site_mount(site);
    ok(volume_fs_space(site->mount, site->loop.device, &before, &err), &err);
    fs_site_grow(site, 2 * VOLUME_SIZE_MIN);
    int rc = volume_fs_grow(site->mount, site->loop.device, site->loop.size, WAIT_MS, &err);
    assert_int_equal(volume_fs_space(site->mount, site->loop.device, &after, NULL), 0);
    if (rc == 0) {
        assert_true(after.size > before.size + VOLUME_SIZE_MIN / 2);
        ok(volume_fs_grow(site->mount, site->loop.device, site->loop.size, WAIT_MS, &err), &err);
    } else {
        assert_int_equal(err.code, ERR_DENIED);
        assert_non_null(strstr(err.hint, "CAP_SYS_RESOURCE"));
        assert_int_equal(after.size, before.size);
    }
}

/* To 2,048 times the size: what mke2fs was told keeps meta_bg away, which no look would accept. */
static void test_grow_unmounted(void **state)
{
    struct fs_site *site = *state;
    static const uint64_t times[] = {2, 3, 2048};
    struct ext4_super super;
    struct err err = ERR_INIT;
    char path[256];
    fs_site_mount(site);
    fs_site_write(site, "f", 10, false);
    refused(volume_fs_grow_device(site->loop.path, WAIT_MS, NULL, &err), ERR_CONFLICT, &err);
    unmount(site);
    ok(volume_fs_grow_device(site->loop.path, WAIT_MS, NULL, &err), &err);
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        fs_site_grow(site, times[i] * VOLUME_SIZE_MIN);
        ok(volume_fs_grow_device(site->loop.path, WAIT_MS, NULL, &err), &err);
        look(site, &super);
        assert_int_equal(super.blocks, site->loop.size / VOLUME_BLOCK);
        assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, NULL, NULL), 0);
    }
    fs_site_mount(site);
    snprintf(path, sizeof path, "%s/f", site->mount);
    assert_int_equal(access(path, F_OK), 0);
}

static blkcnt_t stored(const struct fs_site *site)
{
    struct stat st;
    assert_int_equal(fstat(site->data_fd, &st), 0);
    return st.st_blocks;
}

static void test_trim(void **state)
{
    struct fs_site *site = *state;
    char path[256];
    uint64_t trimmed = 0;
    struct err err = ERR_INIT;
    fs_site_mount(site);
    fs_site_write(site, "f", 8 << 20, true);
    blkcnt_t full = stored(site);
    snprintf(path, sizeof path, "%s/f", site->mount);
    assert_int_equal(unlink(path), 0);
    ok(volume_fs_sync(site->mount, site->loop.device, WAIT_MS, &err), &err);
    /* A range outside of it takes nothing away. */
    ok(volume_fs_trim(site->mount, site->loop.device, 0, 4096, WAIT_MS, &trimmed, &err), &err);
    assert_true(trimmed <= 4096);
    ok(volume_fs_trim(site->mount, site->loop.device, 0, UINT64_MAX, WAIT_MS, &trimmed, &err),
       &err);
    assert_true(trimmed >= 8 << 20);
    assert_true(stored(site) < full - (4 << 20) / 512);
    refused(volume_fs_trim(site->mount, site->loop.device, UINT64_MAX / 2, 4096, WAIT_MS, &trimmed,
                           &err),
            ERR_IO, &err);
}

static void test_shutdown(void **state)
{
    struct fs_site *site = *state;
    char path[256];
    struct ext4_super super;
    struct err err = ERR_INIT;
    fs_site_mount(site);
    fs_site_write(site, "before", 100, false);
    snprintf(path, sizeof path, "%s/before", site->mount);
    cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
    ok(volume_fs_shutdown(site->mount, site->loop.device, WAIT_MS, &err), &err);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(errno, EIO);
    ok(volume_fs_shutdown(site->mount, site->loop.device, WAIT_MS, &err), &err);
    close(steal_fd(&fd));
    unmount(site);
    look(site, &super);
    assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, NULL, NULL), 0);
    fs_site_mount(site);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 100);
}

static void assert_late(int rc, int64_t start, int wait_ms, struct err *err)
{
    int64_t took = now_ms() - start;
    if (rc >= 0 || err->code != ERR_UNREACHABLE)
        fail_msg("%d %s: %s", rc, err_code_name(err->code), err->text);
    assert_true(took >= wait_ms && took < wait_ms + 20000);
    assert_non_null(strstr(err->text, "no answer within"));
    assert_non_null(strstr(err->hint, "worker"));
    err_clear(err);
}

static void wait_for_children(void)
{
    for (int i = 0; i < 400 && deadline_child_reap() > 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_int_equal(deadline_child_reap(), 0);
}

/* A device that does not answer: nobody but children waits, and all goes on when it answers again.
 */
static void test_a_device_that_hangs(void **state)
{
    struct fs_site *site = *state;
    struct volume_fs_space space;
    struct err err = ERR_INIT;
    dev_t device = site->loop.device;
    fs_site_mount(site);
    fs_site_write(site, "f", 1 << 20, false);
    fs_site_freeze(site);
    int64_t start = now_ms();
    assert_late(volume_fs_sync(site->mount, device, 300, &err), start, 300, &err);
    assert_int_equal(deadline_child_reap(), 1);
    start = now_ms();
    assert_late(volume_fs_shutdown(site->mount, device, 300, &err), start, 300, &err);
    assert_int_equal(deadline_child_reap(), 2);
    /* These wait for nothing; and who was left behind holds on. */
    start = now_ms();
    assert_int_equal(volume_fs_mounted(site->mount, device, NULL), 1);
    assert_int_equal(volume_fs_space(site->mount, device, &space, NULL), 0);
    refused(volume_fs_unmount(site->mount, device, false, WAIT_MS, &err), ERR_CONFLICT, &err);
    assert_true(now_ms() - start < 5000);
    fs_site_thaw(site);
    wait_for_children();
    unmount(site);
}

/* What hangs for one volume does not use up what others may leave behind. */
static void test_calls_that_hang_for_one_volume(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    dev_t device = site->loop.device;
    fs_site_mount(site);
    fs_site_write(site, "f", 1 << 20, false);
    fs_site_freeze(site);
    for (int i = 0; i < DEADLINE_CHILD_SAME_MAX; i++)
        assert_late(volume_fs_sync(site->mount, device, 50, &err), now_ms(), 50, &err);
    int own = volume_fs_sync(site->mount, device, 50, &err);
    assert_non_null(strstr(err.text, "earlier calls for "));
    refused(own, ERR_CONFLICT, &err);
    int other = volume_fs_mounted(site->outer, device, &err);
    fs_site_thaw(site);
    wait_for_children();
    assert_non_null(strstr(err.text, "something else"));
    refused(other, ERR_CONFLICT, &err);
    ok(volume_fs_sync(site->mount, device, WAIT_MS, &err), &err);
    unmount(site);
}

/* The name goes at once, the file system when the device answers. */
static void test_an_unmount_that_hangs(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    dev_t device = site->loop.device;
    fs_site_mount(site);
    fs_site_write(site, "f", 1 << 20, false);
    fs_site_freeze(site);
    int64_t start = now_ms();
    assert_late(volume_fs_unmount(site->mount, device, false, 300, &err), start, 300, &err);
    assert_int_equal(volume_fs_mounted(site->mount, device, NULL), 0);
    refused(volume_fs_check(site->loop.path, 5000, NULL, &err), ERR_CONFLICT, &err);
    fs_site_thaw(site);
    wait_for_children();
    assert_int_equal(volume_fs_check(site->loop.path, WAIT_MS, NULL, NULL), 0);
}

/* A mount that was given up on does not appear later. */
static void test_a_mount_that_hangs(void **state)
{
    struct fs_site *site = *state;
    struct err err = ERR_INIT;
    const struct volume_fs_source source = fs_site_source(site);
    fs_site_freeze(site);
    int64_t start = now_ms();
    assert_late(volume_fs_mount(&source, site->mount, false, 300, &err), start, 300, &err);
    fs_site_thaw(site);
    wait_for_children();
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 0);
    fs_site_mount(site);
}

#define on_site(test) cmocka_unit_test_setup_teardown(test, fs_site_setup, fs_site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_site(test_mount_and_unmount),
        on_site(test_options),
        on_site(test_read_only),
        on_site(test_places_that_are_none),
        on_site(test_something_else_is_mounted),
        on_site(test_busy),
        on_site(test_a_check_that_has_to_wait),
        on_site(test_a_link_on_the_way),
        on_site(test_check),
        on_site(test_a_journal_to_replay),
        on_site(test_grow_mounted),
        on_site(test_grow_unmounted),
        on_site(test_trim),
        on_site(test_shutdown),
        on_site(test_a_device_that_hangs),
        on_site(test_calls_that_hang_for_one_volume),
        on_site(test_an_unmount_that_hangs),
        on_site(test_a_mount_that_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
