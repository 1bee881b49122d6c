#include "cleanup.h"
#include "long_counts.h"
#include "worker_rig.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Threads write, discard, read back and flush, each in a part of the device of its own, while
 * workers are killed. Every byte of every answered request is checked. */

enum {
    WRITERS = 4,
    PART_BLOCKS = 1024, /* 4 MiB */
    RUN_BLOCKS_MAX = 32,
};

struct writer {
    const struct worker_rig *rig;
    int fd;
    unsigned number;
    atomic_bool *stop;
    atomic_ulong *steps;
    uint32_t content[PART_BLOCKS]; /* what each block holds: 0 zeros, else the seed */
    uint32_t random;
    char failure[200]; /* "" */
};

static uint32_t next_random(struct writer *writer)
{
    writer->random = writer->random * 1664525u + 1013904223u;
    return writer->random >> 8;
}

static void fill(char *block, uint32_t seed)
{
    uint32_t x = seed;
    for (size_t i = 0; i < VOLUME_BLOCK; i += sizeof x) {
        x = seed == 0 ? 0 : x * 1664525u + 1013904223u;
        memcpy(block + i, &x, sizeof x);
    }
}

static void failed(struct writer *writer, const char *what, size_t block, long result)
{
    if (writer->failure[0] == '\0')
        snprintf(writer->failure, sizeof writer->failure, "writer %u: %s at block %zu: %ld, %s",
                 writer->number, what, block, result, strerror(errno));
}

static off_t place(const struct writer *writer, size_t block)
{
    return (off_t)((writer->number * (size_t)PART_BLOCKS + block) * VOLUME_BLOCK);
}

static void check(struct writer *writer, char *bytes, size_t first, size_t count)
{
    char wanted[VOLUME_BLOCK];
    const size_t len = count * VOLUME_BLOCK;
    ssize_t n = pread(writer->fd, bytes, len, place(writer, first));
    if (n != (ssize_t)len) {
        failed(writer, "read", first, n);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        fill(wanted, writer->content[first + i]);
        if (memcmp(wanted, bytes + i * VOLUME_BLOCK, VOLUME_BLOCK) != 0)
            failed(writer, "other bytes", first + i, 0);
    }
}

static void change(struct writer *writer, char *bytes, size_t first, size_t count)
{
    const size_t len = count * VOLUME_BLOCK;
    for (size_t i = 0; i < count; i++) {
        writer->content[first + i] = next_random(writer) | 1;
        fill(bytes + i * VOLUME_BLOCK, writer->content[first + i]);
    }
    ssize_t n = pwrite(writer->fd, bytes, len, place(writer, first));
    if (n != (ssize_t)len)
        failed(writer, "write", first, n);
}

static void discard(struct writer *writer, size_t first, size_t count)
{
    memset(writer->content + first, 0, count * sizeof writer->content[0]);
    int rc = fallocate(writer->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place(writer, first),
                       (off_t)(count * VOLUME_BLOCK));
    if (rc != 0)
        failed(writer, "discard", first, rc);
}

static void *work(void *arg)
{
    struct writer *writer = arg;
    char *bytes = worker_rig_bytes((size_t)RUN_BLOCKS_MAX * VOLUME_BLOCK, 1);
    while (!atomic_load(writer->stop) && writer->failure[0] == '\0') {
        size_t count = 1 + next_random(writer) % RUN_BLOCKS_MAX;
        size_t first = next_random(writer) % (PART_BLOCKS - count);
        switch (next_random(writer) % 16) {
        case 0:
            if (fdatasync(writer->fd) != 0)
                failed(writer, "flush", 0, -1);
            break;
        case 1:
            discard(writer, first, count);
            break;
        case 2:
        case 3:
        case 4:
        case 5:
        case 6:
        case 7:
            check(writer, bytes, first, count);
            break;
        default:
            change(writer, bytes, first, count);
            break;
        }
        atomic_fetch_add(writer->steps, 1);
    }
    free(bytes);
    return NULL;
}

struct crew {
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    atomic_bool stop;
    atomic_ulong steps;
};

static struct crew *crew_begin(const struct worker_rig *rig)
{
    struct crew *crew = calloc(1, sizeof *crew);
    assert_non_null(crew);
    for (unsigned i = 0; i < WRITERS; i++) {
        struct writer *writer = &crew->writers[i];
        *writer = (struct writer){.rig = rig,
                                  .number = i,
                                  .stop = &crew->stop,
                                  .steps = &crew->steps,
                                  .random = 77 + i,
                                  .fd = worker_rig_open(rig)};
        assert_int_equal(pthread_create(&crew->threads[i], NULL, work, writer), 0);
    }
    return crew;
}

