#include "run_internal.h"

#include "blobs.h"
#include "json_doc.h"
#include "overlay.h"

#include <fcntl.h>

int run_config_read(struct node *node, const char *image_digest, struct oci_config *ret,
                    struct err *err)
{
    cleanup_catalog_image struct catalog_image image = {0};
    cleanup_buf struct buf text = BUF_INIT(JSON_DOC_BYTES_MAX);
    struct digest digest;
    int rc = catalog_image_get(node->catalog, image_digest, &image, err);
    if (rc == 0)
        rc = digest_parse(image.config_digest, &digest, err);
    if (rc == 0)
        rc = blobs_read(node->blobs, &digest, &text, err);
    return rc == 0 ? oci_config_parse(buf_str(&text), text.len, image.layer_count, ret, err) : rc;
}

int run_rootfs_open(struct node *node, const struct catalog_run *run, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    if (run->state != CATALOG_RUN_READY)
        return err_fail(err, ERR_CONFLICT, "run %s is %s", run->id,
                        catalog_run_state_name(run->state));
    int rc = run_paths_make(node, run->id, &paths, err);
    if (rc == 0)
        rc = overlay_is_mounted(paths.rootfs, err);
    if (rc == 0) {
        rc = err_fail(err, ERR_CONFLICT, "the root filesystem of run %s is not mounted", run->id);
        err_hint(err, "POST /v1/runs/%s/mount, or `varve recover`, mounts it again", run->id);
    }
    if (rc < 0)
        return rc;
    int fd = open(paths.rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? err_errno(err, errno, "cannot open %s", paths.rootfs) : fd;
}
