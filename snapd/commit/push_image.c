#include "push_image.h"

#include "catalog_place.h"
#include "commit_blobs.h"
#include "fault.h"
#include "push_image_internal.h"

#include <string.h>
#include <time.h>

int push_image_lease(struct job *job, const struct commit_image *image, struct err *err)
{
    int rc = commit_blobs_lease(job, &image->digest, err);
    if (rc == 0)
        rc = commit_blobs_lease(job, &image->manifest.config.digest, err);
    for (size_t i = 0; i < image->manifest.layer_count && rc == 0; i++)
        rc = commit_blobs_lease(job, &image->manifest.layers[i].digest, err);
    return rc;
}

static void add_blob(struct push *push, const struct oci_descriptor *descriptor)
{
    for (size_t i = 0; i < push->count; i++)
        if (digest_equal(&push->blobs[i].descriptor->digest, &descriptor->digest))
            return;
    push->blobs[push->count++] = (struct push_blob){.descriptor = descriptor};
    push->total += (uint64_t)descriptor->size;
}

/* The largest first, so that none is begun when all others are done. */
static int by_size(const void *a, const void *b)
{
    int64_t left = ((const struct push_blob *)a)->descriptor->size;
    int64_t right = ((const struct push_blob *)b)->descriptor->size;
    return left < right ? 1 : left > right ? -1 : 0;
}

static int push_begin(struct push *push, const struct push_image *wanted, struct err *err)
{
    const struct oci_manifest *manifest = &wanted->image->manifest;
    *push = (struct push){.wanted = wanted, .node = job_node(wanted->job), .failure = ERR_INIT};
    pthread_mutex_init(&push->lock, NULL);
    push->blobs = calloc(manifest->layer_count + 1, sizeof *push->blobs);
    if (!push->blobs)
        return err_errno(err, ENOMEM, "cannot push an image");
    for (size_t i = 0; i < manifest->layer_count; i++)
        add_blob(push, &manifest->layers[i]);
    add_blob(push, &manifest->config);
    qsort(push->blobs, push->count, sizeof *push->blobs, by_size);
    return 0;
}

static void push_free(struct push *push)
{
    free(push->blobs);
    pthread_mutex_destroy(&push->lock);
}
#define cleanup_push cleanup_with(push_free)

/* What is done with each blob. */
typedef int push_work(struct push *push, struct push_blob *blob, struct err *err);

struct crew {
    struct push *push;
    push_work *work;
};

/* The next blob; NULL when there is none, or one has failed. */
static struct push_blob *take_blob(struct push *push)
{
    struct push_blob *blob = NULL;
    pthread_mutex_lock(&push->lock);
    if (!push->failed && push->next < push->count)
        blob = &push->blobs[push->next++];
    pthread_mutex_unlock(&push->lock);
    return blob;
}

static void note_failure(struct push *push, const struct err *failure)
{
    pthread_mutex_lock(&push->lock);
    if (!push->failed)
        push->failure = *failure;
    push->failed = true;
    pthread_mutex_unlock(&push->lock);
}

static void *run_thread(void *arg)
{
    const struct crew *crew = arg;
    struct push_blob *blob;
    while ((blob = take_blob(crew->push)) != NULL) {
        struct err failure = ERR_INIT;
        if (crew->work(crew->push, blob, &failure) < 0)
            note_failure(crew->push, &failure);
    }
    return NULL;
}

