#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>

#include "workspace_claim.h"
#include "workspace_event_limit.h"
#include "workspace_mend.h"
#include "workspace_monitor.h"
#include "workspace_pool.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool mend(struct workspace_world *world)
{
    return workspace_mend(world->node, NULL, NULL);
}

static void test_what_is_well_is_left_alone(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->held = 5;
    fake_volumes_only()->held_ns = 1;
    assert_false(mend(world));
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
    assert_int_equal(fake_volumes_only()->mounts, 1);
    assert_int_equal(fake_volumes_only()->fences, 0);
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_false(mend(world));
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

static void test_the_dead_come_back(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->dead = true;
    assert_false(mend(world));
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
    assert_int_equal(fake_volumes_only()->checks, 1);
    assert_int_equal(workspace_world_events(world, "w", "workspace-recovered"), 1);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "journal was replayed"));
}

/* Each worker that is started ends before it serves: that is waited for as a full disk is. */
static void test_what_nobody_serves_is_given_up(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    volume->text = "the map is damaged";
    volume->unserved_ns = (uint64_t)world->node->volume.disk_wait_ns - 1;
    assert_false(mend(world));
    assert_int_equal(volume->abandons, 0);
    /* Also while a job has the workspace, as that may wait for just this. */
    assert_int_equal(workspace_claim_try(world->node->workspaces, "w", NULL), 1);
    volume->unserved_ns = (uint64_t)world->node->volume.disk_wait_ns;
    assert_true(mend(world));
    assert_true(volume->dead);
    assert_int_equal(workspace_world_events(world, "w", "workspace-given-up"), 1);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "no process could serve it"));
    workspace_claim_release(world->node->workspaces, "w");
    assert_false(mend(world));
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
    assert_non_null(strstr(workspace_world_incident(world, "w"),
                           "no other one could serve it: the map is damaged; its journal"));
}

/* Its descriptors are nobody's who would give them to us: it is given up only when it does not
 * answer the kernel either. */
static void test_a_lost_one(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    volume->lost = volume->answers = true;
    volume->unserved_ns = (uint64_t)world->node->volume.disk_wait_ns;
    assert_false(mend(world));
    assert_int_equal(volume->asks, 1);
    assert_false(volume->dead);
    assert_string_equal(workspace_world_incident(world, "w"), "");
    volume->answers = false;
    assert_true(mend(world));
    assert_true(volume->dead);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "no process could serve it"));
    volume->unserved_ns = 0;
    assert_false(mend(world));
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
    assert_non_null(strstr(workspace_world_incident(world, "w"), "no process served it any more"));
}

/* A worker began to serve while that was written down. */
static void test_what_is_served_in_the_last_moment(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    volume->unserved_ns = (uint64_t)world->node->volume.disk_wait_ns;
    volume->serves_again = true;
    assert_true(mend(world));
    assert_false(volume->dead);
    assert_string_equal(workspace_world_incident(world, "w"), "");
    volume->unserved_ns = 0;
    assert_false(mend(world));
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
    assert_int_equal(volume->abandons, 0);
}

/* Found whoever works on the workspace, as he may wait for it; what is done is seen by keeper. */
static void test_a_worker_that_beats_and_does_not_answer(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    static const struct {
        int rc;
        int events;
        bool left;
    } cases[] = {{0, 0, false}, {1, 1, true}, {-1, 1, false}, {1, 2, true}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        volume->suspected = true;
        volume->probe_rc = cases[i].rc;
        assert_int_equal(mend(world), cases[i].left);
        assert_int_equal(volume->probes, i + 1);
        assert_int_equal(workspace_world_events(world, "w", "worker-silent"), cases[i].events);
        assert_string_equal(workspace_world_state(world, "w"), "mounted");
    }
    assert_int_equal(workspace_claim_try(world->node->workspaces, "w", NULL), 1);
    volume->suspected = true;
    (void)mend(world);
    assert_int_equal(volume->probes, ARRAY_SIZE(cases) + 1);
    workspace_claim_release(world->node->workspaces, "w");
    assert_int_equal(volume->abandons + volume->fences, 0);
}

static int64_t now_ns;

static int64_t mono_ns(const struct clock *clock)
{
    (void)clock;
    return now_ns;
}

