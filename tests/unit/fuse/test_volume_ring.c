#include "volume_ring.h"

#include "cleanup.h"
#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    PIECE = 512,
};

struct results {
    size_t count;
    uintptr_t tokens; /* their sum */
    int last;
};

static void take(void *arg, void *token, int result)
{
    struct results *results = arg;
    results->count++;
    results->tokens += (uintptr_t)token;
    results->last = result;
}

static struct volume_ring *open_ring(void)
{
    struct volume_ring *ring = NULL;
    struct err err = ERR_INIT;
    if (volume_ring_open(&ring, &err) < 0)
        fail_msg("%s", err.text);
    return ring;
}

static void await_all(struct volume_ring *ring, struct results *results)
{
    while (volume_ring_under_way(ring) > 0) {
        if (volume_ring_reap(ring, take, results) == 0)
            volume_ring_wait(ring, -1);
    }
}

static void what_is_written_can_be_read(void **state)
{
    struct scratch *scratch = *state;
    struct volume_ring *ring = open_ring();
    struct results results = {.count = 0};
    char out[PIECE * 8];
    char in[PIECE * 8] = {0};
    cleanup_fd int fd = openat(scratch->fd, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 7 + i / 251);
    for (uintptr_t i = 0; i < 8; i++)
        assert_true(
            volume_ring_write(ring, fd, out + i * PIECE, PIECE, i * PIECE, (void *)(i + 1)));
    await_all(ring, &results);
    assert_int_equal(results.count, 8);
    assert_int_equal(results.tokens, 36);
    assert_int_equal(results.last, PIECE);
    assert_true(volume_ring_read(ring, fd, in, sizeof in, 0, (void *)100));
    await_all(ring, &results);
    assert_int_equal(results.last, sizeof in);
    assert_memory_equal(in, out, sizeof in);
    assert_true(volume_ring_read(ring, fd, in, sizeof in, sizeof in / 2, (void *)100));
    await_all(ring, &results);
    assert_int_equal(results.last, sizeof in / 2);
    volume_ring_close(ring);
}

static void a_failure_is_a_result(void **state)
{
    struct scratch *scratch = *state;
    struct volume_ring *ring = open_ring();
    struct results results = {.count = 0};
    char byte = 'x';
    cleanup_fd int fd = openat(scratch->fd, "file", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_true(volume_ring_write(ring, fd, &byte, 1, 0, (void *)1));
    await_all(ring, &results);
    assert_int_equal(results.last, -EBADF);
    volume_ring_close(ring);
}

static void a_full_ring_takes_no_more(void **state)
{
    (void)state;
    struct volume_ring *ring = open_ring();
    struct results results = {.count = 0};
    static char bytes[VOLUME_RING_ENTRIES + 1];
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    size_t begun = 0;
    while (volume_ring_read(ring, ends[0], &bytes[begun], 1, 0, (void *)1)) /* nothing comes */
        assert_true(++begun < VOLUME_RING_ENTRIES);
    assert_true(begun >= VOLUME_RING_ENTRIES / 2);
    assert_int_equal(volume_ring_under_way(ring), begun);
    assert_int_equal(write(ends[1], bytes, begun), begun);
    await_all(ring, &results);
    assert_int_equal(results.count, begun);
    assert_true(volume_ring_read(ring, ends[0], bytes, 1, 0, (void *)1));
    (void)close(ends[1]);
    await_all(ring, &results);
    assert_int_equal(results.last, 0);
    (void)close(ends[0]);
    volume_ring_close(ring);
}

static void it_is_woken_by_a_descriptor(void **state)
{
    (void)state;
    struct volume_ring *ring = open_ring();
    struct results results = {.count = 0};
    uint64_t one = 1;
    cleanup_fd int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(fd >= 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(fd, &one, sizeof one), sizeof one);
        volume_ring_wait(ring, fd);
        assert_int_equal(read(fd, &one, sizeof one), sizeof one);
        assert_int_equal(volume_ring_reap(ring, take, &results), 0);
    }
    volume_ring_close(ring);
}

int main(void)
{
#define IN_SCRATCH(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(what_is_written_can_be_read),
        IN_SCRATCH(a_failure_is_a_result),
        cmocka_unit_test(a_full_ring_takes_no_more),
        cmocka_unit_test(it_is_woken_by_a_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
