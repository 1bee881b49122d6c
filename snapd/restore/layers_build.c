#include "layers_build.h"

#include "catalog_layer.h"
#include "cleanup.h"
#include "fault.h"
#include "layers_busy.h"
#include "log.h"
#include "publish.h"

#include <string.h>

struct build {
    struct layers_work *work; /* borrowed */
    size_t index;
    const struct catalog_layer *layer; /* borrowed */
    struct digest digest;              /* of the blob */
    struct digest diff_id;
    struct publish publish;
    bool from_store;              /* the blob was there before */
    struct convert *convert;      /* NULL before it began; owned */
    struct convert_result result; /* once it is done; owned */
    struct layers_busy chain;
    struct layers_busy diff;
};

static void build_free(struct build *build)
{
    convert_free(build->convert);
    convert_result_free(&build->result);
    publish_abort(&build->publish);
    layers_busy_leave(&build->diff);
    layers_busy_leave(&build->chain);
}
#define cleanup_build cleanup_with(build_free)

/* Converting */

static int start(struct build *build, int blob_fd, struct err *err)
{
    const struct convert_request request = {
        .blob_fd = blob_fd,
        .target_fd = build->publish.fd,
        .mode = CONVERT_LAYER,
        .is_lowest = build->index == 0,
        .diff_id = &build->diff_id,
        .blob_size = (uint64_t)build->layer->size,
    };
    return convert_start(&request, &build->convert, err);
}

static int on_begun(void *arg, int fd, struct err *err)
{
    struct build *build = arg;
    /* A download that begins anew is another file. */
    convert_free(build->convert);
    build->convert = NULL;
    if (ftruncate(build->publish.fd, 0) < 0)
        return err_errno(err, errno, "cannot empty a temporary file");
    return start(build, fd, err);
}

/* A conversion that has failed does not end the download: if that is damaged, its failure is the
 * cause and the one to report. */
static int on_grown(void *arg, uint64_t size, struct err *err)
{
    struct build *build = arg;
    int rc = layers_work_stop(build->work, err);
    return rc < 0 ? rc : convert_feed(build->convert, size, false, err);
}

/* Converts the blob of the store, unless it was converted while it was fetched. */
static int start_on_store(struct build *build, struct err *err)
{
    uint64_t size;
    cleanup_fd int blob = blobs_open_blob(build->work->node->blobs, &build->digest, &size, err);
    if (blob < 0)
        return blob;
    build->from_store = true;
    if (size != (uint64_t)build->layer->size)
        return err_fail(err, ERR_DAMAGED, "its blob has %llu bytes instead of %lld",
                        (unsigned long long)size, (long long)build->layer->size);
    return start(build, blob, err);
}

/* Begins the conversion and brings it the whole blob. */
static int feed(struct build *build, struct err *err)
{
    const struct layers_fetch *fetch = build->work->fetch;
    const struct remote_watch watch = {.begun = on_begun, .grown = on_grown, .arg = build};
    int rc = fetch
                 ? fetch->blob(fetch->arg, build->index, &watch, layers_work_stop, build->work, err)
                 : 0;
    if (rc == 0 && !build->convert)
        rc = start_on_store(build, err);
    if (rc == 0)
        rc = convert_feed(build->convert, (uint64_t)build->layer->size, true, err);
    return rc;
}

struct lowers {
    int fds[OCI_LAYERS_MAX]; /* owned; topmost first */
    size_t count;
};

static void lowers_close(struct lowers *lowers)
{
    for (size_t i = 0; i < lowers->count; i++)
        cleanup_fdp(&lowers->fds[i]);
    lowers->count = 0;
}
#define cleanup_lowers cleanup_with(lowers_close)

static int open_lowers(const struct build *build, struct lowers *ret, struct err *err)
{
    struct node *node = build->work->node;
    for (size_t i = build->index; i-- > 0;) {
        char key[LAYERS_KEY_LEN];
        const struct catalog_layer *layer = &build->work->image->layers[i];
        int rc = layers_find(node, layer, key, err);
        if (rc == 0)
            rc = err_fail(err, ERR_NOT_FOUND, "the image of layer %zu is gone", i + 1);
        int fd = rc < 0 ? rc : layers_open(node, key, err);
        if (fd < 0)
            return fd;
        ret->fds[ret->count++] = fd;
    }
    return 0;
}

static int go_on_with_lowers(struct build *build, struct err *err)
{
    cleanup_lowers struct lowers lowers = {.count = 0};
    layers_busy_leave(&build->diff); /* the image is of no use for other chains */
    int rc = layers_work_wait_below(build->work, build->index, err);
    if (rc == 0)
        rc = open_lowers(build, &lowers, err);
    return rc == 0 ? convert_continue(build->convert, lowers.fds, lowers.count, err) : rc;
}

static int convert(struct build *build, struct err *err)
{
    int rc = feed(build, err);
    if (rc == 0)
        rc = convert_wait(build->convert, layers_work_stop, build->work, &build->result, err);
    if (rc != CONVERT_NEEDS_LOWERS)
        return rc;
    rc = go_on_with_lowers(build, err);
    if (rc == 0)
        rc = convert_wait(build->convert, layers_work_stop, build->work, &build->result, err);
    if (rc == CONVERT_NEEDS_LOWERS)
        return err_fail(err, ERR_INTERNAL, "the converter asked for the layers below twice");
    return rc;
}

