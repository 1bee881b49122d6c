#include "api_handlers.h"

#include "api_uploads.h"
#include "catalog_image.h"
#include "commit_name.h"
#include "import.h"
#include "pull.h"

#include <limits.h>
#include <string.h>

/* Jobs on one image exclude each other under one spelling: "image:debian:12" for "debian:12" and
 * "image:debian:latest" for "debian". A word that is no reference stands for itself. Caller frees;
 * NULL without memory. */
static char *image_object(const char *word)
{
    cleanup_reference struct reference reference = {0};
    cleanup_free char *name = NULL;
    if (reference_parse(word, &reference, NULL) >= 0)
        name = reference.has_digest ? reference_format(&reference) : reference_name(&reference);
    char *object;
    return asprintf(&object, "image:%s", name ? name : word) < 0 ? NULL : object;
}

struct import_source {
    struct node *node;
    const char *upload; /* NULL: a path */
    struct err missing; /* set when there is nothing at the path */
};

static int check_import(void *arg, struct err *err)
{
    const struct import_source *source = arg;
    if (source->upload)
        return api_uploads_check(source->node, source->upload, err);
    if (source->missing.code == ERR_NONE)
        return 0;
    return err_pass(err, -source->missing.num, &source->missing);
}

static int check_import_members(const char *path, const char *upload, const char *name,
                                struct err *err)
{
    if (!path == !upload)
        return err_fail(err, ERR_INVALID, "the body must have either 'path' or 'upload'");
    if (upload && !name)
        return err_fail(err, ERR_INVALID, "an upload has no name of its own; 'name' is missing");
    if (path && path[0] != '/')
        return err_fail(err, ERR_INVALID, "'path' must be absolute, not '%.200s'", path);
    int rc = upload ? id_check(upload, "upload ID", err) : 0;
    if (rc < 0 || !name)
        return rc;
    cleanup_reference struct reference reference = {0};
    rc = api_request_blame(err, reference_parse(name, &reference, err), name);
    if (rc >= 0 && reference.has_digest)
        rc = err_fail(err, ERR_INVALID, "the name of an image cannot hold a digest: %.300s", name);
    return rc;
}

/* What an import will work on: the name that was given, or the one that the job will make of the
 * path. Looks at the path, and does so before the catalog's transaction: a dead network file system
 * holds up this request and no other. Caller frees; NULL when there is nothing to name. */
static char *import_object(const char *path, const char *name, struct import_source *source)
{
    cleanup_free char *file = NULL;
    cleanup_free char *tag = NULL;
    cleanup_free char *made = NULL;
    if (path && commit_name_split(path, &file, &tag, &source->missing) == 0 && !name)
        made = commit_name_of_path(file, tag);
    return name ? image_object(name) : made ? image_object(made) : NULL;
}

int api_images_import(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"path", API_STRING, false, PATH_MAX - 1},
                                                {"upload", API_STRING, false, 0},
                                                {"name", API_STRING, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    const char *path = json_string_value(json_object_get(params, "path"));
    const char *name = json_string_value(json_object_get(params, "name"));
    struct import_source source = {.node = request->node,
                                   .upload = json_string_value(json_object_get(params, "upload"))};
    rc = check_import_members(path, source.upload, name, err);
    if (rc < 0)
        return rc;
    cleanup_free char *object = import_object(path, name, &source);
    struct job_request job = {.kind = import_job.name,
                              .object = object,
                              .params = params,
                              .check = check_import,
                              .check_arg = &source};
    return api_jobs_submit(request, &job, reply, err);
}

int api_images_pull(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"reference", API_STRING, true, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    const char *word = json_string_value(json_object_get(params, "reference"));
    cleanup_reference struct reference reference = {0};
    rc = api_request_blame(err, reference_parse(word, &reference, err), word);
    if (rc < 0)
        return rc;
    struct job_request job = {.kind = pull_job.name, .params = params};
    return api_jobs_submit(request, &job, reply, err);
}

/* What every command here takes, and on every node with the same remote once the image is there:
 * the place of its first name, by digest. Caller frees. */
static char *make_reference(const struct node *node, const struct catalog_image *image)
{
    cleanup_reference struct reference reference = {0};
    cleanup_free char *name = NULL;
    cleanup_free char *repository = NULL;
    struct digest digest;
    char *text;
    if (image->name_count == 0 || digest_parse(image->digest, &digest, NULL) < 0 ||
        reference_parse(image->names[0], &reference, NULL) < 0)
        return strdup(image->digest);
    if (reference.host)
        return asprintf(&text, "%s/%s@%s", reference.host, reference.repository, image->digest) < 0
                   ? NULL
                   : text;
    if (asprintf(&name, "images/%s", reference.repository) < 0)
        name = NULL;
    repository = name ? remote_repository(node->remote, name) : NULL;
    return repository ? remote_reference(node->remote, repository, &digest) : NULL;
}

/* The document; caller owns it. NULL without memory. */
static json_t *document(const struct node *node, const struct catalog_image *image)
{
    cleanup_free char *reference = make_reference(node, image);
    json_t *json = image_json(image);
    if (json && reference && json_object_set_new(json, "image", json_string(reference)) == 0)
        return json;
    json_decref(json);
    return NULL;
}

int api_images_list(struct api_request *request, struct api_reply *reply, struct err *err)
{
    struct catalog_image *images = NULL;
    size_t count = 0;
    int rc = catalog_image_list(request->node->catalog, &images, &count, err);
    if (rc < 0)
        return rc;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, document(request->node, &images[i]));
        catalog_image_free(&images[i]);
    }
    free(images);
    return api_reply_set(reply, 200, json_pack("{s:o}", "images", list), err);
}

int api_images_get(struct api_request *request, struct api_reply *reply, struct err *err)
{
    cleanup_free char *digest = NULL;
    int rc = image_ref_local(request->node, request->arg, &digest, err);
    if (rc < 0)
        return api_request_blame(err, rc, request->arg);
    cleanup_catalog_image struct catalog_image image = {0};
    rc = catalog_image_get(request->node->catalog, digest, &image, err);
    return rc < 0 ? rc : api_reply_set(reply, 200, document(request->node, &image), err);
}

struct image_word {
    struct node *node;
    const char *word;
};

static int check_image_is_here(void *arg, struct err *err)
{
    const struct image_word *image = arg;
    cleanup_free char *digest = NULL;
    return api_request_blame(err, image_ref_local(image->node, image->word, &digest, err),
                             image->word);
}

int api_images_remove(struct api_request *request, struct api_reply *reply, struct err *err)
{
    struct image_word image = {.node = request->node, .word = request->arg};
    cleanup_json json_t *params = json_pack("{s:s}", "reference", request->arg);
    cleanup_free char *object = image_object(request->arg);
    if (!params || !object)
        return err_fail(err, ERR_INTERNAL, "no memory for the request");
    struct job_request job = {.kind = image_rm_job.name,
                              .object = object,
                              .params = params,
                              .check = check_image_is_here,
                              .check_arg = &image};
    return api_jobs_submit(request, &job, reply, err);
}
