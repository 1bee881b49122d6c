/* What is read of the parent, and what it means when that is lost. */
#include "checkpoint_write_parts.h"

bool checkpoint_write_parent_has(const struct checkpoint_making *making, uint32_t leaf)
{
    const struct checkpoint *parent = making->write->parent;
    if (!parent)
        return false;
    const struct volume_root *root = checkpoint_root_of(parent);
    return leaf < root->leaf_count && root->set[leaf];
}

bool checkpoint_write_before(const struct checkpoint_write *write, struct digest *ret)
{
    if (write->after)
        *ret = *write->after;
    else if (write->parent)
        *ret = *checkpoint_digest(write->parent);
    return write->after || write->parent;
}

int checkpoint_write_parent_failed(const struct checkpoint_making *making, int rc,
                                   const struct err *failure, struct err *err)
{
    const struct checkpoint_write *write = making->write;
    err_pass(err, rc, failure);
    switch (failure->code) {
    case ERR_NOT_FOUND:
    case ERR_DIGEST:
    case ERR_DAMAGED:
        if (write->ret_parent_lost)
            *write->ret_parent_lost = true;
        err_hint(err,
                 "the remote has lost or damaged a part of the checkpoint before: put it back, "
                 "from a copy of the remote");
        break;
    default:
        break;
    }
    return err_wrap(err, rc, "the checkpoint before, %s",
                    digest_format(checkpoint_digest(write->parent)).s);
}

/* The blob or manifest of the parent's that the remote says it does not have; NULL: none. */
static const struct digest *find_lost(const struct checkpoint *parent,
                                      const struct remote_missing *missing)
{
    const struct checkpoint_index *index = checkpoint_index_of(parent);
    size_t count;
    const struct pack *packs = checkpoint_packs_of(parent, &count);
    for (size_t i = 0; i < missing->count; i++) {
        const struct digest *digest = &missing->digests[i];
        for (size_t j = 0; j < count; j++)
            if (digest_equal(&packs[j].digest, digest))
                return digest;
        for (size_t j = 0; j < index->list_count; j++)
            if (digest_equal(&index->lists[j].digest, digest))
                return digest;
    }
    return NULL;
}

int checkpoint_write_refused(const struct checkpoint_making *making,
                             const struct remote_missing *missing, int rc,
                             const struct err *failure, struct err *err)
{
    const struct checkpoint *parent = making->write->parent;
    const struct digest *lost = parent ? find_lost(parent, missing) : NULL;
    struct err why = ERR_INIT;
    if (!lost)
        return err_pass(err, rc, failure);
    rc = err_fail(&why, ERR_NOT_FOUND, "the remote has no %s", digest_format(lost).s);
    return checkpoint_write_parent_failed(making, rc, &why, err);
}

/* Also without a caller who asks for the end. */
static int stop(void *arg, uint64_t done, uint64_t total)
{
    const struct checkpoint_write *write = arg;
    return write->stop ? write->stop(write->stop_arg, done, total) : 0;
}

int checkpoint_write_parent_leaf(const struct checkpoint_making *making, uint32_t leaf,
                                 struct volume_leaf *ret, struct err *err)
{
    const struct checkpoint_write *write = making->write;
    struct err failure = ERR_INIT;
    int rc = checkpoint_leaf(write->parent, leaf, stop, (void *)write, ret, &failure);
    return rc < 0 ? checkpoint_write_parent_failed(making, rc, &failure, err) : 0;
}

int checkpoint_write_parent_read(const struct checkpoint_making *making, const uint64_t *chunks,
                                 size_t count, checkpoint_take *take, void *take_arg,
                                 struct err *err)
{
    const struct checkpoint_write *write = making->write;
    struct err failure = ERR_INIT;
    if (count == 0)
        return 0;
    int rc = checkpoint_read(write->parent, chunks, count, stop, (void *)write, take, take_arg,
                             &failure);
    return rc < 0 ? checkpoint_write_parent_failed(making, rc, &failure, err) : 0;
}
