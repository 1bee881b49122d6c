#include "run.h"

#include "catalog_image.h"
#include "cleanup.h"
#include "run_fixture.h"
#include "tree.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int setup(void **state)
{
    if (run_world_setup(state) != 0)
        return -1;
    free(run_world_image(*state, "base:latest", "a", 2));
    return 0;
}

static void test_reboot(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    run_world_create(world, "r2");
    run_world_write(world, "run/runs/r1/rootfs/work", "one");
    run_world_write(world, "run/runs/r2/rootfs/work", "two");
    run_world_stop(world);
    run_world_reboot(world);
    run_world_start(world);
    run_recover(world->node, NULL, NULL);
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "one");
    run_world_assert_file(world, "run/runs/r2/rootfs/work", "two");
    run_world_assert_ready(world, "r1");
    run_world_assert_ready(world, "r2");
    assert_true(run_world_exists(world, "run/runs/r1/lock"));
    /* A restart without a reboot finds everything as it is. */
    run_world_stop(world);
    run_world_start(world);
    run_recover(world->node, NULL, NULL);
    run_world_assert_ready(world, "r1");
}

/* A sandbox goes on through a restart of the daemon. */
static void test_run_in_use_through_a_restart(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    run_world_write(world, "run/runs/r1/rootfs/work", "one");
    const struct scratch *scratch = run_world_scratch(world);
    cleanup_fd int fd = openat(scratch->fd, "run/runs/r1/rootfs/work", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    run_world_stop(world);
    run_world_start(world);
    run_recover(world->node, NULL, NULL);
    assert_int_equal(pwrite(fd, "two", 3, 0), 3);
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "two");
    run_world_assert_file(world, "data/runs/r1/upper/work", "two");
}

/* I9: what cannot be brought back does not stop the others, and nothing is removed for it. */
static void test_damaged_runs(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    run_world_create(world, "r1");
    run_world_create(world, "r2");
    run_world_create(world, "r3");
    run_world_stop(world);
    run_world_reboot(world);
    assert_int_equal(tree_remove(scratch->fd, "data/runs/r2/upper", NULL), 0);
    assert_int_equal(mkdirat(scratch->fd, "data/runs/unknown", 0700), 0);
    run_world_start(world);
    run_recover(world->node, NULL, NULL);
    run_world_assert_ready(world, "r1");
    run_world_assert_ready(world, "r3");
    assert_string_equal(run_world_state(world, "r2"), "ready");
    assert_false(run_world_is_mounted(world, "r2"));
    assert_false(run_world_exists(world, "data/runs/r2/upper"));
    assert_true(run_world_exists(world, "data/runs/unknown"));
    run_world_remove(world, "r2");
    run_world_assert_gone(world, "r2");
}

/* Mounted layers outlive the daemon, and go with the last run that stands on them. */
static void test_layers_through_a_restart(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    run_world_create(world, "r2");
    int count = run_world_count(world, "run/layers");
    assert_true(count > 0);
    run_world_stop(world);
    assert_int_equal(run_world_count(world, "run/layers"), count);
    run_world_start(world);
    run_recover(world->node, NULL, NULL);
    assert_int_equal(run_world_count(world, "run/layers"), count);
    run_world_remove(world, "r1");
    assert_int_equal(run_world_count(world, "run/layers"), count);
    run_world_assert_ready(world, "r2");
    run_world_remove(world, "r2");
    assert_int_equal(run_world_count(world, "run/layers"), 0);
}

/* What nobody stands on after a start is unmounted; what vanished is mounted again. */
static void test_layers_that_vanished(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    run_world_create(world, "r1");
    int count = run_world_count(world, "run/layers");
    run_world_stop(world);
    cleanup_dir DIR *dir = opendir(scratch_path(scratch, "run/layers"));
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char name[300];
        snprintf(name, sizeof name, "run/layers/%s", entry->d_name);
        if (entry->d_name[0] != '.')
            assert_int_equal(umount2(scratch_path(scratch, name), UMOUNT_NOFOLLOW), 0);
    }
    assert_int_equal(mkdirat(scratch->fd, "run/layers/stray", 0700), 0);
    assert_int_equal(mount("tmpfs", scratch_path(scratch, "run/layers/stray"), "tmpfs", 0, NULL),
                     0);
    run_world_start(world);
    run_recover(world->node, NULL, NULL);
    assert_int_equal(run_world_count(world, "run/layers"), count);
    run_world_assert_ready(world, "r1");
    run_world_create(world, "r2");
    run_world_assert_ready(world, "r2");
}

