#include "layers.h"

#include "fault.h"
#include "layers_busy.h"
#include "log.h"
#include "oci_image.h"
#include "publish.h"
#include "tree.h"
#include "unpack.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* The name of a layer's directory. */
static int layer_name(const char *chain_id, struct digest_text *ret, struct err *err)
{
    struct digest digest;
    int rc = digest_parse(chain_id, &digest, err);
    if (rc == 0)
        *ret = digest_hex(&digest);
    return rc;
}

int layers_open(struct node *node, const char *chain_id, struct err *err)
{
    struct digest_text name;
    int rc = layer_name(chain_id, &name, err);
    if (rc < 0)
        return rc;
    int fd = openat(node->layers_fd, name.s, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "layer %s is not unpacked in %s/layers", chain_id,
                        node->data_dir);
    return err_errno(err, errno, "cannot open layer %s in %s/layers", chain_id, node->data_dir);
}

/* 1 when the layer is there, 0 when not. */
static int is_there(struct node *node, const char *name, struct err *err)
{
    if (faccessat(node->layers_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    if (errno == ENOENT)
        return 0;
    return err_errno(err, errno, "cannot look for layer %s in %s/layers", name, node->data_dir);
}

struct lowers {
    int fds[OCI_LAYERS_MAX]; /* owned; topmost first */
    size_t count;
};

static void lowers_close(struct lowers *lowers)
{
    for (size_t i = 0; i < lowers->count; i++)
        cleanup_fdp(&lowers->fds[i]);
    lowers->count = 0;
}
#define cleanup_lowers cleanup_with(lowers_close)

/* Opens the layers below number `index`. */
static int open_lowers(struct node *node, const struct catalog_image *image, size_t index,
                       struct lowers *ret, struct err *err)
{
    for (size_t i = index; i-- > 0;) {
        int fd = layers_open(node, image->layers[i].chain_id, err);
        if (fd < 0)
            return fd;
        ret->fds[ret->count++] = fd;
    }
    return 0;
}

static int unpack_into(struct node *node, const struct catalog_image *image, size_t index,
                       int target_fd, struct err *err)
{
    const struct catalog_layer *layer = &image->layers[index];
    cleanup_lowers struct lowers lowers = {.count = 0};
    struct digest digest;
    struct digest diff_id;
    uint64_t size;
    int rc = digest_parse(layer->digest, &digest, err);
    if (rc == 0)
        rc = digest_parse(layer->diff_id, &diff_id, err);
    if (rc == 0)
        rc = open_lowers(node, image, index, &lowers, err);
    if (rc < 0)
        return rc;
    cleanup_fd int blob = blobs_open_blob(node->blobs, &digest, &size, err);
    if (blob < 0)
        return blob;
    const struct unpack_request request = {
        .blob_fd = blob,
        .target_fd = target_fd,
        .mode = UNPACK_LAYER,
        .diff_id = &diff_id,
        .lower_fds = lowers.fds,
        .lower_count = lowers.count,
    };
    return unpack_run(&request, err);
}

static void discard_failed(struct node *node, const char *temp)
{
    struct err failure = ERR_INIT;
    if (layers_discard(node, temp, &failure) < 0)
        log_event(LOG_WARN, "temporary-not-removed", "name", temp, "error", failure.text, NULL);
}

static int build_in(struct node *node, const struct catalog_image *image, size_t index,
                    const char *temp, struct err *err)
{
    cleanup_fd int fd =
        openat(node->temp_fd, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s/tmp/%s", node->data_dir, temp);
    int rc = unpack_into(node, image, index, fd, err);
    return rc == 0 ? FAULT_POINT("layers.unpacked", err) : rc;
}

/* Unpacks one layer and publishes it. */
static int build(struct node *node, const struct catalog_image *image, size_t index,
                 const char *name, struct err *err)
{
    char temp[32];
    int rc = publish_temp_name(temp, err);
    if (rc < 0)
        return rc;
    if (mkdirat(node->temp_fd, temp, 0700) < 0)
        return err_errno(err, errno, "cannot make a directory in %s/tmp", node->data_dir);
    struct err failure = ERR_INIT;
    rc = build_in(node, image, index, temp, &failure);
    if (rc == 0)
        rc = publish_tree(node->temp_fd, temp, node->layers_fd, name, &failure);
    if (rc < 0)
        discard_failed(node, temp);
    /* Somebody else's result under this name is as good. */
    if (rc < 0 && failure.code != ERR_EXISTS) {
        if (err)
            *err = failure;
        return rc;
    }
    return FAULT_POINT("layers.published", err);
}

static int ensure_one(struct node *node, const struct catalog_image *image, size_t index,
                      struct err *err)
{
    struct digest_text name;
    const char *chain_id = image->layers[index].chain_id;
    int rc = layer_name(chain_id, &name, err);
    if (rc == 0)
        rc = is_there(node, name.s, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    struct layers_busy busy;
    layers_busy_enter(&busy, node, chain_id);
    rc = is_there(node, name.s, err);
    if (rc == 0)
        rc = build(node, image, index, name.s, err);
    layers_busy_leave(&busy);
    return rc < 0 ? rc : 0;
}

int layers_ensure(struct node *node, const struct catalog_image *image, struct err *err)
{
    if (image->layer_count > OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "image %s has %zu layers, more than %d", image->digest,
                        image->layer_count, OCI_LAYERS_MAX);
    for (size_t i = 0; i < image->layer_count; i++) {
        int rc = ensure_one(node, image, i, err);
        if (rc < 0)
            return err_wrap(err, rc, "cannot unpack layer %zu of %zu (%s)", i + 1,
                            image->layer_count, image->layers[i].digest);
    }
    return 0;
}

int layers_detach(struct node *node, const char *chain_id, char temp[32], struct err *err)
{
    struct digest_text name;
    int rc = layer_name(chain_id, &name, err);
    return rc < 0 ? rc : node_move_away(node, node->layers_fd, "layers", name.s, temp, err);
}

int layers_discard(struct node *node, const char *temp, struct err *err)
{
    return tree_remove(node->temp_fd, temp, err);
}

int layers_remove(struct node *node, const char *chain_id, struct err *err)
{
    char temp[32];
    int rc = layers_detach(node, chain_id, temp, err);
    if (rc <= 0)
        return rc;
    rc = layers_discard(node, temp, err);
    return rc < 0 ? err_wrap(err, rc, "cannot remove layer %s", chain_id) : 0;
}
