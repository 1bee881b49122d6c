#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"

#include <string.h>

#include "workspace_trim.h"

enum {
    HOUR = WORKSPACE_TRIM_SECONDS,
};

/* Passes each minute for an hour; how often it was trimmed. */
static int trims_in_an_hour(struct workspace_trim *trim, int64_t *minute)
{
    int before = fake_volumes_only()->trims;
    for (int i = 0; i < 60; i++, ++*minute)
        workspace_trim_pass(trim, *minute * 60 * CLOCK_NS_PER_S, NULL, NULL);
    return fake_volumes_only()->trims - before;
}

static void test_once_an_hour_when_something_was_written(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_trim *trim = workspace_trim_new(world->node);
    int64_t minute = 100;
    fake_volumes_only()->write_bytes = 5;
    workspace_trim_pass(trim, minute * 60 * CLOCK_NS_PER_S, NULL, NULL);
    assert_int_equal(trims_in_an_hour(trim, &minute), 1);
    assert_int_equal(trims_in_an_hour(trim, &minute), 0);
    fake_volumes_only()->write_bytes = 6;
    assert_int_equal(trims_in_an_hour(trim, &minute) + trims_in_an_hour(trim, &minute), 1);
    workspace_trim_free(trim);
}

static void test_what_is_not_trimmed(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_trim *trim = workspace_trim_new(world->node);
    struct fake_volume *volume = fake_volumes_only();
    int64_t minute = 0;
    assert_int_equal(trims_in_an_hour(trim, &minute), 0); /* nothing was written */
    volume->write_bytes = 5;
    volume->fenced = true;
    assert_int_equal(trims_in_an_hour(trim, &minute), 0);
    volume->fenced = false;
    volume->held = 1;
    assert_int_equal(trims_in_an_hour(trim, &minute), 0);
    volume->held = 0;
    volume->dead = true;
    assert_int_equal(trims_in_an_hour(trim, &minute), 0);
    volume->dead = false;
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    assert_int_equal(trims_in_an_hour(trim, &minute), 0);
    workspace_world_do(world, "workspace.mount", "w", "{'path': '%s', 'read_only': true}");
    assert_int_equal(trims_in_an_hour(trim, &minute), 0);
    workspace_trim_free(trim);
}

/* A failure does not make it try each minute. */
static void test_a_failure(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_trim *trim = workspace_trim_new(world->node);
    int64_t minute = 0;
    fake_volumes_only()->write_bytes = 5;
    fake_volumes_fail("trim", ERR_IO, "no", 1);
    assert_int_equal(trims_in_an_hour(trim, &minute), 0);
    assert_int_equal(trims_in_an_hour(trim, &minute), 0);
    workspace_trim_free(trim);
    workspace_trim_free(NULL);
}

/* Many volumes are spread over the hour. */
static void test_spread(void **state)
{
    struct workspace_world *world = *state;
    struct workspace_trim *trim = workspace_trim_new(world->node);
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    workspace_world_do(world, "workspace.rm", "w", "{}");
    struct catalog *catalog = world->node->catalog;
    static const char *const digits[] = {"000000", "000384", "000708",
                                         "000a8c"}; /* 0, 15, 30, 45 */
    for (size_t i = 0; i < ARRAY_SIZE(digits); i++) {
        char id[VOLUME_ID_LEN + 1];
        char path[20];
        snprintf(id, sizeof id, "abcdef%s", digits[i]);
        snprintf(path, sizeof path, "/p%zu", i);
        const struct catalog_volume volume = {.id = id, .lineage = id, .size = 1 << 20};
        const struct catalog_mount mount = {.volume = id, .path = path};
        assert_int_equal(catalog_workspace_add(catalog, digits[i], "n", &volume, NULL), 0);
        assert_int_equal(catalog_mount_add(catalog, &mount, NULL), 0);
        static const enum catalog_volume_state states[] = {
            CATALOG_VOLUME_DETACHED, CATALOG_VOLUME_ATTACHING, CATALOG_VOLUME_ATTACHED};
        for (size_t s = 0; s < ARRAY_SIZE(states); s++)
            assert_int_equal(catalog_volume_set_state(catalog, id, states[s], NULL), 0);
        assert_int_equal(catalog_mount_set_state(catalog, id, CATALOG_MOUNT_MOUNTED, NULL), 0);
        struct fake_volume *fake = fake_volume(id);
        fake->made = fake->attached = true;
        fake->write_bytes = 1;
    }
    static const int counts[] = {1, 2, 3, 4};
    for (size_t quarter = 0; quarter < ARRAY_SIZE(counts); quarter++) {
        workspace_trim_pass(trim, (int64_t)quarter * 900 * CLOCK_NS_PER_S, NULL, NULL);
        int done = 0;
        for (size_t i = 0; i < ARRAY_SIZE(digits); i++) {
            char id[VOLUME_ID_LEN + 1];
            snprintf(id, sizeof id, "abcdef%s", digits[i]);
            done += fake_volume(id)->trims;
        }
        assert_int_equal(done, counts[quarter]);
    }
    workspace_trim_free(trim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_mounted(test_once_an_hour_when_something_was_written),
        with_mounted(test_what_is_not_trimmed),
        with_mounted(test_a_failure),
        with_mounted(test_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
