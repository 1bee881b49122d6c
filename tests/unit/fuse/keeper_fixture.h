/* keeper_fixture.h - the real varve-keeper in a run directory of its own, and volumes that are
 * served by dummy_worker.c, for tests.
 *
 * Everything that was started is killed by the teardown. */
#pragma once

#include "keeper_client.h"
#include "live_map.h"
#include "scratch.h"

enum {
    FIXTURE_VOLUMES = 4,
    FIXTURE_WAIT_MS = 10000, /* nothing takes so long */
    FIXTURE_SERVES = LIVE_FACT_READY | LIVE_FACT_RESENDS,
};

struct keeper_fixture {
    struct scratch *scratch;
    int workers_fd;
    struct keeper_client *client;
    struct {
        char id[16];
        char directory[256];
        struct volume_fds fds;
        struct live_map live;
    } volumes[FIXTURE_VOLUMES];
    pid_t keepers[64];
    int keeper_count;
};

/* cmocka's fixtures. */
int keeper_fixture_setup(void **state);
int keeper_fixture_teardown(void **state);

/* Connects, starting keeper if need be; the result of keeper_client_connect(). */
int keeper_fixture_connect(struct keeper_fixture *f);
/* Makes volume `i` (descriptors, directory) with workers that behave as the words say. */
void keeper_fixture_volume(struct keeper_fixture *f, int i, int facts, const char *way);
void keeper_fixture_behave(struct keeper_fixture *f, int i, int facts, const char *way);
/* HOLD and START, both successful. */
void keeper_fixture_serve(struct keeper_fixture *f, int i);
/* The next event, which must be of volume `i` and this kind. */
struct keeper_client_event keeper_fixture_event(struct keeper_fixture *f, int i,
                                                enum keeper_event event);
/* Fails when an event comes within the time. */
void keeper_fixture_no_event(struct keeper_fixture *f, int ms);
/* Waits until a worker other than `but` has begun, and returns its pid. */
pid_t keeper_fixture_worker(struct keeper_fixture *f, int i, pid_t but);
/* How many workers of the volume were started. */
int keeper_fixture_starts(struct keeper_fixture *f, int i);
/* Kills keeper as kill -9 does, and waits until it has ended. */
void keeper_fixture_kill_keeper(struct keeper_fixture *f);
void keeper_fixture_sleep(int ms);
/* A line of /proc/PID/FILE, what stands behind `name`; "" when there is none. */
struct keeper_fixture_line {
    char s[256];
};
struct keeper_fixture_line keeper_fixture_proc(pid_t pid, const char *file, const char *name);
/* Descriptors that a process has open. */
int keeper_fixture_count_fds(pid_t pid);
/* A process that has ended and was waited for is not there; a zombie is. */
bool keeper_fixture_is_there(pid_t pid);
