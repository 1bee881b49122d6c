#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>

#include "catalog_event.h"
#include "workspace_event_limit.h"
#include "workspace_watch.h"

#include <sys/stat.h>

static int64_t now_ns;

static int64_t mono_ns(const struct clock *clock)
{
    (void)clock;
    return now_ns;
}

static int setup(void **state)
{
    int rc = workspace_world_setup(state);
    if (rc < 0)
        return rc;
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.create", "a", "{}");
    fake_volumes_only()->attached = true;
    workspace_world_do(world, "workspace.create", "b", "{}");
    now_ns = 1000 * CLOCK_NS_PER_S;
    world->node->clock.mono_ns = mono_ns;
    return 0;
}
#define with_two(test) cmocka_unit_test_setup_teardown(test, setup, workspace_world_teardown)

static struct fake_volume *volume_of(struct workspace_world *world, const char *name)
{
    struct catalog_workspace row = {0};
    assert_int_equal(catalog_workspace_get(world->node->catalog, name, &row, NULL), 0);
    struct fake_volume *volume = fake_volume(row.volume.id);
    catalog_workspace_free(&row);
    return volume;
}

static bool second(struct workspace_watch *watch)
{
    now_ns += CLOCK_NS_PER_S;
    return workspace_watch_second(watch);
}

static void test_events(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    assert_false(second(watch));
    workspace_watch_event(watch, volume_of(world, "a")->id, "worker-restarted", "it was killed");
    workspace_watch_event(watch, NULL, "keeper-restarted", "");
    workspace_watch_event(watch, "ffffffffffff", "volume-dead", NULL);
    assert_int_equal(workspace_world_events(world, "a", "worker-restarted"), 1);
    assert_int_equal(workspace_world_events(world, "b", "worker-restarted"), 0);
    int64_t count = 0;
    assert_int_equal(catalog_event_count(world->node->catalog, "keeper", &count, NULL), 0);
    assert_int_equal(count, 1);
    assert_int_equal(catalog_event_count(world->node->catalog, "volume:ffffffffffff", &count, NULL),
                     0);
    assert_int_equal(count, 1);
    assert_true(second(watch)); /* whatever happened is looked at */
    assert_false(second(watch));
    workspace_watch_free(watch);
}

/* Errors that nobody else would tell of are the incident, once. */
static void test_errors_inside(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    const char *id = volume_of(world, "a")->id;
    workspace_watch_event(watch, id, "volume-errors", "x");
    assert_int_equal(workspace_world_events(world, "a", "workspace-errors"), 1);
    assert_non_null(strstr(workspace_world_incident(world, "a"), "may be lost, and files may not"));
    for (int i = 0; i < 2; i++)
        workspace_watch_event(watch, id, "volume-read-only", "x");
    assert_int_equal(workspace_world_events(world, "a", "workspace-read-only"), 1);
    assert_non_null(strstr(workspace_world_incident(world, "a"), "is read-only now"));
    assert_string_equal(workspace_world_incident(world, "b"), "");
    workspace_watch_event(watch, "ffffffffffff", "volume-errors", NULL);
    int64_t count = 0;
    assert_int_equal(catalog_event_count(world->node->catalog, "volume:ffffffffffff", &count, NULL),
                     0);
    assert_int_equal(count, 1);
    workspace_watch_free(watch);
}

static void test_the_dead_are_mended(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    volume_of(world, "a")->dead = true;
    assert_true(second(watch));
    workspace_watch_free(watch);
}

static void test_own_limits(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    struct fake_volume *a = volume_of(world, "a");
    a->limit_bytes = 77; /* of a configuration before */
    (void)second(watch);
    assert_int_equal(a->limit_bytes, 0);
    world->node->volume.volume_bandwidth = 5000;
    world->node->volume.volume_iops = 60;
    (void)second(watch);
    assert_int_equal(a->limit_bytes, 5000);
    assert_int_equal(a->limit_ops, 60);
    workspace_watch_free(watch);
}

/* Two volumes: the one that wants all gets what the other one leaves. */
static void test_a_shared_budget(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    struct fake_volume *a = volume_of(world, "a");
    struct fake_volume *b = volume_of(world, "b");
    b->attached = true;
    world->node->volume.volumes_bandwidth = 1000;
    for (int i = 0; i < 10; i++) {
        (void)second(watch);
        a->read_bytes += 60;
        a->write_bytes += 40;
        a->writes += 5;
        b->write_bytes += b->limit_bytes;
    }
    (void)second(watch);
    assert_int_equal(b->limit_bytes, 900);
    assert_int_equal(a->limit_bytes, 500);
    assert_int_equal(a->limit_ops, 0);
    /* One that goes takes nothing with it. */
    b->attached = false;
    (void)second(watch);
    assert_int_equal(a->limit_bytes, 1000);
    workspace_watch_free(watch);
}

