/* What a worker answers to ATTACH may be anything: varved takes no descriptor that would give the
 * worker more than it has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "spawn.h"
#include "volumes_internal.h"
#include "worker_client.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const uint8_t uuid[VOLUME_UUID_LEN] = {1};

static int open_program(void)
{
    char path[4096];
    struct err err = ERR_INIT;
    site_ok(spawn_find("varve-volume", path, &err), &err);
    return open(path, O_PATH | O_CLOEXEC);
}

/* All that belongs to a volume. */
static struct volume_fds good_fds(const struct volumes_site *site)
{
    struct err err = ERR_INIT;
    struct volume_fds fds = {.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC),
                             .live = live_map_make(SITE_ID, uuid, SITE_SIZE, &err),
                             .listen =
                                 worker_client_listen(site->volumes->workers_fd, SITE_ID, &err),
                             .program = open_program(),
                             .worker = -1};
    assert_true(fds.fuse >= 0 && fds.live >= 0 && fds.listen >= 0 && fds.program >= 0);
    return fds;
}

/* Gives them to an entry of the table, and takes them away again. */
static int take(struct volumes_site *site, struct volume_fds *fds, struct err *err)
{
    struct volume *volume;
    site_ok(volume_enter(site->volumes, SITE_ID, &volume, err), err);
    int rc = volume_take_fds(site->volumes, volume, fds, err);
    if (rc == 0) {
        assert_true(volume_is_held(volume));
        volume_drop_fds(site->volumes, volume);
    } else {
        assert_false(volume_is_held(volume));
    }
    volume_leave(site->volumes, volume);
    return rc;
}

/* With one of them in the place of `*place`, which belongs to `fds`. */
static void expect_refused(struct volumes_site *site, struct volume_fds *fds, int *place, int bad,
                           const char *part)
{
    struct err err = ERR_INIT;
    assert_true(bad >= 0);
    int good = *place;
    *place = bad;
    site_expect(take(site, fds, &err), &err, ERR_DAMAGED, part);
    assert_int_equal(*place, bad); /* still the caller's */
    *place = good;
    (void)close(bad);
}

