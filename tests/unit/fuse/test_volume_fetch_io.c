#include "cleanup.h"
#include "clock.h"
#include "epochs.h"
#include "fd_pass.h"
#include "worker_rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A real worker of a volume with absent chunks, and a test that brings them. */

enum {
    C = VOLUME_CHUNK,
    K = 1024,
    ABSENT = 16, /* the first absent chunk */
    ABSENT_CHUNKS = 64,
    DISK_BYTES = 8 << 20,
    WAIT_MS = 20000,
    QUIET_MS = 300, /* longer than a read is left alone by itself */
};

static void pause_ms(int ms)
{
    const struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&ts, NULL);
}

static void make_absent(struct worker_rig *rig)
{
    for (uint64_t i = ABSENT; i < ABSENT + ABSENT_CHUNKS; i++)
        atomic_store(&rig->live.words[i], live_word(VOLUME_ABSENT, 0));
}

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
    make_absent(rig);
    *state = rig;
    return 0;
}

struct reader {
    pthread_t thread;
    int fd;
    uint64_t offset;
    size_t len;
    char *bytes;
    ssize_t result;
    atomic_bool ended;
};

static void *read_one(void *arg)
{
    struct reader *reader = arg;
    reader->result = pread(reader->fd, reader->bytes, reader->len, (off_t)reader->offset);
    atomic_store(&reader->ended, true);
    return NULL;
}

static void begin(struct reader *reader, int fd, uint64_t offset, size_t len)
{
    *reader = (struct reader){.fd = fd, .offset = offset, .len = len};
    reader->bytes = worker_rig_bytes(len, 1);
    assert_int_equal(pthread_create(&reader->thread, NULL, read_one, reader), 0);
}

static void end(struct reader *reader, int byte)
{
    assert_int_equal(pthread_join(reader->thread, NULL), 0);
    assert_int_equal(reader->result, (ssize_t)reader->len);
    for (size_t i = 0; byte >= 0 && i < reader->len; i++)
        assert_int_equal(reader->bytes[i], byte);
    free(reader->bytes);
}

static void await_absent(const struct worker_rig *rig, uint64_t count)
{
    for (int i = 0; i < WAIT_MS && atomic_load(&rig->live.header->absent) != count; i++)
        pause_ms(1);
    assert_int_equal(atomic_load(&rig->live.header->absent), count);
}

static enum volume_state state_of(const struct worker_rig *rig, uint64_t chunk)
{
    return live_word_state(atomic_load(&rig->live.words[chunk]));
}

static void expect_want(int fd, uint64_t first, uint64_t count)
{
    struct volume_wire message;
    assert_true(worker_rig_hear(fd, WAIT_MS, &message));
    assert_int_equal(message.op, VOLUME_WIRE_WANT);
    assert_int_equal(message.arg[0], first);
    assert_int_equal(message.arg[1], count);
}

static void expect_answer(int fd, uint64_t chunk, int status)
{
    struct volume_wire message;
    assert_true(worker_rig_hear(fd, WAIT_MS, &message));
    assert_int_equal(message.op, VOLUME_WIRE_FILL);
    assert_int_equal(message.status, status);
    assert_int_equal(message.arg[0], chunk);
    assert_int_equal(message.text[0] != '\0', status < 0);
}

static void expect_end(int fd)
{
    struct volume_wire message;
    assert_true(worker_rig_hear(fd, WAIT_MS, &message));
    assert_int_equal(message.op, 0);
}

static void expect_nothing(int fd)
{
    struct volume_wire message;
    assert_false(worker_rig_hear(fd, QUIET_MS, &message));
}

static void bring(int fd, uint64_t chunk, int byte)
{
    static char bytes[C];
    memset(bytes, byte, sizeof bytes);
    worker_rig_bring(fd, chunk, bytes);
}