/* Works on all blobs, several at a time. Threads that cannot be had are done without. */
static int for_each(struct push *push, push_work *work, struct err *err)
{
    struct crew crew = {.push = push, .work = work};
    pthread_t threads[PUSH_IMAGE_THREADS - 1];
    size_t count = 0;
    push->next = 0;
    push->failed = false;
    for (size_t i = 0; i < push->count; i++)
        push->blobs[i].done = 0;
    while (count < ARRAY_SIZE(threads) && count + 1 < push->count &&
           pthread_create(&threads[count], NULL, run_thread, &crew) == 0)
        count++;
    (void)run_thread(&crew);
    for (size_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
    return push->failed ? err_pass(err, -push->failure.num, &push->failure) : 0;
}

static int send_blob(struct push *push, struct push_blob *blob, struct err *err)
{
    return push_blob_send(push, blob, false, err);
}

/* What the tag names, as the remote says in short: 1 this image, 0 nothing, 2 another one. */
static int look_at_tag(struct push *push, struct job_asker *asker, struct digest *ret_there,
                       struct err *err)
{
    const struct push_image *wanted = push->wanted;
    struct remote_manifest_stat there;
    int rc = remote_manifest_stat(push->node->remote, wanted->repository, wanted->tag,
                                  job_asker_ask, asker, &there, err);
    if (rc < 0)
        return rc;
    *ret_there = there.digest;
    return digest_equal(&there.digest, &wanted->image->digest) ? 1 : 2;
}

/* The same, as its bytes say: the short answer may be late. */
static int read_tag(struct push *push, struct job_asker *asker, struct digest *ret_there,
                    struct err *err)
{
    const struct push_image *wanted = push->wanted;
    cleanup_remote_manifest struct remote_manifest there = {0};
    int rc = remote_manifest_get_or_stop(push->node->remote, wanted->repository, wanted->tag,
                                         job_asker_ask, asker, &there, err);
    if (rc < 0)
        return rc;
    *ret_there = there.digest;
    return digest_equal(&there.digest, &wanted->image->digest) ? 1 : 2;
}

/* What the tag names: 1 this image, 0 nothing; ERR_EXISTS when it names another one. */
static int check_tag(struct push *push, struct err *err)
{
    const struct push_image *wanted = push->wanted;
    struct job_asker asker = {.job = wanted->job, .stop = ERR_INIT};
    struct err failure = ERR_INIT;
    struct digest there;
    int rc = look_at_tag(push, &asker, &there, &failure);
    if (rc == 2)
        rc = read_tag(push, &asker, &there, &failure);
    rc = job_asker_end(&asker, rc, &failure);
    if (rc < 0 && failure.code == ERR_NOT_FOUND)
        rc = 0;
    if (rc < 0)
        return err_pass(err, rc, &failure);
    push->untagged = rc != 1;
    return rc == 2 ? remote_fail_taken(wanted->repository, wanted->tag, &there, err) : rc;
}

static int pause_job(struct job *job, int ms, struct err *err)
{
    const struct timespec step = {.tv_nsec = 50 * 1000000L};
    int rc = job_stop(job, err);
    for (; ms > 0 && rc == 0; ms -= 50) {
        (void)nanosleep(&step, NULL);
        rc = job_stop(job, err);
    }
    return rc;
}

/* PUTs the manifest, again after a pause when blobs are said to be missing: they may only not be
 * visible yet. `missing` says what was missing at last. */
static int put_manifest(const struct push_image *wanted, struct remote_missing *missing,
                        struct err *err)
{
    struct remote *remote = job_node(wanted->job)->remote;
    int (*put)(struct remote *, const char *, const char *, const char *, const void *, size_t,
               remote_progress, void *, struct remote_missing *, struct err *) =
        wanted->tag ? remote_manifest_claim : remote_manifest_put_or_stop;
    const struct commit_image *image = wanted->image;
    int pause_ms = PUSH_IMAGE_PAUSE_MS;
    for (int tries = 1;; tries++, pause_ms *= 2) {
        struct err failure = ERR_INIT;
        struct job_asker asker = {.job = wanted->job, .stop = ERR_INIT};
        *missing = (struct remote_missing){.any = false};
        int rc = put(remote, wanted->repository, wanted->tag, image->manifest.media_type,
                     buf_str(&image->manifest_text), image->manifest_text.len, job_asker_ask,
                     &asker, missing, &failure);
        rc = job_asker_end(&asker, rc, &failure);
        if (rc == 0)
            return 0;
        if (!missing->any || tries == PUSH_IMAGE_MANIFEST_TRIES)
            return err_pass(err, rc, &failure);
        rc = pause_job(wanted->job, pause_ms, err);
        if (rc < 0)
            return rc;
    }
}

/* Whether the remote misses a blob: it names it, or names none and the blob was not sent now. */
static bool is_missing(const struct remote_missing *missing, const struct push_blob *blob)
{
    for (size_t i = 0; i < missing->count; i++)
        if (digest_equal(&missing->digests[i], &blob->descriptor->digest))
            return true;
    return missing->count == 0 && blob->upload.outcome != REMOTE_BLOB_SENT;
}

static int send_missing(struct push *push, const struct remote_missing *missing, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < push->count; i++) {
        bool missed = is_missing(missing, &push->blobs[i]);
        push->blobs[i].upload.lacked = push->blobs[i].upload.lacked || missed;
        if (missed && rc == 0)
            rc = push_blob_send(push, &push->blobs[i], true, err);
    }
    return rc;
}

/* A refusal may be of what the tag names already: the answer to an earlier attempt was lost. */
static int judge_refusal(struct push *push, int rc, const struct err *failure, struct err *err)
{
    bool refused = failure->code == ERR_REFUSED || failure->code == ERR_DENIED ||
                   failure->code == ERR_CONFLICT || failure->code == ERR_EXISTS;
    struct err tag = ERR_INIT;
    if (!refused || !push->wanted->tag)
        return err_pass(err, rc, failure);
    int named = check_tag(push, &tag);
    if (named == 1)
        return 0;
    if (named < 0 && tag.code == ERR_EXISTS && failure->code != ERR_EXISTS)
        return err_pass(err, named, &tag);
    return err_pass(err, rc, failure);
}

