#include "layers_mount.h"

#include "cleanup.h"
#include "fdio.h"
#include "layers.h"
#include "layers_mount_point.h"
#include "log.h"
#include "oci_image.h"

#include <pthread.h>
#include <string.h>

/* One mount point. It is in the table while somebody has a reference, works on it, or waits. */
struct point {
    struct point *next;
    char key[LAYERS_KEY_LEN];
    size_t refs;
    size_t waiting; /* threads that wait for the end of `busy` */
    bool busy;      /* a thread mounts, looks or unmounts; it does so without the lock */
};

struct holder {
    struct holder *next;
    char *name;                   /* owned */
    char (*keys)[LAYERS_KEY_LEN]; /* owned */
    size_t count;
};

struct layers_mounts {
    pthread_mutex_t lock;   /* on everything in here */
    pthread_cond_t changed; /* a point is not busy any more */
    struct point *points;   /* owned */
    struct holder *holders; /* owned */
    bool left;              /* a mount could not be taken away: somebody looks into it */
};

struct layers_mounts *layers_mounts_new(void)
{
    struct layers_mounts *mounts = calloc(1, sizeof *mounts);
    if (!mounts)
        return NULL;
    (void)pthread_mutex_init(&mounts->lock, NULL);
    (void)pthread_cond_init(&mounts->changed, NULL);
    return mounts;
}

static void free_holder(struct holder *holder)
{
    if (!holder)
        return;
    free(holder->name);
    free(holder->keys);
    free(holder);
}

void layers_mounts_free(struct layers_mounts *mounts)
{
    if (!mounts)
        return;
    for (struct point *next, *at = mounts->points; at; at = next) {
        next = at->next;
        free(at);
    }
    for (struct holder *next, *at = mounts->holders; at; at = next) {
        next = at->next;
        free_holder(at);
    }
    (void)pthread_cond_destroy(&mounts->changed);
    (void)pthread_mutex_destroy(&mounts->lock);
    free(mounts);
}

/* Points */

/* The point with this key, made when it is missing; NULL without memory. The lock is held. */
static struct point *get_point(struct layers_mounts *mounts, const char *key)
{
    for (struct point *at = mounts->points; at; at = at->next)
        if (strcmp(at->key, key) == 0)
            return at;
    struct point *point = calloc(1, sizeof *point);
    if (!point)
        return NULL;
    snprintf(point->key, sizeof point->key, "%s", key);
    point->next = mounts->points;
    mounts->points = point;
    return point;
}

/* Takes the point for work on the mount: afterwards it is busy. NULL without memory. */
static struct point *enter(struct layers_mounts *mounts, const char *key)
{
    pthread_mutex_lock(&mounts->lock);
    struct point *point = get_point(mounts, key);
    if (point) {
        point->waiting++;
        while (point->busy)
            pthread_cond_wait(&mounts->changed, &mounts->lock);
        point->waiting--;
        point->busy = true;
    }
    pthread_mutex_unlock(&mounts->lock);
    return point;
}

/* Ends the work; `change` is added to the references. */
static void leave(struct layers_mounts *mounts, struct point *point, int change)
{
    pthread_mutex_lock(&mounts->lock);
    point->busy = false;
    point->refs += (size_t)change;
    if (point->refs == 0 && point->waiting == 0) {
        struct point **at = &mounts->points;
        while (*at != point)
            at = &(*at)->next;
        *at = point->next;
        free(point);
    }
    pthread_cond_broadcast(&mounts->changed);
    pthread_mutex_unlock(&mounts->lock);
}

static int acquire(struct node *node, const char *key, struct err *err)
{
    struct point *point = enter(node->mounts, key);
    if (!point)
        return err_errno(err, ENOMEM, "cannot mount layer %s", key);
    int rc = layers_mount_point_make(node, key, err);
    leave(node->mounts, point, rc == 0);
    return rc;
}

/* What could not be unmounted is tried again later. */
static void note_left(struct node *node, const char *key, const struct err *failure)
{
    log_event(LOG_WARN, "layer-not-unmounted", "layer", key, "error", failure->text, NULL);
    pthread_mutex_lock(&node->mounts->lock);
    node->mounts->left = true;
    pthread_mutex_unlock(&node->mounts->lock);
}

/* Gives `refs` references (0 or 1) back and unmounts when none is left. */
static int drop(struct node *node, const char *key, int refs, struct err *err)
{
    struct point *point = enter(node->mounts, key);
    if (!point)
        return err_errno(err, ENOMEM, "cannot unmount layer %s", key);
    /* Nobody changes the count of a busy point. */
    int rc = point->refs == (size_t)refs ? layers_mount_point_clear(node, key, err) : 0;
    leave(node->mounts, point, -refs);
    return rc;
}

