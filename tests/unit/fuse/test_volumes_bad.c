/* What lies in a volume's directory, or what the host lacks, may be anything: each has its error,
 * and nothing is left of the attempt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "fdio.h"
#include "map_log.h"
#include "spawn.h"
#include "volume_json.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>

enum {
    DETACH_MS = 5000,
};

static void create(struct volumes_site *site)
{
    struct err err = ERR_INIT;
    site_ok(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err);
}

static void expect_attach(struct volumes_site *site, enum err_code code, const char *part)
{
    struct err err = ERR_INIT;
    site_expect(volumes_attach(site->volumes, SITE_ID, &err), &err, code, part);
    site_expect_nothing(site);
}

static int open_dir(const struct volumes_site *site)
{
    int fd = openat(site->data_fd, SITE_ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void overwrite(const struct volumes_site *site, const char *name, off_t at,
                      const void *bytes, size_t len)
{
    cleanup_fd int dir = open_dir(site);
    cleanup_fd int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, at), len);
}

static void test_ids(void **state)
{
    struct volumes_site *site = *state;
    static const char *const ids[] = {
        "",           ".", "..", "../volumes/x", "0123456789AB", "0123456789abc", "0123456789a/",
        "0123456789a"};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct err err = ERR_INIT;
        site_expect(volumes_attach(site->volumes, ids[i], &err), &err, ERR_INVALID, NULL);
        err = (struct err)ERR_INIT;
        site_expect(volumes_remove(site->volumes, ids[i], &err), &err, ERR_INVALID, NULL);
        err = (struct err)ERR_INIT;
        site_expect(volumes_abandon(site->volumes, ids[i], NULL, true, &err), &err, ERR_INVALID,
                    NULL);
    }
    site_expect_nothing(site);
}

static void test_sizes(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_expect(volumes_create(site->volumes, SITE_ID, VOLUME_SIZE_MIN - VOLUME_SIZE_UNIT, &err),
                &err, ERR_INVALID, NULL);
    err = (struct err)ERR_INIT;
    site_expect(volumes_create(site->volumes, SITE_ID, VOLUME_SIZE_MAX + 1, &err), &err,
                ERR_INVALID, NULL);
    create(site);
    err = (struct err)ERR_INIT;
    site_expect(volumes_resize(site->volumes, SITE_ID, UINT64_MAX, NULL, &err), &err, ERR_INVALID,
                NULL);
    err = (struct err)ERR_INIT;
    site_expect(volumes_resize(site->volumes, SITE_ID, 2 * SITE_SIZE, NULL, &err), &err,
                ERR_CONFLICT, "not attached");
}

static void test_map(void **state)
{
    struct volumes_site *site = *state;
    unsigned char saved[4096];
    create(site);
    cleanup_fd int dir = open_dir(site);
    cleanup_fd int fd = openat(dir, "map", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, saved, sizeof saved, 0), sizeof saved);
    overwrite(site, "map", 0, "garbage", 7);
    expect_attach(site, ERR_DAMAGED, SITE_ID);
    overwrite(site, "map", 0, saved, sizeof saved);
    overwrite(site, "map", 4096 + 100, "garbage", 7);
    expect_attach(site, ERR_DAMAGED, SITE_ID);
    assert_int_equal(unlinkat(dir, "map", 0), 0);
    struct err err = ERR_INIT;
    assert_true(volumes_attach(site->volumes, SITE_ID, &err) < 0);
    site_expect_nothing(site);
}

/* As `cp -r` of root leaves it: the worker must not run as root for that. */
static void test_a_copy_that_is_roots(void **state)
{
    struct volumes_site *site = *state;
    static const char *const names[] = {"volume.json", "data", "map", "."};
    struct err err = ERR_INIT;
    struct volume_status status;
    struct stat st;
    create(site);
    cleanup_fd int dir = open_dir(site);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(fchownat(dir, names[i], 0, 0, 0), 0);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(fstatat(dir, names[i], &st, 0), 0);
        assert_int_equal(st.st_uid, SITE_UID);
    }
    char path[64];
    site_ok(volumes_status(site->volumes, SITE_ID, &status, &err), &err);
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)status.worker,
                   (int)status.worker);
    cleanup_buf struct buf text = BUF_INIT(65536);
    site_ok(fdio_read_file(AT_FDCWD, path, &text, &err), &err);
    assert_non_null(strstr(buf_str(&text), "\nUid:\t61234\t61234\t61234\t61234\n"));
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
}

static int give_absent(void *arg, struct map_record *ret)
{
    bool *given = arg;
    if (*given)
        return 0;
    *given = true;
    *ret = (struct map_record){.chunk = 7, .mask = 0, .state = VOLUME_ABSENT};
    return 1;
}

