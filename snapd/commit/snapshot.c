#include "snapshot.h"

#include "capture_skipped.h"
#include "catalog_event.h"
#include "catalog_run.h"
#include "commit_blobs.h"
#include "commit_image.h"
#include "commit_layer.h"
#include "commit_name.h"
#include "fault.h"
#include "id.h"
#include "log.h"
#include "path_text.h"
#include "reference.h"
#include "run.h"
#include "snapshot_internal.h"

#include <string.h>

struct creation {
    struct job *job;
    struct node *node;
    const char *id;      /* of the snapshot; borrowed from the parameters */
    const char *run;     /* the same */
    const char *comment; /* the same; NULL without */
    char *repository;    /* in the remote, prefix included; owned */
    char *tag;           /* owned */
    char *name;          /* on this node; owned */
    char *labels;        /* JSON; owned */
    int64_t expires_ns;  /* 0: never */
    char *base;          /* digest of the run's image; owned */
    struct commit_image base_image;
    struct commit_image image;
    struct capture_result layer;
    struct commit_added added;
    bool recorded;
    bool is_all; /* the job's work is done with it */
};

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot make a snapshot");
}

static void creation_free(struct creation *creation)
{
    free(creation->repository);
    free(creation->tag);
    free(creation->name);
    free(creation->labels);
    free(creation->base);
    commit_image_free(&creation->base_image);
    commit_image_free(&creation->image);
    capture_result_free(&creation->layer);
}

/* "NAME[:TAG]", or names made of the IDs of run and snapshot. */
static int choose_names(struct creation *creation, const char *name, struct err *err)
{
    cleanup_free char *own = NULL;
    cleanup_free char *path = NULL;
    cleanup_reference struct reference reference = {0};
    if (!name) {
        if (asprintf(&own, "run-%s", creation->run) < 0) {
            own = NULL;
            return no_memory(err);
        }
        commit_name_make_legal(own);
    }
    int rc = reference_parse(name ? name : own, &reference, err);
    if (rc < 0)
        return rc;
    if (reference.host || reference.has_digest)
        return err_fail(err, ERR_INVALID,
                        "the name of a snapshot has no host and no digest: %.300s", name);
    creation->tag = strdup(reference.tag ? reference.tag : creation->id);
    if (!creation->tag ||
        asprintf(&creation->name, "%s:%s", reference.repository, creation->tag) < 0) {
        creation->name = NULL;
        return no_memory(err);
    }
    if (asprintf(&path, "images/%s", reference.repository) < 0) {
        path = NULL;
        return no_memory(err);
    }
    creation->repository = remote_repository(creation->node->remote, path);
    return creation->repository ? reference_check_repository(creation->repository, err)
                                : no_memory(err);
}

static int read_params(const json_t *params, struct snapshot_wanted *ret, struct err *err)
{
    static const char what[] = "the request for a snapshot";
    json_t *labels = NULL;
    int rc = json_doc_get_str(params, "id", what, &ret->id, err);
    if (rc == 0)
        rc = json_doc_get_str(params, "run", what, &ret->run, err);
    if (rc == 0)
        rc = json_doc_opt_str(params, "name", what, &ret->name, err);
    if (rc == 0)
        rc = json_doc_opt_str(params, "comment", what, &ret->comment, err);
    if (rc == 0)
        rc = json_doc_opt_object(params, "labels", what, &labels, err);
    ret->labels = labels;
    return rc;
}

static int take_wanted(struct creation *creation, const struct snapshot_wanted *wanted,
                       struct err *err)
{
    int rc = id_check(wanted->id, "snapshot ID", err);
    if (rc == 0)
        rc = id_check(wanted->run, "run ID", err);
    if (rc < 0)
        return rc;
    creation->id = wanted->id;
    creation->run = wanted->run;
    creation->comment = wanted->comment;
    creation->expires_ns = wanted->expires_ns;
    creation->labels = wanted->labels ? json_doc_dump(wanted->labels) : strdup("{}");
    return creation->labels ? choose_names(creation, wanted->name, err) : no_memory(err);
}

