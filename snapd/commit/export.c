#include "export.h"

#include "catalog_lease.h"
#include "catalog_snapshot.h"
#include "commit_blobs.h"
#include "commit_step.h"
#include "export_internal.h"
#include "fault.h"
#include "fdio.h"
#include "image_ref.h"
#include "publish.h"
#include "snapshot_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FILE_MODE = 0600,
};

static const char publish_step[] = "publish";

static const struct {
    const char *name;
    int (*write)(struct export *export, struct err *err);
} formats[] = {
    [EXPORT_OCI] = {"oci-archive", export_oci},
    [EXPORT_DOCKER] = {"docker-archive", export_docker},
};

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot export an image");
}

int export_format_parse(const char *name, enum export_format *ret, struct err *err)
{
    if (!name) {
        *ret = EXPORT_OCI;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
        if (strcmp(formats[i].name, name) != 0)
            continue;
        *ret = (enum export_format)i;
        return 0;
    }
    return err_fail(err, ERR_INVALID,
                    "'%.100s' is no format of archives; there are oci-archive and docker-archive",
                    name);
}

/* --- the place --- */

/* Where the file will be. */
struct place {
    int dir_fd;       /* owned unless borrowed */
    bool borrowed;    /* DATA/exports */
    int temp_dir;     /* of the temporary file; borrowed */
    const char *name; /* of the file; borrowed */
    char temp[32];    /* name of the temporary file */
};

static void place_close(struct place *place)
{
    if (!place->borrowed)
        cleanup_fdp(&place->dir_fd);
}
#define cleanup_place cleanup_with(place_close)

static int look_at(int fd, struct statx *ret, struct err *err)
{
    return statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_MNT_ID, ret) < 0
               ? err_errno(err, errno, "cannot stat a directory")
               : 0;
}

static bool is_same(const struct statx *left, const struct statx *right)
{
    return left->stx_ino == right->stx_ino && left->stx_dev_major == right->stx_dev_major &&
           left->stx_dev_minor == right->stx_dev_minor;
}

/* What the node keeps in its directories is the only copy of much (I4), so a slip must not put a
 * file in place of the catalog. Below them, only the root filesystem of a run is anybody's. */
static int check_not_ours(const struct node *node, int dir_fd, const char *path, struct err *err)
{
    struct statx data;
    struct statx run;
    struct statx runs;
    struct statx at;
    struct statx above;
    int rc = look_at(node->data_fd, &data, err);
    if (rc == 0)
        rc = look_at(node->run_fd, &run, err);
    if (rc == 0)
        rc = look_at(node->run_runs_fd, &runs, err);
    if (rc == 0)
        rc = look_at(dir_fd, &at, err);
    if (rc < 0)
        return rc;
    const uint64_t mount = at.stx_mnt_id;
    cleanup_fd int fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    while (fd >= 0) {
        if (is_same(&at, &runs) && mount != runs.stx_mnt_id)
            return 0;
        if (is_same(&at, &data) || is_same(&at, &run)) {
            rc = err_fail(err, ERR_CONFLICT, "%s lies in a directory of varved itself", path);
            err_hint(err, "give a path elsewhere");
            return rc;
        }
        int parent = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        cleanup_fdp(&fd);
        fd = parent;
        rc = fd < 0 ? 0 : look_at(fd, &above, err);
        if (rc < 0 || (fd >= 0 && is_same(&above, &at) && above.stx_mnt_id == at.stx_mnt_id))
            return rc;
        at = above;
    }
    return err_errno(err, errno, "cannot see where %s lies", path);
}

/* Opens the directory of a path and finds the last component in it. */
static int open_directory(const struct node *node, const char *path, const char **ret_name,
                          struct err *err)
{
    const char *slash = strrchr(path, '/');
    if (path[0] != '/')
        return err_fail(err, ERR_INVALID, "the path of an export must be absolute, not '%.200s'",
                        path);
    if (slash[1] == '\0' || strcmp(slash, "/.") == 0 || strcmp(slash, "/..") == 0)
        return err_fail(err, ERR_INVALID, "%s is not the name of a file", path);
    cleanup_free char *directory = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (!directory)
        return no_memory(err);
    cleanup_fd int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "there is no directory %s", directory);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the directory %s", directory);
    int rc = check_not_ours(node, fd, path, err);
    if (rc < 0)
        return rc;
    *ret_name = slash + 1;
    return steal_fd(&fd);
}