/* After an attach the counters begin anew. */
static void test_counters_that_go_back(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    struct fake_volume *a = volume_of(world, "a");
    world->node->volume.volumes_bandwidth = 1000;
    a->write_bytes = 1 << 30;
    (void)second(watch);
    (void)second(watch);
    a->write_bytes = 5;
    (void)second(watch);
    assert_int_equal(a->limit_bytes, 1000);
    workspace_watch_free(watch);
}

static void test_writes_that_wait(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    struct fake_volume *a = volume_of(world, "a");
    struct stat st;
    char reserve[4200];
    snprintf(reserve, sizeof reserve, "%s/volumes-reserve", world->node->data_dir);
    (void)second(watch);
    assert_int_equal(stat(reserve, &st), 0);
    assert_true(st.st_blocks > 0);
    a->held = 3;
    a->held_ns = 5;
    assert_false(second(watch));
    assert_int_equal(workspace_world_events(world, "a", "workspace-writes-wait"), 1);
    /* The disk has room, whatever the worker says: the reserve is everybody's. */
    assert_int_equal(stat(reserve, &st), 0);
    int64_t count = 0;
    assert_int_equal(catalog_event_count(world->node->catalog, "node", &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_false(second(watch));
    assert_int_equal(workspace_world_events(world, "a", "workspace-writes-wait"), 1);
    a->held_ns = (uint64_t)world->node->volume.disk_wait_ns;
    assert_true(second(watch)); /* it is to be fenced */
    a->held = a->held_ns = 0;
    assert_false(second(watch));
    assert_int_equal(workspace_world_events(world, "a", "workspace-writes-go-on"), 1);
    workspace_watch_free(watch);
}

/* Numbers of a worker that was taken over. */
static void test_counters_that_are_lies(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    struct fake_volume *a = volume_of(world, "a");
    struct fake_volume *b = volume_of(world, "b");
    b->attached = true;
    world->node->volume.volumes_bandwidth = 1000;
    world->node->volume.volumes_iops = 100;
    for (int i = 0; i < 6; i++) {
        now_ns += CLOCK_NS_PER_S / 4 * 3; /* so that a second's worth is more than there is */
        (void)workspace_watch_second(watch);
        a->read_bytes = a->reads = i % 2 ? 0 : UINT64_MAX;
        b->write_bytes += b->limit_bytes;
        b->writes += b->limit_ops;
    }
    /* Its fair part, and not more. */
    assert_int_equal(a->limit_bytes, 500);
    assert_int_equal(b->limit_bytes, 500);
    assert_int_equal(a->limit_ops, 50);
    workspace_watch_free(watch);
}

/* One that changes what it says each second for an hour. */
static void test_a_flood_of_events(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_watch *watch = workspace_watch_new(world->node);
    struct fake_volume *a = volume_of(world, "a");
    struct fake_volume *b = volume_of(world, "b");
    const int most = WORKSPACE_EVENTS_AT_ONCE + 3600 / WORKSPACE_EVENT_SECONDS + 1;
    b->attached = true;
    for (int i = 0; i < 3600; i++) {
        a->held = i % 2;
        workspace_watch_event(watch, a->id, "worker-restarted", "pid 1, start 2");
        assert_true(second(watch)); /* it is looked at all the same */
    }
    int64_t count = 0;
    assert_int_equal(catalog_event_count(world->node->catalog, "workspace:a", &count, NULL), 0);
    assert_in_range(count, WORKSPACE_EVENTS_AT_ONCE, most + 1); /* and the creation */
    /* Others are not kept from theirs, and when it is quiet again what was left out is told. */
    workspace_watch_event(watch, b->id, "worker-restarted", "pid 1, start 2");
    assert_int_equal(workspace_world_events(world, "b", "worker-restarted"), 1);
    workspace_watch_event(watch, NULL, "keeper-restarted", "");
    int64_t keeper = 0;
    assert_int_equal(catalog_event_count(world->node->catalog, "keeper", &keeper, NULL), 0);
    assert_int_equal(keeper, 1);
    int64_t told = workspace_world_events(world, "a", "workspace-events-left-out");
    a->held = 0;
    for (int i = 0; i < 2 * WORKSPACE_EVENT_SECONDS; i++)
        (void)second(watch);
    assert_int_equal(workspace_world_events(world, "a", "workspace-events-left-out"), told + 1);
    for (int i = 0; i < WORKSPACE_EVENTS_AT_ONCE * WORKSPACE_EVENT_SECONDS; i++)
        (void)second(watch);
    assert_int_equal(workspace_world_events(world, "a", "workspace-events-left-out"), told + 1);
    workspace_watch_free(watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_two(test_events),
        with_two(test_errors_inside),
        with_two(test_the_dead_are_mended),
        with_two(test_own_limits),
        with_two(test_a_shared_budget),
        with_two(test_counters_that_go_back),
        with_two(test_writes_that_wait),
        with_two(test_counters_that_are_lies),
        with_two(test_a_flood_of_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
