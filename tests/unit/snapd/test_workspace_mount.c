#include "workspace_fixture.h"

#include "catalog_job.h"
#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const char at[] = "{'path': '%s'}";

static void test_a_mount(void **state)
{
    struct workspace_world *world = *state;
    cleanup_json json_t *json = workspace_world_ok(world, "workspace.mount", "w", at);
    const struct fake_volume *volume = fake_volumes_only();
    assert_string_equal(json_string_value(json_object_get(json, "state")), "mounted");
    assert_string_equal(json_string_value(json_object_get(json, "path")),
                        workspace_world_path(world, "at"));
    assert_true(json_is_false(json_object_get(json, "read_only")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "worker"), "pid")),
                     4242);
    assert_string_equal(volume->mounted, workspace_world_path(world, "at"));
    assert_int_equal(volume->checks, 0); /* it was detached cleanly */
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
    assert_int_equal(workspace_world_events(world, "w", "workspace-mounted"), 1);
}

static void test_again(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.mount", "w", at);
    workspace_world_do(world, "workspace.mount", "w", at);
    assert_int_equal(fake_volumes_only()->mounts, 1);
    assert_int_equal(workspace_world_events(world, "w", "workspace-mounted"), 1);
    workspace_world_fails(world, "workspace.mount", "w", "{'path': '%s', 'read_only': true}",
                          ERR_CONFLICT, "mounted for writing");
    assert_int_equal(mkdir(workspace_world_path(world, "other"), 0755), 0);
    workspace_world_fails(world, "workspace.mount", "w", "{'path': '%s/../other'}", ERR_CONFLICT,
                          "is mounted at");
}

/* Somebody has unmounted it: the same request mounts it again. */
static void test_after_an_unmount_by_hand(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s', 'read_only': true}");
    fake_volumes_only()->mounted[0] = '\0';
    assert_string_equal(workspace_world_state(world, "w"), "attached");
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s', 'read_only': true}");
    assert_true(fake_volumes_only()->read_only);
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted read-only");
    assert_string_equal(workspace_world_incident(world, "w"), "");
}

static void test_one_whose_processes_died(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.mount", "w", at);
    fake_volumes_only()->dead = true;
    assert_string_equal(workspace_world_state(world, "w"), "dead");
    workspace_world_do(world, "workspace.mount", "w", at);
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
    assert_int_equal(fake_volumes_only()->abandons, 1);
    assert_int_equal(fake_volumes_only()->checks, 1);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "had died; its journal"));
}

/* To bring one back may take long, and whoever cancels the mount ends that: of what had died comes
 * the same as of any other mount, while what lives may be somebody's elsewhere. */
static void test_a_revival_that_is_cancelled(void **state)
{
    struct workspace_world *world = *state;
    for (int i = 0; i < 2; i++) {
        workspace_world_do(world, "workspace.mount", "w", at);
        if (i == 0)
            fake_volumes_only()->dead = true;
        else
            fake_volumes_only()->mounted[0] = '\0';
        const int detaches = fake_volumes_only()->detaches;
        const int cuts = fake_volumes_only()->cuts;
        const int abandons = fake_volumes_only()->abandons;
        fake_volumes_only()->slow_ms = 20000;
        workspace_world_cancelled(world, "workspace.mount", "w", at);
        fake_volumes_only()->slow_ms = 0;
        assert_string_equal(workspace_world_rows(world, "w"),
                            i == 0 ? "detached at nowhere" : "attached at at mounted");
        assert_string_equal(fake_volumes_only()->mounted, "");
        assert_int_equal(fake_volumes_only()->attached, i == 1);
        if (i == 0)
            continue;
        assert_int_equal(fake_volumes_only()->detaches, detaches);
        assert_int_equal(fake_volumes_only()->cuts, cuts);
        assert_int_equal(fake_volumes_only()->abandons, abandons);
    }
    workspace_world_do(world, "workspace.mount", "w", at);
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
}

