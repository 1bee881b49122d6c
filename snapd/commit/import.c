#include "import.h"

#include "catalog_event.h"
#include "commit_name.h"
#include "commit_step.h"
#include "convert.h"
#include "fault.h"
#include "fdio.h"
#include "id.h"
#include "import_docker.h"
#include "import_internal.h"
#include "layers_mount.h"
#include "log.h"
#include "publish.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot import an image");
}

/* Where the source is and what the image will be called. */
static int read_params(struct import *import, struct err *err)
{
    static const char what[] = "the request for an import";
    const json_t *params = job_params(import->job);
    const char *path = NULL;
    const char *name = NULL;
    int rc = json_doc_opt_str(params, "path", what, &path, err);
    if (rc == 0)
        rc = json_doc_opt_str(params, "upload", what, &import->upload, err);
    if (rc == 0)
        rc = json_doc_opt_str(params, "name", what, &name, err);
    if (rc < 0)
        return rc;
    if (!path == !import->upload)
        return err_fail(err, ERR_INVALID, "an import needs either a path or an upload");
    if (path && path[0] != '/')
        return err_fail(err, ERR_INVALID, "the path of an import must be absolute, not '%.200s'",
                        path);
    if (import->upload) {
        rc = id_check(import->upload, "upload ID", err);
        if (rc == 0 && asprintf(&import->path, "upload %s", import->upload) < 0) {
            import->path = NULL;
            rc = no_memory(err);
        }
    } else {
        rc = commit_name_split(path, &import->path, &import->layout_name, err);
    }
    if (rc < 0)
        return rc;
    if (name)
        return commit_name_of_user(name, &import->name, err);
    if (import->upload) {
        rc = err_fail(err, ERR_INVALID, "an upload has no name of its own");
        err_hint(err, "give the image a name (--name)");
        return rc;
    }
    import->name = commit_name_of_path(import->path, import->layout_name);
    return import->name ? 0 : no_memory(err);
}

/* Opens the source. Nothing but a file or directory is waited for, read or changed. */
static int open_source(const struct import *import, struct stat *ret, struct err *err)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    cleanup_fd int probe = import->upload ? openat(import->node->uploads_fd, import->upload,
                                                   O_PATH | O_NOFOLLOW | O_CLOEXEC)
                                          : open(import->path, O_PATH | O_CLOEXEC);
    if (probe < 0 && errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "there is no %s%s", import->upload ? "" : "file ",
                        import->path);
    if (probe < 0 || fstat(probe, ret) < 0)
        return err_errno(err, errno, "cannot open %s", import->path);
    if (!S_ISREG(ret->st_mode) && !S_ISDIR(ret->st_mode))
        return err_fail(err, ERR_INVALID, "%s is neither a file nor a directory", import->path);
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", probe);
    int fd = open(self, flags);
    return fd < 0 ? err_errno(err, errno, "cannot open %s", import->path) : fd;
}

