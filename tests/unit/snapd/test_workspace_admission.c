#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "workspace_admission.h"
#include "workspace_claim.h"

#define GIB ((uint64_t)1 << 30)

static void test_the_bound(void **state)
{
    (void)state;
    static const struct {
        struct workspace_admission admission;
        bool fits;
    } cases[] = {
        /* wanted, unwritten, free, overcommit */
        {{4 * GIB, 0, GIB, 4}, true},
        {{4 * GIB + 1, 0, GIB, 4}, false},
        {{GIB, 3 * GIB, GIB, 4}, true},
        {{GIB, 3 * GIB + 1, GIB, 4}, false},
        {{0, 4 * GIB, GIB, 4}, true},
        {{1, 0, 0, 4}, false},
        {{0, 0, 0, 4}, true},
        {{GIB, 0, UINT64_MAX, 1000}, true},
        {{UINT64_MAX, UINT64_MAX, UINT64_MAX, 1}, true},
        {{UINT64_MAX, 1, UINT64_MAX - 1, 1}, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        int rc = workspace_admission_check(&cases[i].admission, &err);
        if ((rc == 0) != cases[i].fits)
            fail_msg("case %zu: %d", i, rc);
        if (rc < 0)
            assert_int_equal(err.code, ERR_NO_SPACE);
    }
}

static void test_the_numbers_are_named(void **state)
{
    (void)state;
    const struct workspace_admission admission = {10 * GIB, 5 * GIB / 2, 3 * GIB, 4};
    struct err err = ERR_INIT;
    assert_true(workspace_admission_check(&admission, &err) < 0);
    static const char *const words[] = {"10.0 GiB", "2.5 GiB", "12.5 GiB", "4 times the 3.0 GiB",
                                        "12.0 GiB"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (!strstr(err.text, words[i]))
            fail_msg("%s: %s", words[i], err.text);
    assert_non_null(strstr(err.hint, "[volume] overcommit"));
}

static uint64_t *pending(struct workspace_world *world)
{
    return workspaces_pending(world->node->workspaces);
}

static void test_what_is_under_way_counts(void **state)
{
    struct workspace_world *world = *state;
    struct err err = ERR_INIT;
    assert_int_equal(workspace_admission_reserve(world->node, GIB, &err), 0);
    assert_int_equal(*pending(world), GIB);
    workspace_admission_release(world->node, GIB);
    assert_int_equal(*pending(world), 0);
    *pending(world) = UINT64_MAX;
    assert_true(workspace_admission_reserve(world->node, GIB, &err) < 0);
    *pending(world) = 0;
}

/* What is stored already is on the disk: it counts no more. */
static void test_what_is_stored_counts_no_more(void **state)
{
    struct workspace_world *world = *state;
    char params[60];
    struct err err = ERR_INIT;
    struct workspace_settings *settings = &world->node->volume;
    /* So large that the free space of the disk is not what decides. */
    snprintf(params, sizeof params, "{'size': %lld}", (long long)(1024 * GIB));
    workspace_world_do(world, "workspace.create", "w", params);
    settings->overcommit = 0;
    assert_true(workspace_admission_reserve(world->node, 1, &err) < 0);
    assert_non_null(strstr(err.text, "1.0 TiB"));
    err_clear(&err);
    fake_volumes_only()->local = 1024 * GIB - 5;
    assert_true(workspace_admission_reserve(world->node, 1, &err) < 0);
    assert_non_null(strstr(err.text, "5 bytes"));
    err_clear(&err);
    fake_volumes_only()->size = 4096 * GIB; /* a worker's word */
    assert_true(workspace_admission_reserve(world->node, 1, &err) < 0);
    assert_non_null(strstr(err.text, "5 bytes"));
    err_clear(&err);
    fake_volumes_only()->local = 1025 * GIB; /* metadata of the host, or a fault: not negative */
    assert_true(workspace_admission_reserve(world->node, 1, &err) < 0);
    assert_non_null(strstr(err.text, "0 bytes that volumes"));
}

/* What a view shows is on the disk: it is as much again at most, whatever the size. */
static void test_a_view_takes_what_its_source_has(void **state)
{
    struct workspace_world *world = *state;
    char params[60];
    struct statvfs fs;
    world->node->volume.overcommit = 6;
    assert_int_equal(fstatvfs(world->node->volumes_fd, &fs), 0);
    const uint64_t size = 4 * (uint64_t)fs.f_bavail * fs.f_frsize; /* not twice */
    snprintf(params, sizeof params, "{'size': %llu}", (unsigned long long)size);
    workspace_world_do(world, "workspace.create", "w", params);
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    fake_volumes_only()->local = 5000;
    const char *id = fake_volumes_only()->id;
    assert_int_equal(workspace_admission_need(world->node, id, size), 5000);
    assert_int_equal(workspace_admission_need(world->node, id, 4000), 4000);
    assert_int_equal(workspace_admission_need(world->node, NULL, size), size);
    /* It is admitted, and then these volumes cannot be cut. */
    workspace_world_fails(world, "workspace.now", "x", "{'workspace': 'w', 'path': '%s'}",
                          ERR_UNSUPPORTED, "know no checkpoints");
    assert_int_equal(*pending(world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bound),
        cmocka_unit_test(test_the_numbers_are_named),
        with_workspaces(test_what_is_under_way_counts),
        with_workspaces(test_what_is_stored_counts_no_more),
        with_workspaces(test_a_view_takes_what_its_source_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
