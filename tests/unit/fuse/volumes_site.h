/* volumes_site.h - a node's volumes for tests: own data and run directory, real keeper and workers,
 * a varved that can be killed, and a writer inside that notices every error.
 *
 * The teardown ends all processes of the site, also after a failed test, and leaves no mount.
 */
#pragma once

#include "err.h"
#include "live_map.h"
#include "scratch.h"
#include "volumes.h"

#include <stdatomic.h>
#include <sys/types.h>

#define SITE_ID   "0123456789ab"
#define SITE_SIZE ((uint64_t)256 << 20)

enum {
    SITE_UID = 61234, /* of the workers */
};

/* Shared by all processes of a test. */
struct site_shared {
    _Atomic unsigned restarted, refused, silent, keeper_restarted, keeper_silent, dead;
    _Atomic unsigned rounds; /* of the writer */
    _Atomic int stop;        /* ends the writer */
};

struct site_daemon {
    pid_t pid; /* 0: none */
    int socket;
};

struct volumes_site {
    struct scratch *scratch; /* owned */
    char data[128];
    char run[128];
    char mount[128]; /* an empty directory */
    int data_fd;
    int run_fd;
    struct volumes *volumes; /* of this process; NULL while a daemon is used */
    struct site_daemon daemon;
    struct site_shared *shared;
    pid_t writer; /* 0: none */
};

int site_setup(void **state); /* with ->volumes */
int site_teardown(void **state);
int site_setup_bare(void **state); /* without */

void site_open(struct volumes_site *site);
void site_close(struct volumes_site *site);

struct volume_status site_status(const struct volumes_site *site);
/* The header of the live map of the volume, which is attached. */
struct live_map_header *site_live(const struct volumes_site *site);
/* Made if it is not there, attached, mounted at ->mount; and the way back. */
void site_attach_and_mount(struct volumes_site *site);
void site_unmount_and_detach(struct volumes_site *site);
/* A process that keeps the mounts of this moment in a namespace of its own. */
pid_t site_start_namespace(void);
void site_end_namespace(pid_t pid);

/* The word after "err" of a failure; fails the test when there was none. */
void site_expect(int rc, const struct err *err, enum err_code code, const char *part);
#define site_ok(rc_, err_)                                                                         \
    do {                                                                                           \
        if ((rc_) < 0)                                                                             \
            fail_msg("%s (%s)", (err_)->text, (err_)->hint);                                       \
    } while (0)

/* A varved: a process that adopts, watches, and does what it is told. `fault` is VARVE_FAULT. */
void site_start(struct volumes_site *site, const char *fault);
void site_kill(struct volumes_site *site); /* kill -9 */
enum site_op {
    SITE_CREATE,
    SITE_ATTACH,
    SITE_MOUNT,
    SITE_MOUNT_CHECKED,
    SITE_UNMOUNT,
    SITE_DETACH,
    SITE_ABANDON,
    SITE_RESIZE,
    SITE_TRIM,
    SITE_STATUS,
};
/* Returns what the function returned, or -EPIPE when varved died meanwhile. */
int site_ask(struct volumes_site *site, enum site_op op, uint64_t size,
             struct volume_status *ret_status, struct err *err);

/* Processes of the site: "varve-keeper" or "varve-volume". 0: there is none. */
pid_t site_pid(const struct volumes_site *site, const char *program);
/* Waits until there is one that is not `old`; fails the test after 15 s. */
pid_t site_other_pid(const struct volumes_site *site, const char *program, pid_t old);

/* Whether anything of the site is left: mounts, sockets, processes, loop devices. Fails the test.
 */
void site_expect_nothing(const struct volumes_site *site);

/* Writes, syncs and compares files in ->mount until it is told to end. */
void site_writer_start(struct volumes_site *site);
/* Waits until it has done `rounds` more. Fails the test when it ends. */
void site_writer_wait(struct volumes_site *site, unsigned rounds);
void site_writer_stop(struct volumes_site *site);

/* A file below the mount, and its whole content compared. */
void site_put(const struct volumes_site *site, const char *name, unsigned seed, size_t len);
void site_check(const struct volumes_site *site, const char *name, unsigned seed, size_t len);
/* e2fsck -fn of the volume's `data` says clean. */
void site_fsck(const struct volumes_site *site);
