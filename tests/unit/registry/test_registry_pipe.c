#include "registry_pipe.h"

#include "cleanup.h"
#include "clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    LONG_MS = 60 * 1000,
    STREAM = 24 << 20, /* many times around the ring */
};

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)(offset * 31 + (offset >> 12));
}

static void fill(char *into, uint64_t offset, size_t len)
{
    for (size_t i = 0; i < len; i++)
        into[i] = (char)byte_at(offset + i);
}

static bool is_right(const char *bytes, uint64_t offset, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)bytes[i] != byte_at(offset + i))
            return false;
    return true;
}

static void what_is_put_is_read(void **state)
{
    (void)state;
    struct registry_pipe pipe;
    assert_int_equal(registry_pipe_open(&pipe, 10, NULL), 0);
    assert_true(registry_pipe_put(&pipe, "hello", 5));
    assert_true(registry_pipe_put(&pipe, "", 0));
    assert_true(registry_pipe_put(&pipe, "world", 5));
    assert_false(registry_pipe_put(&pipe, "!", 1)); /* full, to the byte */
    struct registry_pipe_state at =
        registry_pipe_wait(&pipe, REGISTRY_PIPE_BYTES_WISHED, 0, LONG_MS);
    assert_int_equal(at.len, 10);
    assert_memory_equal(at.at, "helloworld", 10);
    assert_false(registry_pipe_taken(&pipe, 3)); /* not worth waking for yet */
    assert_true(registry_pipe_taken(&pipe, 4));
    assert_false(registry_pipe_taken(&pipe, 0));        /* once is enough */
    assert_true(registry_pipe_put(&pipe, "abcdef", 6)); /* around the end of the ring */
    at = registry_pipe_wait(&pipe, REGISTRY_PIPE_BYTES_WISHED, 0, LONG_MS);
    assert_int_equal(at.len, 3);
    assert_memory_equal(at.at, "rld", 3);
    registry_pipe_taken(&pipe, 3);
    registry_pipe_end(&pipe);
    at = registry_pipe_wait(&pipe, REGISTRY_PIPE_BYTES_WISHED, 0, LONG_MS);
    assert_true(at.ended); /* and what is in it can be read */
    assert_int_equal(at.len, 6);
    assert_memory_equal(at.at, "abcdef", 6);
    registry_pipe_close(&pipe);
}

static void what_is_added_is_taken(void **state)
{
    (void)state;
    struct registry_pipe pipe;
    assert_int_equal(registry_pipe_open(&pipe, REGISTRY_PIPE_PIECE, NULL), 0);
    char got[8];
    assert_int_equal(registry_pipe_take(&pipe, got, sizeof got), 0);
    struct registry_pipe_state room =
        registry_pipe_wait(&pipe, REGISTRY_PIPE_ROOM_WISHED, 0, LONG_MS);
    assert_int_equal(room.len, REGISTRY_PIPE_PIECE);
    memcpy(room.at, "hello", 5);
    assert_true(registry_pipe_added(&pipe, 5, 0)); /* the far side has found nothing before */
    assert_false(registry_pipe_added(&pipe, 0, 0));
    assert_int_equal(registry_pipe_take(&pipe, got, 3), 3);
    assert_int_equal(registry_pipe_take(&pipe, got + 3, 5), 2);
    assert_memory_equal(got, "hello", 5);
    registry_pipe_close(&pipe);
}

static void waits_end(void **state)
{
    (void)state;
    struct registry_pipe pipe;
    assert_int_equal(registry_pipe_open(&pipe, 0, NULL), 0);
    int64_t from = clock_now_ms();
    for (int wish = REGISTRY_PIPE_BYTES_WISHED; wish <= REGISTRY_PIPE_END_WISHED; wish++) {
        struct registry_pipe_state at = registry_pipe_wait(&pipe, wish, 0, 20);
        assert_false(at.ended);
        assert_int_equal(at.len, 0);
    }
    assert_in_range(clock_now_ms() - from, 60, 30000);
    registry_pipe_end(&pipe);
    assert_true(registry_pipe_wait(&pipe, REGISTRY_PIPE_END_WISHED, 0, LONG_MS).ended);
    registry_pipe_close(&pipe);
}

static void restarts_drop_what_was_there(void **state)
{
    (void)state;
    struct registry_pipe pipe;
    assert_int_equal(registry_pipe_open(&pipe, REGISTRY_PIPE_BYTES, NULL), 0);
    struct registry_pipe_state room =
        registry_pipe_wait(&pipe, REGISTRY_PIPE_ROOM_WISHED, 0, LONG_MS);
    memcpy(room.at, "old", 3);
    registry_pipe_added(&pipe, 3, 0);
    registry_pipe_restart(&pipe, 7);
    char got[8];
    assert_int_equal(registry_pipe_take(&pipe, got, sizeof got), 0);
    assert_false(registry_pipe_added(&pipe, 3, 0)); /* was on its way: dropped */
    assert_int_equal(registry_pipe_take(&pipe, got, sizeof got), 0);
    struct registry_pipe_state at = registry_pipe_wait(&pipe, REGISTRY_PIPE_END_WISHED, 0, LONG_MS);
    assert_int_equal(at.restarts, 1);
    assert_int_equal(at.position, 7);
    room = registry_pipe_wait(&pipe, REGISTRY_PIPE_ROOM_WISHED, 1, LONG_MS);
    memcpy(room.at, "new", 3);
    assert_true(registry_pipe_added(&pipe, 3, 1));
    assert_int_equal(registry_pipe_take(&pipe, got, sizeof got), 3);
    assert_memory_equal(got, "new", 3);
    registry_pipe_close(&pipe);
}

