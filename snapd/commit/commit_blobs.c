#include "commit_blobs.h"

#include "blobs.h"
#include "catalog_image.h"
#include "catalog_lease.h"
#include "log.h"
#include "oci_image.h"
#include "pull.h"

/* catalog_lease.h has the form of the keys. */
static int lease_keys(struct job *job, const char *const *keys, size_t count, struct err *err)
{
    struct catalog *catalog = job_node(job)->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = catalog_lease_add(catalog, job_id(job), keys[i], err);
        if (rc == 0)
            rc = catalog_deletion_queue(catalog, keys[i], err);
    }
    return catalog_end(catalog, rc, err);
}

int commit_blobs_lease(struct job *job, const struct digest *digest, struct err *err)
{
    char key[DIGEST_TEXT_LEN + 8];
    snprintf(key, sizeof key, "blob:%s", digest_format(digest).s);
    return lease_keys(job, (const char *[]){key}, 1, err);
}

int commit_blobs_lease_layers(struct job *job, const struct catalog_image *image, struct err *err)
{
    size_t count = 0;
    char keys[3 * OCI_LAYERS_MAX][DIGEST_TEXT_LEN + 8];
    const char *list[3 * OCI_LAYERS_MAX];
    for (size_t i = 0; i < image->layer_count && i < OCI_LAYERS_MAX; i++) {
        const struct catalog_layer *layer = &image->layers[i];
        snprintf(keys[count++], sizeof keys[0], "blob:%s", layer->digest);
        snprintf(keys[count++], sizeof keys[0], "diff:%s", layer->diff_id);
        snprintf(keys[count++], sizeof keys[0], "layer:%s", layer->chain_id);
    }
    for (size_t i = 0; i < count; i++)
        list[i] = keys[i];
    return lease_keys(job, list, count, err);
}

int commit_blobs_put(struct job *job, const char *bytes, size_t len, struct digest *ret,
                     struct err *err)
{
    struct digest digest;
    int rc = digest_bytes(bytes, len, &digest, err);
    if (rc == 0)
        rc = commit_blobs_lease(job, &digest, err);
    if (rc == 0)
        rc = blobs_put(job_node(job)->blobs, bytes, len, ret, err);
    return rc;
}

int commit_blobs_end(struct job *job, int rc, const struct err *err)
{
    struct node *node = job_node(job);
    if (rc < 0 && err && err->code == ERR_INTERRUPTED)
        return rc;
    struct err failure = ERR_INIT;
    if (catalog_lease_drop(node->catalog, job_id(job), &failure) < 0 ||
        pull_run_deletions(node, &failure) < 0)
        log_event(LOG_WARN, "blobs-not-removed", "job", job_id(job), "error", failure.text, NULL);
    return rc;
}