static void release_keys(struct node *node, const struct holder *holder)
{
    for (size_t i = 0; holder && i < holder->count; i++) {
        struct err failure = ERR_INIT;
        if (drop(node, holder->keys[i], 1, &failure) < 0)
            note_left(node, holder->keys[i], &failure);
    }
}

/* Holders */

static struct holder *new_holder(const char *name, size_t count)
{
    struct holder *holder = calloc(1, sizeof *holder);
    if (!holder)
        return NULL;
    holder->name = strdup(name);
    holder->keys = calloc(count + 1, sizeof *holder->keys);
    if (holder->name && holder->keys)
        return holder;
    free_holder(holder);
    return NULL;
}

static int find_keys(struct node *node, const struct catalog_image *image, struct holder *holder,
                     struct err *err)
{
    for (size_t i = 0; i < image->layer_count; i++) {
        int rc = layers_find(node, &image->layers[i], holder->keys[i], err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            return err_fail(err, ERR_NOT_FOUND, "the image of layer %zu (%s) is not in %s/layers",
                            i + 1, image->layers[i].digest, node->data_dir);
        holder->count++;
    }
    return 0;
}

static int acquire_all(struct node *node, const struct holder *wanted, struct err *err)
{
    for (size_t i = 0; i < wanted->count; i++) {
        int rc = acquire(node, wanted->keys[i], err);
        if (rc == 0)
            continue;
        const struct holder taken = {.keys = wanted->keys, .count = i};
        release_keys(node, &taken);
        return rc;
    }
    return 0;
}

/* Puts the holder in the place of one of the same name, which is returned; `new` may be NULL. */
static struct holder *exchange(struct layers_mounts *mounts, const char *name, struct holder *new)
{
    pthread_mutex_lock(&mounts->lock);
    struct holder **at = &mounts->holders;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    struct holder *old = *at;
    if (old)
        *at = old->next;
    if (new) {
        new->next = mounts->holders;
        mounts->holders = new;
    }
    pthread_mutex_unlock(&mounts->lock);
    return old;
}

int layers_mount_take(struct node *node, const char *name, const struct catalog_image *image,
                      struct err *err)
{
    struct holder *holder = new_holder(name, image->layer_count);
    if (!holder)
        return err_errno(err, ENOMEM, "cannot mount the layers of %s", image->digest);
    int rc = find_keys(node, image, holder, err);
    if (rc == 0)
        rc = acquire_all(node, holder, err);
    if (rc < 0) {
        free_holder(holder);
        return err_wrap(err, rc, "cannot mount the layers of %s", image->digest);
    }
    /* Old references go after the new ones are there, so what is in both stays mounted. */
    struct holder *old = exchange(node->mounts, name, holder);
    release_keys(node, old);
    free_holder(old);
    return 0;
}

static bool take_left(struct layers_mounts *mounts)
{
    pthread_mutex_lock(&mounts->lock);
    bool left = mounts->left;
    mounts->left = false;
    pthread_mutex_unlock(&mounts->lock);
    return left;
}

void layers_mount_release(struct node *node, const char *name)
{
    bool left = take_left(node->mounts);
    struct holder *old = exchange(node->mounts, name, NULL);
    release_keys(node, old);
    free_holder(old);
    struct err failure = ERR_INIT;
    if (left && layers_mount_sweep(node, &failure) < 0)
        log_event(LOG_WARN, "layers-not-swept", "error", failure.text, NULL);
}

static bool is_used(struct layers_mounts *mounts, const char *name)
{
    bool used = false;
    pthread_mutex_lock(&mounts->lock);
    for (const struct point *at = mounts->points; at && !used; at = at->next)
        used = strcmp(at->key, name) == 0;
    pthread_mutex_unlock(&mounts->lock);
    return used;
}

int layers_mount_each_unused(struct node *node, layers_mount_take_unused *take, void *arg,
                             struct err *err)
{
    cleanup_dir DIR *dir = fdio_list(node->run_layers_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list %s/layers", node->run_dir);
    int rc = 0;
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strlen(entry->d_name) < LAYERS_KEY_LEN && !is_used(node->mounts, entry->d_name))
            rc = take(arg, entry->d_name, err);
    return rc;
}

int layers_mount_clear_unused(struct node *node, const char *name, struct err *err)
{
    return drop(node, name, 0, err);
}

static int sweep_one(void *arg, const char *name, struct err *err)
{
    struct node *node = arg;
    struct err failure = ERR_INIT;
    (void)err;
    if (drop(node, name, 0, &failure) < 0)
        note_left(node, name, &failure);
    return 0;
}

int layers_mount_sweep(struct node *node, struct err *err)
{
    return layers_mount_each_unused(node, sweep_one, node, err);
}

int layers_mount_open(struct node *node, const char *key, struct err *err)
{
    return layers_mount_point_open(node, key, err);
}