/* A mount that is there needs neither the files of its layers nor their conversion. */
static void test_layers_that_were_deleted_under_a_mount(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    run_world_write(world, "run/runs/r1/rootfs/work", "done");
    int count = run_world_count(world, "data/layers");
    run_world_delete_layers(world);
    run_world_stop(world);
    run_world_start(world);
    run_recover(world->node, NULL, NULL);
    assert_int_equal(run_world_count(world, "data/layers"), 0);
    run_world_assert_ready(world, "r1");
    run_world_stop(world);
    run_world_reboot(world);
    run_world_start(world);
    run_recover(world->node, NULL, NULL);
    assert_int_equal(run_world_count(world, "data/layers"), count);
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
}

static int stop_at_once(void *arg, struct err *err)
{
    (void)arg;
    return err_fail(err, ERR_INTERRUPTED, "told to stop");
}

/* A daemon that is told to stop while it starts converts nothing more. */
static void test_a_start_that_is_stopped(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    run_world_delete_layers(world);
    run_world_stop(world);
    run_world_reboot(world);
    run_world_start(world);
    run_recover(world->node, stop_at_once, NULL);
    assert_false(run_world_is_mounted(world, "r1"));
    assert_int_equal(run_world_count(world, "data/layers"), 0);
    assert_string_equal(run_world_state(world, "r1"), "ready");
    run_recover(world->node, NULL, NULL);
    run_world_assert_ready(world, "r1");
}

static void add_row(struct run_world *world, const char *id, const char *job_id)
{
    struct catalog_image *images = NULL;
    size_t count = 0;
    assert_int_equal(catalog_image_list(world->node->catalog, &images, &count, NULL), 0);
    assert_int_equal(count, 1);
    struct catalog_run run = {.id = (char *)id,
                              .image = images[0].digest,
                              .image_name = (char *)"base",
                              .upper = (char *)"plain",
                              .job_id = (char *)job_id};
    assert_int_equal(catalog_run_add(world->node->catalog, &run, NULL), 0);
    catalog_image_free(&images[0]);
    free(images);
}

/* A creation whose job has ended without being able to undo it. */
static void test_left_over_creation(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    add_row(world, "r1", "j-gone");
    assert_int_equal(mkdirat(scratch->fd, "data/runs/r1", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "data/runs/r1/upper", 0700), 0);
    run_recover(world->node, NULL, NULL);
    run_world_assert_gone(world, "r1");
    /* A new request does the same. */
    add_row(world, "r1", "j-gone");
    run_world_create(world, "r1");
    run_world_assert_ready(world, "r1");
}

static void test_left_over_removal(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    assert_int_equal(catalog_run_set_state(world->node->catalog, "r1", CATALOG_RUN_REMOVING, NULL),
                     0);
    run_recover(world->node, NULL, NULL);
    run_world_assert_gone(world, "r1");
}

/* A removal that a process stands in the way of waits for the next time. */
static void test_left_over_removal_in_use(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    pid_t pid = run_world_process(world, "r1", false);
    assert_int_equal(catalog_run_set_state(world->node->catalog, "r1", CATALOG_RUN_REMOVING, NULL),
                     0);
    run_recover(world->node, NULL, NULL);
    assert_string_equal(run_world_state(world, "r1"), "removing");
    assert_true(run_world_is_mounted(world, "r1"));
    run_world_end(pid);
    run_recover(world->node, NULL, NULL);
    run_world_assert_gone(world, "r1");
}

