/* What a worker does to files in rings (volume_ring.h), without a call of its own. */
#include "recorder.h"

#include "volume_ring.h"

#include <errno.h>

/* Writes in a ring: only one thread at a time has any (volume_queue.h). */
static struct {
    void *token;
    struct recorder_entry entry;
} under_way[VOLUME_RING_ENTRIES];

struct ended {
    volume_ring_done *done;
    void *arg;
};

bool __real_volume_ring_write(struct volume_ring *ring, int fd, const void *buffer, size_t len,
                              uint64_t offset, void *token);
bool __wrap_volume_ring_write(struct volume_ring *ring, int fd, const void *buffer, size_t len,
                              uint64_t offset, void *token);
bool __wrap_volume_ring_write(struct volume_ring *ring, int fd, const void *buffer, size_t len,
                              uint64_t offset, void *token)
{
    size_t at = 0;
    if (!recorder_is_on())
        return __real_volume_ring_write(ring, fd, buffer, len, offset, token);
    while (at < VOLUME_RING_ENTRIES && under_way[at].token)
        at++;
    recorder_need(at < VOLUME_RING_ENTRIES);
    const struct iovec iov = {.iov_base = (void *)buffer, .iov_len = len};
    under_way[at].token = token;
    under_way[at].entry = recorder_begin('W', fd);
    under_way[at].entry.offset = offset;
    recorder_put(&under_way[at].entry, &iov, 1);
    if (__real_volume_ring_write(ring, fd, buffer, len, offset, token))
        return true;
    errno = ECANCELED;
    recorder_end(under_way[at].entry, -1);
    under_way[at].token = NULL;
    return false;
}

static void note_end(void *arg, void *token, int result)
{
    const struct ended *ended = arg;
    for (size_t i = 0; i < VOLUME_RING_ENTRIES; i++) {
        if (under_way[i].token != token)
            continue;
        errno = result < 0 ? -result : 0;
        recorder_end(under_way[i].entry, result < 0 ? -1 : result);
        under_way[i].token = NULL;
    }
    ended->done(ended->arg, token, result);
}

unsigned __real_volume_ring_reap(struct volume_ring *ring, volume_ring_done *done, void *arg);
unsigned __wrap_volume_ring_reap(struct volume_ring *ring, volume_ring_done *done, void *arg);
unsigned __wrap_volume_ring_reap(struct volume_ring *ring, volume_ring_done *done, void *arg)
{
    struct ended ended = {.done = done, .arg = arg};
    return __real_volume_ring_reap(ring, note_end, &ended);
}