/* The far side of a stream, which is woken as the transport is. */
struct far {
    struct registry_pipe pipe;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool wake;       /* guarded by lock */
    uint64_t wanted; /* bytes that it moves */
    int restarts;    /* that it makes on its way */
    bool wrong;      /* bytes were others; for after the end */
};

static void wake(struct far *far)
{
    pthread_mutex_lock(&far->lock);
    far->wake = true;
    pthread_cond_signal(&far->woken);
    pthread_mutex_unlock(&far->lock);
}

static void wait_for_wake(struct far *far)
{
    pthread_mutex_lock(&far->lock);
    while (!far->wake)
        pthread_cond_wait(&far->woken, &far->lock);
    far->wake = false;
    pthread_mutex_unlock(&far->lock);
}

/* Starts the far side; the two numbers are set. */
static void begin(struct far *far, void *(*side)(void *))
{
    assert_int_equal(registry_pipe_open(&far->pipe, REGISTRY_PIPE_BYTES, NULL), 0);
    assert_int_equal(pthread_mutex_init(&far->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&far->woken, NULL), 0);
    assert_int_equal(pthread_create(&far->thread, NULL, side, far), 0);
}

static void end(struct far *far)
{
    pthread_join(far->thread, NULL);
    assert_false(far->wrong);
    registry_pipe_close(&far->pipe);
}

static void *put_stream(void *arg)
{
    struct far *far = arg;
    static char piece[16 * 1024];
    size_t len = 1;
    for (uint64_t done = 0; done < far->wanted; done += len) {
        len = (size_t)(done * 7 + 1) % sizeof piece + 1;
        if (len > far->wanted - done)
            len = (size_t)(far->wanted - done);
        fill(piece, done, len);
        while (!registry_pipe_put(&far->pipe, piece, len))
            wait_for_wake(far);
        if (done % 5 == 0)
            registry_pipe_flush(&far->pipe);
    }
    registry_pipe_end(&far->pipe);
    return NULL;
}

static void downloads_come_whole(void **state)
{
    (void)state;
    struct far far = {.wanted = STREAM};
    begin(&far, put_stream);
    uint64_t done = 0;
    for (;;) {
        struct registry_pipe_state at =
            registry_pipe_wait(&far.pipe, REGISTRY_PIPE_BYTES_WISHED, 0, LONG_MS);
        assert_true(at.len <= REGISTRY_PIPE_PIECE);
        if (at.len == 0 && at.ended)
            break;
        assert_true(is_right(at.at, done, at.len));
        done += at.len;
        if (registry_pipe_taken(&far.pipe, at.len))
            wake(&far);
    }
    assert_int_equal(done, STREAM);
    end(&far);
}

static void *take_stream(void *arg)
{
    struct far *far = arg;
    static char piece[64 * 1024];
    uint64_t done = 0;
    while (done < far->wanted) {
        size_t n = registry_pipe_take(&far->pipe, piece, (done * 7) % sizeof piece + 1);
        if (n == 0)
            wait_for_wake(far);
        far->wrong = far->wrong || !is_right(piece, done, n);
        done += n;
        if (far->restarts > 0 && done > far->wanted / 2) {
            far->restarts--;
            done = 1000;
            registry_pipe_restart(&far->pipe, done);
        }
    }
    registry_pipe_end(&far->pipe);
    return NULL;
}

static void uploads_come_whole(void **state)
{
    (void)state;
    struct far far = {.wanted = STREAM / 4, .restarts = 5};
    begin(&far, take_stream);
    uint64_t done = 0;
    unsigned int restarts = 0;
    for (;;) {
        enum registry_pipe_wish wish =
            done < far.wanted ? REGISTRY_PIPE_ROOM_WISHED : REGISTRY_PIPE_END_WISHED;
        struct registry_pipe_state at = registry_pipe_wait(&far.pipe, wish, restarts, LONG_MS);
        if (at.restarts != restarts) {
            restarts = at.restarts;
            done = at.position;
            continue;
        }
        if (at.ended)
            break;
        size_t len = at.len < far.wanted - done ? at.len : (size_t)(far.wanted - done);
        fill(at.at, done, len);
        done += len;
        if (registry_pipe_added(&far.pipe, len, restarts))
            wake(&far);
    }
    end(&far);
    assert_int_equal(restarts, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_read),
        cmocka_unit_test(what_is_added_is_taken),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(restarts_drop_what_was_there),
        cmocka_unit_test(downloads_come_whole),
        cmocka_unit_test(uploads_come_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
