#include "api_uploads.h"

#include "catalog_job.h"
#include "fault.h"
#include "fdio.h"
#include "log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int api_uploads_begin(struct node *node, struct api_upload *ret, struct err *err)
{
    api_uploads_sweep(node);
    struct api_upload upload = {.publish = PUBLISH_INIT};
    int rc = id_new("u", &upload.id, err);
    if (rc >= 0)
        rc = publish_begin(node->temp_fd, 0600, &upload.publish, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot take an upload");
    *ret = upload;
    return 0;
}

int api_uploads_write(struct api_upload *upload, const void *bytes, size_t len, struct err *err)
{
    int rc = FAULT_POINT("upload.write", err);
    if (rc >= 0) {
        rc = fdio_write_full(upload->publish.fd, bytes, len);
        if (rc < 0)
            rc = err_errno(err, rc, "cannot write upload %s after %llu bytes", upload->id.s,
                           (unsigned long long)upload->size);
    }
    if (rc < 0)
        return rc;
    upload->size += len;
    return 0;
}

int api_uploads_finish(struct node *node, struct api_upload *upload, struct api_reply *reply,
                       struct err *err)
{
    int rc = FAULT_POINT("upload.before-publish", err);
    if (rc >= 0)
        rc = publish_commit(&upload->publish, node->uploads_fd, upload->id.s, PUBLISH_NOREPLACE,
                            err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot keep upload %s", upload->id.s);
    json_t *body =
        json_pack("{s:s, s:I}", "upload", upload->id.s, "size", (json_int_t)upload->size);
    return api_reply_set(reply, 201, body, err);
}

void api_uploads_abort(struct api_upload *upload)
{
    publish_abort(&upload->publish);
}

int api_uploads_check(struct node *node, const char *id, struct err *err)
{
    struct stat st;
    if (fstatat(node->uploads_fd, id, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        return 0;
    int rc = err_fail(err, ERR_NOT_FOUND, "there is no upload %s", id);
    err_hint(err, "an upload is kept for %d hours, or until it is used", API_UPLOADS_KEEP_S / 3600);
    return rc;
}

/* Whether an unfinished job's parameters name the upload. */
static bool is_wanted(const struct catalog_job *jobs, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        cleanup_json json_t *params = jobs[i].params ? json_loads(jobs[i].params, 0, NULL) : NULL;
        const char *upload = json_string_value(json_object_get(params, "upload"));
        if (upload && strcmp(upload, name) == 0)
            return true;
    }
    return false;
}

static void sweep_one(struct node *node, const struct catalog_job *jobs, size_t count,
                      const char *name)
{
    struct stat st;
    if (fstatat(node->uploads_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return;
    int64_t age_s = clock_wall_ns(&node->clock) / CLOCK_NS_PER_S - st.st_mtim.tv_sec;
    if (age_s <= API_UPLOADS_KEEP_S || is_wanted(jobs, count, name))
        return;
    struct err failure = ERR_INIT;
    if (publish_unlink(node->uploads_fd, name, &failure) < 0)
        log_event(LOG_WARN, "upload-not-removed", "upload", name, "error", failure.text, NULL);
    else
        log_event(LOG_INFO, "upload-expired", "upload", name, NULL);
}

void api_uploads_sweep(struct node *node)
{
    struct err failure = ERR_INIT;
    struct catalog_job *jobs = NULL;
    size_t count = 0;
    if (catalog_job_list(node->catalog, true, &jobs, &count, &failure) < 0) {
        log_event(LOG_WARN, "uploads-not-swept", "error", failure.text, NULL);
        return;
    }
    cleanup_dir DIR *dir = fdio_list(node->uploads_fd, ".");
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        if (id_check(entry->d_name, "upload ID", NULL) == 0)
            sweep_one(node, jobs, count, entry->d_name);
    for (size_t i = 0; i < count; i++)
        catalog_job_free(&jobs[i]);
    free(jobs);
}