/* One whose worker sees to it that it dies again at once. */
static void test_what_dies_again_and_again(void **state)
{
    struct workspace_world *world = *state;
    const int bound = 1 + WORKSPACE_EVENTS_AT_ONCE;
    now_ns = 1000 * CLOCK_NS_PER_S;
    world->node->clock.mono_ns = mono_ns;
    for (int i = 0; i < 100; i++) {
        fake_volumes_only()->dead = true;
        (void)mend(world);
    }
    assert_int_equal(fake_volumes_only()->mounts, bound);
    assert_string_equal(workspace_world_state(world, "w"), "dead");
    for (int i = 0; i < 5; i++) {
        now_ns += WORKSPACE_EVENT_SECONDS * CLOCK_NS_PER_S;
        (void)mend(world);
        assert_string_equal(workspace_world_state(world, "w"), "mounted");
        assert_int_equal(fake_volumes_only()->mounts, bound + 1 + i);
        fake_volumes_only()->dead = true;
        (void)mend(world);
        assert_string_equal(workspace_world_state(world, "w"), "dead");
    }
    /* A person need not wait. */
    workspace_world_do(world, "workspace.unmount", "w", "{'abandon': true}");
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
}

/* As a job has it that unmounts. */
static void begin_unmount(struct workspace_world *world)
{
    const char *id = fake_volumes_only()->id;
    struct catalog *catalog = world->node->catalog;
    assert_int_equal(catalog_volume_set_state(catalog, id, CATALOG_VOLUME_DETACHING, NULL), 0);
    assert_int_equal(catalog_mount_set_state(catalog, id, CATALOG_MOUNT_UNMOUNTING, NULL), 0);
    assert_int_equal(workspace_claim_try(world->node->workspaces, "w", NULL), 1);
}

/* There was room again, and it was unmounted before it was fenced. */
static void test_an_unmount_that_ends_in_the_last_moment(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    assert_int_equal(
        catalog_volume_set_incident(world->node->catalog, volume->id, "from before", NULL), 0);
    begin_unmount(world);
    volume->held = 1;
    volume->held_ns = (uint64_t)world->node->volume.disk_wait_ns;
    fake_volumes_fail("fence", ERR_CONFLICT, "it was detached", 1);
    assert_true(mend(world));
    assert_int_equal(volume->fences, 0);
    assert_string_equal(workspace_world_incident(world, "w"), "from before");
    workspace_claim_release(world->node->workspaces, "w");
}

/* An unmount waits for the very writes that are held, so nobody else gets the workspace. */
static void test_an_unmount_that_waits_for_the_disk(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    begin_unmount(world);
    volume->held = 1;
    volume->held_ns = (uint64_t)world->node->volume.disk_wait_ns - 1;
    assert_false(mend(world));
    assert_int_equal(volume->fences, 0);
    volume->held_ns++;
    assert_true(mend(world));
    assert_int_equal(volume->fences, 1);
    (void)mend(world);
    assert_int_equal(volume->fences, 1);
    assert_int_equal(workspace_world_events(world, "w", "workspace-fenced"), 1);
    assert_string_equal(workspace_world_rows(world, "w"), "detaching at at unmounting");
    assert_non_null(strstr(workspace_world_incident(world, "w"), "full disk"));
    workspace_claim_release(world->node->workspaces, "w");
    volume->held = 0;
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

/* What cannot be brought back is tried once, and says why. */
static void test_one_that_stays_dead(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->dead = true;
    fake_volumes_fail("mount", ERR_DAMAGED, "e2fsck needs a person", 1);
    (void)mend(world);
    assert_string_equal(workspace_world_rows(world, "w"), "attaching at at mounting");
    assert_string_equal(workspace_world_state(world, "w"), "detached");
    assert_non_null(strstr(workspace_world_incident(world, "w"), "e2fsck needs a person"));
    assert_int_equal(workspace_world_events(world, "w", "workspace-not-recovered"), 1);
    assert_false(mend(world));
    assert_int_equal(fake_volumes_only()->mounts, 1);
    /* The request to mount it there is the way back. */
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
}

static void test_a_claimed_one_is_left_for_later(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->dead = true;
    assert_int_equal(workspace_claim_try(world->node->workspaces, "w", NULL), 1);
    assert_true(mend(world));
    assert_true(fake_volumes_only()->dead);
    workspace_claim_release(world->node->workspaces, "w");
    assert_false(mend(world));
    assert_false(fake_volumes_only()->dead);
}

static void test_waiting_too_long_is_fenced(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    volume->held = 1;
    volume->held_ns = (uint64_t)world->node->volume.disk_wait_ns - 1;
    assert_false(mend(world));
    assert_false(volume->fenced);
    volume->held_ns++;
    assert_false(mend(world));
    assert_true(volume->fenced);
    assert_string_equal(workspace_world_rows(world, "w"), "fenced at at mounted");
    assert_string_equal(workspace_world_state(world, "w"), "fenced");
    assert_non_null(strstr(workspace_world_incident(world, "w"), "full disk for more than 600 s"));
    assert_int_equal(workspace_world_events(world, "w", "workspace-fenced"), 1);
    assert_false(mend(world));
    assert_int_equal(volume->fences, 1);
    /* Unmounted and mounted again it is what it was. */
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
}

/* What the host's disk did not take when it was synced: it is fenced, and its incident says why and
 * what helps. */
static void test_a_sync_that_failed(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    volume->failed = EIO;
    assert_false(mend(world));
    assert_true(volume->fenced);
    assert_string_equal(workspace_world_rows(world, "w"), "fenced at at mounted");
    const char *incident = workspace_world_incident(world, "w");
    assert_non_null(strstr(incident, "failed to sync"));
    assert_non_null(strstr(incident, "Input/output error"));
    assert_non_null(strstr(incident, "varve workspace unmount w --abandon"));
    assert_null(strstr(incident, "full disk"));
    assert_int_equal(workspace_world_events(world, "w", "workspace-fenced"), 1);
    assert_false(mend(world));
    assert_int_equal(volume->fences, 1);
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_IO, "failed to sync");
    assert_string_equal(workspace_world_rows(world, "w"), "detaching at nowhere");
    workspace_world_do(world, "workspace.unmount", "w", "{'abandon': true}");
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
}

