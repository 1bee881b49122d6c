/* Which checkpoint has what is clean in a volume. */
#include "volumes_internal.h"

#include <string.h>

_Static_assert(sizeof((struct live_map_header){0}.clean_of) == DIGEST_BYTES, "a digest");

int volumes_build_on(struct volumes *volumes, const char *id, const struct digest *parent,
                     struct err *err)
{
    struct volume *volume = volume_pin(volumes, id, VOLUME_ANY_LIFE);
    int rc = -1;
    if (volume) {
        (void)pthread_mutex_lock(&volumes->table);
        if (volume_is_held(volume)) {
            struct live_map_header *header = volume->live.header;
            rc = parent && memcmp(header->clean_of, parent->bytes, sizeof header->clean_of) == 0;
            if (rc == 0)
                (void)atomic_fetch_or(&header->orders, LIVE_ORDER_DOUBT);
        }
        (void)pthread_mutex_unlock(&volumes->table);
        volume_unpin(volumes, volume);
    }
    return rc < 0 ? err_fail(err, ERR_CONFLICT, "volume %s is not attached", id) : rc;
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
