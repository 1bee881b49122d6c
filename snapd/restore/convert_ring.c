#include "convert_ring.h"

int convert_ring_open(struct convert_ring *ring, size_t count, size_t chunk, struct err *err)
{
    *ring = (struct convert_ring){.count = count, .chunk = chunk};
    ring->memory = malloc(count * chunk);
    ring->lens = calloc(count, sizeof *ring->lens);
    if (!ring->memory || !ring->lens || pthread_mutex_init(&ring->lock, NULL) != 0) {
        free(ring->memory);
        free(ring->lens);
        ring->memory = NULL;
        return err_errno(err, ENOMEM, "cannot read the archive");
    }
    pthread_cond_init(&ring->moved, NULL); /* cannot fail without attributes */
    return 0;
}

void convert_ring_close(struct convert_ring *ring)
{
    if (!ring->memory)
        return;
    pthread_cond_destroy(&ring->moved);
    pthread_mutex_destroy(&ring->lock);
    free(ring->memory);
    free(ring->lens);
    ring->memory = NULL;
}

static bool is_full(const struct convert_ring *ring)
{
    for (unsigned i = 0; i < CONVERT_RING_READERS; i++)
        if (ring->put - ring->used[i] == ring->count)
            return true;
    return false;
}

/* With the lock held. */
static int failure(const struct convert_ring *ring, struct err *err)
{
    if (err)
        *err = ring->err;
    return -ring->err.num;
}

int convert_ring_room(struct convert_ring *ring, void **ret, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&ring->lock);
    while (ring->err.code == ERR_NONE && is_full(ring))
        pthread_cond_wait(&ring->moved, &ring->lock);
    if (ring->err.code != ERR_NONE)
        rc = failure(ring, err);
    else
        *ret = ring->memory + ring->put % ring->count * ring->chunk;
    pthread_mutex_unlock(&ring->lock);
    return rc;
}

void convert_ring_put(struct convert_ring *ring, size_t len)
{
    pthread_mutex_lock(&ring->lock);
    if (len == 0) {
        ring->end = true;
    } else {
        ring->lens[ring->put % ring->count] = len;
        ring->put++;
    }
    pthread_cond_broadcast(&ring->moved);
    pthread_mutex_unlock(&ring->lock);
}

ssize_t convert_ring_get(struct convert_ring *ring, unsigned reader, const void **ret,
                         struct err *err)
{
    ssize_t n = 0;
    pthread_mutex_lock(&ring->lock);
    const uint64_t next = ring->used[reader];
    while (ring->err.code == ERR_NONE && next == ring->put && !ring->end)
        pthread_cond_wait(&ring->moved, &ring->lock);
    if (ring->err.code != ERR_NONE) {
        n = failure(ring, err);
    } else if (next < ring->put) {
        *ret = ring->memory + next % ring->count * ring->chunk;
        n = (ssize_t)ring->lens[next % ring->count];
    }
    pthread_mutex_unlock(&ring->lock);
    return n;
}

void convert_ring_done(struct convert_ring *ring, unsigned reader)
{
    pthread_mutex_lock(&ring->lock);
    ring->used[reader]++;
    pthread_cond_broadcast(&ring->moved);
    pthread_mutex_unlock(&ring->lock);
}

void convert_ring_fail(struct convert_ring *ring, const struct err *err)
{
    pthread_mutex_lock(&ring->lock);
    if (ring->err.code == ERR_NONE)
        ring->err = *err;
    pthread_cond_broadcast(&ring->moved);
    pthread_mutex_unlock(&ring->lock);
}
