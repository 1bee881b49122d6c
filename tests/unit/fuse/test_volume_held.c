#include "cleanup.h"
#include "live_map_load.h"
#include "map_log.h"
#include "worker_rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A volume on a file system that is full: writes wait, reads go on. */

enum {
    DISK_BYTES = 8 << 20,
    WRITERS = 64, /* as many requests as the loop device may have under way */
    WAIT_MS = 20000,
};

struct writer {
    pthread_t thread;
    int fd;
    off_t offset;
    void *bytes;
    ssize_t result;
    int error;
};

static int setup(void **state)
{
    void *scratch = NULL;
    struct worker_rig *rig = calloc(1, sizeof *rig);
    if (!rig || scratch_setup(&scratch) != 0)
        return -1;
    rig->scratch = scratch;
    scratch_tmpfs(rig->scratch, "disk", DISK_BYTES);
    char directory[128];
    snprintf(directory, sizeof directory, "%s/volume", scratch_path(rig->scratch, "disk"));
    if (mkdir(directory, 0700) < 0)
        return -1;
    worker_rig_make(rig, directory, WORKER_RIG_SIZE);
    *state = rig;
    return 0;
}

static void pause_ms(int ms)
{
    const struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&ts, NULL);
}

static const char *ballast(const struct worker_rig *rig)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/ballast", scratch_path(rig->scratch, "disk"));
    return path;
}

static void fill_disk(const struct worker_rig *rig)
{
    static const char block[VOLUME_BLOCK] = {1};
    cleanup_fd int fd = open(ballast(rig), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, block, sizeof block) == (ssize_t)sizeof block)
        ;
    assert_int_equal(errno, ENOSPC);
}

static void *write_one(void *arg)
{
    struct writer *writer = arg;
    writer->result = pwrite(writer->fd, writer->bytes, VOLUME_CHUNK, writer->offset);
    writer->error = errno;
    return NULL;
}

static void *read_one(void *arg)
{
    struct writer *reader = arg;
    reader->result = pread(reader->fd, reader->bytes, VOLUME_CHUNK, reader->offset);
    reader->error = errno;
    return NULL;
}

static void begin(struct writer *writers, size_t count, int fd)
{
    for (size_t i = 0; i < count; i++) {
        writers[i] = (struct writer){.fd = fd,
                                     .offset = (off_t)(i + 16) * VOLUME_CHUNK,
                                     .bytes = worker_rig_bytes(VOLUME_CHUNK, (unsigned)i)};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_one, &writers[i]), 0);
    }
}

static void end(struct writer *writers, size_t count, ssize_t result, int error)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
        assert_int_equal(writers[i].result, result);
        if (result < 0)
            assert_int_equal(writers[i].error, error);
        free(writers[i].bytes);
    }
}

static void await_held(const struct worker_rig *rig, uint64_t count)
{
    for (int i = 0; i < WAIT_MS && atomic_load(&rig->live.header->held) != count; i++)
        pause_ms(1);
    assert_int_equal(atomic_load(&rig->live.header->held), count);
}

/* Serves, writes one chunk, fills the disk, and makes `count` writes wait. */
static int hold(struct worker_rig *rig, struct writer *writers, size_t count)
{
    worker_rig_serve(rig, NULL);
    int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 99);
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
    assert_int_equal(fdatasync(fd), 0);
    fill_disk(rig);
    begin(writers, count, fd);
    await_held(rig, count);
    assert_true(atomic_load(&rig->live.header->held_since_ns) > 0);
    return fd;
}

static void look_at_reads(int fd)
{
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 99);
    cleanup_free char *back = worker_rig_bytes(VOLUME_CHUNK, 98);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pread(fd, back, VOLUME_CHUNK, 0), VOLUME_CHUNK);
        assert_memory_equal(back, bytes, VOLUME_CHUNK);
    }
}

static void reads_go_on_and_writes_wait(void **state)
{
    struct worker_rig *rig = *state;
    struct writer writers[WRITERS];
    int fd = hold(rig, writers, WRITERS);
    look_at_reads(fd);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
    assert_int_equal(unlink(ballast(rig)), 0);
    end(writers, WRITERS, VOLUME_CHUNK, 0);
    assert_int_equal(atomic_load(&rig->live.header->held), 0);
    assert_int_equal(atomic_load(&rig->live.header->held_since_ns), 0);
    cleanup_free char *back = worker_rig_bytes(VOLUME_CHUNK, 98);
    for (size_t i = 0; i < WRITERS; i++) {
        cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, (unsigned)i);
        assert_int_equal(pread(fd, back, VOLUME_CHUNK, (off_t)(i + 16) * VOLUME_CHUNK),
                         VOLUME_CHUNK);
        assert_memory_equal(back, bytes, VOLUME_CHUNK);
    }
    (void)close(fd);
}

