/* recover, with what it finds beside the catalog (recover_leftovers.c) and run.mount. */
#include "recover.h"

#include "recover_internal.h"
#include "run.h"
#include "run_fixture.h"
#include "run_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* "object action" of each item, sorted as they came. */
static void recover(struct run_world *world, bool plan, char ret[2048])
{
    cleanup_json json_t *result =
        run_world_job_ok(world, "recover", NULL, plan ? "{'plan':true}" : "{}");
    assert_int_equal(json_is_true(json_object_get(result, "plan")), plan);
    size_t i;
    json_t *item;
    ret[0] = '\0';
    json_array_foreach (json_object_get(result, "items"), i, item)
        snprintf(ret + strlen(ret), 2048 - strlen(ret), "%s %s%s\n",
                 json_string_value(json_object_get(item, "object")),
                 json_string_value(json_object_get(item, "action")),
                 json_is_true(json_object_get(item, "failed")) ? " (failed)" : "");
}

static void expect(struct run_world *world, bool plan, const char *text)
{
    char have[2048];
    recover(world, plan, have);
    assert_string_equal(have, text);
}

static void test_a_node_that_is_well(void **state)
{
    struct run_world *world = *state;
    expect(world, true, "");
    expect(world, false, "");
    run_world_assert_ready(world, "r1");
    run_world_job_fails(world, "recover", NULL, "{'plan':7}", ERR_DAMAGED, "plan");
}

