/* A volume that was made of a checkpoint: its file system bears the UUID of what it was made of, in
 * a superblock that may stand in its journal as well, until it is mounted. */
#include "volumes_internal.h"

#include "log.h"
#include "volume_fs.h"

#include <string.h>

void volume_give_uuid(const struct volume *volume, const char *path,
                      const uint8_t borne[VOLUME_UUID_LEN])
{
    struct err why = ERR_INIT;
    if (memcmp(borne, volume->uuid, VOLUME_UUID_LEN) == 0)
        return;
    if (volume_fs_set_uuid(path, volume->device_dev, volume->uuid, VOLUMES_FS_MS, &why) < 0)
        log_event(LOG_WARN, "volume-uuid-kept", "volume", volume->id, "why", why.text, NULL);
}
