#include "layers_busy.h"

#include "clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum {
    ASK_MS = 100, /* between two questions whether to stop */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static struct layers_busy *table; /* guarded by `lock` */

static bool is_busy(const void *node, const char *what, const char *digest)
{
    for (const struct layers_busy *at = table; at; at = at->next)
        if (at->node == node && strcmp(at->what, what) == 0 && strcmp(at->digest, digest) == 0)
            return true;
    return false;
}

static void wait_for_word(void)
{
    const struct timespec until = clock_in_ms(ASK_MS);
    (void)pthread_cond_clockwait(&left, &lock, CLOCK_MONOTONIC, &until);
}

int layers_busy_enter(struct layers_busy *busy, const void *node, const char *what,
                      const char *digest, convert_stop *stop, void *arg, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&lock);
    while (rc == 0 && is_busy(node, what, digest)) {
        wait_for_word();
        pthread_mutex_unlock(&lock);
        rc = stop ? stop(arg, err) : 0;
        pthread_mutex_lock(&lock);
    }
    if (rc == 0) {
        *busy = (struct layers_busy){.next = table, .node = node, .what = what, .digest = digest};
        table = busy;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void layers_busy_leave(struct layers_busy *busy)
{
    if (!busy->node)
        return;
    pthread_mutex_lock(&lock);
    struct layers_busy **at = &table;
    while (*at != busy)
        at = &(*at)->next;
    *at = busy->next;
    busy->node = NULL;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
}
