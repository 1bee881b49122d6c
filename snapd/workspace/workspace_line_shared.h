/* workspace_line_shared.h - a checkpoint that several threads read, opened by the first of them.
 *
 * Opening asks the remote, for as long as that is silent. One does it at a time, without a lock;
 * the others wait for him, and each of them ends when it is told to. What failed is tried anew by
 * the next one.
 */
#pragma once

#include "workspace_line.h"

#include <pthread.h>

struct workspace_line_shared {
    const struct node *node; /* borrowed, as the next two */
    const char *lineage;     /* set before anybody opens it */
    const char *digest;
    pthread_mutex_t lock;
    pthread_cond_t changed;        /* `opening` */
    bool opening;                  /* lock */
    struct checkpoint *checkpoint; /* NULL: nobody has needed it yet; lock */
};

void workspace_line_shared_init(struct workspace_line_shared *shared, const struct node *node);
/* Nobody opens it any more. */
void workspace_line_shared_free(struct workspace_line_shared *shared);
/* As workspace_line_open(). Valid until it is freed; any number of threads read it. `stop` may be
 * NULL. ERR_CANCELLED: `stop` has ended the wait for another thread. */
int workspace_line_shared_open(struct workspace_line_shared *shared, remote_progress stop,
                               void *arg, struct checkpoint **ret, struct err *err);