static int push_manifest(struct push *push, struct err *err)
{
    const struct push_image *wanted = push->wanted;
    struct remote_missing missing = {.any = false};
    struct err failure = ERR_INIT;
    int rc = job_step(wanted->job, "manifest", err);
    if (rc == 0 && wanted->before_manifest)
        rc = wanted->before_manifest(wanted->arg, err);
    if (rc < 0)
        return rc;
    rc = put_manifest(wanted, &missing, &failure);
    if (rc < 0 && missing.any) {
        err_clear(&failure);
        rc = send_missing(push, &missing, &failure);
        if (rc == 0)
            rc = put_manifest(wanted, &missing, &failure);
    }
    if (rc < 0)
        rc = judge_refusal(push, rc, &failure, err);
    push->untagged = push->untagged && rc < 0;
    return rc == 0 ? FAULT_POINT("snapshot.manifest-sent", err) : rc;
}

static int prove(struct push *push, struct err *err)
{
    bool verify = push->wanted->level == CATALOG_VERIFIED;
    int rc = job_step(push->wanted->job, verify ? "verify" : "confirm", err);
    return rc == 0 ? for_each(push, verify ? push_blob_verify : push_blob_confirm, err) : rc;
}

static int note_places(const struct push *push, struct err *err)
{
    cleanup_catalog_image struct catalog_image row = {0};
    int rc = commit_image_record(push->wanted->image, "snapshot", &row, err);
    if (rc == 0)
        rc = catalog_place_add_image(push->node->catalog, push->node->remote->host,
                                     push->wanted->repository, &row, err);
    return rc;
}

static void count(const struct push *push, struct push_image_result *ret)
{
    *ret = (struct push_image_result){.lost = push->lost || push->untagged};
    for (size_t i = 0; i < push->count; i++) {
        const struct remote_upload *upload = &push->blobs[i].upload;
        ret->bytes_sent += upload->sent;
        if (upload->outcome != REMOTE_BLOB_SENT)
            ret->bytes_skipped += (uint64_t)push->blobs[i].descriptor->size;
        ret->mounted += upload->outcome == REMOTE_BLOB_MOUNTED;
        ret->resumed += upload->resumed_at > 0;
        ret->restarted += upload->restarts;
        ret->lost = ret->lost || upload->lacked;
    }
}

static int push_all(struct push *push, struct err *err)
{
    int rc = push->wanted->tag ? check_tag(push, err) : 0;
    if (rc >= 0)
        rc = job_step(push->wanted->job, "blobs", err);
    if (rc == 0)
        rc = for_each(push, send_blob, err);
    if (rc == 0)
        rc = FAULT_POINT("snapshot.blobs-sent", err);
    if (rc == 0)
        rc = remote_fail_push(push_manifest(push, err), err);
    if (rc == 0)
        rc = remote_fail_push(prove(push, err), err);
    return rc == 0 ? note_places(push, err) : rc;
}

int push_image(const struct push_image *wanted, struct push_image_result *ret, struct err *err)
{
    cleanup_push struct push push;
    int rc = push_begin(&push, wanted, err);
    if (rc < 0)
        return rc;
    rc = push_all(&push, err);
    count(&push, ret);
    return rc;
}

static int prove_all(struct push *push, struct err *err)
{
    int rc = push->wanted->tag ? check_tag(push, err) : 0;
    if (rc == 0 && push->untagged)
        rc = push_manifest(push, err);
    return rc < 0 ? rc : prove(push, err);
}

int push_image_prove(const struct push_image *wanted, struct push_image_result *ret,
                     struct err *err)
{
    cleanup_push struct push push;
    int rc = push_begin(&push, wanted, err);
    if (rc < 0)
        return rc;
    rc = prove_all(&push, err);
    *ret = (struct push_image_result){.lost = push.lost || push.untagged};
    return rc;
}

void push_image_give_up(const struct push_image *wanted)
{
    cleanup_push struct push push;
    if (push_begin(&push, wanted, NULL) < 0)
        return;
    const int64_t until_ms = clock_now_ms() + PUSH_IMAGE_GIVE_UP_MS;
    for (size_t i = 0; i < push.count; i++)
        push_blob_give_up(&push, &push.blobs[i], until_ms);
}

json_t *push_image_json(const struct push_image_result *result)
{
    return json_pack("{s:I, s:I, s:i, s:i, s:i}", "bytes_sent", (json_int_t)result->bytes_sent,
                     "bytes_skipped", (json_int_t)result->bytes_skipped, "mounted", result->mounted,
                     "resumed", result->resumed, "restarted", result->restarted);
}