/* Ends the threads, reads everything once more. */
static void crew_end(struct crew *crew)
{
    char *bytes = worker_rig_bytes((size_t)RUN_BLOCKS_MAX * VOLUME_BLOCK, 1);
    atomic_store(&crew->stop, true);
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_join(crew->threads[i], NULL), 0);
    for (unsigned i = 0; i < WRITERS; i++) {
        struct writer *writer = &crew->writers[i];
        for (size_t at = 0; at < PART_BLOCKS; at += RUN_BLOCKS_MAX)
            check(writer, bytes, at, RUN_BLOCKS_MAX);
        (void)close(writer->fd);
        if (writer->failure[0] != '\0')
            fail_msg("%s", writer->failure);
    }
    free(bytes);
    free(crew);
}

static void pause_us(long us)
{
    const struct timespec ts = {.tv_nsec = us * 1000};
    (void)nanosleep(&ts, NULL);
}

static void random_kills_lose_nothing(void **state)
{
    struct worker_rig *rig = *state;
    const int kills = long_counts() ? 1000 : 60;
    worker_rig_serve(rig, NULL);
    struct crew *crew = crew_begin(rig);
    for (int i = 0; i < kills; i++) {
        pause_us(5000 + (i * 7919L) % 40000);
        worker_rig_kill(rig);
        worker_rig_serve(rig, NULL);
    }
    unsigned long before = atomic_load(&crew->steps);
    pause_us(300000);
    assert_true(atomic_load(&crew->steps) > before);
    crew_end(crew);
    assert_int_equal(atomic_load(&rig->live.header->starts), kills + 1);
}

static void it_grows_under_load(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    struct crew *crew = crew_begin(rig);
    for (uint64_t i = 2; i < 12; i++) {
        const uint64_t size = i * WORKER_RIG_SIZE;
        assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_RESIZE, size, NULL), 0);
        assert_int_equal(atomic_load(&rig->live.header->size), size);
        pause_us(20000);
        if (i % 3 == 0) {
            worker_rig_kill(rig);
            worker_rig_serve(rig, NULL);
        }
    }
    crew_end(crew);
}

#ifdef VARVE_FAULT_POINTS

static const char *const request_points[] = {
    "volume.request-read", "volume.request-done", "volume.before-reply",      "volume.data-written",
    "volume.state-set",    "volume.collected",    "volume.discard-state-set", "volume.data-synced",
    "volume.map-written",  "volume.map-synced",   "volume.session-asked",
};

/* Each hit of a point kills; the next worker runs without. */
static void kills_at_points_lose_nothing(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    struct crew *crew = crew_begin(rig);
    for (size_t point = 0; point < ARRAY_SIZE(request_points); point++) {
        /* What comes once in the life of a worker is the last. */
        const int most = point + 1 == ARRAY_SIZE(request_points) ? 1 : long_counts() ? 40 : 8;
        for (int hit = 1; hit <= most; hit = hit * 2 + 1) {
            char fault[128];
            snprintf(fault, sizeof fault, "VARVE_FAULT=%s=kill:%d", request_points[point], hit);
            worker_rig_kill(rig);
            worker_rig_start(rig, fault);
            int status = worker_rig_wait(rig, 20000);
            if (status != 128 + 9)
                fail_msg("%s: %d", fault, status);
            worker_rig_serve(rig, NULL);
        }
    }
    crew_end(crew);
}

/* The final cut is cut; a successor is asked again. */
static void a_close_can_be_repeated(void **state)
{
    static const char *const points[] = {"volume.collected",        "volume.data-synced",
                                         "publish.before-sync",     "publish.before-rename",
                                         "publish.before-dir-sync", "volume.control-done"};
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        struct worker_rig *rig = *state;
        char fault[128];
        snprintf(fault, sizeof fault, "VARVE_FAULT=%s=kill", points[i]);
        worker_rig_serve(rig, NULL);
        int fd = worker_rig_open(rig);
        char *bytes = worker_rig_bytes(VOLUME_CHUNK, 9);
        assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 3 * VOLUME_CHUNK), VOLUME_CHUNK);
        (void)close(fd);
        for (int t = 0; t < 3000 && atomic_load(&rig->live.header->opens) != 0; t++)
            pause_us(1000);
        worker_rig_kill(rig);
        worker_rig_serve(rig, fault);
        worker_rig_tell(rig, VOLUME_WIRE_CLOSE);
        assert_int_equal(worker_rig_wait(rig, 10000), 128 + 9);
        worker_rig_serve(rig, NULL);
        assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), 0);
        assert_true(atomic_load(&rig->live.header->facts) & LIVE_FACT_CLOSED);
        fd = worker_rig_open(rig);
        char *back = worker_rig_bytes(VOLUME_CHUNK, 10);
        assert_int_equal(pread(fd, back, VOLUME_CHUNK, 3 * VOLUME_CHUNK), VOLUME_CHUNK);
        assert_memory_equal(back, bytes, VOLUME_CHUNK);
        (void)close(fd);
        free(bytes);
        free(back);
        assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_STOP, 0, NULL), 0);
        assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_STOPPED);
        assert_int_equal(worker_rig_teardown(state), 0);
        assert_int_equal(worker_rig_setup(state), 0);
    }
}