/* A file may be replaced, if somebody says so; anything else never. */
static int check_free(int dir_fd, const char *name, const char *path, bool force, struct err *err)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return 0;
        return err_errno(err, errno, "cannot look at %s", path);
    }
    int rc;
    if (S_ISDIR(st.st_mode)) {
        rc = err_fail(err, ERR_EXISTS, "%s is a directory", path);
        err_hint(err, "give the path of the file that is to be made");
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_fail(err, ERR_EXISTS, "%s is there and is no regular file", path);
        err_hint(err, "give another path, or - for standard output");
    } else if (!force) {
        rc = err_fail(err, ERR_EXISTS, "%s exists already", path);
        err_hint(err, "give another path, or --force to replace the file");
    } else {
        rc = 0;
    }
    return rc;
}

int export_check_path(const struct node *node, const char *path, bool force, struct err *err)
{
    const char *name = NULL;
    cleanup_fd int fd = open_directory(node, path, &name, err);
    return fd < 0 ? fd : check_free(fd, name, path, force, err);
}

static int open_place(const struct export *export, struct place *ret, struct err *err)
{
    struct node *node = export->node;
    const char *id = job_id(export->job);
    struct place place = {
        .dir_fd = node->exports_fd, .borrowed = true, .temp_dir = node->temp_fd, .name = id};
    if (export->path) {
        place.borrowed = false;
        place.dir_fd = open_directory(node, export->path, &place.name, err);
        place.temp_dir = place.dir_fd;
    }
    if (place.dir_fd < 0)
        return place.dir_fd;
    snprintf(place.temp, sizeof place.temp, ".tmp-%.26s", id);
    *ret = place;
    return 0;
}

/* Whether an attempt before a kill has come to the end: its temporary file was complete when the
 * step was put on record, and it is gone, but the file is there. */
