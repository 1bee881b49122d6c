/* run.reset, and with it the exchange of writable layers (run_switch.c, run_change.c). */
#include "run_switch.h"

#include "layers.h"
#include "run.h"
#include "run_fixture.h"
#include "tree.h"

#include <fcntl.h>
#include <sys/stat.h>

static const char params[] = "{'id':'r1'}";

static void assert_reset(const struct run_world *world)
{
    run_world_assert_ready(world, "r1");
    assert_false(run_world_exists(world, "run/runs/r1/rootfs/work"));
    assert_false(run_world_exists(world, "data/runs/.next-r1"));
    struct stat st;
    const struct scratch *scratch = run_world_scratch(world);
    assert_int_equal(fstatat(scratch->fd, "run/runs/r1/rootfs", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 02751);
    assert_int_equal(st.st_uid, 7);
}

static void test_reset(void **state)
{
    struct run_world *world = *state;
    cleanup_json json_t *result = run_world_job_ok(world, "run.reset", "r1", params);
    assert_string_equal(json_string_value(json_object_get(result, "id")), "r1");
    assert_true(json_is_true(json_object_get(result, "mounted")));
    assert_reset(world);
    /* Again, and with something to lose again. */
    run_world_write(world, "run/runs/r1/rootfs/work", "more");
    json_decref(run_world_job_ok(world, "run.reset", "r1", params));
    assert_reset(world);
    run_world_remove(world, "r1");
    run_world_assert_gone(world, "r1");
}

static void test_refusals(void **state)
{
    struct run_world *world = *state;
    run_world_job_fails(world, "run.reset", "x", "{'id':'x'}", ERR_NOT_FOUND, "x");
    run_world_job_fails(world, "run.reset", "x", "{'id':'../r1'}", ERR_INVALID, "run ID");
    run_world_job_fails(world, "run.reset", "x", "{}", ERR_DAMAGED, "id");
    cleanup_fd int lock = run_lock_idle(world->node, "r1", NULL);
    assert_true(lock >= 0);
    run_world_job_fails(world, "run.reset", "r1", params, ERR_CONFLICT, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
}

/* What is mounted inside keeps the run as it is. */
static void test_a_run_that_cannot_be_unmounted(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    cleanup_fd int fd = openat(scratch->fd, "run/runs/r1/rootfs/work", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0); /* of this process, which the daemon's look does not count */
    run_world_job_fails(world, "run.reset", "r1", params, ERR_CONFLICT, "it is in use");
    run_world_assert_ready(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    assert_false(run_world_exists(world, "data/runs/.next-r1"));
}

/* A run whose mount is gone is reset all the same. */
static void test_a_run_that_is_not_mounted(void **state)
{
    struct run_world *world = *state;
    run_world_unmount(world, "r1");
    json_decref(run_world_job_ok(world, "run.reset", "r1", params));
    assert_reset(world);
}

/* They are a cache, and made again of the blobs. */
static void test_layers_that_were_deleted(void **state)
{
    struct run_world *world = *state;
    int count = run_world_count(world, "data/layers");
    run_world_delete_layers(world);
    json_decref(run_world_job_ok(world, "run.reset", "r1", params));
    assert_reset(world);
    assert_int_equal(run_world_count(world, "data/layers"), count);
    run_world_delete_layers(world);
    run_world_unmount(world, "r1");
    json_decref(run_world_job_ok(world, "run.mount", "r1", params));
    assert_reset(world);
    assert_int_equal(run_world_count(world, "data/layers"), count);
}

/* Publishes a state of r1 on the image with this name, as a job does that then dies. */
static void publish(struct run_world *world, const char *name)
{
    struct node *node = world->node;
    char temp[32];
    cleanup_free char *digest = NULL;
    cleanup_catalog_image struct catalog_image image = {0};
    assert_int_equal(catalog_image_name_get(node->catalog, name, &digest, NULL), 0);
    assert_int_equal(catalog_image_get(node->catalog, digest, &image, NULL), 0);
    assert_int_equal(layers_ensure(node, &image, NULL, NULL, NULL, NULL), 0);
    const struct run_switch wanted = {.id = "r1", .image = &image, .job = "j-dead"};
    assert_int_equal(run_switch_make(node, &wanted, temp, NULL), 0);
    run_world_unmount(world, "r1");
    assert_int_equal(run_switch_publish(node, "r1", temp, NULL), 0);
}

/* From the publish on the run is what was published, also for who comes next. */
static void test_an_exchange_that_was_left(void **state)
{
    struct run_world *world = *state;
    publish(world, "base:latest");
    json_decref(run_world_job_ok(world, "run.reset", "r1", params));
    assert_reset(world);
    run_world_write(world, "run/runs/r1/rootfs/work", "done");
    publish(world, "base:latest");
    cleanup_fd int lock = run_lock_idle(world->node, "r1", NULL);
    assert_int_equal(run_settle(world->node, "r1", false, NULL, NULL, NULL), 0);
    assert_false(run_world_exists(world, "data/runs/r1/upper/work"));
    assert_int_equal(run_settle(world->node, "r1", false, NULL, NULL, NULL), 0);
}

/* When its image goes before it has its place, the run stays what it was. */
static void test_an_exchange_whose_image_is_gone(void **state)
{
    struct run_world *world = *state;
    cleanup_free char *other = run_world_image(world, "other:latest", "b", 3);
    publish(world, "other:latest");
    assert_int_equal(catalog_image_remove(world->node->catalog, other, NULL), 0);
    json_decref(run_world_job_ok(world, "run.mount", "r1", params));
    run_world_assert_ready(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    assert_false(run_world_exists(world, "data/runs/.next-r1"));
}

static void test_steps_of_the_exchange(void **state)
{
    struct run_world *world = *state;
    struct node *node = world->node;
    struct err err = ERR_INIT;
    char temp[32];
    cleanup_catalog_run struct catalog_run run = {0};
    cleanup_catalog_image struct catalog_image image = {0};
    assert_int_equal(run_find(node, "r1", &run, NULL), 1);
    assert_int_equal(catalog_image_get(node->catalog, run.image, &image, NULL), 0);
    const struct run_switch wanted = {.id = "r1", .image = &image, .job = "j-1"};
    assert_int_equal(run_switch_finish(node, "r1", NULL), 0);
    assert_int_equal(run_switch_is_done(node, "r1", "j-1", NULL), 0);
    assert_int_equal(run_switch_make(node, &wanted, temp, NULL), 0);
    assert_int_equal(run_switch_publish(node, "r1", temp, &err), -EBUSY); /* it is mounted */
    run_world_unmount(world, "r1");
    assert_int_equal(run_switch_publish(node, "r1", temp, NULL), 0);
    assert_int_equal(run_switch_drop(node, "r1", NULL), 0);
    assert_int_equal(run_switch_drop(node, "r1", NULL), 0);
    run_world_assert_file(world, "data/runs/r1/upper/work", "done");
    assert_int_equal(run_switch_make(node, &wanted, temp, NULL), 0);
    assert_int_equal(run_switch_publish(node, "r1", temp, NULL), 0);
    assert_int_equal(run_switch_finish(node, "r1", NULL), 1);
    assert_int_equal(run_switch_finish(node, "r1", NULL), 0);
    assert_int_equal(run_switch_is_done(node, "r1", "j-1", NULL), 1);
    assert_int_equal(run_switch_is_done(node, "r1", "j-2", NULL), 0);
    assert_int_equal(run_switch_is_done(node, "none", "j-1", NULL), 0);
    assert_int_equal(run_mount_again(node, &run, NULL, NULL, NULL), 0);
    assert_reset(world);
    /* A note that is damaged is never acted upon. */
    run_world_write(world, "data/runs/r1/switch.json", "{");
    err_clear(&err);
    assert_true(run_switch_is_done(node, "r1", "j-1", &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

/* A removal takes what was published with it. */
static void test_removal_of_a_half_changed_run(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    assert_int_equal(mkdirat(scratch->fd, "data/runs/.next-r1", 0700), 0);
    run_world_remove(world, "r1");
    run_world_assert_gone(world, "r1");
    assert_false(run_world_exists(world, "data/runs/.next-r1"));
}

#ifdef VARVE_FAULT_POINTS
static const char *const points[] = {"run.switch-unmounted", "run.switch-published",
                                     "run.switch-recorded",  "run.switch-moved",
                                     "run.switch-placed",    "run.switch-mounted"};

/* After each kill the run is one or the other whole, mounted before any job goes on; then it is
 * reset, once: what is written meanwhile stays. */
static void test_killed(void **state)
{
    struct run_world *world = *state;
    for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
        run_world_killed_job(world, "run.reset", "r1", params, points[i / 2], i % 2 == 1);
        run_recover(world->node, NULL, NULL);
        run_world_assert_ready(world, "r1");
        bool old = run_world_exists(world, "run/runs/r1/rootfs/work");
        assert_int_equal(old, i / 2 == 0);
        if (!old)
            run_world_write(world, "run/runs/r1/rootfs/later", "kept");
        run_world_start(world);
        job_fixture_settle(world->node);
        assert_reset(world);
        if (!old)
            run_world_assert_file(world, "run/runs/r1/rootfs/later", "kept");
        run_world_write(world, "run/runs/r1/rootfs/work", "done");
    }
}

static void test_failed(void **state)
{
    struct run_world *world = *state;
    assert_int_equal(setenv("VARVE_FAULT", "run.switch-unmounted=eio:1", 1), 0);
    run_world_job_fails(world, "run.reset", "r1", params, ERR_IO, "run.switch-unmounted");
    run_world_assert_ready(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    /* Behind the durable step the run is what it shall be. */
    assert_int_equal(setenv("VARVE_FAULT", "run.switch-moved=eio:2", 1), 0);
    json_decref(run_world_job_ok(world, "run.reset", "r1", params));
    assert_int_equal(unsetenv("VARVE_FAULT"), 0);
    assert_reset(world);
}
#endif

#define world_test(fn) cmocka_unit_test_setup_teardown(fn, run_world_setup_run, run_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(test_reset),
        world_test(test_refusals),
        world_test(test_a_run_that_cannot_be_unmounted),
        world_test(test_a_run_that_is_not_mounted),
        world_test(test_layers_that_were_deleted),
        world_test(test_an_exchange_that_was_left),
        world_test(test_an_exchange_whose_image_is_gone),
        world_test(test_steps_of_the_exchange),
        world_test(test_removal_of_a_half_changed_run),
#ifdef VARVE_FAULT_POINTS
        world_test(test_killed),
        world_test(test_failed),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
