#include "checkpoint_verify.h"

#include "cleanup.h"

#include <string.h>

static void free_checkpoint(struct checkpoint **checkpoint)
{
    checkpoint_free(*checkpoint);
}

static int compare_packs(const void *a, const void *b)
{
    const struct pack *one = a;
    const struct pack *other = b;
    return memcmp(one->digest.bytes, other->digest.bytes, sizeof one->digest.bytes);
}

/* The packs of a checkpoint, sorted. Caller frees; *ret_count 0 and NULL for none. */
static int sorted_packs(const struct checkpoint *checkpoint, struct pack **ret, size_t *ret_count,
                        struct err *err)
{
    size_t count = 0;
    const struct pack *packs = checkpoint ? checkpoint_packs_of(checkpoint, &count) : NULL;
    struct pack *sorted = count > 0 ? malloc(count * sizeof *sorted) : NULL;
    if (count > 0 && !sorted)
        return err_errno(err, ENOMEM, "cannot verify a checkpoint");
    if (count > 0) {
        memcpy(sorted, packs, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, compare_packs);
    }
    *ret = sorted;
    *ret_count = count;
    return 0;
}

static int verify_packs(const struct checkpoint_options *options,
                        const struct checkpoint *checkpoint, const struct checkpoint *known,
                        remote_progress stop, void *stop_arg, struct checkpoint_verified *ret,
                        struct err *err)
{
    size_t count = 0;
    size_t known_count = 0;
    cleanup_free struct pack *known_packs = NULL;
    const struct pack *packs = checkpoint_packs_of(checkpoint, &count);
    int rc = sorted_packs(known, &known_packs, &known_count, err);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct pack *pack = &packs[i];
        if (known_count > 0 && bsearch(pack, known_packs, known_count, sizeof *pack, compare_packs))
            continue;
        rc = remote_verify_blob(options->remote, options->repository, &pack->digest, pack->size,
                                stop, stop_arg, err);
        ret->packs += rc == 0;
        ret->bytes += rc == 0 ? pack->size : 0;
    }
    return rc;
}

int checkpoint_verify(const struct checkpoint_options *options, const struct digest *digest,
                      const struct checkpoint *known, remote_progress stop, void *stop_arg,
                      struct checkpoint_verified *ret, struct err *err)
{
    const struct digest_text name = digest_format(digest);
    const struct checkpoint_blob empty = checkpoint_packs_config();
    cleanup_with(free_checkpoint) struct checkpoint *checkpoint = NULL;
    struct checkpoint_verified verified = {.packs = 0};
    size_t count = 0;
    int rc = checkpoint_open(options, name.s, stop, stop_arg, &checkpoint, err);
    if (rc == 0)
        (void)checkpoint_packs_of(checkpoint, &count);
    if (rc == 0 && count > 0)
        rc = remote_verify_blob(options->remote, options->repository, &empty.digest, empty.size,
                                stop, stop_arg, err);
    if (rc == 0)
        rc = verify_packs(options, checkpoint, known, stop, stop_arg, &verified, err);
    if (rc < 0)
        return err_wrap(err, rc, "checkpoint %s cannot be read back", name.s);
    *ret = verified;
    return 0;
}
