/* Requests in two halves: what can be begun without waiting, and what the end leaves behind. */
#include "chunk_io.h"

#include "chunk_io_parts.h"
#include "chunk_site.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    ABSENT = 8, /* chunk */
};

struct stage {
    struct chunk_site site;
    uint8_t *buffer; /* three chunks */
    atomic_bool held, enough;
};

static int setup(void **state)
{
    void *scratch = NULL;
    struct stage *stage = calloc(1, sizeof *stage);
    if (!stage || scratch_setup(&scratch) != 0)
        return -1;
    struct scratch *at = scratch;
    chunk_site_make_absent(&stage->site, at, at->fd, VOLUME_SIZE_MIN, ABSENT, 1);
    stage->buffer = chunk_site_buffer(3 * (size_t)VOLUME_CHUNK_BLOCKS);
    *state = stage;
    return 0;
}

/* No lock is left. */
static void check_free(struct stage *stage)
{
    struct chunk_io *io = &stage->site.io;
    assert_int_equal(pthread_rwlock_trywrlock(&io->gate), 0);
    assert_int_equal(pthread_rwlock_unlock(&io->gate), 0);
    for (size_t i = 0; i < CHUNK_IO_LOCKS; i++) {
        assert_int_equal(pthread_rwlock_trywrlock(&io->locks[i]), 0);
        assert_int_equal(pthread_rwlock_unlock(&io->locks[i]), 0);
    }
}

static int teardown(void **state)
{
    struct stage *stage = *state;
    void *scratch = stage->site.scratch;
    check_free(stage);
    chunk_site_leave(&stage->site);
    free(stage->buffer);
    free(stage);
    return scratch_teardown(&scratch);
}

static void write_chunk(struct stage *stage, uint64_t chunk, int byte)
{
    memset(stage->buffer, byte, VOLUME_CHUNK);
    assert_int_equal(
        chunk_io_write(&stage->site.io, stage->buffer, VOLUME_CHUNK, chunk * VOLUME_CHUNK), 0);
}

static int carry_out(struct stage *stage, struct chunk_io_step *step)
{
    int fd = stage->site.io.data_fd;
    ssize_t n = step->write ? pwrite(fd, step->buffer, step->len, (off_t)step->offset)
                            : pread(fd, step->buffer, step->len, (off_t)step->offset);
    return chunk_io_end(&stage->site.io, step, n < 0 ? -errno : (int)n);
}

static void zeros_are_read_at_once(void **state)
{
    struct stage *stage = *state;
    struct chunk_io_step step;
    memset(stage->buffer, 1, 2 * VOLUME_CHUNK);
    assert_int_equal(
        chunk_io_begin_read(&stage->site.io, stage->buffer, 2 * VOLUME_CHUNK, 0, &step), 0);
    for (size_t i = 0; i < 2 * VOLUME_CHUNK; i++)
        assert_int_equal(stage->buffer[i], 0);
}

/* Whatever lies in `data` there, as a kill between a discard's state and its punch leaves it. */
static void zero_chunks_beside_others_read_as_zeros(void **state)
{
    struct stage *stage = *state;
    struct chunk_io *io = &stage->site.io;
    struct chunk_io_step step;
    write_chunk(stage, 1, 'a');
    memset(stage->buffer, 'x', VOLUME_CHUNK);
    assert_int_equal(pwrite(io->data_fd, stage->buffer, VOLUME_CHUNK, 0), VOLUME_CHUNK);
    assert_int_equal(pwrite(io->data_fd, stage->buffer, VOLUME_CHUNK, 2 * VOLUME_CHUNK),
                     VOLUME_CHUNK);
    memset(stage->buffer, 'y', 2 * VOLUME_CHUNK);
    assert_int_equal(
        chunk_io_begin_read(io, stage->buffer, 2 * VOLUME_CHUNK, VOLUME_CHUNK / 2, &step), 1);
    assert_int_equal(carry_out(stage, &step), 0);
    for (size_t i = 0; i < 2 * VOLUME_CHUNK; i++) {
        bool is_data = i >= VOLUME_CHUNK / 2 && i < 3 * VOLUME_CHUNK / 2;
        assert_int_equal(stage->buffer[i], is_data ? 'a' : 0);
    }
}

