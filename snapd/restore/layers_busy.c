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
static struct layers_busy *table;   /* guarded by `lock` */
static struct layers_busy *waiting; /* those that want to be in it; the same */

static bool is_in(const struct layers_busy *list, const void *node, const char *what,
                  const char *digest)
{
    for (const struct layers_busy *at = list; at; at = at->next)
        if (at->node == node && strcmp(at->what, what) == 0 && strcmp(at->digest, digest) == 0)
            return true;
    return false;
}

static void add(struct layers_busy **list, struct layers_busy *entry)
{
    entry->next = *list;
    *list = entry;
}

static void drop(struct layers_busy **list, const struct layers_busy *entry)
{
    while (*list != entry)
        list = &(*list)->next;
    *list = entry->next;
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
    struct layers_busy waiter = {.node = node, .what = what, .digest = digest};
    pthread_mutex_lock(&lock);
    add(&waiting, &waiter);
    while (rc == 0 && is_in(table, node, what, digest)) {
        wait_for_word();
        pthread_mutex_unlock(&lock);
        rc = stop ? stop(arg, err) : 0;
        pthread_mutex_lock(&lock);
    }
    drop(&waiting, &waiter);
    if (rc == 0) {
        *busy = waiter;
        add(&table, busy);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

bool layers_busy_is_awaited(const struct layers_busy *busy)
{
    pthread_mutex_lock(&lock);
    bool awaited = is_in(waiting, busy->node, busy->what, busy->digest);
    pthread_mutex_unlock(&lock);
    return awaited;
}

void layers_busy_leave(struct layers_busy *busy)
{
    if (!busy->node)
        return;
    pthread_mutex_lock(&lock);
    drop(&table, busy);
    busy->node = NULL;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
}
