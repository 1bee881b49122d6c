#include "run.h"

#include "catalog_event.h"
#include "cleanup.h"
#include "run_fixture.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char rm_params[] = "{'id':'r1'}";

static void test_remove(void **state)
{
    struct run_world *world = *state;
    cleanup_json json_t *result = run_world_job_ok(world, "run.rm", "r1", rm_params);
    assert_string_equal(json_string_value(json_object_get(result, "id")), "r1");
    run_world_assert_gone(world, "r1");
    int64_t events = 0;
    assert_int_equal(catalog_event_count(world->node->catalog, "run:r1", &events, NULL), 0);
    assert_int_equal(events, 2);
    run_world_job_fails(world, "run.rm", "r1", rm_params, ERR_NOT_FOUND, "r1");
    /* The same ID is a new run with nothing of the old one. */
    run_world_create(world, "r1");
    assert_false(run_world_exists(world, "run/runs/r1/rootfs/work"));
}

static void test_bad_requests(void **state)
{
    struct run_world *world = *state;
    run_world_job_fails(world, "run.rm", "x", "{'id':'../runs/r1'}", ERR_INVALID, "run ID");
    run_world_job_fails(world, "run.rm", "x", "{}", ERR_DAMAGED, "id");
    run_world_job_fails(world, "run.rm", "x", "{'id':'x'}", ERR_NOT_FOUND, "x");
    assert_false(run_world_exists(world, "run/runs/x"));
    run_world_assert_ready(world, "r1");
}

