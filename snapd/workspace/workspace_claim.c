#include "workspace_claim.h"

#include "cleanup.h"
#include "clock.h"
#include "workspace_event_limit.h"
#include "workspace_pool.h"

#include <pthread.h>
#include <string.h>

/* Not forgotten while it is held or awaited. */
struct claim {
    struct claim *next;
    bool held;
    unsigned awaited; /* by those who take it over */
    char name[];      /* with its NUL byte */
};

struct workspaces {
    pthread_mutex_t lock;
    pthread_cond_t released;
    struct claim *claims;                   /* guarded by lock */
    uint64_t pending;                       /* guarded by admission */
    struct workspace_event_limit *revivals; /* owned; guarded by lock */
    pthread_mutex_t admission;
    struct workspace_pool *pool;  /* owned */
    struct workspace_pool *quick; /* owned */
};

enum {
    LOOK_MS = 200, /* how often one who waits asks whether he should */
};

struct workspaces *workspaces_new(void)
{
    struct workspaces *workspaces = calloc(1, sizeof *workspaces);
    if (!workspaces)
        return NULL;
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&workspaces->released, &attr);
    (void)pthread_condattr_destroy(&attr);
    (void)pthread_mutex_init(&workspaces->lock, NULL);
    (void)pthread_mutex_init(&workspaces->admission, NULL);
    workspaces->pool = workspace_pool_new();
    workspaces->quick = workspace_pool_new();
    workspaces->revivals = workspace_event_limit_new();
    if (workspaces->pool && workspaces->quick && workspaces->revivals)
        return workspaces;
    workspaces_free(workspaces);
    return NULL;
}

void workspaces_stop(struct workspaces *workspaces)
{
    if (!workspaces)
        return;
    workspace_pool_free(steal_ptr(workspaces->pool));
    workspace_pool_free(steal_ptr(workspaces->quick));
}

struct workspace_pool *workspaces_pool(struct workspaces *workspaces)
{
    return workspaces->pool;
}

struct workspace_pool *workspaces_quick_pool(struct workspaces *workspaces)
{
    return workspaces->quick;
}

void workspaces_free(struct workspaces *workspaces)
{
    if (!workspaces)
        return;
    workspaces_stop(workspaces);
    while (workspaces->claims) {
        struct claim *next = workspaces->claims->next;
        free(workspaces->claims);
        workspaces->claims = next;
    }
    workspace_event_limit_free(workspaces->revivals);
    (void)pthread_cond_destroy(&workspaces->released);
    (void)pthread_mutex_destroy(&workspaces->lock);
    (void)pthread_mutex_destroy(&workspaces->admission);
    free(workspaces);
}

