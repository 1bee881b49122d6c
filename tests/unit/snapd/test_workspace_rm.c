#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void assert_gone(struct workspace_world *world)
{
    assert_string_equal(workspace_world_rows(world, "w"), "none");
    assert_int_equal(fake_volumes_count(), 0);
}

static void test_a_removal(void **state)
{
    struct workspace_world *world = *state;
    cleanup_json json_t *json = workspace_world_ok(world, "workspace.rm", "w", "{}");
    assert_string_equal(json_string_value(json_object_get(json, "name")), "w");
    assert_gone(world);
    assert_int_equal(workspace_world_events(world, "w", "workspace-removed"), 1);
    workspace_world_fails(world, "workspace.rm", "w", "{}", ERR_NOT_FOUND, "no workspace w");
    /* The name is free again. */
    workspace_world_do(world, "workspace.create", "w", "{}");
}

static void test_a_mounted_one_stays(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    workspace_world_fails(world, "workspace.rm", "w", "{}", ERR_CONFLICT, "w is mounted at");
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
    assert_int_equal(fake_volumes_count(), 1);
}

/* One that cannot be closed, as there is no room for it, or as its disk has failed. */
static void test_one_that_cannot_be_closed(void **state)
{
    struct workspace_world *world = *state;
    static const enum err_code codes[] = {ERR_NO_SPACE, ERR_IO};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
        fake_volumes_fail("detach", codes[i], "cannot write the disk map anew", 1000);
        workspace_world_fails(world, "workspace.unmount", "w", "{}", codes[i], "the disk map");
        workspace_world_do(world, "workspace.rm", "w", "{}");
        fake_volumes_fail("detach", codes[i], "", 0);
        assert_gone(world);
        workspace_world_do(world, "workspace.create", "w", "{}");
    }
}

/* Bytes that nobody can remove now keep their row, and the next one goes on. */
static void test_a_failure(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_fail("remove", ERR_IO, "no", 1);
    workspace_world_fails(world, "workspace.rm", "w", "{}", ERR_IO, "no");
    assert_string_equal(workspace_world_rows(world, "w"), "removing at nowhere");
    workspace_world_fails(world, "workspace.mount", "w", "{'path': '%s'}", ERR_CONFLICT,
                          "half removed");
    workspace_world_fails(world, "workspace.create", "w", "{}", ERR_EXISTS, "w already");
    workspace_world_do(world, "workspace.rm", "w", "{}");
    assert_gone(world);
}

static void test_a_kill_anywhere(void **state)
{
    struct workspace_world *world = *state;
    static const char *const faults[] = {"workspace.rm-recorded=kill",
                                         "workspace.bytes-removed=kill", "job.before-finish=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        assert_true(workspace_world_killed(world, "workspace.rm", "w", "{}", faults[i]));
        workspace_world_start(world);
        job_fixture_settle(world->node);
        assert_gone(world);
        workspace_world_do(world, "workspace.create", "w", "{}");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_one(test_a_removal),
        with_one(test_a_mounted_one_stays),
        with_one(test_one_that_cannot_be_closed),
        with_one(test_a_failure),
        with_one(test_a_kill_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