static void held_writes_outlive_a_worker(void **state)
{
    struct worker_rig *rig = *state;
    struct writer writers[WRITERS];
    int fd = hold(rig, writers, WRITERS);
    worker_rig_kill(rig);
    worker_rig_serve(rig, NULL);
    await_held(rig, WRITERS);
    look_at_reads(fd);
    assert_int_equal(unlink(ballast(rig)), 0);
    end(writers, WRITERS, VOLUME_CHUNK, 0);
    (void)close(fd);
}

static void fencing_ends_the_wait(void **state)
{
    struct worker_rig *rig = *state;
    struct writer writers[WRITERS];
    int fd = hold(rig, writers, WRITERS);
    atomic_fetch_or(&rig->live.header->orders, LIVE_ORDER_FENCED);
    end(writers, WRITERS, -1, EIO);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 5);
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 0), -1);
    assert_int_equal(errno, EIO);
    look_at_reads(fd);
    (void)close(fd);
}

static void a_forced_stop_ends_the_wait(void **state)
{
    struct worker_rig *rig = *state;
    struct writer writers[WRITERS];
    int fd = hold(rig, writers, WRITERS);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_STOP, 1, NULL), 0);
    end(writers, WRITERS, -1, EIO);
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_STOPPED);
    (void)close(fd);
}

struct flusher {
    pthread_t thread;
    int fd;
    int result, error;
    _Atomic bool done;
};

static void *flush_one(void *arg)
{
    struct flusher *flusher = arg;
    flusher->result = fdatasync(flusher->fd);
    flusher->error = errno;
    atomic_store(&flusher->done, true);
    return NULL;
}

/* Writes a chunk and fills the disk when the map's log has no block left that its flush could be
 * written to, then flushes. */
static int hold_a_flush(struct worker_rig *rig, struct flusher *flusher)
{
    worker_rig_serve(rig, NULL);
    int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 99);
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
    assert_int_equal(fdatasync(fd), 0);
    for (uint64_t i = 0; atomic_load(&rig->live.header->map_blocks) % MAP_LOG_AHEAD != 0; i++) {
        assert_true(i < 2 * (uint64_t)MAP_LOG_AHEAD);
        if (i % 2 == 0)
            assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, VOLUME_CHUNK), VOLUME_CHUNK);
        else
            assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, VOLUME_CHUNK,
                                       VOLUME_CHUNK),
                             0);
        assert_int_equal(fdatasync(fd), 0);
    }
    cleanup_free char *last = worker_rig_bytes(VOLUME_CHUNK, 7);
    assert_int_equal(pwrite(fd, last, VOLUME_CHUNK, (off_t)2 * VOLUME_CHUNK), VOLUME_CHUNK);
    fill_disk(rig);
    *flusher = (struct flusher){.fd = fd};
    assert_int_equal(pthread_create(&flusher->thread, NULL, flush_one, flusher), 0);
    await_held(rig, 1);
    return fd;
}

/* What a power cut would leave of a chunk. */
static enum volume_state state_on_disk(const struct worker_rig *rig, uint64_t chunk)
{
    struct live_map_loaded loaded;
    struct live_map live;
    struct err err = ERR_INIT;
    cleanup_fd int dir = open(rig->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct live_map_header *header = rig->live.header;
    if (live_map_load(dir, WORKER_RIG_ID, header->uuid, WORKER_RIG_SIZE, &loaded, &err) < 0)
        fail_msg("%s", err.text);
    cleanup_fd int fd = loaded.fd;
    assert_int_equal(live_map_open(fd, false, &live, NULL), 0);
    enum volume_state state = live_word_state(atomic_load(&live.words[chunk]));
    live_map_close(&live);
    return state;
}

/* A flush that finds no room for its records is not answered either, and no read waits for it. */
static void a_flush_waits_for_room(void **state)
{
    struct worker_rig *rig = *state;
    struct flusher flusher;
    int fd = hold_a_flush(rig, &flusher);
    look_at_reads(fd);
    assert_true(atomic_load(&rig->live.header->held_since_ns) > 0);
    assert_int_equal(state_on_disk(rig, 2), VOLUME_ZERO);
    worker_rig_kill(rig);
    worker_rig_serve(rig, NULL);
    await_held(rig, 1); /* sent again, and no more possible than before */
    assert_false(atomic_load(&flusher.done));
    assert_int_equal(unlink(ballast(rig)), 0);
    assert_int_equal(pthread_join(flusher.thread, NULL), 0);
    assert_int_equal(flusher.result, 0);
    assert_int_equal(state_on_disk(rig, 2), VOLUME_CHANGED);
    assert_int_equal(atomic_load(&rig->live.header->held), 0);
    (void)close(fd);
}

static void fencing_ends_a_flush(void **state)
{
    struct worker_rig *rig = *state;
    struct flusher flusher;
    int fd = hold_a_flush(rig, &flusher);
    atomic_fetch_or(&rig->live.header->orders, LIVE_ORDER_FENCED);
    assert_int_equal(pthread_join(flusher.thread, NULL), 0);
    assert_int_equal(flusher.result, -1);
    assert_int_equal(flusher.error, EIO);
    assert_int_equal(atomic_load(&rig->live.header->facts) & LIVE_FACT_FAILED, 0);
    look_at_reads(fd);
    /* Given room, what was answered before is on disk at the end. */
    assert_int_equal(unlink(ballast(rig)), 0);
    (void)close(fd);
    for (int i = 0; i < WAIT_MS && atomic_load(&rig->live.header->opens) > 0; i++)
        pause_ms(1);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), 0);
    assert_int_equal(state_on_disk(rig, 2), VOLUME_CHANGED);
}

