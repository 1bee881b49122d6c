#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char twice[] = "{'size': 134217728}";

static int64_t size_of_row(struct workspace_world *world)
{
    struct catalog_workspace row = {0};
    assert_int_equal(catalog_workspace_get(world->node->catalog, "w", &row, NULL), 0);
    int64_t size = row.volume.size;
    catalog_workspace_free(&row);
    return size;
}

static void assert_size(struct workspace_world *world, int64_t mib)
{
    assert_int_equal(size_of_row(world), mib << 20);
    assert_int_equal(fake_volumes_only()->size, mib << 20);
}

static void test_a_detached_one(void **state)
{
    struct workspace_world *world = *state;
    cleanup_json json_t *json = workspace_world_ok(world, "workspace.resize", "w", twice);
    assert_int_equal(json_integer_value(json_object_get(json, "size")), 128 << 20);
    assert_true(json_is_false(json_object_get(json, "filesystem_grown")));
    assert_size(world, 128);
    assert_false(fake_volumes_only()->attached);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    assert_int_equal(workspace_world_events(world, "w", "workspace-resized"), 1);
    /* To the size it has: nothing to do, and nothing to admit. */
    world->node->volume.overcommit = 0;
    workspace_world_do(world, "workspace.resize", "w", twice);
    assert_int_equal(workspace_world_events(world, "w", "workspace-resized"), 1);
}

static void test_a_mounted_one(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    cleanup_json json_t *json =
        workspace_world_ok(world, "workspace.resize", "w", "{'size': 134217729}");
    assert_true(json_is_true(json_object_get(json, "filesystem_grown")));
    assert_size(world, 129);
    /* A kernel that wants a right for it that varved lacks. */
    fake_volumes_only()->cannot_grow = true;
    cleanup_json json_t *later =
        workspace_world_ok(world, "workspace.resize", "w", "{'size': 135266305}");
    assert_true(json_is_false(json_object_get(later, "filesystem_grown")));
    assert_size(world, 130);
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
    fake_volumes_only()->mounted[0] = '\0';
    workspace_world_fails(world, "workspace.resize", "w", "{'size': 167772160}", ERR_CONFLICT,
                          "is not mounted at");
}

static void test_bad_sizes(void **state)
{
    struct workspace_world *world = *state;
    static const struct {
        const char *params;
        enum err_code code;
        const char *words;
    } cases[] = {
        {"{}", ERR_DAMAGED, "size"},
        {"{'size': '1G'}", ERR_DAMAGED, "size"},
        {"{'size': 0}", ERR_INVALID, "at most"},
        {"{'size': -5}", ERR_INVALID, "at most"},
        {"{'size': 1099511627777}", ERR_INVALID, "at most"},
        {"{'size': 66060288}", ERR_INVALID, "sizes only grow"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        workspace_world_fails(world, "workspace.resize", "w", cases[i].params, cases[i].code,
                              cases[i].words);
    world->node->volume.overcommit = 0;
    workspace_world_fails(world, "workspace.resize", "w", twice, ERR_NO_SPACE, "overcommit");
    assert_size(world, 64);
}

static void test_a_failure(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_fail("resize", ERR_IO, "no", 1);
    workspace_world_fails(world, "workspace.resize", "w", twice, ERR_IO, "no");
    assert_size(world, 64);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    assert_false(fake_volumes_only()->attached);
    /* After the half of it the row says what is so. */
    assert_false(workspace_world_killed(world, "workspace.resize", "w", twice,
                                        "workspace.resize-grown=eio"));
    workspace_world_start(world);
    assert_size(world, 128);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

static void test_a_size_that_a_worker_invents(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    fake_volumes_only()->size = 1024 << 20;
    (void)workspace_world_killed(world, "workspace.resize", "w", twice,
                                 "workspace.resize-grown=eio");
    workspace_world_start(world);
    assert_int_equal(size_of_row(world), 128 << 20);
}

static void test_a_kill_anywhere(void **state)
{
    struct workspace_world *world = *state;
    static const char *const faults[] = {"workspace.resize-recorded=kill",
                                         "workspace.resize-attached=kill",
                                         "workspace.resize-grown=kill", "job.before-finish=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        char params[40];
        snprintf(params, sizeof params, "{'size': %d}", (int)(65 + i) << 20);
        assert_true(workspace_world_killed(world, "workspace.resize", "w", params, faults[i]));
        workspace_world_start(world);
        job_fixture_settle(world->node);
        assert_size(world, (int64_t)(65 + i));
        assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
        assert_false(fake_volumes_only()->attached);
    }
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    assert_true(workspace_world_killed(world, "workspace.resize", "w", twice,
                                       "workspace.resize-grown=kill"));
    workspace_world_start(world);
    job_fixture_settle(world->node);
    assert_size(world, 128);
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_one(test_a_detached_one),  with_one(test_a_mounted_one),
        with_one(test_bad_sizes),       with_one(test_a_failure),
        with_one(test_a_kill_anywhere), with_one(test_a_size_that_a_worker_invents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
