#include "layers.h"

#include "catalog_layer.h"
#include "cleanup.h"
#include "digest.h"
#include "layers_build.h"
#include "log.h"
#include "publish.h"

#include <fcntl.h>
#include <string.h>

enum {
    ASK_MS = 100, /* between two questions whether to stop */
};

/* Image files */

static int make_key(const char *prefix, const char *text, char ret[LAYERS_KEY_LEN], struct err *err)
{
    struct digest digest;
    int rc = digest_parse(text, &digest, err);
    if (rc == 0)
        snprintf(ret, LAYERS_KEY_LEN, "%s-%.64s", prefix, digest_hex(&digest).s);
    return rc;
}

/* 1 when the file is there, 0 when not. */
static int is_there(struct node *node, const char *key, struct err *err)
{
    if (faccessat(node->layers_fd, key, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    if (errno == ENOENT)
        return 0;
    return err_errno(err, errno, "cannot look for %s in %s/layers", key, node->data_dir);
}

int layers_find(struct node *node, const struct catalog_layer *layer, char ret[LAYERS_KEY_LEN],
                struct err *err)
{
    char key[LAYERS_KEY_LEN];
    int rc = make_key("diff", layer->diff_id, key, err);
    if (rc == 0)
        rc = is_there(node, key, err);
    if (rc == 0) {
        rc = make_key("chain", layer->chain_id, key, err);
        if (rc == 0)
            rc = is_there(node, key, err);
    }
    if (rc == 1)
        memcpy(ret, key, sizeof key);
    return rc;
}

void layers_note_use(struct node *node, const struct catalog_image *image)
{
    char keys[OCI_LAYERS_MAX][LAYERS_KEY_LEN];
    const char *list[OCI_LAYERS_MAX];
    size_t count = 0;
    struct err failure = ERR_INIT;
    for (size_t i = 0; i < image->layer_count && count < OCI_LAYERS_MAX; i++)
        if (layers_find(node, &image->layers[i], keys[count], NULL) == 1) {
            list[count] = keys[count];
            count++;
        }
    if (catalog_layer_touch(node->catalog, list, count, &failure) < 0)
        log_event(LOG_WARN, "layers-not-touched", "image", image->digest, "error", failure.text,
                  NULL);
}

int layers_open(struct node *node, const char *key, struct err *err)
{
    int fd = openat(node->layers_fd, key, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "layer image %s is not in %s/layers", key,
                        node->data_dir);
    return err_errno(err, errno, "cannot open layer image %s in %s/layers", key, node->data_dir);
}

int layers_remove(struct node *node, const char *key, struct err *err)
{
    int rc = publish_unlink(node->layers_fd, key, err);
    return rc < 0 ? err_wrap(err, rc, "cannot remove layer image %s", key) : 0;
}

int layers_remove_queued(struct node *node, const char *object, struct err *err)
{
    char key[LAYERS_KEY_LEN];
    bool by_diff = strncmp(object, "diff:", 5) == 0;
    if (!by_diff && strncmp(object, "layer:", 6) != 0)
        return err_fail(err, ERR_INTERNAL, "'%.100s' is no layer", object);
    int rc = make_key(by_diff ? "diff" : "chain", strchr(object, ':') + 1, key, err);
    if (rc == 0)
        rc = layers_remove(node, key, err);
    return rc == 0 ? catalog_layer_remove(node->catalog, key, err) : rc;
}

/* The work of one call */

int layers_work_stop(void *arg, struct err *err)
{
    struct layers_work *work = arg;
    pthread_mutex_lock(&work->lock);
    bool failed = work->failed;
    pthread_mutex_unlock(&work->lock);
    if (failed)
        return err_fail(err, ERR_CANCELLED, "another layer failed");
    return work->stop ? work->stop(work->stop_arg, err) : 0;
}

static bool all_present(const struct layers_work *work, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!work->present[i])
            return false;
    return true;
}

int layers_work_wait_below(struct layers_work *work, size_t index, struct err *err)
{
    for (;;) {
        const struct timespec until = clock_in_ms(ASK_MS);
        pthread_mutex_lock(&work->lock);
        bool there = all_present(work, index);
        if (!there && !work->failed)
            (void)pthread_cond_clockwait(&work->changed, &work->lock, CLOCK_MONOTONIC, &until);
        pthread_mutex_unlock(&work->lock);
        if (there)
            return 0;
        int rc = layers_work_stop(work, err);
        if (rc < 0)
            return rc;
    }
}

/* The next layer to work on; the number of layers when there is none. Lowest first, so that what a
 * layer waits for is never behind it in the queue. */
static size_t take_next(struct layers_work *work)
{
    size_t count = work->image->layer_count;
    pthread_mutex_lock(&work->lock);
    while (work->next < count && work->present[work->next])
        work->next++;
    size_t index = work->failed ? count : work->next;
    if (index < count)
        work->next++;
    pthread_mutex_unlock(&work->lock);
    return index;
}

static void note_end(struct layers_work *work, size_t index, int rc, const struct err *failure)
{
    pthread_mutex_lock(&work->lock);
    work->present[index] = rc == 0;
    if (rc < 0 && !work->failed) {
        work->failed = true;
        work->failed_index = index;
        work->failed_rc = rc;
        work->failure = *failure;
    }
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
}

static void *work_on(void *arg)
{
    struct layers_work *work = arg;
    for (size_t i; (i = take_next(work)) < work->image->layer_count;) {
        struct err failure = ERR_INIT;
        int rc = layers_build(work, i, &failure);
        note_end(work, i, rc, &failure);
    }
    return NULL;
}

/* Fewer threads do the same work, so one that cannot be started is no failure. */
static void run_threads(struct layers_work *work, size_t missing)
{
    pthread_t threads[LAYERS_PARALLEL - 1];
    size_t count = 0;
    while (count + 1 < missing && count < ARRAY_SIZE(threads) &&
           pthread_create(&threads[count], NULL, work_on, work) == 0)
        count++;
    (void)work_on(work);
    for (size_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
}

/* Notes which layers are there; the number of the others, or -errno. */
static int look(struct layers_work *work, struct err *err)
{
    int missing = 0;
    for (size_t i = 0; i < work->image->layer_count; i++) {
        char key[LAYERS_KEY_LEN];
        int rc = layers_find(work->node, &work->image->layers[i], key, err);
        if (rc < 0)
            return rc;
        work->present[i] = rc == 1;
        missing += rc == 0;
    }
    return missing;
}

static int ensure(struct layers_work *work, struct err *err)
{
    int missing = look(work, err);
    if (missing <= 0)
        return missing;
    (void)pthread_mutex_init(&work->lock, NULL);
    (void)pthread_cond_init(&work->changed, NULL);
    run_threads(work, (size_t)missing);
    (void)pthread_cond_destroy(&work->changed);
    (void)pthread_mutex_destroy(&work->lock);
    if (!work->failed)
        return 0;
    if (err)
        *err = work->failure;
    return err_wrap(err, work->failed_rc, "cannot convert layer %zu of %zu (%s)",
                    work->failed_index + 1, work->image->layer_count,
                    work->image->layers[work->failed_index].digest);
}

int layers_ensure(struct node *node, const struct catalog_image *image,
                  const struct layers_fetch *fetch, convert_stop *stop, void *stop_arg,
                  struct err *err)
{
    if (image->layer_count > OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "image %s has %zu layers, more than %d", image->digest,
                        image->layer_count, OCI_LAYERS_MAX);
    struct layers_work work = {
        .node = node, .image = image, .fetch = fetch, .stop = stop, .stop_arg = stop_arg};
    return ensure(&work, err);
}