static void a_changed_chunk_is_written_in_two_halves(void **state)
{
    struct stage *stage = *state;
    struct chunk_io *io = &stage->site.io;
    struct chunk_io_step step;
    write_chunk(stage, 3, 'a');
    assert_int_equal(chunk_io_flush(io), 0);
    chunk_site_restart(&stage->site); /* so that "touched" is not from the write */
    atomic_fetch_and(&io->live->words[3], ~(uint32_t)LIVE_WORD_TOUCHED);
    memset(stage->buffer, 'b', VOLUME_BLOCK);
    assert_int_equal(chunk_io_begin_write(io, stage->buffer, VOLUME_BLOCK, 3 * VOLUME_CHUNK, &step),
                     1);
    /* Another one beside it, but nothing that changes the state. */
    struct chunk_io_step other;
    assert_int_equal(chunk_io_begin_write(io, stage->buffer, VOLUME_BLOCK,
                                          3 * VOLUME_CHUNK + VOLUME_BLOCK, &other),
                     1);
    assert_int_not_equal(pthread_rwlock_trywrlock(&io->locks[3]), 0);
    assert_int_equal(carry_out(stage, &other), 0);
    assert_int_equal(carry_out(stage, &step), 0);
    assert_true(chunk_io_word(io, 3) & LIVE_WORD_TOUCHED);
    assert_true(atomic_load(&io->dirty));
    assert_int_equal(chunk_io_read(io, stage->buffer, VOLUME_CHUNK, 3 * VOLUME_CHUNK), 0);
    assert_int_equal(stage->buffer[0], 'b');
    assert_int_equal(stage->buffer[2 * VOLUME_BLOCK - 1], 'b');
    assert_int_equal(stage->buffer[2 * VOLUME_BLOCK], 'a');
}

static void what_would_wait_is_not_begun(void **state)
{
    struct stage *stage = *state;
    struct chunk_io *io = &stage->site.io;
    struct chunk_io_step step;
    write_chunk(stage, 4, 'a');
    /* A state changes. */
    assert_int_equal(chunk_io_begin_write(io, stage->buffer, VOLUME_BLOCK, 0, &step), -EBUSY);
    assert_int_equal(chunk_io_begin_write(io, stage->buffer, VOLUME_BLOCK,
                                          (uint64_t)ABSENT * VOLUME_CHUNK, &step),
                     -EBUSY);
    assert_int_equal(chunk_io_begin_write(io, stage->buffer, 2 * VOLUME_CHUNK,
                                          4 * (uint64_t)VOLUME_CHUNK, &step),
                     -EBUSY);
    /* Bytes of the remote. */
    assert_int_equal(chunk_io_begin_read(io, stage->buffer, 2 * VOLUME_CHUNK,
                                         (uint64_t)(ABSENT - 1) * VOLUME_CHUNK, &step),
                     -EBUSY);
    /* Bad ranges are for the whole calls to refuse. */
    assert_int_equal(chunk_io_begin_read(io, stage->buffer, 1, 0, &step), -EBUSY);
    assert_int_equal(chunk_io_begin_read(io, stage->buffer, 0, 0, &step), -EBUSY);
    assert_int_equal(chunk_io_begin_read(io, stage->buffer, VOLUME_BLOCK, VOLUME_SIZE_MIN, &step),
                     -EBUSY);
    assert_int_equal(
        chunk_io_begin_read(io, stage->buffer, VOLUME_BLOCK, UINT64_MAX - VOLUME_BLOCK + 1, &step),
        -EBUSY);
    assert_int_equal(chunk_io_begin_read(io, stage->buffer,
                                         (CHUNK_IO_STEP_CHUNKS + 1) * (size_t)VOLUME_CHUNK, 0,
                                         &step),
                     -EBUSY);
}

