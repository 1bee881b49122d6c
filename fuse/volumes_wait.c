/* Calls on the device of a volume of which not everything is here. */
#include "volumes_internal.h"

#include "deadline_child.h"

#include <string.h>

/* What a worker says; one that lies keeps the job waiting that mounts its volume, and an abandon
 * ends that. */
static bool waits_for_remote(void *arg)
{
    const struct volume *volume = arg;
    return !volume->dead && volume_is_held(volume) &&
           atomic_load(&volume->live.header->absent_chunks) > 0 &&
           atomic_load(&volume->live.header->absent) > 0;
}

void volume_wait_begin(struct volume *volume)
{
    deadline_child_hold(waits_for_remote, volume);
}

void volume_wait_end(void)
{
    deadline_child_hold(NULL, NULL);
}

static bool is_uuid_of(const struct volume *volume, const uint8_t uuid[VOLUME_UUID_LEN])
{
    const struct volume_base *base = &volume->base;
    return memcmp(uuid, volume->uuid, VOLUME_UUID_LEN) == 0 ||
           (base->lineage[0] != '\0' && memcmp(uuid, base->uuid, VOLUME_UUID_LEN) == 0);
}

int volume_look(const struct volume *volume, uint64_t size, struct ext4_super *ret, struct err *err)
{
    struct ext4_super super;
    int rc = volume_fs_look(volume->device, NULL, size, VOLUMES_STEP_MS, &super, err);
    if (rc >= 0 && !is_uuid_of(volume, super.uuid))
        rc = ext4_super_fail_uuid(err);
    if (rc >= 0)
        *ret = super;
    return rc;
}
