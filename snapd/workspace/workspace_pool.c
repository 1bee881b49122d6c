#include "workspace_pool.h"

#include "cleanup.h"
#include "clock.h"

#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

struct task {
    struct task *next;
    workspace_pool_work *work;
    void *arg;
    bool running;
    char name[]; /* with its NUL byte */
};

struct workspace_pool {
    pthread_mutex_t lock; /* all that follows */
    pthread_cond_t added; /* or `ending` */
    pthread_cond_t done;
    struct task *tasks; /* oldest first; those under way among them */
    int count;          /* of tasks */
    int idle;           /* threads that wait for work */
    int started;
    bool ending;
    bool failed;
    pthread_t threads[WORKSPACE_POOL_THREADS];
};

struct workspace_pool *workspace_pool_new(void)
{
    struct workspace_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&pool->done, &attr);
    (void)pthread_condattr_destroy(&attr);
    (void)pthread_cond_init(&pool->added, NULL);
    (void)pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

/* The lock is held. */
static struct task *oldest(struct workspace_pool *pool)
{
    struct task *task = pool->tasks;
    while (task && task->running)
        task = task->next;
    return task;
}

/* Without the lock: what the work needs may be held by others for long. */
static void end(struct workspace_pool *pool, struct task *task, bool dropped)
{
    int rc = task->work(task->arg, task->name, dropped);
    pthread_mutex_lock(&pool->lock);
    struct task **at = &pool->tasks;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    pool->count--;
    pool->failed = pool->failed || rc < 0;
    (void)pthread_cond_broadcast(&pool->done);
    pthread_mutex_unlock(&pool->lock);
    free(task);
}

static void *serve(void *arg)
{
    struct workspace_pool *pool = arg;
    (void)prctl(PR_SET_NAME, WORKSPACE_POOL_NAME);
    for (;;) {
        struct task *task = NULL;
        pthread_mutex_lock(&pool->lock);
        pool->idle++;
        while (!pool->ending && !(task = oldest(pool)))
            (void)pthread_cond_wait(&pool->added, &pool->lock);
        pool->idle--;
        if (task)
            task->running = true;
        pthread_mutex_unlock(&pool->lock);
        if (!task)
            return NULL;
        end(pool, task, false);
    }
}

void workspace_pool_drop(struct workspace_pool *pool)
{
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        struct task *task = oldest(pool);
        if (task)
            task->running = true;
        pthread_mutex_unlock(&pool->lock);
        if (!task)
            return;
        end(pool, task, true);
    }
}

void workspace_pool_free(struct workspace_pool *pool)
{
    if (!pool)
        return;
    workspace_pool_drop(pool);
    pthread_mutex_lock(&pool->lock);
    pool->ending = true;
    (void)pthread_cond_broadcast(&pool->added);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++)
        (void)pthread_join(pool->threads[i], NULL);
    (void)pthread_cond_destroy(&pool->added);
    (void)pthread_cond_destroy(&pool->done);
    (void)pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* The lock is held. One thread is enough to go on with. */
static int start_thread(struct workspace_pool *pool, struct err *err)
{
    if (pool->idle > 0 || pool->started == WORKSPACE_POOL_THREADS)
        return 0;
    int num = pthread_create(&pool->threads[pool->started], NULL, serve, pool);
    if (num == 0)
        pool->started++;
    return pool->started > 0 ? 0 : err_errno(err, num, "cannot start a thread for workspaces");
}

/* The lock is held. */
static bool has_name(const struct workspace_pool *pool, const char *name)
{
    for (const struct task *task = pool->tasks; task; task = task->next)
        if (strcmp(task->name, name) == 0)
            return true;
    return false;
}

/* The lock is held. */
static int add(struct workspace_pool *pool, struct task *task, struct err *err)
{
    if (has_name(pool, task->name))
        return 0;
    int rc = start_thread(pool, err);
    if (rc < 0)
        return rc;
    struct task **at = &pool->tasks;
    while (*at)
        at = &(*at)->next;
    *at = task;
    pool->count++;
    (void)pthread_cond_signal(&pool->added);
    return 1;
}

int workspace_pool_add(struct workspace_pool *pool, const char *name, workspace_pool_work *work,
                       void *arg, struct err *err)
{
    size_t size = strlen(name) + 1;
    cleanup_free struct task *task = malloc(sizeof *task + size);
    if (!task)
        return err_errno(err, ENOMEM, "cannot work on workspace %s", name);
    *task = (struct task){.work = work, .arg = arg};
    memcpy(task->name, name, size);
    pthread_mutex_lock(&pool->lock);
    int rc = add(pool, task, err);
    if (rc == 1)
        task = NULL; /* the pool's */
    pthread_mutex_unlock(&pool->lock);
    return rc;
}

int workspace_pool_wait(struct workspace_pool *pool, int wait_ms, bool *ret_failed)
{
    const struct timespec until = clock_in_ms(wait_ms);
    int rc = 0;
    pthread_mutex_lock(&pool->lock);
    while (pool->count > 0 && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&pool->done, &pool->lock, &until);
    int left = pool->count;
    if (ret_failed) {
        *ret_failed = pool->failed;
        pool->failed = false;
    }
    pthread_mutex_unlock(&pool->lock);
    return left;
}