/* A copy of the program in the volume's directory, as its worker could write one. */
static int make_program(const struct volumes_site *site, uid_t uid, gid_t gid, mode_t mode)
{
    struct err err = ERR_INIT;
    cleanup_fd int dir = volume_open_dir(site->volumes, SITE_ID, &err);
    site_ok(dir, &err);
    (void)unlinkat(dir, "program", 0);
    cleanup_fd int fd = openat(dir, "program", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(fchown(fd, uid, gid), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    return openat(dir, "program", O_PATH | O_CLOEXEC);
}

static void test_what_belongs_to_it_is_taken(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    cleanup_volume_fds struct volume_fds fds = good_fds(site);
    site_ok(take(site, &fds, &err), &err);
}

/* Keeper starts it as root. */
static void test_a_program_of_the_worker(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_ok(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err);
    struct stat dir;
    cleanup_fd int dir_fd = volume_open_dir(site->volumes, SITE_ID, &err);
    assert_int_equal(fstat(dir_fd, &dir), 0);
    assert_int_equal(dir.st_uid, SITE_UID);
    const uid_t uid = dir.st_uid;
    const gid_t gid = dir.st_gid;
    static const char part[] = "its worker could have written";
    cleanup_volume_fds struct volume_fds fds = good_fds(site);
    expect_refused(site, &fds, &fds.program, make_program(site, uid, gid, 0755), part);
    expect_refused(site, &fds, &fds.program, make_program(site, uid, 0, 0500), part);
    expect_refused(site, &fds, &fds.program, make_program(site, 0, gid, 0770), part);
    expect_refused(site, &fds, &fds.program, make_program(site, 0, 0, 0757), part);
    expect_refused(site, &fds, &fds.program, memfd_create("program", MFD_CLOEXEC), part);
    expect_refused(site, &fds, &fds.program, open("/", O_PATH | O_CLOEXEC), part);
    /* The directory is another user's than new ones get. */
    assert_int_equal(fchown(dir_fd, uid + 1, gid), 0);
    expect_refused(site, &fds, &fds.program, make_program(site, uid + 1, 0, 0755), part);
    int program = make_program(site, 0, 0, 0755);
    (void)close(fds.program);
    fds.program = program;
    site_ok(take(site, &fds, &err), &err);
}

/* Whoever holds it could make it shorter: SIGBUS for varved and keeper. */
static void test_a_live_map_that_can_shrink(void **state)
{
    struct volumes_site *site = *state;
    char page[LIVE_MAP_HEADER_BYTES];
    cleanup_volume_fds struct volume_fds fds = good_fds(site);
    int copy = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(pread(fds.live, page, sizeof page, 0), sizeof page);
    assert_int_equal(pwrite(copy, page, sizeof page, 0), sizeof page);
    assert_int_equal(ftruncate(copy, (off_t)live_map_bytes(SITE_SIZE)), 0);
    expect_refused(site, &fds, &fds.live, copy, "could be cut");
    int file = openat(site->data_fd, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(file, page, sizeof page, 0), sizeof page);
    assert_int_equal(ftruncate(file, (off_t)live_map_bytes(SITE_SIZE)), 0);
    expect_refused(site, &fds, &fds.live, file, "could be cut");
    assert_int_equal(unlinkat(site->data_fd, "file", 0), 0);
    struct err err = ERR_INIT;
    int other = live_map_make("0123456789ac", uuid, SITE_SIZE, &err);
    expect_refused(site, &fds, &fds.live, other, "0123456789ac");
}

static void test_others_in_the_place_of_fuse_and_socket(void **state)
{
    struct volumes_site *site = *state;
    cleanup_volume_fds struct volume_fds fds = good_fds(site);
    expect_refused(site, &fds, &fds.fuse, open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/fuse");
    expect_refused(site, &fds, &fds.fuse, memfd_create("fuse", MFD_CLOEXEC), "/dev/fuse");
    expect_refused(site, &fds, &fds.listen, memfd_create("socket", MFD_CLOEXEC), "control socket");
    expect_refused(site, &fds, &fds.listen, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
                   "control socket");
    expect_refused(site, &fds, &fds.listen, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                   "control socket");
}

/* Numbers in the live map are a worker's word, and others' shares are reckoned from them. */
static void test_numbers_are_bounded(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct volume *volume;
    struct volume_status status;
    cleanup_volume_fds struct volume_fds fds = good_fds(site);
    site_ok(volume_enter(site->volumes, SITE_ID, &volume, &err), &err);
    site_ok(volume_take_fds(site->volumes, volume, &fds, &err), &err);
    volume_leave(site->volumes, volume);
    struct live_map_header *header = volume->live.header;
    atomic_store(&header->local_chunks, SITE_SIZE / VOLUME_CHUNK + 1);
    atomic_store(&header->held, UINT32_MAX);
    site_ok(volumes_status(site->volumes, SITE_ID, &status, &err), &err);
    assert_int_equal(status.size, SITE_SIZE);
    assert_int_equal(status.local, SITE_SIZE);
    assert_in_range(status.held, 1, VOLUME_MAX_BACKGROUND);
    atomic_store(&header->size, UINT64_MAX);
    atomic_store(&header->local_chunks, UINT32_MAX);
    site_ok(volumes_status(site->volumes, SITE_ID, &status, &err), &err);
    assert_int_equal(status.size, VOLUME_SIZE_MAX);
    assert_int_equal(status.local, VOLUME_SIZE_MAX);
    site_ok(volume_enter(site->volumes, SITE_ID, &volume, &err), &err);
    volume_drop_fds(site->volumes, volume);
    volume_leave(site->volumes, volume);
}

/* The map is its worker's too: with another UUID in it, it could have the file system of another
 * one taken for its own. */
static void test_a_map_that_changes_its_uuid(void **state)
{
    struct volumes_site *site = *state;
    struct volume *volume;
    struct err err = ERR_INIT;
    site_ok(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    volume = volume_peek(site->volumes, SITE_ID);
    volume->live.header->uuid[0] ^= 0xff;
    volume_unpeek(site->volumes, volume);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    site_ok(volumes_abandon(site->volumes, SITE_ID, NULL, true, &err), &err);
}

/* A process that calls itself a worker of the volume. */
static pid_t pretend(const struct volumes_site *site, uid_t user)
{
    char program[300];
    char directory[300];
    struct err err = ERR_INIT;
    snprintf(program, sizeof program, "%s/varve-volume", site->scratch->path);
    snprintf(directory, sizeof directory, "%s/" SITE_ID, site->data);
    const char *const cp[] = {"cp", "/usr/bin/yes", program, NULL};
    site_ok(spawn_tool(cp, NULL, &err), &err);
    assert_int_equal(chmod(site->scratch->path, 0755), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (dup2(null, 1) == 1 && setgid(user) == 0 && setuid(user) == 0 &&
            prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
            execl(program, "varve-volume", directory, NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000 && !volume_worker_runs(pid); i++)
        volumes_sleep_ms(2);
    assert_true(volume_worker_runs(pid));
    return pid;
}

/* Where no live map tells, it is known by its command line, which anybody can have. */
static void test_a_process_that_pretends_to_be_a_worker(void **state)
{
    struct volumes_site *site = *state;
    struct volume *volume;
    struct err err = ERR_INIT;
    site_ok(volume_enter(site->volumes, SITE_ID, &volume, &err), &err);
    pid_t stranger = pretend(site, 12345);
    assert_int_equal(volume_worker_pidfd(site->volumes, volume), -ESRCH);
    site_ok(volume_worker_kill(site->volumes, volume, 1000, &err), &err);
    assert_int_equal(waitpid(stranger, NULL, WNOHANG), 0);
    kill(stranger, SIGKILL);
    assert_int_equal(waitpid(stranger, NULL, 0), stranger);
    pid_t own = pretend(site, site->volumes->uid);
    cleanup_fd int pidfd = volume_worker_pidfd(site->volumes, volume);
    assert_true(pidfd >= 0);
    kill(own, SIGKILL);
    assert_int_equal(waitpid(own, NULL, 0), own);
    volume_leave(site->volumes, volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_belongs_to_it_is_taken, site_setup,
                                        site_teardown),
        cmocka_unit_test_setup_teardown(test_a_program_of_the_worker, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_a_live_map_that_can_shrink, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_a_map_that_changes_its_uuid, site_setup,
                                        site_teardown),
        cmocka_unit_test_setup_teardown(test_a_process_that_pretends_to_be_a_worker, site_setup,
                                        site_teardown),
        cmocka_unit_test_setup_teardown(test_numbers_are_bounded, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_others_in_the_place_of_fuse_and_socket, site_setup,
                                        site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
