#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"
#include "workspace_fork.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_a_new_workspace(void **state)
{
    struct workspace_world *world = *state;
    cleanup_json json_t *json = workspace_world_ok(world, "workspace.create", "w", "{}");
    assert_string_equal(json_string_value(json_object_get(json, "name")), "w");
    assert_string_equal(json_string_value(json_object_get(json, "state")), "detached");
    assert_int_equal(json_integer_value(json_object_get(json, "size")), 64 << 20);
    assert_true(json_is_null(json_object_get(json, "path")));
    assert_true(json_is_null(json_object_get(json, "filesystem")));
    assert_true(json_is_null(json_object_get(json, "worker")));
    assert_true(json_is_null(json_object_get(json, "incident")));
    assert_int_equal(fake_volumes_only()->size, 64 << 20);
    assert_string_equal(fake_volumes_only()->id, json_string_value(json_object_get(json, "id")));
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    assert_int_equal(workspace_world_events(world, "w", "workspace-created"), 1);
}

static void test_sizes(void **state)
{
    struct workspace_world *world = *state;
    static const struct {
        const char *params;
        int64_t size; /* 0: refused */
    } cases[] = {
        {"{'size': 67108864}", 64 << 20},
        {"{'size': 67108865}", 65 << 20},
        {"{'size': 1099511627776}", INT64_C(1) << 40},
        {"{'size': 67108863}", 0},
        {"{'size': 1099511627777}", 0},
        {"{'size': 0}", 0},
        {"{'size': -1}", 0},
        {"{'size': 9223372036854775807}", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char name[8];
        snprintf(name, sizeof name, "w%zu", i);
        if (cases[i].size == 0) {
            workspace_world_fails(world, "workspace.create", name, cases[i].params, ERR_INVALID,
                                  "from 67108864 to 1099511627776 bytes");
            continue;
        }
        cleanup_json json_t *json =
            workspace_world_ok(world, "workspace.create", name, cases[i].params);
        assert_int_equal(json_integer_value(json_object_get(json, "size")), cases[i].size);
    }
    workspace_world_fails(world, "workspace.create", "wx", "{'size': 'large'}", ERR_DAMAGED,
                          "size");
    workspace_world_fails(world, "workspace.create", "W/x", "{}", ERR_INVALID, "workspace name");
}

static void test_a_taken_name(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.create", "w", "{}");
    workspace_world_fails(world, "workspace.create", "w", "{}", ERR_EXISTS, "workspace w already");
    assert_int_equal(fake_volumes_count(), 1);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

static void test_the_disk_does_not_bear_it(void **state)
{
    struct workspace_world *world = *state;
    world->node->volume.overcommit = 0; /* nothing at all may be promised */
    workspace_world_fails(world, "workspace.create", "w", "{}", ERR_NO_SPACE, "overcommit");
    assert_string_equal(workspace_world_rows(world, "w"), "none");
    assert_int_equal(fake_volumes_count(), 0);
    /* What was refused is not counted later. */
    world->node->volume.overcommit = 1000;
    workspace_world_do(world, "workspace.create", "w", "{}");
}

static void test_a_failure_leaves_nothing(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_fail("create", ERR_IO, "mke2fs says no", 1);
    workspace_world_fails(world, "workspace.create", "w", "{}", ERR_IO, "mke2fs says no");
    assert_string_equal(workspace_world_rows(world, "w"), "none");
    static const char *const faults[] = {"workspace.create-recorded=eio",
                                         "workspace.create-made=eio"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        assert_false(workspace_world_killed(world, "workspace.create", "w", "{}", faults[i]));
        workspace_world_start(world);
        assert_string_equal(workspace_world_rows(world, "w"), "none");
        assert_int_equal(fake_volumes_count(), 0);
    }
}

/* A failed job that could not undo what it made leaves a row that the next one takes away. */
static void test_what_could_not_be_undone(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_fail("remove", ERR_IO, "busy", 1);
    const struct catalog_volume volume = {
        .id = (char *)"0123456789ab", .lineage = (char *)"x", .size = 1 << 20};
    assert_int_equal(catalog_workspace_add(world->node->catalog, "w", "n", &volume, NULL), 0);
    workspace_world_fails(world, "workspace.create", "w", "{}", ERR_IO, "busy");
    workspace_world_do(world, "workspace.create", "w", "{}");
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    assert_string_not_equal(fake_volumes_only()->id, "0123456789ab");
}

static void test_a_kill_anywhere(void **state)
{
    struct workspace_world *world = *state;
    static const char *const faults[] = {"workspace.create-recorded=kill",
                                         "workspace.create-made=kill", "job.before-finish=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        char name[8];
        snprintf(name, sizeof name, "w%zu", i);
        assert_true(workspace_world_killed(world, "workspace.create", name, "{}", faults[i]));
        workspace_world_start(world);
        job_fixture_settle(world->node);
        assert_string_equal(workspace_world_rows(world, name), "detached at nowhere");
        assert_int_equal(fake_volumes_count(), i + 1);
    }
}

/* What can be looked at alone is nothing to stand on. */
static void test_no_fork_of_a_view(void **state)
{
    struct workspace_world *world = *state;
    static const char *const from[] = {"w@now-0123ab", "w@now"};
    workspace_world_do(world, "workspace.create", "w", "{}");
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
        struct err err = ERR_INIT;
        struct workspace_source source = {NULL};
        assert_true(workspace_source_find(world->node, from[i], &source, &err) < 0);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(strstr(err.text, "can be looked at alone"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_workspaces(test_a_new_workspace),
        with_workspaces(test_sizes),
        with_workspaces(test_a_taken_name),
        with_workspaces(test_the_disk_does_not_bear_it),
        with_workspaces(test_a_failure_leaves_nothing),
        with_workspaces(test_what_could_not_be_undone),
        with_workspaces(test_a_kill_anywhere),
        with_workspaces(test_no_fork_of_a_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
