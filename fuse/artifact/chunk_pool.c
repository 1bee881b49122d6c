#include "chunk_pool.h"

#include "cleanup.h"
#include "pack_frame.h"

#include <pthread.h>
#include <string.h>

enum {
    THREADS_MAX = 16,
};

struct chunk_pool {
    bool (*is_stored)(void *arg, const struct digest *digest);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t submitted;
    pthread_cond_t done;
    struct chunk_job *first;                /* lock: not begun */
    struct chunk_job *last;                 /* lock */
    bool ending;                            /* lock */
    struct pack_frame *codecs[THREADS_MAX]; /* each one thread's */
    pthread_t threads[THREADS_MAX];
    unsigned codec_count;
    unsigned thread_count;
    unsigned begun; /* lock: threads that have a codec */
};

static bool is_zero(const uint8_t *bytes)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, VOLUME_CHUNK - 1) == 0;
}

static void work(struct chunk_pool *pool, struct pack_frame *codec, struct chunk_job *job)
{
    job->frame_len = 0;
    job->is_zero = is_zero(job->bytes);
    job->rc = job->is_zero ? 0 : digest_bytes(job->bytes, VOLUME_CHUNK, &job->digest, NULL);
    if (job->is_zero || job->rc < 0 || (job->has_known && digest_equal(&job->digest, &job->known)))
        return;
    if (!pool->is_stored || !pool->is_stored(pool->arg, &job->digest))
        job->frame_len = pack_frame_encode(codec, job->bytes, job->frame);
}

/* The next job; NULL at the end. */
static struct chunk_job *take(struct chunk_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (!pool->first && !pool->ending)
        pthread_cond_wait(&pool->submitted, &pool->lock);
    struct chunk_job *job = pool->ending ? NULL : pool->first;
    if (job)
        pool->first = job->next;
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void *run(void *arg)
{
    struct chunk_pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    struct pack_frame *codec = pool->codecs[pool->begun++];
    pthread_mutex_unlock(&pool->lock);
    struct chunk_job *job;
    while ((job = take(pool))) {
        work(pool, codec, job);
        pthread_mutex_lock(&pool->lock);
        job->is_done = true;
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
    return NULL;
}

static int start(struct chunk_pool *pool, unsigned threads, struct err *err)
{
    for (; pool->codec_count < threads; pool->codec_count++) {
        int rc = pack_frame_new(&pool->codecs[pool->codec_count], err);
        if (rc < 0)
            return rc;
    }
    for (; pool->thread_count < threads; pool->thread_count++) {
        int rc = pthread_create(&pool->threads[pool->thread_count], NULL, run, pool);
        if (rc != 0)
            return err_errno(err, rc, "cannot start a thread that compresses chunks");
    }
    return 0;
}

int chunk_pool_new(unsigned threads, bool (*is_stored)(void *arg, const struct digest *digest),
                   void *arg, struct chunk_pool **ret, struct err *err)
{
    if (threads < 1 || threads > THREADS_MAX)
        return err_fail(err, ERR_INTERNAL, "%u threads cannot compress chunks", threads);
    struct chunk_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return err_errno(err, ENOMEM, "cannot compress chunks");
    pool->is_stored = is_stored;
    pool->arg = arg;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->submitted, NULL);
    pthread_cond_init(&pool->done, NULL);
    int rc = start(pool, threads, err);
    if (rc < 0) {
        chunk_pool_free(pool);
        return rc;
    }
    *ret = pool;
    return 0;
}

void chunk_pool_free(struct chunk_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->ending = true;
    pthread_cond_broadcast(&pool->submitted);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->thread_count; i++)
        (void)pthread_join(pool->threads[i], NULL);
    for (unsigned i = 0; i < pool->codec_count; i++)
        pack_frame_free(pool->codecs[i]);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->submitted);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void chunk_pool_submit(struct chunk_pool *pool, struct chunk_job *job)
{
    job->is_done = false;
    job->next = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->first)
        pool->last->next = job;
    else
        pool->first = job;
    pool->last = job;
    pthread_cond_signal(&pool->submitted);
    pthread_mutex_unlock(&pool->lock);
}

int chunk_pool_wait(struct chunk_pool *pool, struct chunk_job *job, struct err *err)
{
    pthread_mutex_lock(&pool->lock);
    while (!job->is_done)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    if (job->rc < 0)
        return err_fail(err, ERR_INTERNAL, "cannot compute the digest of a chunk");
    return 0;
}
