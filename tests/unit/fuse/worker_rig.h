/* worker_rig.h - a mounted FUSE session with a real varve-volume behind it, as varved and keeper
 * would have it: the test holds the descriptors and starts workers by hand.
 *
 * worker_rig_setup() makes the files of a volume in a scratch directory, owned by a user without
 * rights, mounts FUSE, and makes a live map and a listening socket. worker_rig_start() starts a
 * worker; the device is then RIG->device. Everything is gone after worker_rig_teardown(), also when
 * workers were killed or never came.
 */
#pragma once

#include "live_map.h"
#include "scratch.h"
#include "volume_wire.h"

#include <sys/types.h>

enum {
    WORKER_RIG_UID = 64123, /* owner of the volume's files */
};
#define WORKER_RIG_SIZE ((uint64_t)64 << 20)
#define WORKER_RIG_ID   "0123456789ab"

struct worker_rig {
    struct scratch *scratch;
    char directory[128]; /* of the volume */
    char mount[128];
    char device[160];
    char socket[128];
    int fuse_fd;
    int live_fd;
    int listen_fd;
    int program_fd;
    const char *program;  /* another one than the worker, or NULL */
    struct live_map live; /* header and words */
    pid_t pid;            /* 0: none runs */
    pid_t guard;          /* aborts the connection when this process is killed */
    int guard_fd;
};

int worker_rig_setup(void **state);
int worker_rig_teardown(void **state);
/* For tests that want their volume's files elsewhere: `directory` exists and is empty. */
void worker_rig_make(struct worker_rig *rig, const char *directory, uint64_t size);
/* Lets go of everything, kills the worker. */
void worker_rig_end(struct worker_rig *rig);

/* Starts a worker. `env` is "NAME=VALUE" or NULL. Does not wait. */
void worker_rig_start(struct worker_rig *rig, const char *env);
/* Starts one and waits until it serves. */
void worker_rig_serve(struct worker_rig *rig, const char *env);
/* Waits for the worker's end: its exit status, or 128 + signal. -1 when it lives after `ms`. */
int worker_rig_wait(struct worker_rig *rig, int ms);
/* kill -9 and wait. */
void worker_rig_kill(struct worker_rig *rig);
/* Waits until a fact is there. */
void worker_rig_await(struct worker_rig *rig, uint32_t fact);
/* One message, one answer; the status of the answer. `ret` may be NULL. */
int worker_rig_ask(struct worker_rig *rig, uint32_t op, uint64_t arg, struct volume_wire *ret);
/* The same with two arguments. */
int worker_rig_ask_two(struct worker_rig *rig, uint32_t op, uint64_t first, uint64_t second,
                       struct volume_wire *ret);
/* A connection over which absent chunks are brought. */
int worker_rig_fetch(struct worker_rig *rig);
/* Of who asks for the live map with this number; the answer has `status`. */
int worker_rig_fetch_for(struct worker_rig *rig, uint64_t number, int status);
/* What is said on it within `ms`: false: nothing. op 0: the connection has ended. */
bool worker_rig_hear(int fd, int ms, struct volume_wire *ret);
/* Brings a chunk (NULL: a zero one); a connection that has ended is no failure. */
void worker_rig_bring(int fd, uint64_t chunk, const void *bytes);
/* Sends a message to a worker that will die before it answers; waits until the connection ends. */
void worker_rig_tell(struct worker_rig *rig, uint32_t op);
/* Opens the device with O_DIRECT. */
int worker_rig_open(const struct worker_rig *rig);
/* Block-aligned memory with a pattern; free() it. */
void *worker_rig_bytes(size_t len, unsigned seed);