#ifdef VARVE_FAULT_POINTS
/* A ready run is mounted again whatever job of it goes on: a snapshot, or a removal that may fail,
 * would leave it as it is. */
static void test_ready_run_with_a_job(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    run_world_killed_job(world, "run.rm", "r1", "{'id':'r1'}", "run.unmounted", true);
    run_recover(world->node, NULL, NULL);
    assert_string_equal(run_world_state(world, "r1"), "ready");
    run_world_assert_ready(world, "r1");
    run_world_start(world);
    job_fixture_settle(world->node);
    run_world_assert_gone(world, "r1");
}

/* A creation whose job is unfinished belongs to the job. */
static void test_creations_with_jobs_are_left_alone(void **state)
{
    struct run_world *world = *state;
    run_world_killed_job(world, "run.create", "r1", "{'id':'r1','image':'base','plain_upper':true}",
                         "run.dirs-made", false);
    run_recover(world->node, NULL, NULL);
    assert_string_equal(run_world_state(world, "r1"), "creating");
    assert_true(run_world_exists(world, "data/runs/r1/upper"));
    run_world_start(world);
    job_fixture_settle(world->node);
    run_world_assert_ready(world, "r1");
}
#endif

static void test_document_with_damaged_config(void **state)
{
    struct run_world *world = *state;
    struct catalog_run run = {0};
    struct catalog_image image = {0};
    struct digest digest;
    struct err err = ERR_INIT;
    run_world_create(world, "r1");
    assert_int_equal(catalog_run_get(world->node->catalog, "r1", &run, NULL), 0);
    json_t *json = run_json(world->node, &run, NULL);
    assert_non_null(json);
    json_decref(json);
    assert_int_equal(catalog_image_get(world->node->catalog, run.image, &image, NULL), 0);
    assert_int_equal(digest_parse(image.config_digest, &digest, NULL), 0);
    assert_int_equal(blobs_remove(world->node->blobs, &digest, NULL), 0);
    assert_null(run_json(world->node, &run, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "r1"));
    catalog_image_free(&image);
    catalog_run_free(&run);
}

/* Between the list and the look at each. */
static void test_documents_of_a_run_that_was_removed(void **state)
{
    struct run_world *world = *state;
    run_world_create(world, "r1");
    struct catalog_run runs[3] = {{0}};
    json_t *documents[3] = {NULL};
    struct err failures[3] = {ERR_INIT, ERR_INIT, ERR_INIT};
    struct err err = ERR_INIT;
    assert_int_equal(catalog_run_get(world->node->catalog, "r1", &runs[0], NULL), 0);
    runs[1] = runs[0];
    runs[1].id = (char *)"gone";
    runs[1].volume = (char *)"v-gone";
    runs[2] = runs[0]; /* there, and its volume's row is not */
    runs[2].volume = (char *)"v-gone";
    assert_int_equal(run_json_each(world->node, runs, 3, documents, failures, &err), 0);
    assert_non_null(documents[0]);
    assert_null(documents[1]);
    assert_int_equal(failures[1].code, ERR_NONE);
    assert_null(documents[2]);
    assert_int_equal(failures[2].code, ERR_NOT_FOUND);
    assert_null(run_json(world->node, &runs[1], &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    json_decref(documents[0]);
    catalog_run_free(&runs[0]);
}

#define world_test(fn) cmocka_unit_test_setup_teardown(fn, setup, run_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(test_reboot),
        world_test(test_run_in_use_through_a_restart),
        world_test(test_damaged_runs),
        world_test(test_layers_through_a_restart),
        world_test(test_layers_that_vanished),
        world_test(test_layers_that_were_deleted_under_a_mount),
        world_test(test_a_start_that_is_stopped),
        world_test(test_left_over_creation),
        world_test(test_left_over_removal),
        world_test(test_left_over_removal_in_use),
        world_test(test_document_with_damaged_config),
        world_test(test_documents_of_a_run_that_was_removed),
#ifdef VARVE_FAULT_POINTS
        world_test(test_ready_run_with_a_job),
        world_test(test_creations_with_jobs_are_left_alone),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