static void check_in_use(struct run_world *world, bool lock)
{
    char words[64];
    pid_t pid = run_world_process(world, "r1", lock);
    snprintf(words, sizeof words, "process %d", pid);
    run_world_job_fails(world, "run.rm", "r1", rm_params, ERR_CONFLICT, words);
    run_world_assert_ready(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    run_world_end(pid);
    run_world_remove(world, "r1");
    run_world_assert_gone(world, "r1");
}

static void test_in_use_by_a_process(void **state)
{
    check_in_use(*state, false);
}

static void test_locked_by_an_exec(void **state)
{
    check_in_use(*state, true);
}

static void test_something_is_mounted_inside(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    assert_int_equal(mkdirat(scratch->fd, "run/runs/r1/rootfs/m", 0700), 0);
    const char *inside = scratch_path(scratch, "run/runs/r1/rootfs/m");
    assert_int_equal(mount("tmpfs", inside, "tmpfs", 0, NULL), 0);
    run_world_job_fails(world, "run.rm", "r1", rm_params, ERR_CONFLICT, inside);
    run_world_assert_ready(world, "r1");
    assert_int_equal(umount(inside), 0);
    run_world_remove(world, "r1");
    run_world_assert_gone(world, "r1");
}

static void test_idle_lock(void **state)
{
    struct run_world *world = *state;
    struct err err = ERR_INIT;
    int first = run_lock_idle(world->node, "r1", &err);
    assert_true(first >= 0);
    assert_true(fcntl(first, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(run_lock_idle(world->node, "r1", &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "r1"));
    assert_string_not_equal(err.hint, "");
    run_world_job_fails(world, "run.rm", "r1", rm_params, ERR_CONFLICT, "r1");
    close(first);
    close(run_lock_idle(world->node, "r1", NULL));
    err_clear(&err);
    assert_int_equal(run_lock_idle(world->node, "none", &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_false(run_world_exists(world, "run/runs/none"));
    err_clear(&err);
    assert_int_equal(run_lock_idle(world->node, "../r1", &err), -EINVAL);
    run_world_remove(world, "r1");
}

/* Two processes are told of, and a lock file that somebody exchanged is not trusted. */
static void test_idle_lock_details(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    struct err err = ERR_INIT;
    pid_t a = run_world_process(world, "r1", false);
    pid_t b = run_world_process(world, "r1", false);
    assert_int_equal(run_lock_idle(world->node, "r1", &err), -EBUSY);
    assert_non_null(strstr(err.text, "and 1 more"));
    assert_non_null(strstr(err.text, "(test_run_rm)"));
    run_world_end(a);
    run_world_end(b);
    pid_t holder = run_world_process(world, "r1", true);
    assert_int_equal(unlinkat(scratch->fd, "run/runs/r1/lock", 0), 0);
    close(run_lock_idle(world->node, "r1", NULL));
    run_world_end(holder);
    assert_int_equal(unlinkat(scratch->fd, "run/runs/r1/lock", 0), 0);
    assert_int_equal(symlinkat("/etc/passwd", scratch->fd, "run/runs/r1/lock"), 0);
    err_clear(&err);
    assert_true(run_lock_idle(world->node, "r1", &err) < 0);
    assert_int_equal(err.code, ERR_IO);
}

static void test_open_upper(void **state)
{
    struct run_world *world = *state;
    struct err err = ERR_INIT;
    cleanup_fd int fd = run_open_upper(world->node, "r1", NULL);
    assert_true(fd >= 0);
    assert_int_equal(faccessat(fd, "work", F_OK, 0), 0);
    assert_int_equal(run_open_upper(world->node, "none", &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    err_clear(&err);
    assert_int_equal(run_open_upper(world->node, "r1/../r1", &err), -EINVAL);
    const struct scratch *scratch = run_world_scratch(world);
    assert_int_equal(mkdirat(scratch->fd, "data/runs/link", 0700), 0);
    assert_int_equal(symlinkat("/", scratch->fd, "data/runs/link/upper"), 0);
    err_clear(&err);
    assert_true(run_open_upper(world->node, "link", &err) < 0);
    assert_int_equal(err.code, ERR_IO);
}

#ifdef VARVE_FAULT_POINTS
static const char *const points[] = {"run.unmounted", "run.marked-removing", "run.dirs-removed"};

static void test_killed(void **state)
{
    struct run_world *world = *state;
    for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
        run_world_killed_job(world, "run.rm", "r1", rm_params, points[i / 2], i % 2 == 1);
        assert_string_equal(run_world_state(world, "r1"), i / 2 == 0 ? "ready" : "removing");
        run_recover(world->node, NULL, NULL);
        run_world_start(world);
        job_fixture_settle(world->node);
        run_world_assert_gone(world, "r1");
        run_world_create(world, "r1");
    }
}

/* Killed after everything but the job's own end: the repeated job finds nothing and is done. */
static void test_killed_at_the_end(void **state)
{
    struct run_world *world = *state;
    run_world_killed_job(world, "run.rm", "r1", rm_params, "job.before-finish", false);
    run_world_start(world);
    job_fixture_settle(world->node);
    run_world_assert_gone(world, "r1");
    struct catalog_job *jobs = NULL;
    size_t count = 0;
    assert_int_equal(catalog_job_list(world->node->catalog, false, &jobs, &count, NULL), 0);
    assert_int_equal(jobs[0].state, CATALOG_JOB_DONE);
    assert_int_equal(jobs[0].attempt, 2);
    for (size_t i = 0; i < count; i++)
        catalog_job_free(&jobs[i]);
    free(jobs);
}

/* A removal that fails early leaves a usable run; one that fails late can only be finished. */
static void test_failed(void **state)
{
    struct run_world *world = *state;
    assert_int_equal(setenv("VARVE_FAULT", "run.unmounted=eio:1", 1), 0);
    run_world_job_fails(world, "run.rm", "r1", rm_params, ERR_IO, "run.unmounted");
    run_world_assert_ready(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    assert_int_equal(setenv("VARVE_FAULT", "run.marked-removing=eio:2", 1), 0);
    run_world_job_fails(world, "run.rm", "r1", rm_params, ERR_IO, "run.marked-removing");
    assert_int_equal(unsetenv("VARVE_FAULT"), 0);
    assert_string_equal(run_world_state(world, "r1"), "removing");
    run_world_job_fails(world, "run.create", "r1", "{'id':'r1','image':'base','plain_upper':true}",
                        ERR_CONFLICT, "half removed");
    run_world_remove(world, "r1");
    run_world_assert_gone(world, "r1");
}
#endif

#define world_test(fn) cmocka_unit_test_setup_teardown(fn, run_world_setup_run, run_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(test_remove),
        world_test(test_bad_requests),
        world_test(test_in_use_by_a_process),
        world_test(test_locked_by_an_exec),
        world_test(test_something_is_mounted_inside),
        world_test(test_idle_lock),
        world_test(test_idle_lock_details),
        world_test(test_open_upper),
#ifdef VARVE_FAULT_POINTS
        world_test(test_killed),
        world_test(test_killed_at_the_end),
        world_test(test_failed),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