/* It came to light in the unmount: the monitor tells all the same. */
static void test_a_sync_that_failed_in_an_unmount(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    volume->failed = ENOSPC;
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_IO, "cannot be closed");
    (void)mend(world);
    assert_int_equal(volume->fences, 1);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "No space left"));
    (void)mend(world);
    assert_int_equal(workspace_world_events(world, "w", "workspace-fenced"), 1);
}

/* It was written down, but not done. */
static void test_a_fence_is_repeated(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    volume->held = 1;
    volume->held_ns = UINT64_MAX;
    fake_volumes_fail("fence", ERR_UNREACHABLE, "it is stopped", 1);
    assert_true(mend(world));
    assert_string_equal(workspace_world_rows(world, "w"), "fenced at at mounted");
    assert_false(volume->fenced);
    volume->held = 0;
    assert_false(mend(world));
    assert_true(volume->fenced);
    assert_int_equal(workspace_world_events(world, "w", "workspace-fenced"), 1);
}

/* The catalog has no room: the reserves are given back for it. */
static void test_a_fence_on_a_full_catalog(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->held = 1;
    fake_volumes_only()->held_ns = UINT64_MAX;
    workspace_world_stop(world);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("VARVE_FAULT", "workspace.fence-record=enospc", 1);
        workspace_world_start(world);
        (void)mend(world);
        struct stat st = {.st_blocks = 1};
        bool released = fstatat(world->node->data_fd, "reserve", &st, 0) == 0 && st.st_size == 0;
        workspace_world_stop(world);
        _exit(released ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0); /* the point was hit */
    workspace_world_start(world);
    assert_true(fake_volumes_only()->fenced);
    assert_int_equal(fake_volumes_only()->fences, 1);
    assert_string_equal(workspace_world_rows(world, "w"), "fenced at at mounted");
}

/* As a former life, or a full disk, leaves it. */
static void test_a_fence_is_written_down_later(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->fenced = true;
    assert_string_equal(workspace_world_state(world, "w"), "fenced");
    assert_false(mend(world));
    assert_string_equal(workspace_world_rows(world, "w"), "fenced at at mounted");
    assert_int_equal(workspace_world_events(world, "w", "workspace-fenced"), 1);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "full disk"));
}

static void test_a_restart_leaves_a_fenced_one(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->held = 1;
    fake_volumes_only()->held_ns = UINT64_MAX;
    assert_false(mend(world));
    workspace_world_stop(world);
    workspace_world_start(world);
    assert_string_equal(workspace_world_rows(world, "w"), "fenced at at mounted");
    assert_int_equal(fake_volumes_only()->mounts, 1);
}

static void test_the_last_holder_has_gone(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->elsewhere = true;
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_CONFLICT, "held");
    assert_false(mend(world));
    assert_string_equal(workspace_world_rows(world, "w"), "detaching at nowhere");
    fake_volumes_only()->elsewhere = false;
    assert_false(mend(world));
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    assert_int_equal(workspace_world_events(world, "w", "workspace-unmounted"), 1);
}

static bool always(void *arg)
{
    (void)arg;
    return true;
}

static void test_a_stop(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->dead = true;
    (void)workspace_mend(world->node, always, NULL);
    assert_true(fake_volumes_only()->dead);
}

