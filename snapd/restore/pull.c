#include "pull.h"

#include "catalog_event.h"
#include "catalog_place.h"
#include "commit_blobs.h"
#include "fault.h"
#include "layers.h"
#include "log.h"
#include "pull_internal.h"

#include <string.h>

static void pull_init(struct pull *pull, struct job *job, const struct image_ref *ref, bool is_all)
{
    *pull = (struct pull){.job = job, .node = job_node(job), .ref = ref, .is_all = is_all};
    commit_image_init(&pull->image);
    pthread_mutex_init(&pull->lock, NULL);
}

static void pull_free(struct pull *pull)
{
    commit_image_free(&pull->image);
    catalog_image_free(&pull->row);
    remote_close(pull->opened);
    pthread_mutex_destroy(&pull->lock);
}
#define cleanup_pull cleanup_with(pull_free)

static int choose_remote(struct pull *pull, struct err *err)
{
    const struct image_ref *ref = pull->ref;
    struct remote *own = pull->node->remote;
    if (!ref->repository) {
        int rc = err_fail(err, ERR_NOT_FOUND, "there is no image %s on this node", ref->text);
        err_hint(err, "say where it is: [HOST/]NAME@sha256:...");
        return rc;
    }
    pull->remote = own;
    if (!ref->host || (own->host[0] != '\0' && strcmp(ref->host, own->host) == 0))
        return 0;
    /* The certificate is for this node's own remote; a host that a user names must not see it. */
    struct registry_options options = pull->node->registry;
    options.client_cert = NULL;
    options.client_key = NULL;
    int rc = registry_open_host(ref->host, &options, &pull->opened, err);
    pull->remote = pull->opened;
    return rc;
}

static int get_manifest(struct pull *pull, const char *reference, struct remote_manifest *ret,
                        struct err *err)
{
    struct job_asker asker = {.job = pull->job, .stop = ERR_INIT};
    int rc = remote_manifest_get_or_stop(pull->remote, pull->ref->repository, reference,
                                         job_asker_ask, &asker, ret, err);
    return job_asker_end(&asker, rc, err);
}

static int go_through(struct pull *pull, struct remote_manifest *at, int depth, int *looks,
                      struct remote_manifest *ret, struct err *err);

/* What an entry of an index leads to. */
static int follow(struct pull *pull, const struct oci_descriptor *entry, int depth, int *looks,
                  struct remote_manifest *ret, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest inner = {.bytes = NULL};
    const struct digest_text digest = digest_format(&entry->digest);
    if (++*looks > PULL_INDEX_LOOKS_MAX)
        return err_fail(err, ERR_TOO_LARGE,
                        "no image for this machine among the first %d that the "
                        "index leads to",
                        PULL_INDEX_LOOKS_MAX);
    int rc = get_manifest(pull, digest.s, &inner, err);
    if (rc == 0 && (uint64_t)entry->size != inner.len)
        rc = err_fail(err, ERR_DIGEST, "manifest %s has %zu bytes, but the index says %lld",
                      digest.s, inner.len, (long long)entry->size);
    return rc == 0 ? go_through(pull, &inner, depth + 1, looks, ret, err) : rc;
}

/* No entry says that it is for this machine, but indexes in it that say nothing may lead to one
 * that is. `failure` is what is told when none does. */
static int look_into_nested(struct pull *pull, const struct remote_manifest *at, int depth,
                            int *looks, const struct err *failure, struct remote_manifest *ret,
                            struct err *err)
{
    for (size_t n = 0;; n++) {
        struct oci_descriptor entry;
        struct err inner = ERR_INIT;
        int rc = oci_index_nested(at->bytes, at->len, n, &entry, err);
        if (rc <= 0)
            return rc < 0 ? rc : err_pass(err, -failure->num, failure);
        rc = follow(pull, &entry, depth, looks, ret, &inner);
        oci_descriptor_free(&entry);
        if (rc == 0 || inner.code != ERR_NOT_FOUND)
            return err_pass(err, rc, &inner);
    }
}

/* The image that a manifest or index stands for. Takes *at over. */
static int go_through(struct pull *pull, struct remote_manifest *at, int depth, int *looks,
                      struct remote_manifest *ret, struct err *err)
{
    struct oci_descriptor chosen;
    struct err failure = ERR_INIT;
    if (!oci_media_is_index(at->media_type)) {
        *ret = *at;
        *at = (struct remote_manifest){.bytes = NULL};
        return 0;
    }
    if (depth == PULL_INDEX_DEPTH_MAX)
        return err_fail(err, ERR_TOO_LARGE, "indexes are nested more than %d deep",
                        PULL_INDEX_DEPTH_MAX);
    int rc = oci_index_select(at->bytes, at->len, &chosen, &failure);
    if (rc < 0 && failure.code == ERR_NOT_FOUND)
        return look_into_nested(pull, at, depth, looks, &failure, ret, err);
    if (rc < 0)
        return err_pass(err, rc, &failure);
    rc = follow(pull, &chosen, depth, looks, ret, err);
    oci_descriptor_free(&chosen);
    return rc;
}

