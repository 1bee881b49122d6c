#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void assert_detached(struct workspace_world *world)
{
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    assert_string_equal(workspace_world_state(world, "w"), "detached");
    assert_false(fake_volumes_only()->attached);
    assert_string_equal(fake_volumes_only()->mounted, "");
}

static void test_an_unmount(void **state)
{
    struct workspace_world *world = *state;
    cleanup_json json_t *json = workspace_world_ok(world, "workspace.unmount", "w", "{}");
    assert_string_equal(json_string_value(json_object_get(json, "state")), "detached");
    assert_detached(world);
    assert_int_equal(workspace_world_events(world, "w", "workspace-unmounted"), 1);
    /* Again: nothing to do. */
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_int_equal(workspace_world_events(world, "w", "workspace-unmounted"), 1);
    assert_int_equal(fake_volumes_only()->detaches, 1);
    workspace_world_fails(world, "workspace.unmount", "v", "{}", ERR_NOT_FOUND, "no workspace v");
}

static void test_one_that_is_in_use_stays(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_fail("unmount", ERR_CONFLICT, "in use by bash (12)", 1);
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_CONFLICT,
                          "w stays mounted: in use by bash (12)");
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_detached(world);
}

static void test_one_that_is_held_elsewhere(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->elsewhere = true;
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_CONFLICT,
                          "unmounted, but still held: the volume");
    assert_string_equal(workspace_world_rows(world, "w"), "detaching at nowhere");
    assert_string_equal(workspace_world_state(world, "w"), "detaching");
    workspace_world_fails(world, "workspace.mount", "w", "{'path': '%s'}", ERR_CONFLICT,
                          "sleep (77)");
    workspace_world_fails(world, "workspace.rm", "w", "{}", ERR_CONFLICT, "sleep (77)");
    workspace_world_fails(world, "workspace.resize", "w", "{'size': 134217728}", ERR_CONFLICT,
                          "is detaching");
    /* The repeat goes on. */
    fake_volumes_only()->elsewhere = false;
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_detached(world);
}

/* Its last holder has gone: a mount needs no unmount before. */
static void test_a_mount_finishes_it(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->elsewhere = true;
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_CONFLICT, "sleep (77)");
    fake_volumes_only()->elsewhere = false;
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
}

static void test_giving_up(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->elsewhere = true;
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_CONFLICT, "--abandon");
    workspace_world_do(world, "workspace.unmount", "w", "{'abandon': true}");
    assert_detached(world);
    assert_int_equal(fake_volumes_only()->abandons, 1);
    assert_int_equal(workspace_world_events(world, "w", "workspace-abandoned"), 1);
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    workspace_world_do(world, "workspace.unmount", "w", "{'abandon': true}");
    assert_detached(world);
}

static char *submit(struct workspace_world *world, const char *kind, const char *object,
                    const char *params)
{
    cleanup_json json_t *json = job_fixture_json(params);
    const struct job_request request = {.kind = kind, .object = object, .params = json};
    char *id = NULL;
    assert_int_equal(engine_submit(world->engine, &request, &id, NULL), 0);
    return id;
}

/* It gets past an unmount that hangs, which says why it has ended. */
static void test_giving_up_beside_one_that_hangs(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->hangs = true;
    cleanup_free char *plain = submit(world, "workspace.unmount", "workspace:w", "{'name': 'w'}");
    while (strcmp(workspace_world_rows(world, "w"), "detaching at at unmounting") != 0)
        (void)usleep(1000);
    cleanup_free char *given =
        submit(world, "workspace.abandon", "workspace-abandon:w", "{'name': 'w', 'abandon': true}");
    struct catalog_job row = {0};
    assert_int_equal(engine_wait(world->engine, plain, 30, NULL), 1);
    assert_int_equal(catalog_job_get(world->node->catalog, plain, &row, NULL), 0);
    assert_string_equal(row.error_code, err_code_name(ERR_CONFLICT));
    assert_non_null(strstr(row.error_message, "somebody gives workspace w up"));
    catalog_job_free(&row);
    assert_int_equal(engine_wait(world->engine, given, 30, NULL), 1);
    assert_int_equal(catalog_job_get(world->node->catalog, given, &row, NULL), 0);
    assert_int_equal(row.state, CATALOG_JOB_DONE);
    catalog_job_free(&row);
    assert_detached(world);
    assert_int_equal(fake_volumes_only()->abandons, 1);
    assert_true(fake_volumes_only()->cuts > 0);
}

