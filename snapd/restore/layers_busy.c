#include "layers_busy.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static struct layers_busy *table; /* guarded by `lock` */

static bool is_busy(const void *node, const char *chain_id)
{
    for (const struct layers_busy *at = table; at; at = at->next)
        if (at->node == node && strcmp(at->chain_id, chain_id) == 0)
            return true;
    return false;
}

void layers_busy_enter(struct layers_busy *busy, const void *node, const char *chain_id)
{
    pthread_mutex_lock(&lock);
    while (is_busy(node, chain_id))
        pthread_cond_wait(&left, &lock);
    *busy = (struct layers_busy){.next = table, .node = node, .chain_id = chain_id};
    table = busy;
    pthread_mutex_unlock(&lock);
}

void layers_busy_leave(struct layers_busy *busy)
{
    pthread_mutex_lock(&lock);
    struct layers_busy **at = &table;
    while (*at != busy)
        at = &(*at)->next;
    *at = busy->next;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
}
