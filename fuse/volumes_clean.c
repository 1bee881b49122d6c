/* Which checkpoint has what is clean in a volume. */
#include "volumes_internal.h"

#include "epochs.h"

#include <string.h>

_Static_assert(sizeof((struct live_map_header){0}.clean_of) == DIGEST_BYTES, "a digest");

/* All that is here is dirty from the next cut on. An epoch that is open for a checkpoint was cut
 * while less was, and what it would need now was not set aside: it ends first. */
static int doubt(struct volumes *volumes, struct volume *volume, struct err *err)
{
    struct live_map_header *header = volume->live.header;
    if (atomic_load(&header->clean_epoch) == 0 &&
        (atomic_load(&header->orders) & LIVE_ORDER_DOUBT) != 0)
        return 0;
    int rc = volume_end_checkpoints(volumes, volume, 0, 0, err);
    if (rc < 0)
        return rc;
    (void)atomic_fetch_or(&header->orders, LIVE_ORDER_DOUBT);
    atomic_store(&header->clean_epoch, 0);
    return 0;
}

static int build_on(struct volumes *volumes, struct volume *volume, const struct digest *parent,
                    struct err *err)
{
    int rc = volume_must_be_attached(volumes, volume, err);
    if (rc < 0)
        return rc;
    const struct live_map_header *header = volume->live.header;
    if (parent && memcmp(header->clean_of, parent->bytes, sizeof header->clean_of) == 0)
        return 1;
    return doubt(volumes, volume, err);
}

int volumes_build_on(struct volumes *volumes, const char *id, const struct digest *parent,
                     struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = build_on(volumes, volume, parent, err);
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot make a checkpoint of volume %s", id) : rc;
}

void volumes_built(struct volumes *volumes, const char *id, uint64_t life,
                   const struct digest *checkpoint)
{
    struct volume *volume = volume_pin(volumes, id, life);
    if (!volume)
        return;
    (void)pthread_mutex_lock(&volumes->table);
    if (volume_is_held(volume))
        memcpy(volume->live.header->clean_of, checkpoint->bytes,
               sizeof volume->live.header->clean_of);
    (void)pthread_mutex_unlock(&volumes->table);
    volume_unpin(volumes, volume);
}
