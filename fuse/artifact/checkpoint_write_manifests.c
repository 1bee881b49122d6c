/* What names packs and leaves: root, config, pack lists, root manifest, index; each is in the
 * remote before what names it (I1). */
#include "checkpoint_tag.h"
#include "checkpoint_write_parts.h"
#include "cleanup.h"
#include "fault.h"

#include <stdio.h>
#include <string.h>

enum {
    TAG_DIGITS = 12,
};

/* Blobs */

static int send_bytes(struct checkpoint_making *making, const void *bytes, size_t len,
                      struct checkpoint_blob *ret, struct err *err)
{
    ret->size = len;
    making->written.bytes_new += len;
    return pack_writer_send(making->packs, bytes, len, &ret->digest, err);
}

static int send_root(struct checkpoint_making *making, struct err *err)
{
    const struct checkpoint_lists *lists = &making->lists;
    cleanup_free uint8_t *bytes =
        malloc(VOLUME_ROOT_BYTES_MAX + PACK_USAGE_HEAD + lists->count * PACK_USE_BYTES);
    if (!bytes)
        return err_errno(err, ENOMEM, "cannot write the root of a checkpoint");
    size_t len = volume_root_encode(&making->root, bytes);
    len += pack_usage_encode(lists->uses, lists->count, bytes + len);
    return send_bytes(making, bytes, len, &making->blobs.root, err);
}

static int send_config(struct checkpoint_making *making, struct err *err)
{
    const struct checkpoint_write *write = making->write;
    struct checkpoint_config config = write->config; /* borrows its chunks */
    cleanup_free char *text = NULL;
    size_t len = 0;
    config.size = making->source->size;
    config.root = making->blobs.root.digest;
    config.has_parent = checkpoint_write_before(write, &config.parent);
    int rc = checkpoint_config_encode(&config, write->key, &text, &len, err);
    return rc == 0 ? send_bytes(making, text, len, &making->blobs.config, err) : rc;
}

/* All at once: nothing in the remote names any of them yet. */
int checkpoint_write_blobs(struct checkpoint_making *making, struct err *err)
{
    struct checkpoint_blob empty;
    int rc = send_root(making, err);
    if (rc == 0)
        rc = send_config(making, err);
    if (rc == 0 && checkpoint_lists_new(&making->lists))
        rc = send_bytes(making, CHECKPOINT_EMPTY, strlen(CHECKPOINT_EMPTY), &empty, err);
    if (rc == 0)
        rc = pack_writer_flush(making->packs, err);
    return rc == 0 ? FAULT_POINT("checkpoint.blobs-sent", err) : rc;
}

/* Manifests */

int checkpoint_write_manifest(struct checkpoint_making *making, char prefix, const char *text,
                              size_t len, struct checkpoint_blob *ret, struct err *err)
{
    const struct checkpoint_write *write = making->write;
    char tag[2 + TAG_DIGITS + 1];
    int rc = digest_bytes(text, len, &ret->digest, err);
    if (rc < 0)
        return rc;
    snprintf(tag, sizeof tag, "%c-%.*s", prefix, TAG_DIGITS, digest_hex(&ret->digest).s);
    ret->size = len;
    making->written.bytes_new += len;
    struct remote_missing missing = {.any = false};
    struct err failure = ERR_INIT;
    rc = remote_manifest_claim(write->remote, write->repository, tag, OCI_MEDIA_MANIFEST, text, len,
                               write->stop, write->stop_arg, &missing, &failure);
    return rc < 0 ? checkpoint_write_refused(making, &missing, rc, &failure, err) : 0;
}

static int send_root_manifest(struct checkpoint_making *making, struct checkpoint_blob *ret,
                              struct err *err)
{
    cleanup_free char *text = NULL;
    size_t len = 0;
    int rc = checkpoint_root_encode(&making->blobs, &text, &len, err);
    if (rc == 0)
        rc = checkpoint_write_manifest(making, 'r', text, len, ret, err);
    return rc == 0 ? FAULT_POINT("checkpoint.root-manifest-sent", err) : rc;
}

/* The index */

/* remote_choice.choose */
static int choose(void *arg, const char **ret_tag, bool *ret_claim, struct err *err)
{
    struct checkpoint_making *making = arg;
    const struct checkpoint_write *write = making->write;
    struct checkpoint_tag tag;
    if (!write->choose) {
        *ret_tag = write->tag;
        *ret_claim = false;
        return 0;
    }
    int rc = write->choose(write->choose_arg, &making->written.digest, ret_tag, err);
    if (rc == 0)
        *ret_claim = !checkpoint_tag_parse(*ret_tag, &tag) || tag.kind != CHECKPOINT_TAG_LIVE;
    return rc;
}

static int send_index(struct checkpoint_making *making, const char *text, size_t len,
                      struct err *err)
{
    const struct checkpoint_write *write = making->write;
    const struct remote_choice choice = {choose, making};
    struct remote_missing missing = {.any = false};
    struct err failure = ERR_INIT;
    int rc = digest_bytes(text, len, &making->written.digest, err);
    if (rc < 0)
        return rc;
    making->written.bytes_new += len;
    rc = remote_manifest_swap(write->remote, write->repository, &choice, OCI_MEDIA_INDEX, text, len,
                              write->stop, write->stop_arg, &missing, &failure);
    return rc < 0 ? checkpoint_write_refused(making, &missing, rc, &failure, err) : 0;
}

int checkpoint_write_manifests(struct checkpoint_making *making, struct err *err)
{
    const struct checkpoint_write *write = making->write;
    const struct checkpoint_config *config = &write->config;
    cleanup_checkpoint_index struct checkpoint_index index = {
        .generation = config->generation,
        .token = config->token,
    };
    cleanup_free char *text = NULL;
    size_t len = 0;
    memcpy(index.volume, config->volume, sizeof index.volume);
    memcpy(index.node, config->node, sizeof index.node);
    index.has_parent = checkpoint_write_before(write, &index.parent);
    int rc = send_root_manifest(making, &index.root_manifest, err);
    if (rc == 0)
        rc = checkpoint_write_lists(making, &index, err);
    if (rc == 0)
        rc = checkpoint_index_encode(&index, &text, &len, err);
    if (rc == 0)
        rc = send_index(making, text, len, err);
    return rc == 0 ? FAULT_POINT("checkpoint.index-sent", err) : rc;
}
