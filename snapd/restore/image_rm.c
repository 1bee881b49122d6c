#include "pull.h"

#include "catalog_event.h"
#include "commit_blobs.h"
#include "commit_image.h"
#include "commit_step.h"
#include "fault.h"
#include "log.h"

#include <string.h>

/* Last one that takes something away; on record before it is done. */
static const char last_step[] = "remove";

struct removal {
    struct job *job;
    struct node *node;
    const char *text; /* the reference; borrowed from the parameters */
    json_t *names;    /* that are gone; owned */
    char *digest;     /* owned */
    bool image_removed;
};

static void removal_free(struct removal *removal)
{
    json_decref(removal->names);
    free(removal->digest);
}
#define cleanup_removal cleanup_with(removal_free)

/* The names that go: one, or all of the image. */
static int note_names(struct removal *removal, const struct catalog_image *image, const char *name,
                      struct err *err)
{
    removal->names = json_array();
    for (size_t i = 0; i < image->name_count; i++)
        if (!name || strcmp(name, image->names[i]) == 0)
            (void)json_array_append_new(removal->names, json_string(image->names[i]));
    removal->digest = strdup(image->digest);
    return removal->names && removal->digest ? 0 : err_errno(err, ENOMEM, "cannot remove an image");
}

/* Inside a transaction, so that name and image belong together. */
static int remove_rows(struct removal *removal, struct err *err)
{
    struct catalog *catalog = removal->node->catalog;
    cleanup_image_ref struct image_ref ref = {.text = NULL};
    cleanup_catalog_image struct catalog_image image = {0};
    char object[DIGEST_TEXT_LEN + 8];
    int rc = image_ref_resolve(removal->node, removal->text, &ref, err);
    if (rc == 0 && !ref.local_digest)
        rc = err_fail(err, ERR_NOT_FOUND, "there is no image %s on this node", removal->text);
    if (rc == 0)
        rc = catalog_image_get(catalog, ref.local_digest, &image, err);
    if (rc == 0)
        rc = note_names(removal, &image, ref.name, err);
    if (rc < 0)
        return rc;
    removal->image_removed = !ref.name || image.name_count <= 1;
    rc = removal->image_removed ? catalog_image_remove(catalog, image.digest, err)
                                : catalog_image_name_remove(catalog, ref.name, err);
    snprintf(object, sizeof object, "image:%s", image.digest);
    if (rc == 0)
        rc = catalog_event_add(catalog, removal->image_removed ? "image-removed" : "name-removed",
                               object, NULL, err);
    return rc;
}

static int remove_image(struct removal *removal, struct err *err)
{
    struct catalog *catalog = removal->node->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_end(catalog, remove_rows(removal, err), err);
    return rc == 0 ? FAULT_POINT("image.removed", err) : rc;
}

/* An earlier attempt of this job was killed after it had removed the rows. */
static int was_removed(struct removal *removal, bool reached, struct err *missing, struct err *err)
{
    if (missing->code != ERR_NOT_FOUND || !reached)
        return err_pass(err, -missing->num, missing);
    removal->names = json_array();
    removal->image_removed = true;
    return removal->names ? 0 : err_errno(err, ENOMEM, "cannot remove an image");
}

static int run_removal(struct removal *removal, struct err *err)
{
    bool reached = false;
    struct err failure = ERR_INIT;
    int rc = commit_step_reached(removal->job, last_step, &reached, err);
    if (rc == 0)
        rc = job_settle(removal->job, last_step, err);
    if (rc < 0)
        return rc;
    rc = remove_image(removal, &failure);
    if (rc < 0)
        rc = was_removed(removal, reached, &failure, err);
    return rc == 0 ? node_sync_index(removal->node, err) : rc;
}

static int run_rm(struct job *job, json_t **ret_result, struct err *err)
{
    cleanup_removal struct removal removal = {.job = job, .node = job_node(job)};
    int rc = json_doc_get_str(job_params(job), "reference", "the request", &removal.text, err);
    if (rc == 0)
        rc = run_removal(&removal, err);
    rc = commit_blobs_end(job, rc, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot remove image %s",
                        removal.text ? removal.text : "without a name");
    *ret_result = json_pack("{s:s?, s:O, s:b}", "digest", removal.digest, "names", removal.names,
                            "removed", removal.image_removed);
    return *ret_result ? 0 : err_errno(err, ENOMEM, "cannot describe the removal");
}

const struct job_kind image_rm_job = {.name = "image.rm", .run = run_rm, .frees_space = true};