static void a_read_is_told_of_once_and_goes_on_at_once(void **state)
{
    struct worker_rig *rig = *state;
    struct reader reader;
    worker_rig_serve(rig, NULL);
    cleanup_fd int device = worker_rig_open(rig);
    cleanup_fd int fd = worker_rig_fetch(rig);
    int64_t took = 0;
    for (uint64_t i = 0; i < 20; i++) {
        begin(&reader, device, (ABSENT + i) * C + 4 * K, 8 * K);
        expect_want(fd, ABSENT + i, 1);
        if (i == 0)
            expect_nothing(fd);
        assert_false(atomic_load(&reader.ended));
        int64_t before = clock_now_ms();
        bring(fd, ABSENT + i, 'r');
        expect_answer(fd, ABSENT + i, 0);
        end(&reader, 'r');
        took += clock_now_ms() - before;
        assert_int_equal(state_of(rig, ABSENT + i), VOLUME_CLEAN);
    }
    assert_true(took < 20 * 100); /* by itself each would be tried again after 200 ms */
    assert_int_equal(atomic_load(&rig->live.header->absent_chunks), ABSENT_CHUNKS - 20);
    /* Zero ones; and nobody has asked for this. */
    worker_rig_bring(fd, ABSENT + 30, NULL);
    expect_answer(fd, ABSENT + 30, 0);
    begin(&reader, device, (ABSENT + 30) * C, C);
    end(&reader, 0);
    expect_nothing(fd);
}

static void only_what_is_absent_is_asked_for(void **state)
{
    struct worker_rig *rig = *state;
    struct reader reader;
    worker_rig_serve(rig, NULL);
    cleanup_fd int device = worker_rig_open(rig);
    cleanup_fd int fd = worker_rig_fetch(rig);
    cleanup_free char *bytes = worker_rig_bytes(C, 5);
    memset(bytes, 'w', C);
    /* Over the edge to what is local. */
    begin(&reader, device, (ABSENT - 1) * C, 2 * C);
    expect_want(fd, ABSENT, 1);
    bring(fd, ABSENT, 'r');
    expect_answer(fd, ABSENT, 0);
    end(&reader, -1);
    /* With a hole in the middle: 128 KiB that begin in the middle of a chunk. */
    assert_int_equal(pwrite(device, bytes, C, (off_t)(ABSENT + 11) * C), C);
    begin(&reader, device, (ABSENT + 10) * C + 32 * K, 2 * C);
    expect_want(fd, ABSENT + 10, 1);
    expect_want(fd, ABSENT + 12, 1);
    bring(fd, ABSENT + 12, 'r');
    expect_answer(fd, ABSENT + 12, 0);
    assert_false(atomic_load(&reader.ended));
    bring(fd, ABSENT + 10, 'r');
    expect_answer(fd, ABSENT + 10, 0);
    end(&reader, -1);
    /* Blocks that were written are here. */
    assert_int_equal(pwrite(device, bytes, 8 * K, (off_t)(ABSENT + 20) * C), 8 * K);
    begin(&reader, device, (ABSENT + 20) * C, 8 * K);
    end(&reader, 'w');
    begin(&reader, device, (ABSENT + 20) * C, 12 * K);
    expect_want(fd, ABSENT + 20, 1);
    bring(fd, ABSENT + 20, 'r');
    expect_answer(fd, ABSENT + 20, 0);
    end(&reader, -1);
    assert_int_equal(state_of(rig, ABSENT + 20), VOLUME_CHANGED);
    begin(&reader, device, (ABSENT + 20) * C, 8 * K);
    end(&reader, 'w');
    /* A chunk that is here is not overwritten; one that cannot be is told. */
    bring(fd, ABSENT + 20, 'x');
    expect_answer(fd, ABSENT + 20, 0);
    begin(&reader, device, (ABSENT + 20) * C, 8 * K);
    end(&reader, 'w');
    bring(fd, WORKER_RIG_SIZE / C, 'x');
    expect_answer(fd, WORKER_RIG_SIZE / C, -EINVAL);
    expect_nothing(fd);
}

static void a_new_connection_replaces_the_old_one(void **state)
{
    struct worker_rig *rig = *state;
    struct reader readers[3];
    worker_rig_serve(rig, NULL);
    cleanup_fd int device = worker_rig_open(rig);
    for (uint64_t i = 0; i < 3; i++)
        begin(&readers[i], device, (ABSENT + 2 * i) * C, C);
    await_absent(rig, 3);
    bool told[6] = {false};
    int old = -1;
    for (int round = 0; round < 3; round++) {
        int fd = worker_rig_fetch(rig);
        if (old >= 0) {
            expect_end(old);
            (void)close(old);
        }
        old = fd;
        memset(told, 0, sizeof told);
        for (int i = 0; i < 3; i++) {
            struct volume_wire message;
            assert_true(worker_rig_hear(fd, WAIT_MS, &message));
            assert_int_equal(message.op, VOLUME_WIRE_WANT);
            assert_in_range(message.arg[0], ABSENT, ABSENT + 4);
            told[message.arg[0] - ABSENT] = true;
        }
        assert_true(told[0] && told[2] && told[4]);
        expect_nothing(fd);
    }
    /* What had begun on an old one is nothing any more. */
    for (uint64_t i = 0; i < 3; i++) {
        bring(old, ABSENT + 2 * i, 'r');
        expect_answer(old, ABSENT + 2 * i, 0);
        end(&readers[i], 'r');
    }
    (void)close(old);
    assert_int_equal(atomic_load(&rig->live.header->absent), 0);
}