static int is_published(const struct export *export, const struct place *place, bool *ret,
                        struct err *err)
{
    bool reached = false;
    struct stat st;
    int rc = commit_step_reached(export->job, publish_step, &reached, err);
    if (rc < 0)
        return rc;
    *ret = reached && fstatat(place->dir_fd, place->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(place->temp_dir, place->temp, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
    if (*ret && fsync(place->dir_fd) < 0)
        return err_errno(err, errno, "cannot sync the directory of %s", export->target);
    return 0;
}

/* --- the image --- */

static int read_params(struct export *export, struct err *err)
{
    static const char what[] = "the request for an export";
    const json_t *params = job_params(export->job);
    const char *reference = NULL;
    const char *snapshot = NULL;
    const char *format = NULL;
    int rc = json_doc_opt_str(params, "reference", what, &reference, err);
    if (rc == 0)
        rc = json_doc_opt_str(params, "snapshot", what, &snapshot, err);
    if (rc == 0)
        rc = json_doc_opt_str(params, "path", what, &export->path, err);
    if (rc == 0)
        rc = json_doc_opt_str(params, "format", what, &format, err);
    if (rc == 0)
        rc = json_doc_opt_bool(params, "force", what, &export->force, err);
    if (rc == 0)
        rc = export_format_parse(format, &export->format, err);
    if (rc < 0)
        return rc;
    if (!reference == !snapshot)
        return err_fail(err, ERR_INVALID, "an export needs either a reference or a snapshot");
    export->word = reference ? reference : snapshot;
    export->target = export->path ? export->path : "an archive";
    return 0;
}

/* What the image is called in the archive: as it was asked for, a snapshot by its own name. */
static int find_name(struct export *export, const struct image_ref *ref, struct err *err)
{
    cleanup_catalog_snapshot struct catalog_snapshot snapshot = {0};
    struct err missing = ERR_INIT;
    const char *name = ref->name;
    if (!name &&
        catalog_snapshot_get(export->node->catalog, export->word, &snapshot, &missing) == 0)
        export->name = snapshot_local_name(export->node, &snapshot);
    else if (name)
        export->name = strdup(name);
    else
        return 0;
    return export->name ? 0 : no_memory(err);
}

/* Leases every blob of an image that is here, in one transaction with the look (I5). */
static int lease(struct export *export, const char *digest, struct catalog_image *ret,
                 struct err *err)
{
    struct catalog *catalog = export->node->catalog;
    const char *id = job_id(export->job);
    cleanup_catalog_image struct catalog_image record = {0};
    char key[DIGEST_TEXT_LEN + 8];
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_image_get(catalog, digest, &record, err);
    for (size_t i = 0; rc == 0 && i < record.layer_count + 2; i++) {
        const char *blob = i == 0   ? record.digest
                           : i == 1 ? record.config_digest
                                    : record.layers[i - 2].digest;
        snprintf(key, sizeof key, "blob:%s", blob);
        rc = catalog_lease_add(catalog, id, key, err);
    }
    rc = catalog_end(catalog, rc, err);
    if (rc < 0)
        return rc;
    *ret = record;
    record = (struct catalog_image){0};
    return 0;
}

static int fail_not_here(const struct export *export, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "the image %.300s is not on this node", export->word);
    err_hint(err, "fetch it first: varve image pull %.200s", export->word);
    return rc;
}

/* Finds, leases and reads the image. */
static int open_image(struct export *export, struct err *err)
{
    cleanup_image_ref struct image_ref ref = {.text = NULL};
    cleanup_catalog_image struct catalog_image record = {0};
    int rc = image_ref_resolve(export->node, export->word, &ref, err);
    if (rc == 0 && !ref.local_digest)
        rc = fail_not_here(export, err);
    if (rc == 0)
        rc = find_name(export, &ref, err);
    if (rc == 0)
        rc = lease(export, ref.local_digest, &record, err);
    return rc == 0 ? commit_image_of_catalog(export->node->blobs, &record, &export->image, err)
                   : rc;
}

/* --- the file --- */

int export_open_blob(struct export *export, const struct oci_descriptor *blob, struct err *err)
{
    uint64_t have;
    cleanup_fd int fd = blobs_open_blob(export->node->blobs, &blob->digest, &have, err);
    if (fd < 0 || have == (uint64_t)blob->size)
        return steal_fd(&fd);
    int rc =
        err_fail(err, ERR_DIGEST, "blob %s in the store has %llu bytes instead of %lld",
                 digest_format(&blob->digest).s, (unsigned long long)have, (long long)blob->size);
    err_hint(err, "remove the image and pull or import it again");
    return rc;
}

static int check_copied(struct digest_stream *stream, const struct digest *digest, const char *what,
                        struct err *err)
{
    struct digest have;
    int rc = digest_stream_finish(stream, &have, err);
    if (rc < 0 || digest_equal(&have, digest))
        return rc;
    rc = err_fail(err, ERR_DIGEST, "%s is damaged: the bytes in the store have the digest %s", what,
                  digest_format(&have).s);
    err_hint(err, "remove the image and pull or import it again");
    return rc;
}

int export_copy(struct export *export, int fd, uint64_t size, const char *path,
                const struct digest *digest, const char *what, bool counts, struct err *err)
{
    cleanup_digest_stream struct digest_stream stream = {0};
    int rc = digest_stream_init(&stream, err);
    if (rc == 0)
        rc = export_tar_file(&export->tar, path, size, err);
    for (uint64_t left = size; left > 0 && rc == 0;) {
        size_t len = left < EXPORT_CHUNK ? (size_t)left : EXPORT_CHUNK;
        ssize_t n = fdio_read_full(fd, export->chunk, len);
        if (n < 0)
            return err_errno(err, (int)n, "cannot read %s", what);
        if ((size_t)n < len)
            return err_fail(err, ERR_DIGEST, "%s ends early", what);
        rc = digest_stream_update(&stream, export->chunk, len, err);
        if (rc == 0)
            rc = export_tar_data(&export->tar, export->chunk, len, err);
        export->done += counts ? len : 0;
        if (rc == 0)
            rc = job_progress(export->job, export->done, export->total, "bytes", err);
        left -= len;
    }
    return rc == 0 ? check_copied(&stream, digest, what, err) : rc;
}

static int write_archive(struct export *export, int fd, struct err *err)
{
    export_tar_begin(&export->tar, fd);
    int rc = formats[export->format].write(export, err);
    if (rc == 0)
        rc = export_tar_finish(&export->tar, err);
    export_tar_free(&export->tar);
    return rc;
}

static int make_file(struct export *export, const struct place *place, struct err *err)
{
    cleanup_publish struct publish publish = PUBLISH_INIT;
    bool replace = export->force || !export->path;
    int rc = check_free(place->dir_fd, place->name, export->target, replace, err);
    if (rc == 0)
        rc = job_step(export->job, "write", err);
    if (rc == 0)
        rc = publish_begin_as(place->temp_dir, place->temp, FILE_MODE, &publish, err);
    if (rc == 0)
        rc = write_archive(export, publish.fd, err);
    if (rc == 0)
        rc = FAULT_POINT("export.written", err);
    if (rc == 0)
        rc = job_settle(export->job, publish_step, err);
    if (rc == 0)
        rc = publish_commit(&publish, place->dir_fd, place->name,
                            replace ? PUBLISH_REPLACE : PUBLISH_NOREPLACE, err);
    if (rc == 0)
        rc = FAULT_POINT("export.published", err);
    if (rc < 0 && publish.fd >= 0 && publish.temp[0] == '\0') /* renamed, but not synced */
        (void)unlinkat(place->dir_fd, place->name, 0);
    return rc;
}

static int make_result(const struct export *export, const struct place *place, json_t **ret,
                       struct err *err)
{
    struct stat st;
    if (fstatat(place->dir_fd, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "cannot look at %s", export->target);
    struct digest_text text = digest_format(&export->image.digest);
    const char *digest = export->image.manifest.layer_count > 0 ? text.s : NULL;
    json_t *result = json_pack("{s:s?, s:s?, s:s?, s:s, s:I}", "id", digest, "digest", digest,
                               "name", export->name, "format", formats[export->format].name, "size",
                               (json_int_t)st.st_size);
    int rc = json_object_set_new(result, export->path ? "path" : "export",
                                 json_string(export->path ? export->path : place->name));
    if (!result || rc < 0) {
        json_decref(result);
        return no_memory(err);
    }
    *ret = result;
    return 0;
}

static int do_export(struct export *export, json_t **ret_result, struct err *err)
{
    cleanup_place struct place place = {.dir_fd = -1};
    bool published = false;
    int rc = open_place(export, &place, err);
    if (rc < 0)
        return rc;
    rc = job_step(export->job, "open", err);
    if (rc == 0)
        rc = is_published(export, &place, &published, err);
    if (rc == 0 && published) {
        struct err gone = ERR_INIT; /* the image may be by now; its archive is there */
        (void)open_image(export, &gone);
    } else if (rc == 0) {
        rc = open_image(export, err);
        if (rc == 0)
            rc = make_file(export, &place, err);
    }
    /* What an attempt before a kill has left; one after a stop goes on. */
    if (rc < 0 && err->code != ERR_INTERRUPTED)
        (void)unlinkat(place.temp_dir, place.temp, 0);
    return rc == 0 ? make_result(export, &place, ret_result, err) : rc;
}

static int export_run(struct job *job, json_t **ret_result, struct err *err)
{
    struct export export = {
        .job = job, .node = job_node(job), .word = "an image", .target = "a file"};
    commit_image_init(&export.image);
    export.chunk = malloc(EXPORT_CHUNK);
    int rc = export.chunk ? read_params(&export, err) : no_memory(err);
    if (rc == 0)
        rc = do_export(&export, ret_result, err);
    rc = commit_blobs_end(job, rc, err);
    if (rc < 0)
        err_wrap(err, rc, "cannot export %.300s to %.1000s", export.word, export.target);
    commit_image_free(&export.image);
    free(export.chunk);
    free(export.name);
    return rc;
}

const struct job_kind export_job = {.name = "image.export", .run = export_run};
