/* fs_site.h - a volume's file system without a worker: its `data` on a loop device.
 *
 * "outer" is an ext4 of the tests' own in an image, and the volume lies in it, so that its device
 * can be made to hang: writes to a frozen file system wait, and cannot be killed. The teardown
 * thaws, unmounts everything and lets go of all loop devices.
 */
#pragma once

#include "loop_device.h"
#include "scratch.h"
#include "volume_fs.h"
#include "volume_json.h"

#include <stdbool.h>

struct fs_site {
    struct scratch *scratch;
    struct volume_json volume;
    struct loop_device loop; /* over `data` */
    int loop_fd;             /* -1 once given up */
    int data_fd;
    bool frozen;
    char mount[128]; /* a directory for the volume's file system */
    char outer[128]; /* where the outer file system is mounted */
};

int fs_site_setup(void **state); /* *state is a struct fs_site */
int fs_site_teardown(void **state);

/* From now on, until the thaw, writes to the volume's device hang. */
void fs_site_freeze(struct fs_site *site);
void fs_site_thaw(struct fs_site *site);
/* Attaches the data file anew; for tests that gave the device up. */
void fs_site_attach(struct fs_site *site);
/* Gives the data file and its device another size. */
void fs_site_grow(struct fs_site *site, uint64_t size);
/* The volume's device, to be mounted. */
struct volume_fs_source fs_site_source(const struct fs_site *site);
/* Mounts the volume; fails the test when that does not work. */
void fs_site_mount(struct fs_site *site);
/* Writes a file of `len` bytes below the mounted volume, and syncs it when asked to. */
void fs_site_write(const struct fs_site *site, const char *name, size_t len, bool sync);