static void *hold_locks(void *arg)
{
    struct stage *stage = arg;
    struct chunk_io *io = &stage->site.io;
    chunk_io_lock(io, 5, 5, true);
    atomic_store(&stage->held, true);
    while (!atomic_load(&stage->enough))
        (void)sched_yield();
    chunk_io_unlock(io, 5, 5);
    return NULL;
}

static void somebody_elses_locks_are_not_waited_for(void **state)
{
    struct stage *stage = *state;
    struct chunk_io *io = &stage->site.io;
    struct chunk_io_step step;
    pthread_t thread;
    write_chunk(stage, 4, 'a');
    write_chunk(stage, 5, 'a');
    assert_int_equal(pthread_create(&thread, NULL, hold_locks, stage), 0);
    while (!atomic_load(&stage->held))
        (void)sched_yield();
    assert_int_equal(chunk_io_begin_write(io, stage->buffer, 2 * VOLUME_CHUNK,
                                          4 * (uint64_t)VOLUME_CHUNK, &step),
                     -EBUSY);
    atomic_store(&stage->enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_free(stage);
    assert_int_equal(chunk_io_begin_write(io, stage->buffer, 2 * VOLUME_CHUNK,
                                          4 * (uint64_t)VOLUME_CHUNK, &step),
                     1);
    assert_int_equal(carry_out(stage, &step), 0);
}

static void what_was_not_done_is_repeated_or_told(void **state)
{
    struct stage *stage = *state;
    struct chunk_io *io = &stage->site.io;
    static const struct {
        int result, wanted;
    } cases[] = {{VOLUME_BLOCK - 512, -EBUSY},
                 {0, -EBUSY},
                 {-EAGAIN, -EBUSY},
                 {-EINTR, -EBUSY},
                 {-EIO, -EIO},
                 {-ENOSPC, -ENOSPC},
                 {-EDQUOT, -EDQUOT},
                 {-ECANCELED, -EBUSY},
                 {-ENOMEM, -EBUSY},
                 {-EINVAL, -EBUSY},
                 {-EOPNOTSUPP, -EBUSY},
                 {VOLUME_BLOCK, 0}};
    write_chunk(stage, 0, 'a');
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chunk_io_step step;
        assert_int_equal(chunk_io_begin_write(io, stage->buffer, VOLUME_BLOCK, 0, &step), 1);
        assert_int_equal(chunk_io_end(io, &step, cases[i].result), cases[i].wanted);
        assert_int_equal(chunk_io_begin_read(io, stage->buffer, VOLUME_BLOCK, 0, &step), 1);
        bool is_room = cases[i].result == -ENOSPC || cases[i].result == -EDQUOT;
        assert_int_equal(chunk_io_end(io, &step, cases[i].result),
                         is_room ? -EBUSY : cases[i].wanted);
        check_free(stage);
    }
}

static void a_closed_volume_begins_nothing(void **state)
{
    struct stage *stage = *state;
    struct chunk_io *io = &stage->site.io;
    struct chunk_io_step step;
    struct err err = ERR_INIT;
    write_chunk(stage, 0, 'a');
    assert_int_equal(chunk_io_finish(io, &err), 0);
    assert_int_equal(chunk_io_begin_write(io, stage->buffer, VOLUME_BLOCK, 0, &step), -EBUSY);
}

int main(void)
{
#define STAGE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        STAGE(zeros_are_read_at_once),
        STAGE(zero_chunks_beside_others_read_as_zeros),
        STAGE(a_changed_chunk_is_written_in_two_halves),
        STAGE(what_would_wait_is_not_begun),
        STAGE(somebody_elses_locks_are_not_waited_for),
        STAGE(what_was_not_done_is_repeated_or_told),
        STAGE(a_closed_volume_begins_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