static void test_absent_chunks(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct volume_json json;
    struct map_log log;
    bool given = false;
    create(site);
    cleanup_fd int dir = open_dir(site);
    site_ok(volume_json_read(dir, SITE_ID, &json, &err), &err);
    site_ok(map_log_open(dir, json.uuid, json.size, NULL, NULL, &log, &err), &err);
    site_ok(map_log_rewrite(&log, json.size, true, give_absent, &given, &err), &err);
    map_log_close(&log);
    expect_attach(site, ERR_DAMAGED, "does not say where");
}

static void replace_json(const struct volumes_site *site, const char *from, const char *to)
{
    char text[1024];
    cleanup_fd int dir = open_dir(site);
    cleanup_fd int fd = openat(dir, VOLUME_JSON_NAME, O_RDWR | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = '\0';
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    assert_int_equal(pwrite(fd, text, (size_t)n, 0), n);
}

static void test_json(void **state)
{
    struct volumes_site *site = *state;
    create(site);
    replace_json(site, "\"format\":1", "\"format\":4");
    expect_attach(site, ERR_TOO_NEW, SITE_ID);
    replace_json(site, "\"format\":4", "\"format\":x");
    expect_attach(site, ERR_DAMAGED, NULL);
    replace_json(site, "\"format\":x", "\"format\":1");
    replace_json(site, SITE_ID, "0123456789ac");
    expect_attach(site, ERR_DAMAGED, NULL);
}

static void test_data(void **state)
{
    struct volumes_site *site = *state;
    create(site);
    cleanup_fd int dir = open_dir(site);
    cleanup_fd int fd = openat(dir, "data", O_RDWR | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, SITE_SIZE - 4096), 0);
    expect_attach(site, ERR_DAMAGED, "data");
    assert_int_equal(ftruncate(fd, SITE_SIZE + VOLUME_SIZE_UNIT), 0);
    expect_attach(site, ERR_DAMAGED, "data");
    assert_int_equal(renameat(dir, "data", dir, "other"), 0);
    expect_attach(site, ERR_DAMAGED, "missing");
    assert_int_equal(symlinkat("other", dir, "data"), 0);
    struct err err = ERR_INIT;
    assert_true(volumes_attach(site->volumes, SITE_ID, &err) < 0);
    site_expect_nothing(site);
    assert_int_equal(unlinkat(dir, "data", 0), 0);
    assert_int_equal(mkfifoat(dir, "data", 0600), 0);
    expect_attach(site, ERR_DAMAGED, "data");
}

/* Somebody else has it: told within seconds. */
static void test_locked_data(void **state)
{
    struct volumes_site *site = *state;
    struct timespec before;
    struct timespec after;
    create(site);
    cleanup_fd int dir = open_dir(site);
    cleanup_fd int fd = openat(dir, "data", O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    expect_attach(site, ERR_CONFLICT, "locked");
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec < 8);
    assert_int_equal(flock(fd, LOCK_UN), 0);
    struct err err = ERR_INIT;
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
}

/* Mounting is what fails: the volume stays attached, and can be detached. */
static void expect_mount(struct volumes_site *site, enum err_code code, const char *part)
{
    struct err err = ERR_INIT;
    bool mounted = true;
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_expect(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err,
                code, part);
    err = (struct err)ERR_INIT;
    site_ok(volumes_is_mounted(site->volumes, SITE_ID, site->mount, &mounted, &err), &err);
    assert_false(mounted);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
}

static void tune(const struct volumes_site *site, const char *option, const char *value)
{
    char path[256];
    struct err err = ERR_INIT;
    (void)snprintf(path, sizeof path, "%s/" SITE_ID "/data", site->data);
    const char *const argv[] = {"tune2fs", option, value, path, NULL};
    site_ok(spawn_tool(argv, NULL, &err), &err);
}

static void test_superblock(void **state)
{
    struct volumes_site *site = *state;
    create(site);
    tune(site, "-O", "mmp");
    expect_mount(site, ERR_UNSUPPORTED, "mmp");
    tune(site, "-O", "^mmp");
    tune(site, "-E", "mount_opts=data=journal");
    expect_mount(site, ERR_UNSUPPORTED, NULL);
    unsigned char zeros[4096] = {0};
    overwrite(site, "data", 0, zeros, sizeof zeros);
    expect_mount(site, ERR_DAMAGED, NULL);
}

static void test_paths(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char path[256];
    create(site);
    site_expect(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err,
                ERR_CONFLICT, "not attached");
    err = (struct err)ERR_INIT;
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    (void)snprintf(path, sizeof path, "%s/missing", site->scratch->path);
    assert_true(volumes_mount(site->volumes, SITE_ID, path, false, false, NULL, &err) < 0);
    assert_int_equal(symlink(site->mount, path), 0);
    err = (struct err)ERR_INIT;
    assert_true(volumes_mount(site->volumes, SITE_ID, path, false, false, NULL, &err) < 0);
    /* Somebody else's file system stays. */
    assert_int_equal(mount("tmpfs", site->mount, "tmpfs", 0, "size=64k"), 0);
    err = (struct err)ERR_INIT;
    site_expect(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err,
                ERR_CONFLICT, NULL);
    err = (struct err)ERR_INIT;
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    assert_int_equal(umount(site->mount), 0);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
}