/* Whether the store's blob is not what its name says; *ret_why tells then. */
static bool is_blob_damaged(const struct build *build, const struct err *failure,
                            struct err *ret_why)
{
    if (!build->from_store || failure->code == ERR_INTERRUPTED || failure->code == ERR_CANCELLED ||
        failure->code == ERR_NO_SPACE)
        return false;
    return blobs_verify(build->work->node->blobs, &build->digest, ret_why) < 0 &&
           ret_why->code == ERR_DIGEST;
}

/* A file of the right size counts as the blob until somebody reads it (blobs.h), as happened now.
 * Who can fetch it does so. */
static int convert_again(struct build *build, const struct err *why, struct err *err)
{
    log_event(LOG_WARN, "blob-damaged", "error", why->text, NULL);
    convert_free(build->convert);
    build->convert = NULL;
    build->from_store = false;
    int rc = blobs_remove(build->work->node->blobs, &build->digest, err);
    if (rc < 0)
        return rc;
    if (ftruncate(build->publish.fd, 0) < 0)
        return err_errno(err, errno, "cannot empty a temporary file");
    return convert(build, err);
}

static int convert_checked(struct build *build, struct err *err)
{
    struct err failure = ERR_INIT;
    struct err why = ERR_INIT;
    int rc = convert(build, &failure);
    if (rc >= 0)
        return rc;
    if (!is_blob_damaged(build, &failure, &why))
        return err_pass(err, rc, &failure);
    if (build->work->fetch)
        return convert_again(build, &why, err);
    err_hint(&why, "fetch it again: varve image pull NAME");
    return err_pass(err, -why.num, &why);
}

/* Publishing */

static int record(struct build *build, const char *key, struct err *err)
{
    const struct convert_result *result = &build->result;
    struct node *node = build->work->node;
    const struct catalog_layer_image row = {.key = (char *)key,
                                            .bytes = (int64_t)result->image_bytes,
                                            .entries = (int64_t)result->entries,
                                            .dropped = (int64_t)result->dropped,
                                            .dropped_first = result->dropped_first};
    return catalog_layer_put(node->catalog, &row, err);
}

static void log_dropped(const struct convert_result *result, const char *key)
{
    char count[32];
    if (result->dropped == 0)
        return;
    snprintf(count, sizeof count, "%llu", (unsigned long long)result->dropped);
    log_event(LOG_WARN, "attributes-dropped", "layer", key, "count", count, "first",
              result->dropped_first, NULL);
}

/* A file whose row cannot be written must not stay: nothing would ever remove it. */
static void take_back(struct node *node, const char *key)
{
    struct err failure = ERR_INIT;
    if (layers_remove(node, key, &failure) < 0)
        log_event(LOG_WARN, "layer-not-removed", "layer", key, "error", failure.text, NULL);
}

static int publish(struct build *build, struct err *err)
{
    struct node *node = build->work->node;
    char key[LAYERS_KEY_LEN];
    if (build->result.used_lowers)
        snprintf(key, sizeof key, "chain-%.64s", strchr(build->layer->chain_id, ':') + 1);
    else
        snprintf(key, sizeof key, "diff-%.64s", digest_hex(&build->diff_id).s);
    int rc = FAULT_POINT("layers.converted", err);
    if (rc == 0)
        rc = publish_commit(&build->publish, node->layers_fd, key, PUBLISH_REPLACE, err);
    if (rc < 0) {
        if (build->publish.temp[0] == '\0') /* it has its name, which may not last */
            take_back(node, key);
        return rc;
    }
    rc = FAULT_POINT("layers.published", err);
    if (rc == 0)
        rc = record(build, key, err);
    if (rc < 0)
        take_back(node, key);
    else
        log_dropped(&build->result, key);
    return rc;
}

/* One layer */

static int is_there(const struct build *build, struct err *err)
{
    char key[LAYERS_KEY_LEN];
    return layers_find(build->work->node, build->layer, key, err);
}

/* Waits for others that work on the layer. 1 when its image is there then. */
static int enter(struct build *build, struct err *err)
{
    struct layers_work *work = build->work;
    int rc = layers_busy_enter(&build->chain, work->node, "chain", build->layer->chain_id,
                               layers_work_stop, work, err);
    if (rc == 0)
        rc = is_there(build, err);
    if (rc == 0)
        rc = layers_busy_enter(&build->diff, work->node, "diff", build->layer->diff_id,
                               layers_work_stop, work, err);
    return rc == 0 ? is_there(build, err) : rc;
}

int layers_build(struct layers_work *work, size_t index, struct err *err)
{
    cleanup_build struct build build = {.work = work,
                                        .index = index,
                                        .layer = &work->image->layers[index],
                                        .publish = PUBLISH_INIT};
    int rc = digest_parse(build.layer->digest, &build.digest, err);
    if (rc == 0)
        rc = digest_parse(build.layer->diff_id, &build.diff_id, err);
    if (rc == 0)
        rc = enter(&build, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = publish_begin(work->node->temp_fd, 0400, &build.publish, err);
    if (rc == 0)
        rc = convert_checked(&build, err);
    return rc == 0 ? publish(&build, err) : rc;
}