/* The threads themselves: an event leads to a recovery, and they end when they are told to. */
static void test_the_monitor(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_monitor *monitor = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(workspace_monitor_start(world->node, &monitor, &err), 0);
    fake_volumes_only()->dead = true;
    fake_volumes_push_event(fake_volumes_only()->id, "volume-dead", "gone");
    for (int i = 0; i < 2000 && workspace_world_events(world, "w", "workspace-recovered") == 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(workspace_world_events(world, "w", "workspace-recovered"), 1);
    assert_int_equal(workspace_world_events(world, "w", "volume-dead"), 1);
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
    workspace_monitor_stop(monitor);
    workspace_monitor_stop(NULL);
}

/* Several at once, and one that takes long holds up neither the others nor the pass. */
static void test_a_slow_one_holds_nobody_up(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *slow = fake_volumes_only();
    for (int i = 0; i < 4; i++) {
        char name[16];
        char params[64];
        snprintf(name, sizeof name, "at-x%d", i);
        assert_int_equal(mkdir(workspace_world_path(world, name), 0755), 0);
        snprintf(params, sizeof params, "{'path': '%%s-x%d'}", i);
        workspace_world_do(world, "workspace.create", name + 3, "{}");
        workspace_world_do(world, "workspace.mount", name + 3, params);
    }
    slow->slow_ms = 4000;
    struct catalog_workspace *rows = NULL;
    size_t count = 0;
    assert_int_equal(catalog_workspace_list(world->node->catalog, &rows, &count, NULL), 0);
    for (size_t i = 0; i < count; i++) {
        fake_volume(rows[i].volume.id)->dead = true;
        catalog_workspace_free(&rows[i]);
    }
    free(rows);
    int64_t begin = clock_mono_ns(&world->node->clock);
    assert_true(mend(world));
    assert_true(clock_mono_ns(&world->node->clock) - begin < 3 * CLOCK_NS_PER_S);
    for (int i = 0; i < 200 && workspace_world_events(world, "x3", "workspace-recovered") == 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(workspace_world_events(world, (char[]){'x', (char)('0' + i), '\0'},
                                                "workspace-recovered"),
                         1);
    assert_int_equal(workspace_world_events(world, "w", "workspace-recovered"), 0);
    /* It is not begun twice. */
    while (mend(world))
        ;
    assert_int_equal(workspace_world_events(world, "w", "workspace-recovered"), 1);
    assert_int_equal(slow->abandons, 1);
}

/* However many are checked for however long, the writes of another one do not wait for them. */
static void test_checks_hold_up_no_fence(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *full = fake_volumes_only();
    for (int i = 0; i < WORKSPACE_POOL_THREADS; i++) {
        char name[16];
        char params[64];
        struct catalog_workspace row = {0};
        snprintf(name, sizeof name, "at-x%d", i);
        assert_int_equal(mkdir(workspace_world_path(world, name), 0755), 0);
        snprintf(params, sizeof params, "{'path': '%%s-x%d'}", i);
        workspace_world_do(world, "workspace.create", name + 3, "{}");
        workspace_world_do(world, "workspace.mount", name + 3, params);
        assert_int_equal(catalog_workspace_get(world->node->catalog, name + 3, &row, NULL), 0);
        fake_volume(row.volume.id)->slow_ms = 3000;
        fake_volume(row.volume.id)->dead = true;
        catalog_workspace_free(&row);
    }
    assert_true(mend(world)); /* all threads have one to bring back */
    full->held = 1;
    full->held_ns = (uint64_t)world->node->volume.disk_wait_ns;
    assert_true(mend(world));
    assert_true(full->fenced);
    assert_int_equal(workspace_world_events(world, "x0", "workspace-recovered"), 0);
    while (mend(world))
        ;
    assert_int_equal(workspace_world_events(world, "x0", "workspace-recovered"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_mounted(test_what_is_well_is_left_alone),
        with_mounted(test_the_dead_come_back),
        with_mounted(test_what_nobody_serves_is_given_up),
        with_mounted(test_a_lost_one),
        with_mounted(test_what_is_served_in_the_last_moment),
        with_mounted(test_a_worker_that_beats_and_does_not_answer),
        with_mounted(test_what_dies_again_and_again),
        with_mounted(test_an_unmount_that_ends_in_the_last_moment),
        with_mounted(test_an_unmount_that_waits_for_the_disk),
        with_mounted(test_one_that_stays_dead),
        with_mounted(test_a_claimed_one_is_left_for_later),
        with_mounted(test_waiting_too_long_is_fenced),
        with_mounted(test_a_sync_that_failed),
        with_mounted(test_a_sync_that_failed_in_an_unmount),
        with_mounted(test_a_fence_is_repeated),
        with_mounted(test_a_fence_on_a_full_catalog),
        with_mounted(test_a_fence_is_written_down_later),
        with_mounted(test_a_restart_leaves_a_fenced_one),
        with_mounted(test_the_last_holder_has_gone),
        with_mounted(test_a_stop),
        with_mounted(test_the_monitor),
        with_mounted(test_a_slow_one_holds_nobody_up),
        with_mounted(test_checks_hold_up_no_fence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
