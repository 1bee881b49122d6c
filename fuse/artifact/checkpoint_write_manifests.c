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
    cleanup_free uint8_t *bytes = malloc(VOLUME_ROOT_BYTES_MAX);
    if (!bytes)
        return err_errno(err, ENOMEM, "cannot write the root of a checkpoint");
    size_t len = volume_root_encode(&making->root, bytes);
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
    size_t new_packs;
    (void)pack_writer_packs(making->packs, &new_packs);
    int rc = send_root(making, err);
    if (rc == 0)
        rc = send_config(making, err);
    if (rc == 0 && new_packs > 0) /* for the lists */
        rc = send_bytes(making, CHECKPOINT_EMPTY, strlen(CHECKPOINT_EMPTY), &empty, err);
    if (rc == 0)
        rc = pack_writer_flush(making->packs, err);
    return rc == 0 ? FAULT_POINT("checkpoint.blobs-sent", err) : rc;
}

/* Manifests */

/* A manifest under the tag that its digest gives it. */
static int send_manifest(struct checkpoint_making *making, char prefix, const char *text,
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
        rc = send_manifest(making, 'r', text, len, ret, err);
    return rc == 0 ? FAULT_POINT("checkpoint.root-manifest-sent", err) : rc;
}

/* Pack lists */

/* All packs of the new index: the parent's, and the new ones. Caller frees. */
static int all_packs(struct checkpoint_making *making, size_t *ret_old, size_t *ret_count,
                     struct pack **ret, struct err *err)
{
    size_t old_count = 0;
    size_t new_count;
    const struct pack *old_packs =
        making->write->parent ? checkpoint_packs_of(making->write->parent, &old_count) : NULL;
    const struct pack *new_packs = pack_writer_packs(making->packs, &new_count);
    struct pack *packs = calloc(old_count + new_count + 1, sizeof *packs);
    struct pack *kept = calloc(new_count + 1, sizeof *kept);
    if (!packs || !kept) {
        free(packs);
        free(kept);
        return err_errno(err, ENOMEM, "cannot list the packs of a checkpoint");
    }
    if (old_count > 0)
        memcpy(packs, old_packs, old_count * sizeof *packs);
    if (new_count > 0) {
        memcpy(packs + old_count, new_packs, new_count * sizeof *packs);
        memcpy(kept, new_packs, new_count * sizeof *kept);
    }
    making->written.packs = kept;
    making->written.pack_count = new_count;
    for (size_t i = 0; i < old_count + new_count; i++)
        making->written.bytes_total += packs[i].size;
    for (size_t i = 0; i < new_count; i++)
        making->written.bytes_new += new_packs[i].size;
    *ret = packs;
    *ret_old = old_count;
    *ret_count = old_count + new_count;
    return 0;
}

static int send_list(struct checkpoint_making *making, const struct pack *packs, size_t count,
                     struct checkpoint_blob *ret, struct err *err)
{
    cleanup_free char *text = NULL;
    size_t len = 0;
    int rc = checkpoint_packs_encode(packs, count, &text, &len, err);
    if (rc == 0)
        rc = send_manifest(making, 'p', text, len, ret, err);
    return rc == 0 ? FAULT_POINT("checkpoint.list-sent", err) : rc;
}

/* Names the lists of the parent that stay: the full ones, or all when there is no new pack. */
static int keep_lists(const struct checkpoint_making *making, size_t old_count, bool all,
                      struct checkpoint_index *index, struct err *err)
{
    if (!making->write->parent)
        return 0;
    const struct checkpoint_index *old = checkpoint_index_of(making->write->parent);
    if (old->list_count != (old_count + CHECKPOINT_LIST_PACKS - 1) / CHECKPOINT_LIST_PACKS) {
        struct err failure = ERR_INIT;
        int rc = err_fail(&failure, ERR_DAMAGED, "it has %zu packs in %zu lists", old_count,
                          old->list_count);
        return checkpoint_write_parent_failed(making, rc, &failure, err);
    }
    size_t count = all ? old->list_count : old_count / CHECKPOINT_LIST_PACKS;
    if (count > 0)
        memcpy(index->lists, old->lists, count * sizeof *index->lists);
    index->list_count = count;
    return 0;
}

static int send_lists(struct checkpoint_making *making, struct checkpoint_index *index,
                      struct err *err)
{
    cleanup_free struct pack *packs = NULL;
    size_t old_count = 0;
    size_t count = 0;
    int rc = all_packs(making, &old_count, &count, &packs, err);
    if (rc < 0)
        return rc;
    size_t lists = (count + CHECKPOINT_LIST_PACKS - 1) / CHECKPOINT_LIST_PACKS;
    if (lists > CHECKPOINT_LISTS_MAX) {
        rc = err_fail(err, ERR_TOO_LARGE, "the checkpoint would have %zu packs, at most %d fit",
                      count, CHECKPOINT_LISTS_MAX * CHECKPOINT_LIST_PACKS);
        err_hint(err, "copy the files into a new workspace");
        return rc;
    }
    index->lists = calloc(lists + 1, sizeof *index->lists);
    if (!index->lists)
        return err_errno(err, ENOMEM, "cannot list the packs of a checkpoint");
    rc = keep_lists(making, old_count, count == old_count, index, err);
    if (rc < 0 || index->list_count == lists)
        return rc;
    while (rc == 0 && index->list_count < lists) {
        size_t at = index->list_count * CHECKPOINT_LIST_PACKS;
        size_t some = count - at < CHECKPOINT_LIST_PACKS ? count - at : CHECKPOINT_LIST_PACKS;
        rc = send_list(making, packs + at, some, &index->lists[index->list_count], err);
        index->list_count += rc == 0;
    }
    return rc;
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
        rc = send_lists(making, &index, err);
    if (rc == 0)
        rc = checkpoint_index_encode(&index, &text, &len, err);
    if (rc == 0)
        rc = send_index(making, text, len, err);
    return rc == 0 ? FAULT_POINT("checkpoint.index-sent", err) : rc;
}