static const char *const init_points[] = {
    "volume.init-read",     "volume.init-recorded", "volume.init-replayed",
    "volume.init-answered", "volume.init-sent",
};

/* The kernel's INIT, cut at each step by as many workers as there are. */
static void kills_in_init_lose_nothing(void **state)
{
    struct worker_rig *rig = *state;
    for (size_t i = 0; i < ARRAY_SIZE(init_points); i++) {
        char fault[128];
        snprintf(fault, sizeof fault, "VARVE_FAULT=%s=kill", init_points[i]);
        worker_rig_start(rig, fault);
        /* The last one begins with the reply recorded and does not come to its point. */
        int status = worker_rig_wait(rig, i + 1 < ARRAY_SIZE(init_points) ? 10000 : 500);
        assert_int_equal(status, i + 1 < ARRAY_SIZE(init_points) ? 128 + 9 : -1);
        worker_rig_kill(rig);
    }
    worker_rig_serve(rig, NULL);
    cleanup_fd int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 5);
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
}

/* One point alone, then a successor. */
static void each_step_of_init_can_be_the_last(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(init_points); i++) {
        struct worker_rig *rig = *state;
        char fault[128];
        snprintf(fault, sizeof fault, "VARVE_FAULT=%s=kill", init_points[i]);
        worker_rig_start(rig, fault);
        assert_int_equal(worker_rig_wait(rig, 10000), 128 + 9);
        worker_rig_serve(rig, NULL);
        int fd = worker_rig_open(rig);
        char *bytes = worker_rig_bytes(VOLUME_CHUNK, 5);
        assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
        free(bytes);
        (void)close(fd);
        assert_int_equal(worker_rig_teardown(state), 0);
        assert_int_equal(worker_rig_setup(state), 0);
    }
}

static void opens_are_counted_once(void **state)
{
    static const char *const points[] = {"volume.open-noted", "volume.open-counted",
                                         "volume.open-answered"};
    struct worker_rig *rig = *state;
    struct live_map_header *header = rig->live.header;
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[128];
        snprintf(fault, sizeof fault, "VARVE_FAULT=%s=kill:%d", points[i], 1);
        worker_rig_kill(rig);
        worker_rig_serve(rig, fault);
        pid_t opener = fork();
        assert_true(opener >= 0);
        if (opener == 0) {
            int fd = open(rig->device, O_RDWR | O_CLOEXEC);
            _exit(fd >= 0 && close(fd) == 0 ? 0 : 1);
        }
        assert_int_equal(worker_rig_wait(rig, 10000), 128 + 9);
        worker_rig_serve(rig, NULL);
        int status = 0;
        assert_int_equal(waitpid(opener, &status, 0), opener);
        assert_int_equal(status, 0);
        for (int t = 0; t < 3000 && atomic_load(&header->opens) != 0; t++)
            pause_us(1000);
        assert_int_equal(atomic_load(&header->opens), 0);
        /* And the RELEASE. */
        int fd = worker_rig_open(rig);
        assert_int_equal(atomic_load(&header->opens), 1);
        worker_rig_kill(rig);
        worker_rig_serve(rig, fault);
        (void)close(fd);
        assert_int_equal(worker_rig_wait(rig, 10000), 128 + 9);
        worker_rig_serve(rig, NULL);
        for (int t = 0; t < 3000 && atomic_load(&header->opens) != 0; t++)
            pause_us(1000);
        assert_int_equal(atomic_load(&header->opens), 0);
        assert_false(atomic_load(&header->facts) & LIVE_FACT_OPEN);
    }
}

static void a_kernel_that_cannot_resend_is_refused(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, "VARVE_VOLUME_RESEND=off");
    assert_false(atomic_load(&rig->live.header->facts) & LIVE_FACT_RESENDS);
    worker_rig_kill(rig);
    worker_rig_start(rig, "VARVE_VOLUME_RESEND=off");
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_REFUSED);
    assert_non_null(strstr(rig->live.header->text, "6.9"));
}

#endif

static void another_init_reply_is_refused(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    worker_rig_kill(rig);
    rig->live.header->init_reply[20] ^= 1;
    worker_rig_start(rig, NULL);
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_REFUSED);
    assert_non_null(strstr(rig->live.header->text, "FUSE_INIT"));
    rig->live.header->init_reply[20] ^= 1;
    worker_rig_serve(rig, NULL);
    assert_string_equal(rig->live.header->text, "");
}

int main(void)
{
#define RIG(f) cmocka_unit_test_setup_teardown(f, worker_rig_setup, worker_rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG(random_kills_lose_nothing),     RIG(it_grows_under_load),
        RIG(another_init_reply_is_refused),
#ifdef VARVE_FAULT_POINTS
        RIG(kills_at_points_lose_nothing),  RIG(a_close_can_be_repeated),
        RIG(kills_in_init_lose_nothing),    RIG(each_step_of_init_can_be_the_last),
        RIG(opens_are_counted_once),        RIG(a_kernel_that_cannot_resend_is_refused),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