/* 1 when an earlier attempt of this job has recorded the snapshot, 0 when there is none. */
static int is_there(const struct creation *creation, struct err *err)
{
    cleanup_catalog_snapshot struct catalog_snapshot row = {0};
    struct err missing = ERR_INIT;
    int rc = catalog_snapshot_get(creation->node->catalog, creation->id, &row, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0)
        return rc;
    if (strcmp(row.run_id, creation->run) != 0)
        return err_fail(err, ERR_EXISTS, "there is a snapshot %s of another run, %s", creation->id,
                        row.run_id);
    return 1;
}

static int get_base(struct creation *creation, struct err *err)
{
    struct catalog *catalog = creation->node->catalog;
    struct catalog_run run = {0};
    int rc = catalog_run_get(catalog, creation->run, &run, err);
    if (rc < 0)
        return rc;
    if (run.state != CATALOG_RUN_READY)
        rc = err_fail(err, ERR_CONFLICT, "run %s is %s", run.id, catalog_run_state_name(run.state));
    creation->base = steal_ptr(run.image);
    catalog_run_free(&run);
    cleanup_catalog_image struct catalog_image record = {0};
    if (rc == 0)
        rc = catalog_image_get(catalog, creation->base, &record, err);
    if (rc == 0)
        rc = commit_image_of_catalog(creation->node->blobs, &record, &creation->base_image, err);
    if (rc == 0 && record.layer_count >= OCI_LAYERS_MAX) {
        rc = err_fail(err, ERR_TOO_LARGE,
                      "the image of run %s has %zu layers, and an image has at most %d",
                      creation->run, record.layer_count, OCI_LAYERS_MAX);
        err_hint(err, "start a new run from an image with fewer layers");
    }
    return rc;
}

/* A new image never has the digest of another one, so any image with the name is another one. */
static int check_name_is_free(const struct creation *creation, struct err *err)
{
    const struct digest none = {{0}};
    return commit_image_check_name(creation->node->catalog, creation->name, &none, err);
}

static int note_mount(void *arg, const char *path, struct err *err)
{
    struct creation *creation = arg;
    json_t *skipped = creation->layer.skipped;
    if (json_array_size(skipped) > CAPTURE_SKIPPED_MAX)
        return err_fail(err, ERR_TOO_LARGE, "too much is mounted inside run %s", creation->run);
    cleanup_free char *text = path_text_dup(path);
    json_t *item = text ? json_pack("{s:s, s:s}", "path", text, "reason", "mount") : NULL;
    return json_array_append_new(skipped, item) < 0 ? no_memory(err) : 0;
}

static int capture(struct creation *creation, struct err *err)
{
    cleanup_fd int upper = run_open_upper(creation->node, creation->run, err);
    if (upper < 0)
        return upper;
    int rc = job_step(creation->job, "sync", err);
    if (rc == 0 && syncfs(upper) < 0)
        rc = err_errno(err, errno, "cannot sync the files of run %s", creation->run);
    if (rc == 0)
        rc = job_step(creation->job, "capture", err);
    if (rc == 0)
        rc = commit_layer_capture(creation->job, upper, CAPTURE_UPPER, &creation->layer, err);
    /* The writable layer does not show what the host has mounted over it. */
    if (rc == 0)
        rc = run_mounts_each(creation->node, creation->run, note_mount, creation, err);
    if (rc == 0)
        rc = FAULT_POINT("snapshot.captured", err);
    /* What a process wrote that has come meanwhile may be half in the layer. */
    return rc == 0 ? run_lock_check(creation->node, creation->run, err) : rc;
}

static int make_config(struct creation *creation, char **ret, struct err *err)
{
    const struct oci_new_layer layer = {
        .digest = creation->layer.digest,
        .size = (int64_t)creation->layer.size,
        .media_type = OCI_MEDIA_LAYER_ZSTD,
        .diff_id = creation->layer.diff_id,
        .created_by = "varve snapshot",
    };
    return oci_config_append(buf_str(&creation->base_image.config_text),
                             creation->base_image.config_text.len, &layer, creation->comment, ret,
                             err);
}