/* 1 when `name` is a regular file in the directory. */
static bool has_file(int dir_fd, const char *name)
{
    struct stat st;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static int is_empty(int dir_fd, bool *ret, struct err *err)
{
    cleanup_dir DIR *dir = fdio_list(dir_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list the archive");
    *ret = true;
    for (const struct dirent *entry; *ret && (entry = readdir(dir)) != NULL;)
        *ret = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    return 0;
}

/* What an archive or a directory is. */
enum import_kind {
    IMPORT_LAYOUT,
    IMPORT_DOCKER, /* import_docker.h */
    IMPORT_ROOTFS,
};

/* An empty one is refused. */
static int tell_apart(int dir_fd, const char *source, enum import_kind *ret, struct err *err)
{
    if (has_file(dir_fd, "oci-layout")) {
        *ret = IMPORT_LAYOUT;
        return 0;
    }
    if (import_docker_is(dir_fd)) {
        *ret = IMPORT_DOCKER;
        return 0;
    }
    bool empty = false;
    int rc = is_empty(dir_fd, &empty, err);
    if (rc == 0 && empty)
        rc = err_fail(err, ERR_INVALID, "%s is empty: there is no root filesystem in it", source);
    if (rc == 0)
        *ret = IMPORT_ROOTFS;
    return rc;
}

/* Makes an image of an archive in a file of DATA/tmp. The next start removes what a kill leaves. */
static int convert(struct import *import, int archive_fd, uint64_t size, struct err *err)
{
    struct convert_result result = {.dropped_first = NULL};
    int rc = job_step(import->job, "convert", err);
    if (rc == 0)
        rc = publish_begin(import->node->temp_fd, 0400, &import->temp, err);
    if (rc < 0)
        return rc;
    const struct convert_request request = {.blob_fd = archive_fd,
                                            .target_fd = import->temp.fd,
                                            .mode = CONVERT_PLAIN,
                                            .is_lowest = true,
                                            .blob_size = size};
    rc = convert_file(&request, job_stop, import->job, &result, err);
    if (rc == 0)
        convert_result_free(&result);
    return rc == 0 ? FAULT_POINT("import.converted", err) : rc;
}

static int take_tree(struct import *import, int dir_fd, struct err *err)
{
    enum import_kind kind = IMPORT_ROOTFS;
    int rc = tell_apart(dir_fd, import->path, &kind, err);
    if (rc < 0)
        return rc;
    if (kind == IMPORT_ROOTFS && import->layout_name)
        return err_fail(err, ERR_INVALID,
                        "%s is no image layout or docker-archive, so there is no %s in it",
                        import->path, import->layout_name);
    if (kind == IMPORT_ROOTFS)
        return import_rootfs(import, dir_fd, err);
    if (kind == IMPORT_DOCKER)
        return import_docker(import, dir_fd, err);
    return import_layout(import, dir_fd, err);
}

/* An archive becomes an image that the kernel shows as a tree, to us alone. */
static int take_archive(struct import *import, int archive_fd, uint64_t size, struct err *err)
{
    int rc = convert(import, archive_fd, size, err);
    if (rc < 0)
        return rc;
    cleanup_fd int dir = layers_mount_detached(import->temp.fd, err);
    return dir < 0 ? dir : take_tree(import, dir, err);
}

static int take_directory(struct import *import, int dir_fd, struct err *err)
{
    if (has_file(dir_fd, "oci-layout"))
        return import_layout(import, dir_fd, err);
    int rc = err_fail(err, ERR_INVALID, "the directory %s is no OCI image layout", import->path);
    err_hint(err, "for a root filesystem give its tar: tar -C %s -cf FILE .", import->path);
    return rc;
}

static int record(struct import *import, struct err *err)
{
    struct node *node = import->node;
    char object[DIGEST_TEXT_LEN + 8];
    snprintf(object, sizeof object, "image:%s", digest_format(&import->image.digest).s);
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = job_settle(import->job, "record", err);
    if (rc == 0)
        rc = commit_image_put(node->catalog, &import->image, "import", import->name, &import->added,
                              err);
    if (rc == 0)
        rc = catalog_event_add(node->catalog, "image-imported", object, NULL, err);
    if (rc < 0) {
        catalog_rollback(node->catalog);
        import->added = (struct commit_added){0};
        return rc;
    }
    rc = catalog_commit(node->catalog, err);
    if (rc == 0)
        rc = FAULT_POINT("import.recorded", err);
    return rc == 0 ? node_sync_index(node, err) : rc;
}

static int import_source(struct import *import, struct err *err)
{
    struct stat st;
    int rc = job_step(import->job, "open", err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd = open_source(import, &st, err);
    if (fd < 0)
        return fd;
    rc = S_ISDIR(st.st_mode) ? take_directory(import, fd, err)
                             : take_archive(import, fd, (uint64_t)st.st_size, err);
    if (rc == 0)
        rc = FAULT_POINT("import.blobs-stored", err);
    return rc == 0 ? record(import, err) : rc;
}

static int make_result(struct node *node, const char *digest, json_t **ret, struct err *err)
{
    cleanup_catalog_image struct catalog_image image = {0};
    int rc = catalog_image_get(node->catalog, digest, &image, err);
    if (rc < 0)
        return rc;
    json_t *names = json_array();
    json_t *layers = json_array();
    int64_t size = image.size + image.config_size;
    for (size_t i = 0; i < image.name_count; i++)
        (void)json_array_append_new(names, json_string(image.names[i]));
    for (size_t i = 0; i < image.layer_count; i++) {
        (void)json_array_append_new(layers, json_string(image.layers[i].digest));
        size += image.layers[i].size;
    }
    *ret = json_pack("{s:s, s:s, s:o, s:o, s:I}", "id", digest, "digest", digest, "names", names,
                     "layers", layers, "size", (json_int_t)size);
    return *ret ? 0 : no_memory(err);
}

/* The record of work that failed after it was made. */
static void take_back(struct import *import)
{
    struct err failure = ERR_INIT;
    if (!import->added.image && !import->added.name)
        return;
    commit_image_take_back(import->node->catalog, &import->image, import->name, &import->added);
    if (node_sync_index(import->node, &failure) < 0)
        log_event(LOG_WARN, "index-not-synced", "error", failure.text, NULL);
}

static const char last_step[] = "remove-upload";

/* An upload is there for one import. The step is on record before it goes. */
static int remove_upload(struct import *import, struct err *err)
{
    if (!import->upload)
        return 0;
    int rc = job_step(import->job, last_step, err);
    if (rc == 0)
        rc = publish_unlink(import->node->uploads_fd, import->upload, err);
    return rc == 0 ? FAULT_POINT("import.upload-removed", err) : rc;
}

/* The whole work; *ret_digest (caller frees) is the image's. */
static int do_import(struct import *import, char **ret_digest, struct err *err)
{
    int rc = read_params(import, err);
    bool recorded = false;
    if (rc == 0 && import->upload)
        rc = commit_step_reached(import->job, last_step, &recorded, err);
    if (rc == 0 && recorded)
        rc = catalog_image_name_get(import->node->catalog, import->name, ret_digest, err);
    else if (rc == 0)
        rc = import_source(import, err);
    if (rc == 0 && !*ret_digest) {
        *ret_digest = strdup(digest_format(&import->image.digest).s);
        rc = *ret_digest ? 0 : no_memory(err);
    }
    return rc == 0 ? remove_upload(import, err) : rc;
}

static int import_run(struct job *job, json_t **ret_result, struct err *err)
{
    struct import import = {.job = job, .node = job_node(job), .temp = PUBLISH_INIT};
    cleanup_free char *digest = NULL;
    commit_image_init(&import.image);
    int rc = do_import(&import, &digest, err);
    if (rc == 0)
        rc = make_result(import.node, digest, ret_result, err);
    publish_abort(&import.temp);
    if (rc < 0 && err->code != ERR_INTERRUPTED)
        take_back(&import);
    rc = commit_blobs_end(job, rc, err);
    if (rc < 0 && import.path)
        err_wrap(err, rc, "cannot import %s", import.path);
    commit_image_free(&import.image);
    free(import.path);
    free(import.layout_name);
    free(import.name);
    return rc;
}

const struct job_kind import_job = {.name = "image.import", .run = import_run};
