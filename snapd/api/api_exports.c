#include "api_exports.h"

#include "api_handlers.h"
#include "catalog_job.h"
#include "catalog_snapshot.h"
#include "export.h"
#include "fault.h"
#include "fdio.h"
#include "image_ref.h"
#include "log.h"
#include "publish.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

struct wanted {
    struct node *node;
    const char *reference; /* NULL: a snapshot */
    const char *snapshot;
};

static int check_is_here(void *arg, struct err *err)
{
    const struct wanted *wanted = arg;
    cleanup_free char *digest = NULL;
    const char *word = wanted->reference ? wanted->reference : wanted->snapshot;
    if (wanted->snapshot) {
        cleanup_catalog_snapshot struct catalog_snapshot snapshot = {0};
        int rc = catalog_snapshot_get(wanted->node->catalog, word, &snapshot, err);
        if (rc < 0)
            return rc;
    }
    int rc = api_request_blame(err, image_ref_local(wanted->node, word, &digest, err), word);
    if (rc < 0 && err->code == ERR_NOT_FOUND)
        err_hint(err, "fetch it first: varve image pull %.200s", word);
    return rc;
}

/* The path is looked at before the catalog's transaction: a dead network file system holds up this
 * request and no other. Two jobs never write one file. */
static int submit(struct api_request *request, json_t *params, struct wanted *wanted,
                  struct api_reply *reply, struct err *err)
{
    const char *path = json_string_value(json_object_get(params, "path"));
    enum export_format format;
    int rc =
        export_format_parse(json_string_value(json_object_get(params, "format")), &format, err);
    if (rc == 0 && path)
        rc = export_check_path(request->node, path, json_is_true(json_object_get(params, "force")),
                               err);
    if (rc < 0)
        return rc;
    api_exports_sweep(request->node);
    cleanup_free char *object = NULL;
    if (path && asprintf(&object, "file:%s", path) < 0) {
        object = NULL;
        return err_fail(err, ERR_INTERNAL, "no memory for the request");
    }
    struct job_request job = {.kind = export_job.name,
                              .object = object,
                              .params = params,
                              .check = check_is_here,
                              .check_arg = wanted};
    return api_jobs_submit(request, &job, reply, err);
}

int api_exports_image(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"reference", API_STRING, true, 0},
                                                {"path", API_STRING, false, PATH_MAX - 1},
                                                {"format", API_STRING, false, 0},
                                                {"force", API_BOOL, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    struct wanted wanted = {.node = request->node,
                            .reference = json_string_value(json_object_get(params, "reference"))};
    return submit(request, params, &wanted, reply, err);
}

int api_exports_snapshot(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"path", API_STRING, false, PATH_MAX - 1},
                                                {"format", API_STRING, false, 0},
                                                {"force", API_BOOL, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = id_check(request->arg, "snapshot ID", err);
    if (rc >= 0)
        rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    if (json_object_set_new(params, "snapshot", json_string(request->arg)) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for the request");
    struct wanted wanted = {.node = request->node, .snapshot = request->arg};
    return submit(request, params, &wanted, reply, err);
}

static int fail_missing(const char *id, struct err *err)
{
    int rc = err_fail(err, ERR_NOT_FOUND, "there is no archive %s to be fetched", id);
    err_hint(err, "an archive can be fetched once, and within %d minutes", API_EXPORTS_KEEP_S / 60);
    return rc;
}

/* Whoever takes the name away has the archive; of two clients one gets it. */
static int take_name(struct node *node, const char *id, struct err *err)
{
    if (unlinkat(node->exports_fd, id, 0) == 0)
        return 0;
    return errno == ENOENT ? fail_missing(id, err)
                           : err_errno(err, errno, "cannot hand out archive %s", id);
}

int api_exports_get(struct api_request *request, struct api_reply *reply, struct err *err)
{
    const char *id = request->arg;
    struct stat st;
    int rc = id_check(id, "ID of an archive", err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd =
        openat(request->node->exports_fd, id, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ELOOP))
        return fail_missing(id, err);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot open archive %s", id);
    if (!S_ISREG(st.st_mode))
        return fail_missing(id, err);
    rc = request->head ? 0 : take_name(request->node, id, err);
    if (rc == 0)
        rc = FAULT_POINT("export.taken", err);
    if (rc == 0)
        api_reply_file(reply, steal_fd(&fd), (uint64_t)st.st_size);
    return rc;
}

static void sweep_one(struct node *node, const char *name)
{
    struct stat st;
    struct err failure = ERR_INIT;
    if (fstatat(node->exports_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return;
    int64_t age_s = clock_wall_ns(&node->clock) / CLOCK_NS_PER_S - st.st_mtim.tv_sec;
    if (age_s <= API_EXPORTS_KEEP_S)
        return;
    if (publish_unlink(node->exports_fd, name, &failure) < 0)
        log_event(LOG_WARN, "export-not-removed", "export", name, "error", failure.text, NULL);
    else
        log_event(LOG_INFO, "export-expired", "export", name, NULL);
}

void api_exports_sweep(struct node *node)
{
    cleanup_dir DIR *dir = fdio_list(node->exports_fd, ".");
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        if (id_check(entry->d_name, "export ID", NULL) == 0)
            sweep_one(node, entry->d_name);
}
