#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>

#include "workspace_disk.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static void test_what_is_decided(void **state)
{
    (void)state;
    static const struct {
        struct workspace_disk_look look;
        enum workspace_disk_action action;
    } cases[] = {
        /* size, free, reserved, held, has_workspace */
        {{100000 * MIB, 600 * MIB, 0, 0, true}, WORKSPACE_DISK_FILL},
        {{100000 * MIB, 512 * MIB, 0, 0, true}, WORKSPACE_DISK_FILL},
        {{100000 * MIB, 511 * MIB, 0, 0, true}, WORKSPACE_DISK_NOTHING},
        {{100000 * MIB, 600 * MIB, 0, 0, false}, WORKSPACE_DISK_NOTHING},
        {{100000 * MIB, 600 * MIB, 0, 1, true}, WORKSPACE_DISK_FILL},
        {{100000 * MIB, 511 * MIB, 0, 1, true}, WORKSPACE_DISK_NOTHING},
        {{100000 * MIB, 600 * MIB, 256 * MIB, 0, true}, WORKSPACE_DISK_NOTHING},
        {{100000 * MIB, 600 * MIB, 100 * MIB, 0, true}, WORKSPACE_DISK_FILL},
        {{100000 * MIB, 0, 256 * MIB, 1, true}, WORKSPACE_DISK_RELEASE},
        {{100000 * MIB, 255 * MIB, 256 * MIB, 1, true}, WORKSPACE_DISK_RELEASE},
        /* A worker says that it waits, and there is room. */
        {{100000 * MIB, 256 * MIB, 256 * MIB, 1, true}, WORKSPACE_DISK_NOTHING},
        {{100000 * MIB, 50000 * MIB, 256 * MIB, 99, true}, WORKSPACE_DISK_NOTHING},
        {{100000 * MIB, 0, 4096, 1, true}, WORKSPACE_DISK_RELEASE},
        {{100000 * MIB, 600 * MIB, 256 * MIB, 0, false}, WORKSPACE_DISK_RELEASE},
        {{160 * MIB, 20 * MIB, 0, 0, true}, WORKSPACE_DISK_FILL},
        {{160 * MIB, 19 * MIB, 0, 0, true}, WORKSPACE_DISK_NOTHING},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (workspace_disk_decide(&cases[i].look) != cases[i].action)
            fail_msg("case %zu: %d", i, workspace_disk_decide(&cases[i].look));
    assert_int_equal(workspace_disk_reserve_size(160 * MIB), 10 * MIB);
    assert_int_equal(workspace_disk_reserve_size(UINT64_MAX), 256 * MIB);
}

/* On a small file system of its own. */
static int setup(void **state)
{
    int rc = workspace_world_setup(state);
    if (rc < 0)
        return rc;
    struct workspace_world *world = *state;
    workspace_world_stop(world);
    const char *data = workspace_world_path(world, "data");
    if (mount("varve-test", data, "tmpfs", 0, "size=160M,mode=0700") < 0)
        return -1;
    workspace_world_start(world);
    return 0;
}

static void test_a_reserve_comes_and_goes(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_disk_look look = {.has_workspace = true};
    struct err err = ERR_INIT;
    assert_int_equal(workspace_disk_look(world->node, &look, &err), 0);
    assert_int_equal(look.size, 160 * MIB);
    assert_int_equal(look.reserved, 0);
    uint64_t before = look.free;
    assert_int_equal(workspace_disk_decide(&look), WORKSPACE_DISK_FILL);
    assert_int_equal(workspace_disk_act(world->node, &look, WORKSPACE_DISK_FILL, &err), 0);
    assert_int_equal(workspace_disk_look(world->node, &look, &err), 0);
    assert_int_equal(look.reserved, 10 * MIB);
    assert_int_equal(look.free, before - 10 * MIB);
    assert_int_equal(workspace_disk_decide(&look), WORKSPACE_DISK_NOTHING);
    look.held = 1;
    look.free = 0;
    assert_int_equal(workspace_disk_act(world->node, &look, workspace_disk_decide(&look), &err), 0);
    assert_int_equal(workspace_disk_look(world->node, &look, &err), 0);
    assert_int_equal(look.reserved, 0);
    assert_int_equal(look.free, before);
    /* Again: nothing to give back. */
    assert_int_equal(workspace_disk_act(world->node, &look, WORKSPACE_DISK_RELEASE, &err), 0);
}

static void fill_up_to(struct workspace_world *world, uint64_t left)
{
    struct workspace_disk_look look = {0};
    char filler[4200];
    snprintf(filler, sizeof filler, "%s/filler", world->node->data_dir);
    assert_int_equal(workspace_disk_look(world->node, &look, NULL), 0);
    cleanup_fd int fd = open(filler, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fallocate(fd, 0, 0, (off_t)(look.free - left)), 0);
}

/* An unmount is the way out of a full disk. */
static void test_an_unmount_gets_room(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_disk_look look = {.has_workspace = true};
    assert_int_equal(workspace_disk_look(world->node, &look, NULL), 0);
    assert_int_equal(workspace_disk_act(world->node, &look, WORKSPACE_DISK_FILL, NULL), 0);
    workspace_world_do(world, "workspace.create", "w", "{}");
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_int_equal(workspace_disk_look(world->node, &look, NULL), 0);
    assert_int_equal(look.reserved, 10 * MIB);
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    fill_up_to(world, 2 * MIB);
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_int_equal(workspace_disk_look(world->node, &look, NULL), 0);
    assert_int_equal(look.reserved, 0);
    assert_true(look.free >= 10 * MIB);
}

/* And so does an rm, before the first row is written. */
static void test_an_rm_gets_room(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_disk_look look = {.has_workspace = true};
    workspace_world_do(world, "workspace.create", "w", "{}");
    assert_int_equal(workspace_disk_look(world->node, &look, NULL), 0);
    assert_int_equal(workspace_disk_act(world->node, &look, WORKSPACE_DISK_FILL, NULL), 0);
    fill_up_to(world, 2 * MIB);
    workspace_world_do(world, "workspace.rm", "w", "{}");
    assert_int_equal(workspace_disk_look(world->node, &look, NULL), 0);
    assert_int_equal(look.reserved, 0);
}

/* Whatever lies at its name is not taken for it. */
static void test_what_is_no_reserve_is_left_alone(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_disk_look look = {0};
    struct err err = ERR_INIT;
    char reserve[4200];
    snprintf(reserve, sizeof reserve, "%s/volumes-reserve", world->node->data_dir);
    scratch_write(world->scratch, "precious", "abc", 3);
    assert_int_equal(symlink(workspace_world_path(world, "precious"), reserve), 0);
    assert_true(workspace_disk_look(world->node, &look, &err) < 0);
    err_clear(&err);
    assert_true(workspace_disk_act(world->node, &look, WORKSPACE_DISK_RELEASE, &err) < 0);
    struct stat st;
    assert_int_equal(stat(reserve, &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(unlink(reserve), 0);
    assert_int_equal(mkfifo(reserve, 0600), 0);
    err_clear(&err);
    assert_int_equal(workspace_disk_look(world->node, &look, &err), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_decided),
        cmocka_unit_test_setup_teardown(test_a_reserve_comes_and_goes, setup,
                                        workspace_world_teardown),
        cmocka_unit_test_setup_teardown(test_an_unmount_gets_room, setup, workspace_world_teardown),
        cmocka_unit_test_setup_teardown(test_an_rm_gets_room, setup, workspace_world_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_reserve_is_left_alone, setup,
                                        workspace_world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
