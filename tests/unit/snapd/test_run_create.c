#include "run.h"

#include "catalog_event.h"
#include "catalog_image.h"
#include "cleanup.h"
#include "run_fixture.h"
#include "run_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    assert_non_null(text);
    return text;
}

static void assert_document(const struct run_world *world, const json_t *run, const char *digest)
{
    const struct scratch *scratch = run_world_scratch(world);
    assert_string_equal(text_of(run, "id"), "r1");
    assert_string_equal(text_of(run, "state"), "ready");
    assert_string_equal(text_of(run, "image"), digest);
    assert_string_equal(text_of(run, "image_name"), "base");
    assert_string_equal(text_of(run, "rootfs"), scratch_path(scratch, "run/runs/r1/rootfs"));
    assert_string_equal(text_of(run, "lock"), scratch_path(scratch, "run/runs/r1/lock"));
    assert_string_equal(text_of(run, "upper"), "plain");
    assert_true(json_is_true(json_object_get(run, "mounted")));
    assert_true(json_is_null(json_object_get(run, "token")));
    assert_int_equal(strlen(text_of(run, "created")), 20);
    assert_string_equal(text_of(run, "cwd"), "/srv/app");
    const json_t *env = json_object_get(run, "env");
    assert_int_equal(json_array_size(env), 2);
    assert_string_equal(json_string_value(json_array_get(env, 1)), "LANG=C");
}

static void test_create(void **state)
{
    struct run_world *world = *state;
    cleanup_free char *digest = run_world_image(world, "base:latest", "a", 3);
    cleanup_json json_t *run = run_world_job_ok(world, "run.create", "r1",
                                                "{'id':'r1','image':'base','plain_upper':true}");
    assert_document(world, run, digest);
    run_world_assert_ready(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/only-2", "2");
    int64_t events = 0;
    assert_int_equal(catalog_event_count(world->node->catalog, "run:r1", &events, NULL), 0);
    assert_int_equal(events, 1);
    const struct scratch *scratch = run_world_scratch(world);
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, "run/runs/r1/lock", &st, 0), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
}

/* The upper's root shows as the root of the merged tree. */
static void test_root_has_the_attributes_of_the_image(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    free(run_world_image(world, "base:latest", "a", 2));
    run_world_create(world, "r1");
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, "run/runs/r1/rootfs", &st, 0), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 02751);
    assert_int_equal(st.st_uid, 7);
    assert_int_equal(st.st_gid, 8);
    assert_int_equal(st.st_mtim.tv_sec, 1000000000);
    assert_int_equal(st.st_mtim.tv_nsec, 123456789);
    char value[16] = "";
    const char *rootfs = scratch_path(scratch, "run/runs/r1/rootfs");
    assert_int_equal(getxattr(rootfs, "user.note", value, sizeof value), 4);
    assert_memory_equal(value, "kept", 4);
    const char *upper = scratch_path(scratch, "data/runs/r1/upper");
    assert_int_equal(getxattr(upper, "trusted.overlay.opaque", value, sizeof value), -1);
}

static void test_id_is_made_of_the_job(void **state)
{
    struct run_world *world = *state;
    free(run_world_image(world, "base:latest", "a", 1));
    struct catalog_job row =
        run_world_job(world, "run.create", NULL, "{'image':'base','plain_upper':true}");
    assert_int_equal(row.state, CATALOG_JOB_DONE);
    cleanup_json json_t *run = json_loads(row.result, 0, NULL);
    const char *id = text_of(run, "id");
    assert_int_equal(strlen(id), 14);
    assert_memory_equal(id, "r-", 2);
    assert_string_equal(id + 2, row.id + 2);
    run_world_assert_ready(world, id);
    catalog_job_free(&row);
}

static void test_repeating(void **state)
{
    struct run_world *world = *state;
    cleanup_free char *digest = run_world_image(world, "base:latest", "a", 2);
    free(run_world_image(world, "other:latest", "b", 1));
    cleanup_json json_t *first = run_world_job_ok(
        world, "run.create", "r1", "{'id':'r1','image':'base','plain_upper':true,'token':5}");
    assert_int_equal(json_integer_value(json_object_get(first, "token")), 5);
    run_world_write(world, "run/runs/r1/rootfs/work", "done");
    char by_digest[256];
    snprintf(by_digest, sizeof by_digest, "{'id':'r1','image':'%s','plain_upper':true,'token':5}",
             digest);
    const char *const same[] = {"{'id':'r1','image':'base','plain_upper':true}",
                                "{'id':'r1','image':'base:latest','plain_upper':true}", by_digest};
    for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
        cleanup_json json_t *again = run_world_job_ok(world, "run.create", "r1", same[i]);
        assert_true(json_equal(first, again));
        run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    }
    run_world_job_fails(world, "run.create", "r1", "{'id':'r1','image':'other','plain_upper':true}",
                        ERR_EXISTS, "another image");
    run_world_job_fails(world, "run.create", "r1",
                        "{'id':'r1','image':'base','plain_upper':true,'token':6}", ERR_EXISTS,
                        "another fencing token");
    run_world_job_fails(world, "run.create", "r1",
                        "{'id':'r1','image':'nowhere','plain_upper':true}", ERR_EXISTS,
                        "another image");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    run_world_assert_ready(world, "r1");
}