/* Nothing in it depends on a clock or a host. */
static int make_manifest(struct creation *creation, const struct oci_descriptor *config, char **ret,
                         struct err *err)
{
    const struct oci_manifest *base = &creation->base_image.manifest;
    cleanup_json json_t *annotations =
        json_pack("{s:s, s:s, s:s}", "org.opencontainers.image.base.digest", creation->base,
                  "io.varve.snapshot", creation->id, "io.varve.run", creation->run);
    cleanup_free struct oci_descriptor *layers = calloc(base->layer_count + 1, sizeof *layers);
    if (!layers || !annotations)
        return no_memory(err);
    memcpy(layers, base->layers, base->layer_count * sizeof *layers);
    layers[base->layer_count] = (struct oci_descriptor){
        .media_type = (char *)OCI_MEDIA_LAYER_ZSTD,
        .digest = creation->layer.digest,
        .size = (int64_t)creation->layer.size,
    };
    return oci_manifest_new(config, layers, base->layer_count + 1, annotations, ret, err);
}

static int make_image(struct creation *creation, struct err *err)
{
    cleanup_free char *config = NULL;
    cleanup_free char *manifest = NULL;
    struct oci_descriptor config_ref = {.media_type = (char *)OCI_MEDIA_CONFIG};
    struct digest digest;
    int rc = job_step(creation->job, "image", err);
    if (rc == 0)
        rc = make_config(creation, &config, err);
    if (rc == 0)
        rc = commit_blobs_put(creation->job, config, strlen(config), &config_ref.digest, err);
    if (rc < 0)
        return rc;
    config_ref.size = (int64_t)strlen(config);
    rc = make_manifest(creation, &config_ref, &manifest, err);
    if (rc == 0)
        rc = commit_blobs_put(creation->job, manifest, strlen(manifest), &digest, err);
    if (rc == 0)
        rc = commit_image_set(&creation->image, manifest, config, err);
    return rc == 0 ? FAULT_POINT("snapshot.image-stored", err) : rc;
}

static int record_rows(struct creation *creation, char *skipped, struct err *err)
{
    struct catalog *catalog = creation->node->catalog;
    struct digest_text digest = digest_format(&creation->image.digest);
    const struct catalog_snapshot row = {
        .id = (char *)creation->id,
        .run_id = (char *)creation->run,
        .image = digest.s,
        .repository = creation->repository,
        .tag = creation->tag,
        .base = creation->base,
        .comment = (char *)creation->comment,
        .labels = creation->labels,
        .skipped = skipped,
        .durability = CATALOG_LOCAL,
        .bytes_new = (int64_t)creation->layer.size,
        .bytes_total = commit_image_layer_bytes(&creation->image),
        .entries = (int64_t)creation->layer.entries,
        .expires_ns = creation->expires_ns,
    };
    char object[ID_LEN_MAX + 16];
    snprintf(object, sizeof object, "snapshot:%s", creation->id);
    int rc = commit_image_put(catalog, &creation->image, "snapshot", creation->name,
                              &creation->added, err);
    if (rc == 0)
        rc = catalog_snapshot_add(catalog, &row, err);
    return rc == 0 ? catalog_event_add(catalog, "snapshot-created", object, NULL, err) : rc;
}

static int record(struct creation *creation, struct err *err)
{
    struct node *node = creation->node;
    cleanup_free char *skipped = json_doc_dump(creation->layer.skipped);
    if (!skipped)
        return no_memory(err);
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = creation->is_all ? job_settle(creation->job, "record", err)
                          : job_step(creation->job, "record", err);
    if (rc == 0)
        rc = record_rows(creation, skipped, err);
    if (rc < 0) {
        catalog_rollback(node->catalog);
        return rc;
    }
    creation->recorded = true; /* perhaps: a failed commit leaves it open */
    rc = catalog_commit(node->catalog, err);
    if (rc == 0)
        rc = FAULT_POINT("snapshot.recorded", err);
    return rc == 0 ? node_sync_index(node, err) : rc;
}

