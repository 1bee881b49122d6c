/* fake_volumes.h - volumes.h without processes, devices and mounts, for the tests of
 * snapd/workspace.
 *
 * The functions of volumes.h are defined by fake_volumes.c, so that a program that links it never
 * gets the real ones. What is "attached" and "mounted" is kept here, as the kernel would: it
 * survives a node that is closed, and fake_volumes_reboot() clears it. DATA/volumes/ID is a real
 * directory. Rules are those of volumes.h: who mounts what is not attached has made a mistake.
 */
#pragma once

#include "volumes.h"

enum {
    FAKE_VOLUMES_MAX = 64,
};

struct fake_volume {
    char id[VOLUME_ID_LEN + 1]; /* "": free */
    bool made;
    uint64_t size;
    bool attached;
    bool dead;
    bool fenced;
    int failed; /* errno of a sync; 0 */
    bool detaching;
    bool frozen;      /* by somebody */
    bool cannot_grow; /* the mounted ext4 */
    bool elsewhere;   /* another mount namespace holds on after an unmount */
    char mounted[256];
    bool read_only;
    uint64_t local;
    uint64_t held;
    uint64_t held_ns;
    uint64_t unserved_ns;
    bool lost;    /* nobody has its descriptors, */
    bool answers; /* but it is served; asked for `asks` times */
    int asks;
    int unsynced;      /* errno of the sync of its next unmount, or of the last one; 0 */
    bool fs_read_only; /* after an error */
    bool serves_again; /* when it is given up for that */
    const char *text;  /* why nobody serves it; NULL */
    bool suspected;
    int probes;
    int probe_rc; /* of the next one; below 0 with ERR_CONFLICT */
    uint64_t read_bytes, write_bytes, reads, writes;
    uint64_t limit_bytes, limit_ops; /* as the last volumes_limit() said */
    _Atomic bool hangs;              /* an unmount, until it is cut */
    _Atomic int slow_ms;             /* an attach takes, unless it is told to end */
    int turn;                        /* of its last mount: how many mounts there had been before */
    /* Calls that did something. */
    int attaches, mounts, checks, unmounts, detaches, abandons, fences, trims, cuts;
};

/* Forgets everything; for the setup of each test. */
void fake_volumes_reset(void);
/* fake_epochs.c: so that the linker takes that file, and not the real ones. */
void fake_epochs_use(void);
/* What a reboot does. */
void fake_volumes_reboot(void);
/* The volume with this ID, made up if it is missing. */
struct fake_volume *fake_volume(const char *id);
/* The only volume that there is. */
struct fake_volume *fake_volumes_only(void);
int fake_volumes_count(void);

/* The next `times` calls of the function ("attach", "mount", ...) fail. 0: no longer. */
void fake_volumes_fail(const char *function, enum err_code code, const char *text, int times);
/* An event for the next volumes_watch(). */
void fake_volumes_push_event(const char *id, const char *event, const char *detail);