static void test_bad_paths(void **state)
{
    struct workspace_world *world = *state;
    static const struct {
        const char *params;
        enum err_code code;
        const char *words;
    } cases[] = {
        {"{}", ERR_DAMAGED, "path"},
        {"{'path': 7}", ERR_DAMAGED, "path"},
        {"{'path': 'at'}", ERR_INVALID, "not absolute"},
        {"{'path': '%s/missing'}", ERR_NOT_FOUND, "no directory"},
        {"{'path': '%s/../data/catalog.db'}", ERR_INVALID, "not a directory"},
        {"{'path': '%s/../data'}", ERR_INVALID, "data directory"},
        {"{'path': '%s/../data/tmp'}", ERR_INVALID, "data directory"},
        {"{'path': '%s/../run/runs'}", ERR_INVALID, "run directory"},
        {"{'path': '%s/..'}", ERR_INVALID, "data directory"},
        {"{'path': '/'}", ERR_INVALID, "data directory"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        workspace_world_fails(world, "workspace.mount", "w", cases[i].params, cases[i].code,
                              cases[i].words);
    assert_int_equal(fake_volumes_only()->attaches, 0);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    workspace_world_fails(world, "workspace.mount", "v", at, ERR_NOT_FOUND, "no workspace v");
}

static void test_a_link_is_followed(void **state)
{
    struct workspace_world *world = *state;
    assert_int_equal(symlink("at", workspace_world_path(world, "link")), 0);
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s/../link'}");
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
    workspace_world_do(world, "workspace.mount", "w", at);
}

static void test_the_place_of_another(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.create", "v", "{}");
    workspace_world_do(world, "workspace.mount", "v", at);
    workspace_world_fails(world, "workspace.mount", "w", at, ERR_CONFLICT,
                          "is the place of the workspace v");
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

/* One of them would hang on the other, or be hidden by it. */
/* They go with what they show. */
static void test_places_that_the_kernel_makes(void **state)
{
    struct workspace_world *world = *state;
    static const char *const paths[] = {"{'path': '/proc'}", "{'path': '/proc/1'}",
                                        "{'path': '/proc/self/task'}", "{'path': '/sys/kernel'}"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        workspace_world_fails(world, "workspace.mount", "w", paths[i], ERR_INVALID,
                              "which the kernel makes");
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

static void test_places_above_and_below_another(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.create", "v", "{}");
    assert_int_equal(mkdir(workspace_world_path(world, "at/deep"), 0755), 0);
    assert_int_equal(mkdir(workspace_world_path(world, "at/deep/er"), 0755), 0);
    assert_int_equal(mkdir(workspace_world_path(world, "at/deeper"), 0755), 0);
    workspace_world_do(world, "workspace.mount", "v", "{'path': '%s/deep'}");
    workspace_world_fails(world, "workspace.mount", "w", at, ERR_CONFLICT, "holds or lies in");
    workspace_world_fails(world, "workspace.mount", "w", "{'path': '%s/deep/er'}", ERR_CONFLICT,
                          "the place of the workspace v");
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s/deeper'}");
}

/* An automount or somebody's FUSE file system whose program does not answer. */
static void test_a_path_that_hangs(void **state)
{
    struct workspace_world *world = *state;
    char options[80];
    cleanup_fd int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    assert_true(fuse >= 0);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    const char *path = workspace_world_path(world, "at");
    assert_int_equal(mount("nobody", path, "fuse", 0, options), 0);
    struct catalog_job row =
        workspace_world_job(world, "workspace.mount", "w", "{'path': '%s/inside'}");
    assert_int_equal(umount2(path, MNT_DETACH), 0);
    assert_string_equal(row.error_code, err_code_name(ERR_UNREACHABLE));
    assert_non_null(strstr(row.error_message, "at/inside"));
    catalog_job_free(&row);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

/* Somebody took its directory away: not "no such workspace". */
static void test_a_missing_directory(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->made = false;
    workspace_world_fails(world, "workspace.mount", "w", at, ERR_DAMAGED, "is gone");
    workspace_world_fails(world, "workspace.resize", "w", "{'size': 134217728}", ERR_DAMAGED,
                          "is gone");
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    workspace_world_do(world, "workspace.rm", "w", "{}");
}

static void test_a_failure_takes_the_wish_back(void **state)
{
    struct workspace_world *world = *state;
    static const char *const functions[] = {"attach", "mount"};
    for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
        fake_volumes_fail(functions[i], ERR_UNSUPPORTED, "no such thing here", 1);
        workspace_world_fails(world, "workspace.mount", "w", at, ERR_UNSUPPORTED,
                              "no such thing here");
        assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
        assert_false(fake_volumes_only()->attached);
    }
    static const char *const faults[] = {"workspace.mount-recorded=eio", "workspace.attached=eio",
                                         "workspace.mounted=eio"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        assert_false(workspace_world_killed(world, "workspace.mount", "w", at, faults[i]));
        workspace_world_start(world);
        assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
        assert_false(fake_volumes_only()->attached);
        assert_string_equal(fake_volumes_only()->mounted, "");
    }
    workspace_world_do(world, "workspace.mount", "w", at);
}

/* What hangs in the undoing stays in the rows, and an unmount clears it. */
static void test_what_could_not_be_undone(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->elsewhere = true;
    fake_volumes_fail("mount", ERR_IO, "no", 1);
    workspace_world_fails(world, "workspace.mount", "w", at, ERR_IO, "no");
    assert_string_equal(workspace_world_rows(world, "w"), "attaching at at mounting");
    fake_volumes_only()->elsewhere = false;
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

static void test_a_kill_anywhere(void **state)
{
    struct workspace_world *world = *state;
    static const char *const faults[] = {"workspace.mount-recorded=kill", "workspace.attached=kill",
                                         "workspace.mounted=kill", "job.before-finish=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        assert_true(workspace_world_killed(world, "workspace.mount", "w", at, faults[i]));
        workspace_world_start(world);
        job_fixture_settle(world->node);
        assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
        assert_string_equal(workspace_world_state(world, "w"), "mounted");
        assert_string_equal(workspace_world_incident(world, "w"), "");
        workspace_world_do(world, "workspace.unmount", "w", "{}");
    }
}

static void test_states_that_forbid_it(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_do(world, "workspace.mount", "w", at);
    const char *id = fake_volumes_only()->id;
    assert_int_equal(
        catalog_volume_set_state(world->node->catalog, id, CATALOG_VOLUME_FENCED, NULL), 0);
    workspace_world_fails(world, "workspace.mount", "w", at, ERR_CONFLICT, "w is fenced");
    const struct catalog_volume half = {
        .id = (char *)"0123456789ab", .lineage = (char *)"x", .size = 1 << 20};
    assert_int_equal(catalog_workspace_add(world->node->catalog, "half", "n", &half, NULL), 0);
    workspace_world_fails(world, "workspace.mount", "half", at, ERR_CONFLICT, "half made");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_one(test_a_mount),
        with_one(test_again),
        with_one(test_after_an_unmount_by_hand),
        with_one(test_one_whose_processes_died),
        with_one(test_a_revival_that_is_cancelled),
        with_one(test_bad_paths),
        with_one(test_a_link_is_followed),
        with_one(test_the_place_of_another),
        with_one(test_places_that_the_kernel_makes),
        with_one(test_places_above_and_below_another),
        with_one(test_a_path_that_hangs),
        with_one(test_a_missing_directory),
        with_one(test_a_failure_takes_the_wish_back),
        with_one(test_what_could_not_be_undone),
        with_one(test_a_kill_anywhere),
        with_one(test_states_that_forbid_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