static void send_raw(int fd, const struct volume_wire *message, size_t len)
{
    assert_int_equal(fd_pass_send(fd, message, len, NULL, 0, true), 0);
}

/* Each ends its connection, and nothing else. */
static void nonsense_harms_nothing(void **state)
{
    struct worker_rig *rig = *state;
    struct reader reader;
    worker_rig_serve(rig, NULL);
    cleanup_fd int device = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(2 * C, 7);
    const struct volume_wire fill = {.magic = VOLUME_WIRE_MAGIC,
                                     .version = VOLUME_WIRE_VERSION,
                                     .op = VOLUME_WIRE_FILL,
                                     .arg = {ABSENT, 1}};
    struct volume_wire bad[6];
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        bad[i] = fill;
    bad[0].magic++;
    bad[1].version++;
    bad[2].op = VOLUME_WIRE_PING;
    bad[3].op = VOLUME_WIRE_WANT;
    bad[4].arg[1] = 2;
    bad[5].status = -EIO;
    begin(&reader, device, (uint64_t)ABSENT * C, C);
    await_absent(rig, 1);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_fd int fd = worker_rig_fetch(rig);
        expect_want(fd, ABSENT, 1);
        send_raw(fd, &bad[i], sizeof bad[i]);
        expect_end(fd);
    }
    static const size_t lens[] = {1, C - 4096, C - 1, C + 1, 2 * C, sizeof fill};
    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        cleanup_fd int fd = worker_rig_fetch(rig);
        expect_want(fd, ABSENT, 1);
        send_raw(fd, &fill, sizeof fill);
        send_raw(fd, (const struct volume_wire *)(void *)bytes, lens[i]);
        expect_end(fd);
    }
    { /* half a message, half a fill */
        cleanup_fd int fd = worker_rig_fetch(rig);
        expect_want(fd, ABSENT, 1);
        send_raw(fd, &fill, sizeof fill - 8);
        expect_end(fd);
        cleanup_fd int other = worker_rig_fetch(rig);
        send_raw(other, &fill, sizeof fill);
    }
    assert_int_equal(state_of(rig, ABSENT), VOLUME_ABSENT);
    assert_false(atomic_load(&reader.ended));
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
    cleanup_fd int fd = worker_rig_fetch(rig);
    expect_want(fd, ABSENT, 1);
    bring(fd, ABSENT, 'r');
    expect_answer(fd, ABSENT, 0);
    end(&reader, 'r');
    assert_int_equal(atomic_load(&rig->live.header->starts), 1);
}

/* What was meant for the volume as it was attached before, perhaps of another checkpoint. */
static void another_life_is_refused(void **state)
{
    struct worker_rig *rig = *state;
    struct reader reader;
    uint64_t number = 0;
    assert_int_equal(live_map_number(rig->live_fd, &number, NULL), 0);
    assert_int_not_equal(number, 0);
    worker_rig_serve(rig, NULL);
    cleanup_fd int device = worker_rig_open(rig);
    cleanup_fd int fd = worker_rig_fetch(rig);
    begin(&reader, device, (uint64_t)ABSENT * C, C);
    expect_want(fd, ABSENT, 1);
    const uint64_t others[] = {number + 1, UINT64_MAX, number | UINT64_C(1) << 63};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct volume_wire message;
        cleanup_fd int other = worker_rig_fetch_for(rig, others[i], -ESTALE);
        bring(other, ABSENT, 'x');
        while (worker_rig_hear(other, WAIT_MS, &message) && message.op != 0)
            assert_true(message.op == VOLUME_WIRE_FILL && message.status == -EOPNOTSUPP);
    }
    assert_int_equal(state_of(rig, ABSENT), VOLUME_ABSENT);
    assert_false(atomic_load(&reader.ended));
    /* The one that was there goes on. */
    bring(fd, ABSENT, 'r');
    expect_answer(fd, ABSENT, 0);
    end(&reader, 'r');
    /* Who does not say, means this one. */
    cleanup_fd int last = worker_rig_fetch_for(rig, 0, 0);
    expect_end(fd);
    bring(last, ABSENT + 1, 'r');
    expect_answer(last, ABSENT + 1, 0);
}