/* Fetches the manifest, going through indexes. */
static int fetch_manifest(struct pull *pull, struct remote_manifest *ret, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest at = {.bytes = NULL};
    int looks = 0;
    int rc = get_manifest(pull, pull->ref->reference, &at, err);
    return rc == 0 ? go_through(pull, &at, 0, &looks, ret, err) : rc;
}

/* Stores the manifest and learns what the image consists of. */
static int take_manifest(struct pull *pull, const struct remote_manifest *bytes, struct err *err)
{
    struct oci_manifest *manifest = &pull->image.manifest;
    uint64_t size;
    int rc = commit_blobs_lease(pull->job, &bytes->digest, err);
    if (rc == 0 && blobs_stat(pull->node->blobs, &bytes->digest, &size, NULL) < 0)
        pull->downloaded = bytes->len;
    if (rc == 0)
        rc = blobs_put(pull->node->blobs, bytes->bytes, bytes->len, &pull->image.digest, err);
    if (rc == 0)
        rc = oci_manifest_parse(bytes->bytes, bytes->len, bytes->media_type, manifest, err);
    if (rc < 0)
        return rc;
    if (manifest->config.size > JSON_DOC_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "its config has %lld bytes, more than %d",
                        (long long)manifest->config.size, JSON_DOC_BYTES_MAX);
    pull->total = (uint64_t)manifest->config.size;
    for (size_t i = 0; i < manifest->layer_count; i++)
        pull->total += (uint64_t)manifest->layers[i].size;
    return 0;
}

/* An image for other machines is refused before its layers are fetched. One whose config does not
 * say, as some imported trees do not, is taken. */
static int check_platform(const struct pull *pull, struct err *err)
{
    const struct oci_config *config = &pull->image.config;
    const char *architecture = config->architecture;
    if (!architecture || strcmp(architecture, "unknown") == 0 ||
        oci_host_fit("linux", architecture, NULL) > 0)
        return 0;
    return err_fail(err, ERR_UNSUPPORTED, "the image is for linux/%.100s, but this is linux/%s",
                    architecture, oci_host_architecture());
}

/* Fetches the config and reads both documents back from the store, checked against each other. */
static int take_config(struct pull *pull, const struct remote_manifest *bytes, struct err *err)
{
    int rc = commit_blobs_lease(pull->job, &pull->image.manifest.config.digest, err);
    if (rc == 0)
        rc = pull_blob(pull, OCI_LAYERS_MAX, NULL, job_stop, pull->job, err);
    if (rc < 0)
        return rc;
    const struct oci_descriptor descriptor = {
        .media_type = bytes->media_type, .digest = bytes->digest, .size = (int64_t)bytes->len};
    commit_image_free(&pull->image);
    commit_image_init(&pull->image);
    rc = commit_image_read(pull->node->blobs, &descriptor, &pull->image, err);
    if (rc == 0)
        rc = check_platform(pull, err);
    return rc == 0 ? commit_image_record(&pull->image, "pull", &pull->row, err) : rc;
}

static int fetch_one(void *arg, size_t index, const struct remote_watch *watch, convert_stop *stop,
                     void *stop_arg, struct err *err)
{
    return pull_blob(arg, index, watch, stop, stop_arg, err);
}

/* Downloads layers and converts them on the way. A layer whose image is here already, made of
 * another blob or left when this one was lost, has only its blob fetched. */
static int fetch_layers(struct pull *pull, struct err *err)
{
    const struct layers_fetch by_pull = {.blob = fetch_one, .arg = pull};
    size_t count = pull->row.layer_count;
    /* Before anybody looks for them (I5). */
    int rc = commit_blobs_lease_layers(pull->job, &pull->row, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count; i++)
        pull_blob_note_present(pull, i);
    rc = layers_ensure(pull->node, &pull->row, &by_pull, job_stop, pull->job, err);
    return rc == 0 ? pull_rest(pull, err) : rc;
}

