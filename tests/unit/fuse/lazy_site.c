#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lazy_site.h"

#include "clock.h"
#include "volume_fetch.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum {
    FD_IMAGE = 3, /* of the fetch */
    FD_WORKERS = 4,
    FD_LIVE = 5,
};

void lazy_pause(int ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* --- the fetch, as a program: fetch BACKGROUND DELAY_US --- */

struct image {
    unsigned delay_us;
    _Atomic unsigned reads;
};

static int read_image(void *arg, const uint64_t *chunks, size_t count,
                      int (*stop)(void *arg, uint64_t done, uint64_t total), void *stop_arg,
                      volume_fetch_take *take, void *take_arg, struct err *err)
{
    struct image *image = arg;
    static const uint8_t zeros[VOLUME_CHUNK];
    uint8_t bytes[VOLUME_CHUNK];
    for (size_t i = 0; i < count; i++) {
        unsigned read = atomic_fetch_add(&image->reads, 1);
        if (stop(stop_arg, i, 0) < 0)
            return err_fail(err, ERR_CANCELLED, "it is to end");
        if (image->delay_us > 0 && read % 50 == 49)
            return err_fail(err, ERR_UNREACHABLE, "the remote is away for a moment");
        if (image->delay_us > 0)
            (void)usleep((read * 7919U) % image->delay_us);
        if (pread(FD_IMAGE, bytes, sizeof bytes, (off_t)(chunks[i] * VOLUME_CHUNK)) !=
            (ssize_t)sizeof bytes)
            return err_fail(err, ERR_DAMAGED, "the image is too short");
        const bool is_zero = memcmp(bytes, zeros, sizeof bytes) == 0;
        int rc = take(take_arg, chunks[i], is_zero ? NULL : bytes, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int lazy_main(int argc, char **argv)
{
    if (argc != 3 || strcmp(argv[0], "fetch") != 0)
        return -1;
    struct err err = ERR_INIT;
    struct volume_fetch *fetch;
    struct image image = {.delay_us = (unsigned)strtoul(argv[2], NULL, 10)};
    const struct volume_fetch_options options = {.workers_fd = FD_WORKERS,
                                                 .id = SITE_ID,
                                                 .live_fd = FD_LIVE,
                                                 .source = {.read = read_image, .arg = &image},
                                                 .background_bytes = strtoull(argv[1], NULL, 10)};
    if (volume_fetch_start(&options, &fetch, &err) < 0) {
        fprintf(stderr, "fetch: %s\n", err.text);
        return 1;
    }
    for (;;)
        (void)pause();
}

/* --- the remote --- */

void lazy_start_fetch(struct lazy_remote *remote)
{
    struct err err = ERR_INIT;
    struct volumes_fetch_fds fds;
    site_ok(volumes_fetch_fds(remote->site->volumes, SITE_ID, &fds, &err), &err);
    (void)fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int high[] = {fcntl(remote->image_fd, F_DUPFD, 64), fcntl(fds.workers_fd, F_DUPFD, 64),
                      fcntl(fds.live_fd, F_DUPFD, 64)};
        for (int i = 0; i < 3; i++)
            (void)dup2(high[i], FD_IMAGE + i);
        (void)close_range(FD_LIVE + 1, ~0U, 0); /* /dev/fuse, above all */
        if (getppid() == parent)
            (void)execl("/proc/self/exe", "fetch", remote->background, remote->delay_us,
                        (char *)NULL);
        _exit(127);
    }
    (void)close(fds.live_fd);
    remote->fetch = pid;
}

void lazy_kill_fetch(struct lazy_remote *remote)
{
    if (remote->fetch > 0) {
        (void)kill(remote->fetch, SIGKILL);
        (void)waitpid(remote->fetch, NULL, 0);
    }
    remote->fetch = 0;
}

void lazy_make_image(struct lazy_remote *remote, const char *name)
{
    remote->image_fd = open(scratch_path(remote->site->scratch, name),
                            O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(remote->image_fd >= 0);
}

/* volume_create_give of the chunks of the image that are not zero. */
static int give_chunk(void *arg, uint64_t *ret_chunk)
{
    struct lazy_remote *remote = arg;
    off_t at = lseek(remote->image_fd, (off_t)(remote->next * VOLUME_CHUNK), SEEK_DATA);
    if (at < 0)
        return errno == ENXIO ? 0 : -errno;
    *ret_chunk = (uint64_t)at / VOLUME_CHUNK;
    remote->next = *ret_chunk + 1;
    return 1;
}

void lazy_attach(struct lazy_remote *remote)
{
    struct err err = ERR_INIT;
    site_ok(volumes_attach(remote->site->volumes, SITE_ID, &err), &err);
}

void lazy_make_volume(struct lazy_remote *remote, uint64_t size,
                      const uint8_t uuid[VOLUME_UUID_LEN])
{
    struct err err = ERR_INIT;
    struct volume_base base = {.lineage = "aaaabbbbcccc", .checkpoint = {{1, 2, 3}}};
    memcpy(base.uuid, uuid, sizeof base.uuid);
    remote->next = 0;
    site_ok(
        volumes_create_from(remote->site->volumes, SITE_ID, size, &base, give_chunk, remote, &err),
        &err);
    lazy_attach(remote);
    struct volume_status status = site_status(remote->site);
    assert_string_equal(status.base.lineage, "aaaabbbbcccc");
    assert_true(status.absent > 0);
    assert_int_equal(status.local, 0);
}

void lazy_await_all(struct lazy_remote *remote)
{
    int64_t until = clock_now_ms() + LAZY_WAIT_MS;
    while (site_status(remote->site).absent > 0) {
        if (clock_now_ms() > until)
            fail_msg("%llu chunks are absent yet",
                     (unsigned long long)site_status(remote->site).absent);
        lazy_pause(5);
    }
}

void lazy_kill_something(struct lazy_remote *remote, unsigned kind)
{
    pid_t worker = site_pid(remote->site, "varve-volume");
    if (kind != 0 && worker > 0)
        (void)kill(worker, SIGKILL);
    if (kind != 1) {
        lazy_kill_fetch(remote);
        lazy_pause((int)(kind * 20));
        lazy_start_fetch(remote);
    }
}

uint64_t lazy_random(uint64_t *random, uint64_t end)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random % end;
}