/* More writers than there are buffers: some threads wait themselves, nothing is lost. */
static void more_than_there_are_buffers(void **state)
{
    enum {
        MANY = 96
    };
    struct worker_rig *rig = *state;
    struct writer writers[MANY];
    worker_rig_serve(rig, NULL);
    int fd = worker_rig_open(rig);
    fill_disk(rig);
    begin(writers, MANY, fd);
    for (int i = 0; i < 5000 && atomic_load(&rig->live.header->held) < 68; i++)
        pause_ms(1);
    pause_ms(500);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
    assert_int_equal(unlink(ballast(rig)), 0);
    end(writers, MANY, VOLUME_CHUNK, 0);
    (void)close(fd);
}

/* Nothing makes absent chunks yet, so the test does. */
static void absent_blocks_are_waited_for(void **state)
{
    struct worker_rig *rig = *state;
    atomic_store(&rig->live.words[16], live_word(VOLUME_ABSENT, 0));
    worker_rig_serve(rig, NULL);
    int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 99);
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
    struct writer reader = {.fd = fd, .offset = (off_t)16 * VOLUME_CHUNK};
    reader.bytes = worker_rig_bytes(VOLUME_CHUNK, 1);
    assert_int_equal(pthread_create(&reader.thread, NULL, read_one, &reader), 0);
    for (int i = 0; i < WAIT_MS && atomic_load(&rig->live.header->absent) != 1; i++)
        pause_ms(1);
    assert_int_equal(atomic_load(&rig->live.header->absent), 1);
    look_at_reads(fd);
    /* Its bytes come by another way. */
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, reader.offset), VOLUME_CHUNK);
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    assert_int_equal(reader.result, VOLUME_CHUNK);
    assert_memory_equal(reader.bytes, bytes, VOLUME_CHUNK);
    assert_int_equal(atomic_load(&rig->live.header->absent), 0);
    free(reader.bytes);
    (void)close(fd);
}

static double seconds(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void limits_are_kept(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    cleanup_fd int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 5);
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
    atomic_store(&rig->live.header->limit_bytes, (uint64_t)2 << 20);
    double before = seconds();
    for (int i = 0; i < 32; i++) /* 2 MiB */
        assert_int_equal(pread(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
    double took = seconds() - before;
    assert_true(took > 0.7);
    assert_true(took < 10);
    /* A raised limit counts at once for what waits. */
    atomic_store(&rig->live.header->limit_bytes, 4096);
    assert_int_equal(pread(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
    struct writer writer;
    begin(&writer, 1, fd);
    pause_ms(300);
    atomic_store(&rig->live.header->limit_bytes, 0);
    before = seconds();
    end(&writer, 1, VOLUME_CHUNK, 0);
    assert_true(seconds() - before < 5);
}

int main(void)
{
#define RIG(f) cmocka_unit_test_setup_teardown(f, setup, worker_rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG(reads_go_on_and_writes_wait),
        RIG(held_writes_outlive_a_worker),
        RIG(fencing_ends_the_wait),
        RIG(a_forced_stop_ends_the_wait),
        RIG(a_flush_waits_for_room),
        RIG(fencing_ends_a_flush),
        RIG(more_than_there_are_buffers),
        RIG(absent_blocks_are_waited_for),
        RIG(limits_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