/* Descriptors are not taken. */
static void descriptors_are_refused(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    const struct volume_wire fill = {.magic = VOLUME_WIRE_MAGIC,
                                     .version = VOLUME_WIRE_VERSION,
                                     .op = VOLUME_WIRE_FILL,
                                     .arg = {ABSENT, 0}};
    cleanup_fd int fd = worker_rig_fetch(rig);
    assert_int_equal(fd_pass_send(fd, &fill, sizeof fill, &fd, 1, true), 0);
    expect_end(fd);
    assert_int_equal(state_of(rig, ABSENT), VOLUME_ABSENT);
}

/* One that never reads: what it is told fills its socket, and everybody else goes on. */
static void a_peer_that_does_not_read_holds_nobody_up(void **state)
{
    enum {
        MANY = 60
    };
    struct worker_rig *rig = *state;
    static struct reader readers[MANY];
    worker_rig_serve(rig, NULL);
    cleanup_fd int device = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(C, 3);
    cleanup_fd int deaf = worker_rig_fetch(rig);
    for (uint64_t i = 0; i < MANY; i++)
        begin(&readers[i], device, (ABSENT + i) * C, 4 * K);
    await_absent(rig, MANY);
    int sent = 0;
    const struct volume_wire zero = {.magic = VOLUME_WIRE_MAGIC,
                                     .version = VOLUME_WIRE_VERSION,
                                     .op = VOLUME_WIRE_FILL,
                                     .arg = {0, 0}};
    for (int tries = 0; tries < 50; tries++) { /* answers that nobody takes */
        while (fd_pass_send(deaf, &zero, sizeof zero, NULL, 0, false) == 0)
            sent++;
        pause_ms(2);
    }
    print_message("# %d messages were sent and their answers not read\n", sent);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_FLUSH, 0, NULL), 0);
    assert_int_equal(pwrite(device, bytes, C, 0), C);
    assert_int_equal(pread(device, bytes, C, 0), C);
    cleanup_fd int fd = worker_rig_fetch(rig);
    struct volume_wire message;
    for (int i = 0; i < MANY; i++) {
        assert_true(worker_rig_hear(fd, WAIT_MS, &message));
        assert_int_equal(message.op, VOLUME_WIRE_WANT);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        bring(fd, ABSENT + i, 'r');
        expect_answer(fd, ABSENT + i, 0);
        end(&readers[i], 'r');
    }
}

#ifdef VARVE_FAULT_POINTS
static void a_successor_tells_again(void **state)
{
    static const char *const faults[] = {
        "VARVE_FAULT=volume.fetch-said=kill:1", "VARVE_FAULT=volume.fill-written=kill:1",
        "VARVE_FAULT=volume.fill-set=kill:1", "VARVE_FAULT=volume.fetch-said=kill:2"};
    struct worker_rig *rig = *state;
    struct reader reader;
    int device = -1;
    for (uint64_t i = 0; i < ARRAY_SIZE(faults); i++) {
        worker_rig_serve(rig, faults[i]);
        if (device < 0)
            device = worker_rig_open(rig);
        begin(&reader, device, (ABSENT + i) * C, C);
        await_absent(rig, 1);
        int fd = worker_rig_fetch(rig);
        struct volume_wire message;
        assert_true(worker_rig_hear(fd, WAIT_MS, &message));
        if (message.op == VOLUME_WIRE_WANT)
            bring(fd, ABSENT + i, 'r');
        assert_int_equal(worker_rig_wait(rig, WAIT_MS), 128 + SIGKILL);
        (void)close(fd);
        if (state_of(rig, ABSENT + i) == VOLUME_ABSENT)
            assert_false(atomic_load(&reader.ended));
        worker_rig_serve(rig, NULL);
        fd = worker_rig_fetch(rig);
        if (state_of(rig, ABSENT + i) == VOLUME_ABSENT) {
            expect_want(fd, ABSENT + i, 1);
            bring(fd, ABSENT + i, 'r');
            expect_answer(fd, ABSENT + i, 0);
        }
        end(&reader, 'r');
        (void)close(fd);
        worker_rig_kill(rig);
    }
    worker_rig_serve(rig, NULL);
    (void)close(device);
}
#endif

