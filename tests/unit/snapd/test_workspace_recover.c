#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"
#include "workspace_recover.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void restart(struct workspace_world *world)
{
    workspace_world_stop(world);
    workspace_world_start(world);
    job_fixture_settle(world->node);
}

static void set_boot(struct workspace_world *world, const char *boot)
{
    assert_int_equal(
        catalog_volume_set_boot(world->node->catalog, fake_volumes_only()->id, boot, NULL), 0);
}

static void assert_mounted(struct workspace_world *world)
{
    assert_string_equal(workspace_world_rows(world, "w"), "attached at at mounted");
    assert_string_equal(workspace_world_state(world, "w"), "mounted");
}

static void test_a_restart_of_the_daemon_changes_nothing(void **state)
{
    struct workspace_world *world = *state;
    restart(world);
    assert_mounted(world);
    assert_int_equal(fake_volumes_only()->attaches, 1);
    assert_int_equal(fake_volumes_only()->mounts, 1);
    assert_string_equal(workspace_world_incident(world, "w"), "");
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    restart(world);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    assert_int_equal(fake_volumes_only()->attaches, 1);
}

static void test_after_a_restart_of_the_host(void **state)
{
    struct workspace_world *world = *state;
    set_boot(world, "another");
    workspace_world_stop(world);
    fake_volumes_reboot();
    workspace_world_start(world);
    assert_mounted(world);
    assert_int_equal(fake_volumes_only()->checks, 1);
    assert_string_equal(workspace_world_incident(world, "w"), "");
    assert_int_equal(workspace_world_events(world, "w", "workspace-mounted-after-restart"), 1);
    /* From now on it belongs to this life of the host. */
    struct catalog_volume volume = {0};
    assert_int_equal(
        catalog_volume_get(world->node->catalog, fake_volumes_only()->id, &volume, NULL), 0);
    assert_string_equal(volume.boot, world->node->boot_id);
    catalog_volume_free(&volume);
}

/* Somebody took its directory away: the reason stands in the row. */
static void test_a_missing_directory(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_stop(world);
    fake_volumes_reboot();
    fake_volumes_only()->made = false;
    workspace_world_start(world);
    assert_string_equal(workspace_world_state(world, "w"), "detached");
    assert_non_null(strstr(workspace_world_incident(world, "w"), "could not be mounted again"));
    assert_non_null(strstr(workspace_world_incident(world, "w"), "is gone"));
    assert_int_equal(workspace_world_events(world, "w", "workspace-not-recovered"), 1);
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    workspace_world_do(world, "workspace.rm", "w", "{}");
}

