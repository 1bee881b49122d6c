#include "workspace_monitor.h"

#include "cleanup.h"
#include "log.h"
#include "volumes.h"
#include "workspace_fetch.h"
#include "workspace_mend.h"
#include "workspace_rm_remote.h"
#include "workspace_trim.h"
#include "workspace_watch.h"

#include <stdatomic.h>

enum {
    WATCH_MS = 1000,
    MEND_SECONDS = 10,    /* between passes that nobody asked for */
    MEND_AGAIN_MS = 1000, /* and while something is left */
    TRIM_SECONDS = 60,
    REMOTE_TURNS = 60, /* of these: an hour */
    FETCH_MS = 1000,
};

struct workspace_monitor {
    struct node *node;
    struct workspace_watch *watch; /* of the first thread; owned */
    struct workspace_trim *trim;   /* of the third; owned */
    pthread_t threads[4];
    int started;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* `stop` or `mend` */
    bool mend;              /* guarded by lock: a pass is asked for */
};

static bool is_stopping(void *arg)
{
    struct workspace_monitor *monitor = arg;
    return atomic_load(&monitor->stop);
}

/* Waits until the end is asked for, `wake` (may be NULL) becomes true, or the time is over. Returns
 * whether to go on. */
static bool pause_ms(struct workspace_monitor *monitor, int ms, const bool *wake)
{
    const struct timespec until = clock_in_ms(ms);
    int rc = 0;
    pthread_mutex_lock(&monitor->lock);
    while (!atomic_load(&monitor->stop) && !(wake && *wake) && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&monitor->changed, &monitor->lock, &until);
    pthread_mutex_unlock(&monitor->lock);
    return !atomic_load(&monitor->stop);
}

static void ask_for_mending(struct workspace_monitor *monitor)
{
    pthread_mutex_lock(&monitor->lock);
    monitor->mend = true;
    (void)pthread_cond_broadcast(&monitor->changed);
    pthread_mutex_unlock(&monitor->lock);
}

static void *watch(void *arg)
{
    struct workspace_monitor *monitor = arg;
    const struct clock *clock = &monitor->node->clock;
    int64_t last = 0;
    while (!atomic_load(&monitor->stop)) {
        volumes_watch(monitor->node->volumes, WATCH_MS, workspace_watch_event, monitor->watch);
        /* It returns early when something has happened. */
        int64_t now = clock_mono_ns(clock);
        if (last > 0 && now - last < WATCH_MS * INT64_C(900000))
            continue;
        last = now;
        if (workspace_watch_second(monitor->watch))
            ask_for_mending(monitor);
    }
    return NULL;
}

static void *mend(void *arg)
{
    struct workspace_monitor *monitor = arg;
    bool left = false;
    while (pause_ms(monitor, left ? MEND_AGAIN_MS : MEND_SECONDS * 1000, &monitor->mend)) {
        pthread_mutex_lock(&monitor->lock);
        monitor->mend = false;
        pthread_mutex_unlock(&monitor->lock);
        left = workspace_mend(monitor->node, is_stopping, monitor);
        if (left && !pause_ms(monitor, MEND_AGAIN_MS, NULL))
            break;
    }
    return NULL;
}

static void *trim(void *arg)
{
    struct workspace_monitor *monitor = arg;
    bool begun = workspace_rm_remote_pass(monitor->node);
    for (int i = 1; pause_ms(monitor, TRIM_SECONDS * 1000, NULL); i++) {
        if (!begun || i % REMOTE_TURNS == 0)
            begun = workspace_rm_remote_pass(monitor->node);
        workspace_trim_pass(monitor->trim, clock_mono_ns(&monitor->node->clock), is_stopping,
                            monitor);
    }
    return NULL;
}

static void *fetch(void *arg)
{
    struct workspace_monitor *monitor = arg;
    while (pause_ms(monitor, FETCH_MS, NULL))
        workspace_fetch_pass(monitor->node);
    return NULL;
}

static void free_monitor(struct workspace_monitor *monitor)
{
    workspace_watch_free(monitor->watch);
    workspace_trim_free(monitor->trim);
    (void)pthread_cond_destroy(&monitor->changed);
    (void)pthread_mutex_destroy(&monitor->lock);
    free(monitor);
}

void workspace_monitor_stop(struct workspace_monitor *monitor)
{
    if (!monitor)
        return;
    atomic_store(&monitor->stop, true);
    pthread_mutex_lock(&monitor->lock);
    (void)pthread_cond_broadcast(&monitor->changed);
    pthread_mutex_unlock(&monitor->lock);
    volumes_wake(monitor->node->volumes);
    for (int i = 0; i < monitor->started; i++)
        (void)pthread_join(monitor->threads[i], NULL);
    free_monitor(monitor);
}

static struct workspace_monitor *new_monitor(struct node *node)
{
    struct workspace_monitor *monitor = calloc(1, sizeof *monitor);
    if (!monitor)
        return NULL;
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&monitor->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    (void)pthread_mutex_init(&monitor->lock, NULL);
    monitor->node = node;
    monitor->watch = workspace_watch_new(node);
    monitor->trim = workspace_trim_new(node);
    if (monitor->watch && monitor->trim)
        return monitor;
    free_monitor(monitor);
    return NULL;
}

int workspace_monitor_start(struct node *node, struct workspace_monitor **ret, struct err *err)
{
    static void *(*const functions[])(void *) = {watch, mend, trim, fetch};
    struct workspace_monitor *monitor = new_monitor(node);
    if (!monitor)
        return err_errno(err, ENOMEM, "cannot watch the volumes");
    for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
        int num = pthread_create(&monitor->threads[i], NULL, functions[i], monitor);
        if (num != 0) {
            workspace_monitor_stop(monitor);
            return err_errno(err, num, "cannot start a thread for the volumes");
        }
        monitor->started++;
    }
    *ret = monitor;
    return 0;
}
