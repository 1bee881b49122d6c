/* volume_fds.h - the descriptors of an attached volume that its three holders share (I10). */
#pragma once

#include "cleanup.h"

struct volume_fds {
    int fuse;    /* /dev/fuse, mounted */
    int live;    /* the live map */
    int listen;  /* the worker's control socket, bound and listening */
    int program; /* varve-volume as it was when the volume was attached */
    int worker;  /* pidfd of the worker; -1: none known */
};

enum {
    VOLUME_FDS_MUST = 4, /* all but the last are always there */
    VOLUME_FDS_MAX = 5,
};

#define VOLUME_FDS_NONE ((struct volume_fds){-1, -1, -1, -1, -1})

/* Closes what is open. */
void volume_fds_close(struct volume_fds *fds);
/* In the order of both protocols (volume_wire.h). Returns how many there are. */
int volume_fds_to_array(const struct volume_fds *fds, int ret[VOLUME_FDS_MAX]);
struct volume_fds volume_fds_from_array(const int *fds, int count);

#define cleanup_volume_fds cleanup_with(volume_fds_close)