/* The record of work that failed after it was made. */
static void take_back(struct creation *creation)
{
    struct node *node = creation->node;
    struct err failure = ERR_INIT;
    int rc = catalog_snapshot_remove(node->catalog, creation->id, &failure);
    if (rc < 0 && failure.code == ERR_NOT_FOUND)
        return;
    commit_image_take_back(node->catalog, &creation->image, creation->name, &creation->added);
    if (rc < 0 || node_sync_index(node, &failure) < 0)
        log_event(LOG_WARN, "snapshot-not-taken-back", "snapshot", creation->id, "error",
                  failure.text, NULL);
}

/* The caller holds the run's lock. */
static int create_locked(struct creation *creation, struct err *err)
{
    int rc = run_settle(creation->node, creation->run, false, job_stop, creation->job, err);
    if (rc == 0)
        rc = get_base(creation, err);
    if (rc == 0)
        rc = check_name_is_free(creation, err);
    if (rc == 0)
        rc = capture(creation, err);
    if (rc == 0)
        rc = make_image(creation, err);
    return rc == 0 ? record(creation, err) : rc;
}

static int create(struct creation *creation, bool locked, struct err *err)
{
    int rc = is_there(creation, err);
    if (rc == 1)
        return node_sync_index(creation->node, err);
    if (rc == 0)
        rc = job_step(creation->job, "check", err);
    if (rc < 0)
        return rc;
    cleanup_fd int lock = locked ? -1 : run_lock_idle(creation->node, creation->run, err);
    return lock < 0 && !locked ? lock : create_locked(creation, err);
}

static int take(struct job *job, const struct snapshot_wanted *wanted, bool locked,
                json_t **ret_result, struct err *err)
{
    struct creation creation = {.job = job, .node = job_node(job), .is_all = ret_result != NULL};
    commit_image_init(&creation.base_image);
    commit_image_init(&creation.image);
    int rc = take_wanted(&creation, wanted, err);
    if (rc == 0)
        rc = create(&creation, locked, err);
    if (rc == 0 && ret_result)
        rc = snapshot_result(creation.node, creation.id, ret_result, err);
    if (rc < 0 && creation.recorded && err->code != ERR_INTERRUPTED)
        take_back(&creation);
    rc = commit_blobs_end(job, rc, err);
    creation_free(&creation);
    return rc < 0 ? err_wrap(err, rc, "cannot snapshot run %s", wanted->run) : 0;
}

int snapshot_take_locked(struct job *job, const struct snapshot_wanted *wanted, struct err *err)
{
    return take(job, wanted, true, NULL, err);
}

/* What follows needs the run no more, and a push may last: others may have the run. Its lock was
 * given back before, so none of them finds it locked. */
static int release_run(struct job *job, const char *id, struct err *err)
{
    char object[ID_LEN_MAX + 16];
    snprintf(object, sizeof object, "snapshot:%s", id);
    int rc = job_move(job, object, err);
    return rc == 0 ? FAULT_POINT("snapshot.run-released", err) : rc;
}

/* The snapshot stays when it cannot be pushed: it is whole, and here. */
static int push_taken(struct job *job, const char *id, enum catalog_durability level,
                      json_t **ret_result, struct err *err)
{
    cleanup_catalog_snapshot struct catalog_snapshot row = {0};
    int rc = release_run(job, id, err);
    if (rc == 0)
        rc = catalog_snapshot_get(job_node(job)->catalog, id, &row, err);
    if (rc == 0)
        rc = snapshot_push(job, &row, level, ret_result, err);
    if (rc < 0)
        err_hint(err, "the snapshot is on this node: `varve snapshot push %s` tries again", id);
    return rc;
}

static int create_run(struct job *job, json_t **ret_result, struct err *err)
{
    struct snapshot_wanted wanted = {.id = NULL};
    enum catalog_durability level = CATALOG_LOCAL;
    int rc = read_params(job_params(job), &wanted, err);
    if (rc == 0)
        rc = snapshot_level_of(job_params(job), &level, err);
    if (rc == 0)
        rc = take(job, &wanted, false, level == CATALOG_LOCAL ? ret_result : NULL, err);
    if (rc == 0 && level != CATALOG_LOCAL)
        rc = push_taken(job, wanted.id, level, ret_result, err);
    return rc;
}

const struct job_kind snapshot_create_job = {
    .name = "snapshot.create", .run = create_run, .id_prefix = "s", .remote = true};