/* An unmount that no job will finish, and that the host's full disk would hold up. */
static void test_the_start_waits_for_no_disk(void **state)
{
    struct workspace_world *world = *state;
    struct catalog *catalog = world->node->catalog;
    struct fake_volume *volume = fake_volumes_only();
    assert_int_equal(catalog_volume_set_state(catalog, volume->id, CATALOG_VOLUME_DETACHING, NULL),
                     0);
    assert_int_equal(catalog_mount_set_state(catalog, volume->id, CATALOG_MOUNT_UNMOUNTING, NULL),
                     0);
    volume->held = 3;
    restart(world);
    assert_int_equal(volume->unmounts, 0);
    assert_string_equal(workspace_world_rows(world, "w"), "detaching at at unmounting");
    volume->held = 0;
    restart(world);
    assert_int_equal(volume->unmounts, 1);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

static void test_after_the_death_of_everything(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_stop(world);
    fake_volumes_only()->dead = true;
    workspace_world_start(world);
    assert_mounted(world);
    assert_int_equal(fake_volumes_only()->abandons, 1);
    assert_int_equal(fake_volumes_only()->checks, 1);
    assert_non_null(strstr(workspace_world_incident(world, "w"),
                           "all processes that served it had died; its journal was replayed"));
    assert_int_equal(workspace_world_events(world, "w", "workspace-recovered"), 1);
}

static void test_what_was_unmounted_by_hand(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_stop(world);
    fake_volumes_only()->mounted[0] = '\0';
    workspace_world_start(world);
    assert_mounted(world);
    /* Nothing has died. What lives elsewhere is e2e_workspace_living's. */
    assert_int_equal(fake_volumes_only()->checks, 0);
    assert_string_equal(workspace_world_incident(world, "w"), "");
    assert_int_equal(workspace_world_events(world, "w", "workspace-mounted-again"), 1);
}

/* One that cannot be brought back says why, keeps the wish, and does not stop the others. */
static void test_a_failure_stops_nobody(void **state)
{
    struct workspace_world *world = *state;
    assert_int_equal(mkdir(workspace_world_path(world, "at2"), 0755), 0);
    workspace_world_do(world, "workspace.create", "x", "{}");
    workspace_world_do(world, "workspace.mount", "x", "{'path': '%s2'}");
    workspace_world_stop(world);
    fake_volumes_reboot();
    assert_int_equal(rmdir(workspace_world_path(world, "at")), 0);
    workspace_world_start(world);
    assert_string_equal(workspace_world_rows(world, "x"), "attached at at2 mounted");
    assert_string_equal(workspace_world_rows(world, "w"), "attaching at at mounting");
    assert_string_equal(workspace_world_state(world, "w"), "detached");
    assert_non_null(strstr(workspace_world_incident(world, "w"), "could not be mounted again at"));
    assert_non_null(strstr(workspace_world_incident(world, "w"), "no directory"));
    assert_int_equal(workspace_world_events(world, "w", "workspace-not-recovered"), 1);
    /* Something that was attached for nothing is detached. */
    assert_int_equal(mkdir(workspace_world_path(world, "at"), 0755), 0);
    workspace_world_stop(world);
    fake_volumes_fail("mount", ERR_DAMAGED, "e2fsck says no", 1);
    workspace_world_start(world);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "e2fsck says no"));
    restart(world);
    assert_mounted(world);
}

/* A link that has taken the place of the directory leads somewhere else. */
static void test_a_path_that_is_another_one_now(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_stop(world);
    fake_volumes_reboot();
    assert_int_equal(mkdir(workspace_world_path(world, "trap"), 0755), 0);
    assert_int_equal(rmdir(workspace_world_path(world, "at")), 0);
    assert_int_equal(symlink("trap", workspace_world_path(world, "at")), 0);
    workspace_world_start(world);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "leads to"));
    assert_int_equal(fake_volumes_only()->mounts, 1);
}

static void test_kills_while_it_is_brought_back(void **state)
{
    struct workspace_world *world = *state;
    static const char *const faults[] = {"workspace.revive-recorded=kill",
                                         "workspace.revive-abandoned=kill",
                                         "workspace.attached=kill", "workspace.mounted=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        workspace_world_stop(world);
        fake_volumes_only()->dead = true;
        assert_true(workspace_world_killed(world, "recover", "other", "{}", faults[i]));
        workspace_world_start(world);
        job_fixture_settle(world->node);
        assert_mounted(world);
    }
}

/* What failed jobs left behind: no job will go on with it. */
static void test_half_done_things(void **state)
{
    struct workspace_world *world = *state;
    struct catalog *catalog = world->node->catalog;
    static const char *const names[] = {"half-made", "half-removed", "half-resized"};
    static const char *const ids[] = {"0000000000a1", "0000000000a2", "0000000000a3"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct catalog_volume volume = {
            .id = (char *)ids[i], .lineage = (char *)ids[i], .size = 1 << 20};
        assert_int_equal(catalog_workspace_add(catalog, names[i], "n", &volume, NULL), 0);
        assert_int_equal(volumes_create(world->node->volumes, ids[i], 1 << 20, NULL), 0);
    }
    assert_int_equal(catalog_volume_set_state(catalog, ids[1], CATALOG_VOLUME_REMOVING, NULL), 0);
    assert_int_equal(catalog_volume_set_state(catalog, ids[2], CATALOG_VOLUME_DETACHED, NULL), 0);
    assert_int_equal(catalog_volume_set_state(catalog, ids[2], CATALOG_VOLUME_ATTACHING, NULL), 0);
    fake_volume(ids[2])->attached = true;
    restart(world);
    assert_string_equal(workspace_world_rows(world, "half-made"), "none");
    assert_string_equal(workspace_world_rows(world, "half-removed"), "none");
    assert_string_equal(workspace_world_rows(world, "half-resized"), "detached at nowhere");
    assert_int_equal(fake_volumes_count(), 2);
    assert_false(fake_volume(ids[2])->attached);
    assert_mounted(world);
}