static int fetch(struct pull *pull, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest bytes = {.bytes = NULL};
    int rc = job_step(pull->job, "manifest", err);
    if (rc == 0)
        rc = choose_remote(pull, err);
    if (rc == 0)
        rc = fetch_manifest(pull, &bytes, err);
    if (rc == 0)
        rc = take_manifest(pull, &bytes, err);
    if (rc == 0)
        rc = job_step(pull->job, "config", err);
    if (rc == 0)
        rc = take_config(pull, &bytes, err);
    if (rc == 0)
        rc = job_step(pull->job, "layers", err);
    if (rc == 0)
        rc = fetch_layers(pull, err);
    return rc == 0 ? FAULT_POINT("pull.blobs-stored", err) : rc;
}

static int put_rows(struct pull *pull, struct err *err)
{
    const struct catalog_image *record = &pull->row;
    struct catalog *catalog = pull->node->catalog;
    char object[DIGEST_TEXT_LEN + 8];
    snprintf(object, sizeof object, "image:%s", record->digest);
    int rc =
        pull->is_all ? job_settle(pull->job, "record", err) : job_step(pull->job, "record", err);
    if (rc == 0)
        rc = catalog_image_put(catalog, record, err);
    if (rc == 0)
        rc = catalog_place_add_image(catalog, pull->remote->host, pull->ref->repository, record,
                                     err);
    if (rc == 0 && pull->ref->name)
        rc = catalog_image_name_set(catalog, pull->ref->name, record->digest, true, err);
    return rc == 0 ? catalog_event_add(catalog, "image-pulled", object, NULL, err) : rc;
}

static int record(struct pull *pull, struct err *err)
{
    struct catalog *catalog = pull->node->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_end(catalog, put_rows(pull, err), err);
    return rc == 0 ? FAULT_POINT("pull.recorded", err) : rc;
}

/* The catalog is the truth; index.json follows at the next change, or start, at the latest. */
static void sync_index(struct node *node)
{
    struct err failure = ERR_INIT;
    if (node_sync_index(node, &failure) < 0)
        log_event(LOG_WARN, "index-not-written", "error", failure.text, NULL);
}

static int pull_one(struct job *job, const struct image_ref *ref, bool is_all, char **ret_digest,
                    uint64_t *ret_downloaded, struct err *err)
{
    *ret_downloaded = 0;
    /* What a digest names never changes. */
    if (ref->local_digest && !ref->name) {
        *ret_digest = strdup(ref->local_digest);
        return *ret_digest ? 0 : err_errno(err, ENOMEM, "cannot pull %s", ref->text);
    }
    cleanup_pull struct pull pull;
    pull_init(&pull, job, ref, is_all);
    int rc = fetch(&pull, err);
    if (rc == 0)
        rc = record(&pull, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot pull %s", ref->text);
    sync_index(pull.node);
    char *digest = strdup(digest_format(&pull.image.digest).s);
    if (!digest)
        return err_errno(err, ENOMEM, "cannot pull %s", ref->text);
    *ret_digest = digest;
    *ret_downloaded = pull.downloaded;
    return 0;
}

int pull_image(struct job *job, const struct image_ref *ref, char **ret_digest, struct err *err)
{
    uint64_t downloaded;
    int rc = pull_one(job, ref, false, ret_digest, &downloaded, err);
    return rc < 0 ? commit_blobs_end(job, rc, err) : 0;
}

static int make_result(struct node *node, const char *digest, uint64_t downloaded, json_t **ret,
                       struct err *err)
{
    cleanup_catalog_image struct catalog_image image = {0};
    int rc = catalog_image_get(node->catalog, digest, &image, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *whole = image_json(&image);
    json_t *layers = json_array();
    for (size_t i = 0; layers && i < image.layer_count; i++)
        (void)json_array_append_new(layers, json_string(image.layers[i].digest));
    json_t *result =
        json_pack("{s:s, s:s, s:O?, s:o, s:O?, s:I}", "id", digest, "digest", digest, "names",
                  json_object_get(whole, "names"), "layers", layers, "size",
                  json_object_get(whole, "size"), "downloaded", (json_int_t)downloaded);
    if (!result)
        return err_errno(err, ENOMEM, "cannot describe image %s", digest);
    *ret = result;
    return 0;
}

static int run_pull(struct job *job, json_t **ret_result, struct err *err)
{
    cleanup_image_ref struct image_ref ref = {.text = NULL};
    cleanup_free char *digest = NULL;
    const char *text;
    uint64_t downloaded = 0;
    int rc = json_doc_get_str(job_params(job), "reference", "the request", &text, err);
    if (rc == 0)
        rc = image_ref_resolve(job_node(job), text, &ref, err);
    if (rc == 0)
        rc = pull_one(job, &ref, true, &digest, &downloaded, err);
    if (rc == 0)
        rc = make_result(job_node(job), digest, downloaded, ret_result, err);
    return commit_blobs_end(job, rc, err);
}

const struct job_kind pull_job = {.name = "image.pull", .run = run_pull, .remote = true};