/* Our own place below the run directory is taken by something that is not ours. */
static void test_foreign_mount(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char path[256];
    create(site);
    (void)snprintf(path, sizeof path, "%s/volumes/" SITE_ID, site->run);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, "size=64k"), 0);
    site_expect(volumes_attach(site->volumes, SITE_ID, &err), &err, ERR_CONFLICT, NULL);
    assert_int_equal(umount(path), 0);
    err = (struct err)ERR_INIT;
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
}

/* --- what the host lacks --- */

struct lacking {
    int rc;
    struct err err;
};

/* A copy of /dev with these nodes alone. */
static bool make_dev(bool fuse)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", "/dev", "tmpfs", 0, "size=64k") == 0 &&
           mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3)) == 0 &&
           (!fuse || mknod("/dev/fuse", S_IFCHR | 0666, makedev(10, 229)) == 0);
}

static void attach_without(struct volumes_site *site, bool fuse, const char *part)
{
    struct lacking answer = {.err = ERR_INIT};
    int pair[2];
    int status;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        answer.rc = make_dev(fuse) ? volumes_attach(site->volumes, SITE_ID, &answer.err) : 0;
        _exit(write(pair[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
    }
    (void)close(pair[1]);
    assert_int_equal(read(pair[0], &answer, sizeof answer), sizeof answer);
    (void)close(pair[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    site_expect(answer.rc, &answer.err, ERR_UNSUPPORTED, part);
    assert_true(answer.err.hint[0] != '\0');
    site_expect_nothing(site);
}

static void test_no_fuse(void **state)
{
    create(*state);
    attach_without(*state, false, "/dev/fuse");
}

static void test_no_loop(void **state)
{
    create(*state);
    attach_without(*state, true, "/dev/loop-control");
}

/* --- a disk that is not for volumes --- */

#ifdef VARVE_FAULT_POINTS
static void test_no_local_disk(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    assert_int_equal(setenv("VARVE_LOCAL_DISK", "nfs", 1), 0);
    site_expect(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err, ERR_UNSUPPORTED,
                "on nfs");
    assert_int_equal(faccessat(site->data_fd, SITE_ID, F_OK, 0), -1);
    assert_int_equal(unsetenv("VARVE_LOCAL_DISK"), 0);
    /* One that was made elsewhere and brought there. */
    create(site);
    site_close(site);
    site_open(site);
    assert_int_equal(setenv("VARVE_LOCAL_DISK", "no-holes", 1), 0);
    expect_attach(site, ERR_UNSUPPORTED, "give back a part of a file");
    assert_int_equal(unsetenv("VARVE_LOCAL_DISK"), 0);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
}
#endif

/* --- a host disk that is full --- */

static void use_tmpfs(struct volumes_site *site, const char *size)
{
    site_close(site);
    (void)close(site->data_fd);
    assert_int_equal(mount("tmpfs", site->data, "tmpfs", 0, size), 0);
    site->data_fd = open(site->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    site_open(site);
}

static void test_no_space_to_create(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    use_tmpfs(site, "size=200k");
    site_expect(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err, ERR_NO_SPACE, NULL);
    cleanup_dir DIR *dir = opendir(site->data);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        assert_true(strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
}

/* Takes all that is left. */
static void fill_disk(const struct volumes_site *site)
{
    char zeros[4096] = {0};
    cleanup_fd int fd = openat(site->data_fd, "ballast", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof zeros) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
}

/* No block for the map, nor for data: what needs one waits, and goes on when there is room. */
static void test_no_space_for_the_map(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    use_tmpfs(site, "size=64m");
    create(site);
    fill_disk(site);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)nanosleep(&(struct timespec){2, 0}, NULL);
        _exit(unlinkat(site->data_fd, "ballast", 0) == 0 ? 0 : 1);
    }
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
    site_put(site, "a", 1, 1 << 20);
    site_check(site, "a", 1, 1 << 20);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_fsck(site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ids, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_sizes, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_a_copy_that_is_roots, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_map, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_absent_chunks, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_json, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_data, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_locked_data, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_superblock, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_paths, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_foreign_mount, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_no_fuse, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_no_loop, site_setup, site_teardown),
#ifdef VARVE_FAULT_POINTS
        cmocka_unit_test_setup_teardown(test_no_local_disk, site_setup, site_teardown),
#endif
        cmocka_unit_test_setup_teardown(test_no_space_to_create, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_no_space_for_the_map, site_setup, site_teardown),
    };
    return cmocka_run_group_tests_name("volumes_bad", tests, NULL, NULL);
}
