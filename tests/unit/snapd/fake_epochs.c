/* Of the volumes of fake_volumes.h: what they have not. */
#include "fake_volumes.h"
#include "volumes_epoch.h"

void fake_epochs_use(void)
{
}

/* What is absent, cut and exchanged is tested with the real ones. */
static int fail_not_here(struct err *err)
{
    return err_fail(err, ERR_UNSUPPORTED, "these volumes know no checkpoints");
}

int volumes_create_from(struct volumes *volumes, const char *id, uint64_t size,
                        const struct volume_base *base, volume_create_give *give, void *arg,
                        struct err *err)
{
    (void)base, (void)give, (void)arg;
    return volumes_create(volumes, id, size, err);
}

int volumes_replace_from(struct volumes *volumes, const char *id, uint64_t size,
                         const struct volume_base *base, volume_create_give *give, void *arg,
                         struct err *err)
{
    (void)volumes, (void)id, (void)size, (void)base, (void)give, (void)arg;
    return fail_not_here(err);
}

int volumes_fetch_fds(struct volumes *volumes, const char *id, struct volumes_fetch_fds *ret,
                      struct err *err)
{
    (void)volumes, (void)id, (void)ret;
    return fail_not_here(err);
}

int volumes_epoch_cut(struct volumes *volumes, const char *id, uint64_t token, uint32_t uses,
                      const char *path, struct volumes_epoch *ret, struct err *err)
{
    (void)volumes, (void)id, (void)token, (void)uses, (void)path, (void)ret;
    return fail_not_here(err);
}

int volumes_epoch_cut_frozen(struct volumes *volumes, const char *id, uint64_t token, uint32_t uses,
                             const char *path, int budget_ms, struct volumes_epoch *ret,
                             struct err *err)
{
    (void)budget_ms;
    return volumes_epoch_cut(volumes, id, token, uses, path, ret, err);
}

int volumes_thaw_left(struct volumes *volumes, int wait_ms)
{
    (void)volumes, (void)wait_ms;
    return 0;
}

int volumes_epoch_is_whole(struct volumes *volumes, const char *id,
                           const struct volumes_epoch *epoch, struct err *err)
{
    (void)volumes, (void)id, (void)epoch;
    return fail_not_here(err);
}

int volumes_build_on(struct volumes *volumes, const char *id, const struct digest *parent,
                     struct err *err)
{
    (void)volumes, (void)id, (void)parent;
    return fail_not_here(err);
}

void volumes_built(struct volumes *volumes, const char *id, uint64_t life,
                   const struct digest *checkpoint)
{
    (void)volumes, (void)id, (void)life, (void)checkpoint;
}

void volumes_epoch_clean(struct volumes *volumes, const char *id, const struct volumes_epoch *epoch)
{
    (void)volumes, (void)id, (void)epoch;
}

int volumes_epoch_flush(struct volumes *volumes, const char *id, const struct volumes_epoch *epoch,
                        struct err *err)
{
    (void)volumes, (void)id, (void)epoch;
    return fail_not_here(err);
}

void volumes_epoch_end(struct volumes *volumes, const char *id, struct volumes_epoch *epoch)
{
    (void)volumes, (void)id, (void)epoch;
}

int volumes_epoch_end_left(struct volumes *volumes, const char *id, struct err *err)
{
    (void)volumes, (void)id, (void)err;
    return 0;
}

int volumes_epoch_open(struct volumes *volumes, const char *id, uint64_t token,
                       struct volumes_epoch *ret, struct err *err)
{
    (void)volumes, (void)id, (void)token, (void)ret;
    return fail_not_here(err);
}

void volumes_epoch_leave(struct volumes_epoch *epoch)
{
    (void)epoch;
}

int volumes_epoch_release(struct volumes *volumes, const char *id, uint64_t token, int wait_ms,
                          struct err *err)
{
    (void)volumes, (void)id, (void)token, (void)wait_ms, (void)err;
    return 0;
}

unsigned volumes_epoch_views(struct volumes *volumes, const char *id,
                             uint64_t ret_tokens[LIVE_MAP_SLOTS])
{
    (void)volumes, (void)id, (void)ret_tokens;
    return 0;
}
