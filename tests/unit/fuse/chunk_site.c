#include "chunk_site.h"

#include "cleanup.h"
#include "live_map_load.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static void load(struct chunk_site *site)
{
    struct err err = ERR_INIT;
    struct live_map_loaded loaded;
    check(live_map_load(site->dir_fd, CHUNK_SITE_ID, site->uuid, site->size, &loaded, &err), &err);
    site->live_fd = loaded.fd;
    site->was_closed = loaded.closed;
}

void chunk_site_start(struct chunk_site *site)
{
    struct err err = ERR_INIT;
    check(live_map_open(site->live_fd, false, &site->live, &err), &err);
    check(map_log_open(site->dir_fd, site->uuid, site->size, NULL, NULL, &site->log, &err), &err);
    int fd = openat(site->dir_fd, "data", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    check(chunk_io_open(fd, &site->live, &site->log, &site->io, &err), &err);
    check(chunk_io_begin(&site->io, &err), &err);
}

struct absent {
    uint32_t next;
    uint32_t end;
};

static int give_absent(void *arg, struct map_record *ret)
{
    struct absent *absent = arg;
    if (absent->next == absent->end)
        return 0;
    *ret = (struct map_record){.chunk = absent->next++, .state = VOLUME_ABSENT};
    return 1;
}

static void make(struct chunk_site *site, struct scratch *scratch, int dir_fd, uint64_t size,
                 struct absent absent)
{
    *site = (struct chunk_site){.scratch = scratch, .size = size, .dir_fd = dir_fd};
    memcpy(site->uuid, "0123456789abcde", sizeof site->uuid);
    cleanup_fd int fd = openat(dir_fd, "data", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    struct err err = ERR_INIT;
    check(map_log_create(dir_fd, site->uuid, size, true, give_absent, &absent, &err), &err);
    load(site);
    assert_true(site->was_closed);
    chunk_site_start(site);
}

void chunk_site_make(struct chunk_site *site, struct scratch *scratch, uint64_t size)
{
    make(site, scratch, scratch->fd, size, (struct absent){0});
}

void chunk_site_make_in(struct chunk_site *site, struct scratch *scratch, int dir_fd, uint64_t size)
{
    make(site, scratch, dir_fd, size, (struct absent){0});
}

void chunk_site_make_absent(struct chunk_site *site, struct scratch *scratch, int dir_fd,
                            uint64_t size, uint32_t first, uint32_t count)
{
    make(site, scratch, dir_fd, size, (struct absent){first, first + count});
}

void chunk_site_kill(struct chunk_site *site)
{
    chunk_io_close(&site->io);
    map_log_close(&site->log);
    live_map_close(&site->live);
}

void chunk_site_restart(struct chunk_site *site)
{
    chunk_site_kill(site);
    chunk_site_start(site);
}

void chunk_site_power_cut(struct chunk_site *site)
{
    chunk_site_kill(site);
    (void)close(site->live_fd);
    load(site);
    chunk_site_start(site);
}

void chunk_site_leave(struct chunk_site *site)
{
    chunk_site_kill(site);
    (void)close(site->live_fd);
}

void *chunk_site_buffer(size_t count)
{
    void *buffer = aligned_alloc(VOLUME_BLOCK, count * VOLUME_BLOCK);
    assert_non_null(buffer);
    memset(buffer, 0xEE, count * VOLUME_BLOCK);
    return buffer;
}

int chunk_site_setup(void **state)
{
    if (scratch_setup(state) != 0)
        return -1;
    struct volume *volume = calloc(1, sizeof *volume);
    assert_non_null(volume);
    chunk_site_make(&volume->site, *state, VOLUME_SIZE_MIN);
    volume->buffer = chunk_site_buffer(CHUNK_SITE_BUFFER_BLOCKS);
    *state = volume;
    return 0;
}

int chunk_site_teardown(void **state)
{
    struct volume *volume = *state;
    chunk_site_leave(&volume->site);
    *state = volume->site.scratch;
    free(volume->buffer);
    free(volume);
    return scratch_teardown(state);
}

int put(struct volume *volume, int byte, uint64_t len, uint64_t offset)
{
    memset(volume->buffer, byte, len);
    return chunk_io_write(&volume->site.io, volume->buffer, len, offset);
}

void assert_bytes(struct volume *volume, int byte, uint64_t len, uint64_t offset)
{
    memset(volume->buffer, 0xEE, len);
    assert_int_equal(chunk_io_read(&volume->site.io, volume->buffer, len, offset), 0);
    for (uint64_t i = 0; i < len; i++) {
        if (volume->buffer[i] != (uint8_t)byte)
            fail_msg("byte %llu is 0x%02x, not 0x%02x", (unsigned long long)(offset + i),
                     volume->buffer[i], (unsigned)byte);
    }
}
