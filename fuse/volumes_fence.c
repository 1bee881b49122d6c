#include "volumes_internal.h"

#include "log.h"
#include "volume_fs.h"

enum {
    /* Shutting ext4 down writes its log out, for which held writes would have to end. */
    SHUTDOWN_MS = 2000,
};

/* The second half: the worker answers every write with EIO, held ones too. */
static bool order(struct volumes *volumes, struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    bool held = volume_is_held(volume);
    if (held)
        (void)atomic_fetch_or(&volume->live.header->orders, LIVE_ORDER_FENCED);
    (void)pthread_mutex_unlock(&volumes->table);
    return held;
}

/* Not `busy`: who has it may wait for the very writes that are to end here. */
int volumes_fence(struct volumes *volumes, const char *id, uint64_t life, const char *path,
                  struct err *err)
{
    int rc = volume_json_check_id(id, err);
    if (rc < 0)
        return rc;
    struct volume *volume = volume_pin(volumes, id, life);
    if (!volume)
        return err_fail(err, ERR_CONFLICT, "cannot fence volume %s: it was detached meanwhile", id);
    dev_t device = volume_device(volumes, volume);
    struct err why = ERR_INIT;
    if (path && device && volume_fs_shutdown(path, device, SHUTDOWN_MS, &why) < 0)
        log_event(LOG_WARN, "volume-not-shut-down", "volume", id, "why", why.text, NULL);
    bool held = order(volumes, volume);
    /* Again, for one that waited too long; ext4 has met an error by now in any case. */
    if (held && path && device && why.code != ERR_NONE)
        (void)volume_fs_shutdown(path, device, SHUTDOWN_MS, NULL);
    volume_unpin(volumes, volume);
    return held ? 0 : err_fail(err, ERR_CONFLICT, "cannot fence volume %s: it is not attached", id);
}