static void test_a_run_that_is_not_mounted(void **state)
{
    struct run_world *world = *state;
    run_world_unmount(world, "r1");
    expect(world, true, "run:r1 mount it again\n");
    assert_false(run_world_is_mounted(world, "r1"));
    expect(world, false, "run:r1 mounted again\n");
    run_world_assert_ready(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    expect(world, false, "");
}

/* I9: what cannot be mended keeps nobody, and is told with its reason. */
static void test_a_run_that_cannot_be_mounted(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    char text[2048];
    run_world_create(world, "r2");
    run_world_unmount(world, "r1");
    run_world_unmount(world, "r2");
    assert_int_equal(renameat(scratch->fd, "data/runs/r2/upper", scratch->fd, "kept"), 0);
    recover(world, false, text);
    assert_non_null(strstr(text, "run:r1 mounted again\n"));
    assert_non_null(strstr(text, "run:r2 not mounted again: run r2 has no writable layer"));
    assert_non_null(strstr(text, "(failed)"));
    run_world_assert_ready(world, "r1");
}

static void test_runs_that_are_half_there(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r2");
    assert_int_equal(catalog_run_set_state(world->node->catalog, "r2", CATALOG_RUN_REMOVING, NULL),
                     0);
    expect(world, true, "run:r2 remove it\n");
    assert_string_equal(run_world_state(world, "r2"), "removing");
    expect(world, false, "run:r2 removed\n");
    run_world_assert_gone(world, "r2");
    run_world_assert_ready(world, "r1");
}

/* A job that began after recover had asked for the jobs has its run to itself. */
static void test_a_job_that_comes_meanwhile(void **state)
{
    struct run_world *world = *state;
    struct catalog *catalog = world->node->catalog;
    struct err err = ERR_INIT;
    char *joined = NULL;
    run_world_create(world, "r2");
    assert_int_equal(catalog_run_set_state(catalog, "r2", CATALOG_RUN_REMOVING, NULL), 0);
    const struct catalog_job row = {.id = (char *)"j-0123456789ab",
                                    .kind = (char *)"run.rm",
                                    .object = (char *)"run:r2",
                                    .params = (char *)"{\"id\":\"r2\"}"};
    assert_int_equal(catalog_job_add(catalog, &row, &joined, &err), 0);
    struct recover late = {.node = world->node, .items = json_array()};
    assert_int_equal(recover_runs(&late, &err), 0);
    assert_int_equal(json_array_size(late.items), 0);
    assert_string_equal(run_world_state(world, "r2"), "removing");
    assert_true(run_world_exists(world, "data/runs/r2/upper"));
    json_decref(late.items);
}

static void test_layers_that_nobody_stands_on(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    int count = run_world_count(world, "run/layers");
    assert_int_equal(mkdirat(scratch->fd, "run/layers/stray", 0700), 0);
    assert_int_equal(mount("tmpfs", scratch_path(scratch, "run/layers/stray"), "tmpfs", 0, NULL),
                     0);
    expect(world, true, "RUN/layers/stray unmount it\n");
    assert_int_equal(run_world_count(world, "run/layers"), count + 1);
    /* One that somebody looks into stays, and is told (I9). */
    int fd = openat(scratch->fd, "run/layers/stray", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char text[2048];
    recover(world, false, text);
    assert_non_null(strstr(text, "RUN/layers/stray not unmounted: "));
    assert_non_null(strstr(text, "it is in use (failed)"));
    close(fd);
    expect(world, false, "RUN/layers/stray unmounted\n");
    assert_int_equal(run_world_count(world, "run/layers"), count);
    run_world_assert_ready(world, "r1");
}

static void mount_stray(struct run_world *world)
{
    const struct scratch *scratch = run_world_scratch(world);
    char options[300];
    static const char *const dirs[] = {"low-1", "low-2", "run/runs/stray", "run/runs/stray/rootfs"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(mkdirat(scratch->fd, dirs[i], 0700), 0);
    snprintf(options, sizeof options, "lowerdir=%s/low-1:%s/low-2", scratch->path, scratch->path);
    assert_int_equal(
        mount("stray", scratch_path(scratch, "run/runs/stray/rootfs"), "overlay", 0, options), 0);
}

/* What is in use stays where it is; the catalog is nobody's meanwhile. */
static void test_a_stray_mount(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    char text[2048];
    mount_stray(world);
    int fd = openat(scratch->fd, "run/runs/stray/rootfs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    recover(world, false, text);
    assert_non_null(strstr(text, "RUN/runs/stray not removed: "));
    assert_true(run_world_exists(world, "run/runs/stray/rootfs"));
    assert_int_equal(run_world_count(world, "run/runs"), 2);
    close(fd);
    expect(world, false, "RUN/runs/stray removed\n");
    assert_int_equal(run_world_count(world, "run/runs"), 1);
    run_world_create(world, "stray");
    run_world_assert_ready(world, "stray");
}

static void test_leftovers(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    static const char *const dirs[] = {"run/runs/stray", "run/runs/stray/rootfs", "data/runs/alone",
                                       "data/runs/.next-r1", "data/tmp/.tmp-young"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(mkdirat(scratch->fd, dirs[i], 0700), 0);
    static const char leave[] = "DATA/runs/alone left, as it may be the only copy\n";
    expect(world, true,
           "RUN/runs/stray unmount and remove it\n"
           "DATA/runs/alone leave it, as it may be the only copy\n");
    assert_true(run_world_exists(world, "run/runs/stray/rootfs"));
    char all[200];
    snprintf(all, sizeof all, "RUN/runs/stray removed\n%s", leave);
    expect(world, false, all);
    assert_false(run_world_exists(world, "run/runs/stray"));
    assert_true(run_world_exists(world, "data/runs/alone"));
    assert_true(run_world_exists(world, "data/tmp/.tmp-young"));
    expect(world, false, leave);
    run_world_assert_ready(world, "r1");
}

/* The age of a file is its ctime, which nobody can set; so the test tells what "old" is. */
static void test_old_files(void **state)
{
    struct run_world *world = *state;
    struct err err = ERR_INIT;
    const struct scratch *scratch = run_world_scratch(world);
    assert_int_equal(mkdirat(scratch->fd, "data/tmp/.tmp-old", 0700), 0);
    run_world_write(world, "data/tmp/.tmp-old/file", "x");
    const char name[] = "diff-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    char path[200];
    snprintf(path, sizeof path, "data/layers/%s", name);
    run_world_write(world, path, "x");
    run_world_write(world, "data/layers/other", "x");
    struct recover old = {.node = world->node,
                          .items = json_array(),
                          .stale_before_ns =
                              clock_wall_ns(&world->node->clock) + 3600 * CLOCK_NS_PER_S};
    for (int plan = 1; plan >= 0; plan--) {
        old.plan = plan != 0;
        assert_int_equal(recover_leftovers(&old, &err), 0);
        assert_int_equal(json_array_size(old.items), plan ? 2 : 4);
        assert_int_equal(run_world_exists(world, "data/tmp/.tmp-old"), plan);
        assert_int_equal(run_world_exists(world, path), plan);
    }
    assert_true(run_world_exists(world, "data/layers/other"));
    json_decref(old.items);
}

static void test_mount_jobs(void **state)
{
    struct run_world *world = *state;
    json_decref(run_world_job_ok(world, "run.mount", "r1", "{'id':'r1'}"));
    run_world_unmount(world, "r1");
    /* Somebody else works on it. */
    int lock = run_lock_idle(world->node, "r1", NULL);
    assert_true(lock >= 0);
    run_world_job_fails(world, "run.mount", "r1", "{'id':'r1'}", ERR_CONFLICT, "r1");
    assert_false(run_world_is_mounted(world, "r1"));
    close(lock);
    cleanup_json json_t *run = run_world_job_ok(world, "run.mount", "r1", "{'id':'r1'}");
    assert_true(json_is_true(json_object_get(run, "mounted")));
    run_world_assert_ready(world, "r1");
    run_world_job_fails(world, "run.mount", "x", "{'id':'x'}", ERR_NOT_FOUND, "x");
    run_world_job_fails(world, "run.mount", "x", "{'id':'..'}", ERR_INVALID, "run ID");
    assert_int_equal(catalog_run_set_state(world->node->catalog, "r1", CATALOG_RUN_REMOVING, NULL),
                     0);
    run_world_unmount(world, "r1");
    run_world_job_fails(world, "run.mount", "r1", "{'id':'r1'}", ERR_CONFLICT, "removing");
}

#define world_test(fn) cmocka_unit_test_setup_teardown(fn, run_world_setup_run, run_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(test_a_node_that_is_well),
        world_test(test_a_run_that_is_not_mounted),
        world_test(test_a_run_that_cannot_be_mounted),
        world_test(test_runs_that_are_half_there),
        world_test(test_a_job_that_comes_meanwhile),
        world_test(test_layers_that_nobody_stands_on),
        world_test(test_a_stray_mount),
        world_test(test_leftovers),
        world_test(test_old_files),
        world_test(test_mount_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