/* It is unmounted, and whoever asked is told that not all of it was kept; so is who looks later. */
static void test_what_an_unmount_has_lost(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->unsynced = EIO;
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_IO,
                          "is unmounted, but what was not synced inside before is lost: Input");
    assert_detached(world);
    assert_int_equal(workspace_world_events(world, "w", "workspace-data-lost"), 1);
    assert_int_equal(workspace_world_events(world, "w", "workspace-unmounted"), 1);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "is lost: Input/output error"));
    fake_volumes_only()->unsynced = 0;
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_int_equal(workspace_world_events(world, "w", "workspace-data-lost"), 1);
}

/* What to do depends on what was in the way. */
static void test_why_it_cannot_be_closed(void **state)
{
    struct workspace_world *world = *state;
    static const struct {
        enum err_code code;
        const char *says, *hint;
    } cases[] = {
        {ERR_NO_SPACE, "the disk has no room for what is to be written last: gone",
         "free space on"},
        {ERR_IO, "cannot be closed: gone", "look at the disk"},
        {ERR_UNREACHABLE, "cannot be closed: gone", "repeat `varve workspace unmount w`"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_volumes_fail("detach", cases[i].code, "gone", 1);
        struct catalog_job job = workspace_world_job(world, "workspace.unmount", "w", "{}");
        assert_string_equal(job.error_code, err_code_name(cases[i].code));
        assert_non_null(strstr(job.error_message, cases[i].says));
        assert_non_null(strstr(job.error_hint, cases[i].hint));
        assert_non_null(strstr(job.error_hint, "--abandon"));
        catalog_job_free(&job);
        assert_string_equal(workspace_world_rows(world, "w"), "detaching at nowhere");
    }
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_detached(world);
}

static void test_a_dead_one_is_cleared_away(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->dead = true;
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_detached(world);
    assert_int_equal(fake_volumes_only()->abandons, 1);
}

static void test_a_fenced_one(void **state)
{
    struct workspace_world *world = *state;
    const char *id = fake_volumes_only()->id;
    fake_volumes_only()->fenced = true;
    assert_int_equal(
        catalog_volume_set_state(world->node->catalog, id, CATALOG_VOLUME_FENCED, NULL), 0);
    assert_string_equal(workspace_world_state(world, "w"), "fenced");
    fake_volumes_fail("unmount", ERR_CONFLICT, "in use", 1);
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_CONFLICT, "in use");
    assert_string_equal(workspace_world_rows(world, "w"), "fenced at at mounted");
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_detached(world);
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
}

static void test_a_kill_anywhere(void **state)
{
    struct workspace_world *world = *state;
    static const struct {
        const char *params;
        const char *fault;
    } cases[] = {
        {"{}", "workspace.unmount-recorded=kill"},
        {"{}", "workspace.unmounted=kill"},
        {"{}", "workspace.detached=kill"},
        {"{}", "job.before-finish=kill"},
        {"{'abandon': true}", "workspace.unmount-recorded=kill"},
        {"{'abandon': true}", "workspace.abandoned=kill"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_true(workspace_world_killed(world, "workspace.unmount", "w", cases[i].params,
                                           cases[i].fault));
        workspace_world_start(world);
        job_fixture_settle(world->node);
        assert_detached(world);
        workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    }
}

static void test_a_failure_anywhere(void **state)
{
    struct workspace_world *world = *state;
    static const char *const faults[] = {"workspace.unmount-recorded=eio",
                                         "workspace.unmounted=eio", "workspace.detached=eio"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        assert_false(workspace_world_killed(world, "workspace.unmount", "w", "{}", faults[i]));
        workspace_world_start(world);
        workspace_world_do(world, "workspace.unmount", "w", "{}");
        assert_detached(world);
        workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    }
}

/* The host was restarted while an unmount was under way. */
static void test_a_reboot_in_the_middle(void **state)
{
    struct workspace_world *world = *state;
    assert_true(workspace_world_killed(world, "workspace.unmount", "w", "{}",
                                       "workspace.unmount-recorded=kill"));
    fake_volumes_reboot();
    workspace_world_start(world);
    job_fixture_settle(world->node);
    assert_detached(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_mounted(test_an_unmount),
        with_mounted(test_one_that_is_in_use_stays),
        with_mounted(test_one_that_is_held_elsewhere),
        with_mounted(test_a_mount_finishes_it),
        with_mounted(test_giving_up),
        with_mounted(test_what_an_unmount_has_lost),
        with_mounted(test_giving_up_beside_one_that_hangs),
        with_mounted(test_why_it_cannot_be_closed),
        with_mounted(test_a_dead_one_is_cleared_away),
        with_mounted(test_a_fenced_one),
        with_mounted(test_a_kill_anywhere),
        with_mounted(test_a_failure_anywhere),
        with_mounted(test_a_reboot_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