static void test_half_unmounted(void **state)
{
    struct workspace_world *world = *state;
    struct catalog *catalog = world->node->catalog;
    const char *id = fake_volumes_only()->id;
    assert_int_equal(catalog_volume_set_state(catalog, id, CATALOG_VOLUME_DETACHING, NULL), 0);
    assert_int_equal(catalog_mount_set_state(catalog, id, CATALOG_MOUNT_UNMOUNTING, NULL), 0);
    restart(world);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    assert_false(fake_volumes_only()->attached);
}

/* --- Many --- */

enum {
    MANY = 24,
};

/* Further ones, all mounted; their names come after that of "w". */
static void make_many(struct workspace_world *world)
{
    for (int i = 0; i < MANY; i++) {
        char name[16];
        char params[64];
        snprintf(name, sizeof name, "at-x%02d", i);
        assert_int_equal(mkdir(workspace_world_path(world, name), 0755), 0);
        snprintf(params, sizeof params, "{'path': '%%s-x%02d'}", i);
        workspace_world_do(world, "workspace.create", name + 3, "{}");
        workspace_world_do(world, "workspace.mount", name + 3, params);
    }
}

static struct fake_volume *volume_of(struct workspace_world *world, const char *name)
{
    struct catalog_workspace row = {0};
    assert_int_equal(catalog_workspace_get(world->node->catalog, name, &row, NULL), 0);
    struct fake_volume *volume = fake_volume(row.volume.id);
    catalog_workspace_free(&row);
    return volume;
}

static struct fake_volume *many(struct workspace_world *world, int i)
{
    char name[16];
    snprintf(name, sizeof name, "x%02d", i);
    return volume_of(world, name);
}

static int64_t now_ms(struct workspace_world *world)
{
    return clock_mono_ns(&world->node->clock) / 1000000;
}

static void test_many_come_back_at_once(void **state)
{
    struct workspace_world *world = *state;
    make_many(world);
    for (int i = 0; i < MANY; i++)
        many(world, i)->slow_ms = 300;
    workspace_world_stop(world);
    fake_volumes_reboot();
    workspace_world_open(world);
    int64_t begin = now_ms(world);
    workspace_world_start(world);
    assert_true(now_ms(world) - begin < MANY * 300 * 2 / 3);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(many(world, i)->mounts, 2);
    assert_mounted(world);
}

static void test_a_slow_one_holds_nobody_up(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *slow = fake_volumes_only();
    make_many(world);
    slow->slow_ms = 3000;
    workspace_world_stop(world);
    fake_volumes_reboot();
    workspace_world_start(world);
    for (int i = 0; i < MANY; i++)
        assert_true(many(world, i)->turn < slow->turn);
    assert_mounted(world);
}

/* Longer than the start of the daemon waits: it goes on by itself, and a job waits for it. */
static void test_a_very_slow_one(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_stop(world);
    fake_volumes_reboot();
    fake_volumes_only()->slow_ms = (WORKSPACE_RECOVER_SECONDS + 1) * 1000;
    workspace_world_start(world);
    assert_string_equal(workspace_world_rows(world, "w"), "attaching at at mounting");
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_int_equal(fake_volumes_only()->mounts, 2);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

/* Whoever froze it has to thaw it, and is told so. */
static void test_a_frozen_one(void **state)
{
    struct workspace_world *world = *state;
    workspace_world_stop(world);
    fake_volumes_only()->dead = fake_volumes_only()->frozen = true;
    workspace_world_start(world);
    assert_int_equal(fake_volumes_only()->abandons, 0);
    assert_non_null(strstr(workspace_world_incident(world, "w"), "is frozen; thaw it"));
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_CONFLICT, "frozen");
    assert_int_equal(fake_volumes_only()->abandons, 0);
    fake_volumes_only()->frozen = false;
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s'}");
    assert_mounted(world);
    /* Who gives the workspace up gives the freeze up. */
    fake_volumes_only()->frozen = true;
    workspace_world_do(world, "workspace.unmount", "w", "{'abandon': true}");
    assert_int_equal(fake_volumes_only()->abandons, 2);
}