/* The name went on to another image; the run stays what it is. */
static void test_repeating_after_the_name_moved(void **state)
{
    struct run_world *world = *state;
    free(run_world_image(world, "base:latest", "a", 2));
    run_world_create(world, "r1");
    free(run_world_image(world, "base:latest", "b", 2));
    run_world_job_fails(world, "run.create", "r1", "{'id':'r1','image':'base','plain_upper':true}",
                        ERR_EXISTS, "another image");
    run_world_assert_ready(world, "r1");
}

static void test_repeating_mounts_again(void **state)
{
    struct run_world *world = *state;
    free(run_world_image(world, "base:latest", "a", 2));
    run_world_create(world, "r1");
    run_world_write(world, "run/runs/r1/rootfs/work", "done");
    run_world_stop(world);
    run_world_reboot(world);
    run_world_start(world);
    assert_false(run_world_is_mounted(world, "r1"));
    run_world_create(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/work", "done");
    run_world_assert_ready(world, "r1");
}

/* Only one at a time brings a mount back. */
static void test_repeating_while_another_has_the_lock(void **state)
{
    struct run_world *world = *state;
    free(run_world_image(world, "base:latest", "a", 2));
    run_world_create(world, "r1");
    run_world_unmount(world, "r1");
    int lock = run_lock_idle(world->node, "r1", NULL);
    assert_true(lock >= 0);
    run_world_job_fails(world, "run.create", "r1", "{'id':'r1','image':'base','plain_upper':true}",
                        ERR_CONFLICT, "run r1 is locked");
    assert_false(run_world_is_mounted(world, "r1"));
    close(lock);
    run_world_create(world, "r1");
    run_world_assert_ready(world, "r1");
}

static void test_bad_requests(void **state)
{
    struct run_world *world = *state;
    free(run_world_image(world, "base:latest", "a", 1));
    static const struct {
        const char *params;
        enum err_code code;
        const char *words;
    } cases[] = {
        {"{'id':'../r1','image':'base','plain_upper':true}", ERR_INVALID, "run ID"},
        {"{'id':'R1','image':'base','plain_upper':true}", ERR_INVALID, "run ID"},
        {"{'id':'r1'}", ERR_DAMAGED, "image"},
        {"{'id':'r1','image':5}", ERR_DAMAGED, "image"},
        {"{'id':'r1','image':'base','plain_upper':true,'token':-1}", ERR_INVALID, "token"},
        {"{'id':'r1','image':'base','size':1}", ERR_INVALID, "67108864"},
        {"{'id':'r1','image':'base','plain_upper':true,'size':67108864}", ERR_INVALID, "size"},
        {"{'id':'r1','image':'base','plain_upper':1}", ERR_DAMAGED, "plain_upper"},
        {"{'id':'r1','image':'UPPER/case','plain_upper':true}", ERR_INVALID, "UPPER"},
        {"{'id':'r1','image':'not-there','plain_upper':true}", ERR_NOT_FOUND, "not-there"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        run_world_job_fails(world, "run.create", "r1", cases[i].params, cases[i].code,
                            cases[i].words);
    run_world_assert_gone(world, "r1");
}

/* I4: what the catalog does not know is neither shown to a new run nor removed. */
static void test_unknown_directory(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    free(run_world_image(world, "base:latest", "a", 1));
    assert_int_equal(mkdirat(scratch->fd, "data/runs/r1", 0700), 0);
    run_world_write(world, "data/runs/r1/thesis", "text");
    run_world_job_fails(world, "run.create", "r1", "{'id':'r1','image':'base','plain_upper':true}",
                        ERR_EXISTS, "data/runs/r1");
    run_world_assert_file(world, "data/runs/r1/thesis", "text");
    assert_string_equal(run_world_state(world, "r1"), "none");
}

static void test_pull(void **state)
{
    struct run_world *world = *state;
    run_world_remote_image(world, "images/far", "v1", "far", 2);
    cleanup_json json_t *run = run_world_job_ok(world, "run.create", "r1",
                                                "{'id':'r1','image':'far:v1','plain_upper':true}");
    assert_string_equal(text_of(run, "image_name"), "far:v1");
    run_world_assert_ready(world, "r1");
    /* Now it is here. */
    run_world_job_fails(world, "run.create", "r1",
                        "{'id':'r1','image':'far:v2','plain_upper':true}", ERR_EXISTS,
                        "another image");
}

static void test_image_in_use_is_kept(void **state)
{
    struct run_world *world = *state;
    struct err err = ERR_INIT;
    cleanup_free char *digest = run_world_image(world, "base:latest", "a", 1);
    run_world_create(world, "r1");
    assert_true(catalog_image_remove(world->node->catalog, digest, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    run_world_remove(world, "r1");
    assert_int_equal(catalog_image_remove(world->node->catalog, digest, NULL), 0);
}

/* Layers that an image has several times, and a root that no layer lists. */
static void test_odd_layers(void **state)
{
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    free(run_world_odd_image(world, "base:latest", 6));
    run_world_create(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/only-1", "odd");
    run_world_assert_file(world, "run/runs/r1/rootfs/only-5", "odd");
    assert_int_equal(run_world_count(world, "run/runs/r1/rootfs"), 3);
    assert_int_equal(run_world_count(world, "run/layers"), 4);
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, "run/runs/r1/rootfs", &st, 0), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0755);
    assert_int_equal(st.st_uid, 0);
    assert_int_equal(st.st_gid, 0);
    assert_int_equal(st.st_mtim.tv_sec, 0);
    const char *rootfs = scratch_path(scratch, "run/runs/r1/rootfs");
    assert_int_equal(getxattr(rootfs, "trusted.varve.implied", NULL, 0), -1);
    run_world_remove(world, "r1");
    assert_int_equal(run_world_count(world, "run/layers"), 0);
}

static void test_127_layers(void **state)
{
    struct run_world *world = *state;
    free(run_world_image(world, "base:latest", "a", 127));
    run_world_create(world, "r1");
    run_world_assert_ready(world, "r1");
    run_world_assert_file(world, "run/runs/r1/rootfs/only-126", "126");
}

static void test_many_at_once(void **state)
{
    struct run_world *world = *state;
    enum {
        COUNT = 16
    };
    free(run_world_image(world, "base:latest", "a", 3));
    char *jobs[COUNT];
    for (int i = 0; i < COUNT; i++) {
        char object[32];
        char id[16];
        snprintf(id, sizeof id, "r%d", i);
        snprintf(object, sizeof object, "run:%s", id);
        cleanup_json json_t *params =
            json_pack("{s:s,s:s,s:b}", "id", id, "image", "base", "plain_upper", true);
        struct job_request request = {.kind = "run.create", .object = object, .params = params};
        assert_int_equal(engine_submit(world->engine, &request, &jobs[i], NULL), 0);
    }
    for (int i = 0; i < COUNT; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%d", i);
        assert_int_equal(engine_wait(world->engine, jobs[i], 60, NULL), 1);
        run_world_assert_ready(world, id);
        free(jobs[i]);
    }
}

#ifdef VARVE_FAULT_POINTS
static const char *const points[] = {"run.recorded", "run.dirs-made", "run.mounted"};

/* kill -9 at any point: the job goes on at the next start, also after a reboot. */
static void test_killed(void **state)
{
    struct run_world *world = *state;
    free(run_world_image(world, "base:latest", "a", 2));
    for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
        char id[16];
        char params[128];
        snprintf(id, sizeof id, "r%zu", i);
        snprintf(params, sizeof params, "{'id':'%s','image':'base','plain_upper':true}", id);
        run_world_killed_job(world, "run.create", id, params, points[i / 2], i % 2 == 1);
        assert_string_equal(run_world_state(world, id), "creating");
        run_world_start(world);
        run_recover(world->node, NULL, NULL);
        job_fixture_settle(world->node);
        run_world_assert_ready(world, id);
        run_world_remove(world, id);
        run_world_assert_gone(world, id);
    }
}

/* A failure at any point leaves nothing behind. */
static void test_failed(void **state)
{
    struct run_world *world = *state;
    free(run_world_image(world, "base:latest", "a", 2));
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s=enospc:%zu", points[i], i + 1);
        /* The hits of all points are counted together, so each is armed for the next one. */
        assert_int_equal(setenv("VARVE_FAULT", fault, 1), 0);
        run_world_job_fails(world, "run.create", "r1",
                            "{'id':'r1','image':'base','plain_upper':true}", ERR_NO_SPACE,
                            points[i]);
        assert_int_equal(unsetenv("VARVE_FAULT"), 0);
        run_world_assert_gone(world, "r1");
    }
    run_world_create(world, "r1");
    run_world_assert_ready(world, "r1");
}
#endif

#define world_test(fn) cmocka_unit_test_setup_teardown(fn, run_world_setup, run_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(test_create),
        world_test(test_root_has_the_attributes_of_the_image),
        world_test(test_id_is_made_of_the_job),
        world_test(test_repeating),
        world_test(test_repeating_after_the_name_moved),
        world_test(test_repeating_mounts_again),
        world_test(test_repeating_while_another_has_the_lock),
        world_test(test_bad_requests),
        world_test(test_unknown_directory),
        world_test(test_pull),
        world_test(test_image_in_use_is_kept),
        world_test(test_odd_layers),
        world_test(test_127_layers),
        world_test(test_many_at_once),
#ifdef VARVE_FAULT_POINTS
        world_test(test_killed),
        world_test(test_failed),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
