/* run_place.h - the directory that a run's writable layer lies in, and those beside it.
 *
 *   kind of upper   the layer       published, has no place yet    made, or on its way out
 *   "plain"         DATA/runs/ID    DATA/runs/.next-ID             DATA/tmp
 *   "volume"        run             .next                          tmp
 *
 * The latter are in the root of the ext4 of the run's volume, which is mounted at
 * RUN/runs/ID/volume (run_volume.h). What is in such a directory is the same for both: upper, work,
 * switch.json.
 *
 * A sandbox may fill its volume, blocks and inodes. So a directory `reserve` of a few files is kept
 * beside `run` and given back when what is made for a fresh layer finds no room.
 *
 * What a volume holds was written by its worker, which may lie: no symbolic link of it is followed.
 */
#pragma once

#include "id.h"
#include "node.h"

#include <stdbool.h>

struct run_place {
    int dir_fd;  /* that name and next are in */
    int temp_fd; /* on the same file system */
    char name[ID_LEN_MAX + 1];
    char next[ID_LEN_MAX + 8];
    char *dir;  /* path of dir_fd, for messages; owned */
    char *temp; /* the same of temp_fd */
    bool own;   /* the descriptors are ours */
};

/* Where the layer of a run is. One without a row has its place in DATA/runs. ERR_CONFLICT when its
 * volume is not mounted. */
int run_place_open(struct node *node, const char *id, struct run_place *ret, struct err *err);
/* That in DATA/runs, whatever the run. */
int run_place_open_plain(struct node *node, const char *id, struct run_place *ret, struct err *err);
void run_place_close(struct run_place *place);
#define cleanup_run_place cleanup_with(run_place_close)
#define RUN_PLACE_INIT                                                                             \
    {                                                                                              \
        .dir_fd = -1, .temp_fd = -1                                                                \
    }

/* Makes the reserve of a volume whole, as far as there is room. */
void run_place_keep_room(const struct run_place *place);
/* Gives it back: whether there was one, so that it is worth trying again. */
bool run_place_make_room(const struct run_place *place);

/* Durably takes `name` out of the way; `temp` gets its name in temp_fd. 1, 0 when there was none,
 * or -errno. */
int run_place_move_away(const struct run_place *place, const char *name, char temp[32],
                        struct err *err);
