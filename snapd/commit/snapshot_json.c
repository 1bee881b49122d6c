#include "snapshot.h"

#include "catalog_image.h"
#include "commit_image.h"
#include "snapshot_internal.h"

#include <string.h>

static json_t *time_or_null(int64_t ns)
{
    return ns ? json_string(clock_format(ns).s) : json_null();
}

/* A text that this program wrote into the row; what cannot be read shows as null. */
static json_t *parsed_or_null(const char *text)
{
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    return json ? json : json_null();
}

/* Digests of the layers; null when the image is not on this node any more. */
static json_t *layers_or_null(struct node *node, const char *digest)
{
    cleanup_catalog_image struct catalog_image image = {0};
    if (catalog_image_get(node->catalog, digest, &image, NULL) < 0)
        return json_null();
    json_t *layers = json_array();
    for (size_t i = 0; i < image.layer_count; i++)
        (void)json_array_append_new(layers, json_string(image.layers[i].digest));
    return layers;
}

/* What any command on any node with the same remote takes. */
static char *make_reference(const struct node *node, const struct catalog_snapshot *snapshot)
{
    struct digest digest;
    if (digest_parse(snapshot->image, &digest, NULL) < 0)
        return NULL;
    return remote_reference(node->remote, snapshot->repository, &digest);
}

/* What a document says of where it is: a remote that has lost it does not have it. */
static const char *durability_of(const struct catalog_snapshot *snapshot)
{
    bool lost = snapshot->lost_ns > 0 && snapshot->durability != CATALOG_LOCAL;
    return lost ? "lost" : catalog_durability_name(snapshot->durability);
}

json_t *snapshot_json(struct node *node, const struct catalog_snapshot *snapshot)
{
    cleanup_free char *reference = make_reference(node, snapshot);
    cleanup_free char *name = snapshot_local_name(node, snapshot);
    if (!reference || !name)
        return NULL;
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s?, s:o, s:o, s:o}", "id", snapshot->id, "run",
                  snapshot->run_id, "image", reference, "digest", snapshot->image, "name", name,
                  "base", snapshot->base, "comment", snapshot->comment, "labels",
                  parsed_or_null(snapshot->labels), "skipped", parsed_or_null(snapshot->skipped),
                  "layers", layers_or_null(node, snapshot->image));
    json_t *rest = json_pack(
        "{s:I, s:I, s:I, s:i, s:s, s:s?, s:o, s:o}", "bytes_new", (json_int_t)snapshot->bytes_new,
        "bytes_total", (json_int_t)snapshot->bytes_total, "entries", (json_int_t)snapshot->entries,
        "freeze_ms", 0, "durability", durability_of(snapshot), "remote", snapshot->remote,
        "created", time_or_null(snapshot->created_ns), "expires",
        time_or_null(snapshot->expires_ns));
    if (!json || !rest || json_object_update(json, rest) < 0) {
        json_decref(json);
        json = NULL;
    }
    json_decref(rest);
    return json;
}

char *snapshot_local_name(const struct node *node, const struct catalog_snapshot *snapshot)
{
    static const char images[] = "images/";
    const char *repository = snapshot->repository;
    size_t prefix = strlen(node->remote->prefix);
    if (prefix > 0 && strncmp(repository, node->remote->prefix, prefix) == 0 &&
        repository[prefix] == '/')
        repository += prefix + 1;
    if (strncmp(repository, images, strlen(images)) == 0)
        repository += strlen(images);
    char *name;
    return asprintf(&name, "%s:%s", repository, snapshot->tag) < 0 ? NULL : name;
}

int snapshot_of_params(struct job *job, struct catalog_snapshot *ret, struct err *err)
{
    const char *id;
    int rc = json_doc_get_str(job_params(job), "snapshot", "the request", &id, err);
    return rc == 0 ? catalog_snapshot_get(job_node(job)->catalog, id, ret, err) : rc;
}

int snapshot_level_of(const json_t *params, enum catalog_durability *ret, struct err *err)
{
    const char *word = NULL;
    int rc = json_doc_opt_str(params, "durability", "the request", &word, err);
    if (rc < 0 || !word)
        return rc;
    for (int level = CATALOG_LOCAL; level <= CATALOG_VERIFIED; level++)
        if (strcmp(word, catalog_durability_name((enum catalog_durability)level)) == 0) {
            *ret = (enum catalog_durability)level;
            return 0;
        }
    return err_fail(err, ERR_INVALID, "'%.40s' is no durability", word);
}

int snapshot_result(struct node *node, const char *id, json_t **ret, struct err *err)
{
    cleanup_catalog_snapshot struct catalog_snapshot row = {0};
    int rc = catalog_snapshot_get(node->catalog, id, &row, err);
    if (rc < 0)
        return rc;
    json_t *json = snapshot_json(node, &row);
    if (!json)
        return err_errno(err, ENOMEM, "cannot describe snapshot %s", id);
    *ret = json;
    return 0;
}