static const char *ballast(const struct worker_rig *rig)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/ballast", scratch_path(rig->scratch, "disk"));
    return path;
}

static void without_room_a_chunk_stays_absent(void **state)
{
    static const char block[VOLUME_BLOCK] = {1};
    struct worker_rig *rig = *state;
    struct reader reader;
    worker_rig_serve(rig, NULL);
    cleanup_fd int device = worker_rig_open(rig);
    cleanup_fd int fd = worker_rig_fetch(rig);
    cleanup_fd int full = open(ballast(rig), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(full >= 0);
    while (write(full, block, sizeof block) == (ssize_t)sizeof block)
        ;
    begin(&reader, device, (uint64_t)ABSENT * C, C);
    expect_want(fd, ABSENT, 1);
    bring(fd, ABSENT, 'r');
    expect_answer(fd, ABSENT, -ENOSPC);
    assert_int_equal(state_of(rig, ABSENT), VOLUME_ABSENT);
    assert_false(atomic_load(&reader.ended));
    expect_nothing(fd); /* it was told of */
    assert_int_equal(unlink(ballast(rig)), 0);
    assert_int_equal(ftruncate(full, 0), 0);
    bring(fd, ABSENT, 'r');
    expect_answer(fd, ABSENT, 0);
    end(&reader, 'r');
}

/* Cut, resize, flush, close and stop, while reads wait and chunks come. */
static void other_orders_go_on_beside_it(void **state)
{
    struct worker_rig *rig = *state;
    struct reader reader;
    struct volume_wire answer;
    worker_rig_serve(rig, NULL);
    int device = worker_rig_open(rig);
    cleanup_fd int fd = worker_rig_fetch(rig);
    begin(&reader, device, (uint64_t)ABSENT * C, C);
    expect_want(fd, ABSENT, 1);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_FLUSH, 0, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_RESIZE, 2 * WORKER_RIG_SIZE, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, &answer), -EBUSY);
    /* What is brought after a cut is no write, and changes nothing of the epoch. */
    assert_int_equal(
        worker_rig_ask_two(rig, VOLUME_WIRE_CUT, 7, LIVE_USE_CHECKPOINT | LIVE_USE_VIEW, &answer),
        0);
    uint64_t epoch = answer.arg[0];
    bring(fd, ABSENT, 'r');
    expect_answer(fd, ABSENT, 0);
    end(&reader, 'r');
    int slot = epoch_slot_find(rig->live.header, epoch);
    assert_true(slot >= 0);
    assert_int_equal(atomic_load(&rig->live.header->slots[slot].asides), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_RELEASE, epoch, NULL), 0);
    assert_int_equal(close(device), 0);
    for (int i = 0; i < WAIT_MS && atomic_load(&rig->live.header->opens) > 0; i++)
        pause_ms(1);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), 0);
    bring(fd, ABSENT + 1, 'r');
    expect_answer(fd, ABSENT + 1, -EIO);
    assert_int_equal(state_of(rig, ABSENT + 1), VOLUME_ABSENT);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_STOP, 0, NULL), 0);
    expect_end(fd);
    assert_int_equal(worker_rig_wait(rig, WAIT_MS), VOLUME_EXIT_STOPPED);
}

int main(void)
{
#define RIG(f) cmocka_unit_test_setup_teardown(f, setup, worker_rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG(a_read_is_told_of_once_and_goes_on_at_once),
        RIG(only_what_is_absent_is_asked_for),
        RIG(a_new_connection_replaces_the_old_one),
        RIG(nonsense_harms_nothing),
        RIG(another_life_is_refused),
        RIG(descriptors_are_refused),
        RIG(a_peer_that_does_not_read_holds_nobody_up),
#ifdef VARVE_FAULT_POINTS
        RIG(a_successor_tells_again),
#endif
        RIG(without_room_a_chunk_stays_absent),
        RIG(other_orders_go_on_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