/* --- The verb --- */

static json_t *recovered(struct workspace_world *world, const char *params, size_t count)
{
    cleanup_json json_t *json = workspace_world_ok(world, "recover", "other", params);
    json_t *items = json_object_get(json, "items");
    if (json_array_size(items) != count)
        fail_msg("%s", json_dumps(json, 0));
    return json_incref(items);
}

static void assert_item(json_t *items, size_t i, const char *object, const char *action)
{
    const json_t *item = json_array_get(items, i);
    if (!strstr(json_string_value(json_object_get(item, "object")), object) ||
        !strstr(json_string_value(json_object_get(item, "action")), action))
        fail_msg("%s", json_dumps(item, 0));
}

static void test_the_verb_mounts_again(void **state)
{
    struct workspace_world *world = *state;
    json_decref(recovered(world, "{}", 0));
    fake_volumes_only()->mounted[0] = '\0';
    cleanup_json json_t *planned = recovered(world, "{'plan': true}", 1);
    assert_item(planned, 0, "workspace:w", "mount it again");
    assert_string_equal(workspace_world_state(world, "w"), "attached");
    cleanup_json json_t *done = recovered(world, "{}", 1);
    assert_item(done, 0, "workspace:w", "mounted again");
    assert_mounted(world);
    json_decref(recovered(world, "{}", 0));
    fake_volumes_only()->dead = true;
    fake_volumes_fail("mount", ERR_IO, "no way", 1);
    cleanup_json json_t *failed = recovered(world, "{}", 1);
    assert_item(failed, 0, "workspace:w", "no way");
    assert_true(json_is_true(json_object_get(json_array_get(failed, 0), "failed")));
}

static void test_the_verb_and_volumes_of_nobody(void **state)
{
    struct workspace_world *world = *state;
    static const char id[] = "00000000000b";
    assert_int_equal(volumes_create(world->node->volumes, id, 1 << 20, NULL), 0);
    fake_volume(id)->attached = true;
    cleanup_json json_t *done = recovered(world, "{}", 2);
    assert_item(done, 0, "RUN/volumes/00000000000b", "detached");
    assert_item(done, 1, "DATA/volumes/00000000000b", "only copy");
    assert_false(fake_volume(id)->attached);
    assert_true(fake_volume(id)->made);
    cleanup_json json_t *left = recovered(world, "{}", 1);
    assert_item(left, 0, "DATA/volumes/00000000000b", "only copy");
}

static void test_the_verb_finishes_an_unmount(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->elsewhere = true;
    workspace_world_fails(world, "workspace.unmount", "w", "{}", ERR_CONFLICT, "held");
    cleanup_json json_t *failed = recovered(world, "{}", 1);
    assert_item(failed, 0, "workspace:w", "sleep (77)");
    fake_volumes_only()->elsewhere = false;
    cleanup_json json_t *done = recovered(world, "{}", 1);
    assert_item(done, 0, "workspace:w", "unmounted");
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_mounted(test_a_restart_of_the_daemon_changes_nothing),
        with_mounted(test_after_a_restart_of_the_host),
        with_mounted(test_after_the_death_of_everything),
        with_mounted(test_the_start_waits_for_no_disk),
        with_mounted(test_a_missing_directory),
        with_mounted(test_what_was_unmounted_by_hand),
        with_mounted(test_a_failure_stops_nobody),
        with_mounted(test_a_path_that_is_another_one_now),
        with_mounted(test_kills_while_it_is_brought_back),
        with_mounted(test_half_done_things),
        with_mounted(test_half_unmounted),
        with_mounted(test_many_come_back_at_once),
        with_mounted(test_a_slow_one_holds_nobody_up),
        with_mounted(test_a_very_slow_one),
        with_mounted(test_a_frozen_one),
        with_mounted(test_the_verb_mounts_again),
        with_mounted(test_the_verb_and_volumes_of_nobody),
        with_mounted(test_the_verb_finishes_an_unmount),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