/* Where the pointer to the claim of this name is, or would be. The lock is held. */
static struct claim **find(struct workspaces *workspaces, const char *name)
{
    struct claim **at = &workspaces->claims;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

/* The claim of this name, free if it is new. The lock is held. */
static struct claim *make(struct workspaces *workspaces, const char *name, struct err *err)
{
    struct claim **at = find(workspaces, name);
    if (*at)
        return *at;
    size_t size = strlen(name) + 1;
    struct claim *claim = malloc(sizeof *claim + size);
    if (!claim) {
        (void)err_errno(err, ENOMEM, "cannot work on workspace %s", name);
        return NULL;
    }
    *claim = (struct claim){.next = NULL};
    memcpy(claim->name, name, size);
    *at = claim;
    return claim;
}

/* The lock is held. */
static void forget(struct workspaces *workspaces, struct claim *claim)
{
    if (claim->held || claim->awaited > 0)
        return;
    struct claim **at = &workspaces->claims;
    while (*at != claim)
        at = &(*at)->next;
    *at = claim->next;
    free(claim);
}

/* The lock is held. */
static int take(struct workspaces *workspaces, const char *name, struct err *err)
{
    struct claim *claim = make(workspaces, name, err);
    if (!claim)
        return -ENOMEM;
    if (claim->held || claim->awaited > 0)
        return 0;
    claim->held = true;
    return 1;
}

int workspace_claim_try(struct workspaces *workspaces, const char *name, struct err *err)
{
    pthread_mutex_lock(&workspaces->lock);
    int rc = take(workspaces, name, err);
    pthread_mutex_unlock(&workspaces->lock);
    return rc;
}

int workspace_claim_wait(struct workspaces *workspaces, const char *name,
                         workspace_claim_stop *stop, void *stop_arg, struct err *err)
{
    pthread_mutex_lock(&workspaces->lock);
    int rc;
    while ((rc = take(workspaces, name, err)) == 0) {
        const struct timespec until = clock_in_ms(LOOK_MS);
        (void)pthread_cond_timedwait(&workspaces->released, &workspaces->lock, &until);
        pthread_mutex_unlock(&workspaces->lock);
        rc = stop ? stop(stop_arg, err) : 0;
        if (rc < 0)
            return rc;
        pthread_mutex_lock(&workspaces->lock);
    }
    pthread_mutex_unlock(&workspaces->lock);
    return rc < 0 ? rc : 0;
}

/* The lock is held, but not while it asks. */
static int await(struct workspaces *workspaces, struct claim *claim, workspace_claim_stop *stop,
                 void *stop_arg, struct err *err)
{
    int rc = 0;
    while (claim->held && rc == 0) {
        pthread_mutex_unlock(&workspaces->lock);
        rc = stop ? stop(stop_arg, err) : 0;
        pthread_mutex_lock(&workspaces->lock);
        const struct timespec until = clock_in_ms(LOOK_MS);
        if (claim->held && rc == 0)
            (void)pthread_cond_timedwait(&workspaces->released, &workspaces->lock, &until);
    }
    return rc;
}

int workspace_claim_take_over(struct workspaces *workspaces, const char *name,
                              workspace_claim_stop *stop, void *stop_arg, struct err *err)
{
    pthread_mutex_lock(&workspaces->lock);
    struct claim *claim = make(workspaces, name, err);
    int rc = claim ? 0 : -ENOMEM;
    if (claim) {
        claim->awaited++;
        rc = await(workspaces, claim, stop, stop_arg, err);
        claim->awaited--;
        claim->held = claim->held || rc == 0;
        forget(workspaces, claim);
    }
    pthread_mutex_unlock(&workspaces->lock);
    return rc;
}

bool workspace_claim_is_awaited(struct workspaces *workspaces, const char *name)
{
    pthread_mutex_lock(&workspaces->lock);
    const struct claim *claim = *find(workspaces, name);
    bool awaited = claim && claim->awaited > 0;
    pthread_mutex_unlock(&workspaces->lock);
    return awaited;
}

void workspace_claim_release(struct workspaces *workspaces, const char *name)
{
    pthread_mutex_lock(&workspaces->lock);
    struct claim *claim = *find(workspaces, name);
    if (claim) {
        claim->held = false;
        forget(workspaces, claim);
    }
    (void)pthread_cond_broadcast(&workspaces->released);
    pthread_mutex_unlock(&workspaces->lock);
}

bool workspaces_may_revive(struct workspaces *workspaces, const char *id, int64_t now_ns)
{
    uint64_t left_out;
    pthread_mutex_lock(&workspaces->lock);
    bool may = workspace_event_limit_take(workspaces->revivals, id, now_ns, &left_out);
    pthread_mutex_unlock(&workspaces->lock);
    return may;
}

void workspaces_lock(struct workspaces *workspaces)
{
    pthread_mutex_lock(&workspaces->admission);
}

void workspaces_unlock(struct workspaces *workspaces)
{
    pthread_mutex_unlock(&workspaces->admission);
}

uint64_t *workspaces_pending(struct workspaces *workspaces)
{
    return &workspaces->pending;
}
