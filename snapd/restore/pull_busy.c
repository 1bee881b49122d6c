#include "pull_busy.h"

#include <pthread.h>
#include <time.h>

enum {
    ASK_MS = 100, /* between two questions whether to stop */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static struct pull_busy *table; /* guarded by `lock` */

static bool is_busy(const void *node, const struct digest *digest)
{
    for (const struct pull_busy *at = table; at; at = at->next)
        if (at->node == node && digest_equal(&at->digest, digest))
            return true;
    return false;
}

/* A clock that is set meanwhile makes one wait longer or shorter, no more: the word comes by the
 * condition, and the question is asked again each time. */
static void wait_for_word(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ASK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&left, &lock, &until);
}

int pull_busy_enter(struct pull_busy *busy, const void *node, const struct digest *digest,
                    convert_stop *stop, void *arg, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&lock);
    while (rc == 0 && is_busy(node, digest)) {
        wait_for_word();
        rc = stop ? stop(arg, err) : 0;
    }
    if (rc == 0) {
        *busy = (struct pull_busy){.next = table, .node = node, .digest = *digest};
        table = busy;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void pull_busy_leave(struct pull_busy *busy)
{
    pthread_mutex_lock(&lock);
    struct pull_busy **at = &table;
    while (*at != busy)
        at = &(*at)->next;
    *at = busy->next;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
}
