#include "volume_fds.h"

void volume_fds_close(struct volume_fds *fds)
{
    cleanup_fdp(&fds->fuse);
    cleanup_fdp(&fds->live);
    cleanup_fdp(&fds->listen);
    cleanup_fdp(&fds->program);
    cleanup_fdp(&fds->worker);
    *fds = VOLUME_FDS_NONE;
}

int volume_fds_to_array(const struct volume_fds *fds, int ret[VOLUME_FDS_MAX])
{
    ret[0] = fds->fuse;
    ret[1] = fds->live;
    ret[2] = fds->listen;
    ret[3] = fds->program;
    ret[4] = fds->worker;
    return fds->worker >= 0 ? VOLUME_FDS_MAX : VOLUME_FDS_MUST;
}

struct volume_fds volume_fds_from_array(const int *fds, int count)
{
    if (count < VOLUME_FDS_MUST)
        return VOLUME_FDS_NONE;
    return (struct volume_fds){.fuse = fds[0],
                               .live = fds[1],
                               .listen = fds[2],
                               .program = fds[3],
                               .worker = count > VOLUME_FDS_MUST ? fds[4] : -1};
}
