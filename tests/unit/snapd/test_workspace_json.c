#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "json_doc.h"
#include "workspace.h"

#include <string.h>

static json_t *describe(struct workspace_world *world, struct err *err)
{
    struct catalog_workspace row = {0};
    assert_int_equal(catalog_workspace_get(world->node->catalog, "w", &row, NULL), 0);
    json_t *json = workspace_json(world->node, &row, err);
    catalog_workspace_free(&row);
    return json;
}

/* Row and kernel together say what it is. */
static void test_states(void **state)
{
    struct workspace_world *world = *state;
    static const struct {
        enum catalog_volume_state row;
        bool attached, dead, fenced, detaching, mounted;
        const char *state;
    } cases[] = {
        {CATALOG_VOLUME_CREATING, .state = "creating"},
        {CATALOG_VOLUME_REMOVING, .state = "removing"},
        {CATALOG_VOLUME_DETACHED, .state = "detached"},
        {CATALOG_VOLUME_DETACHED, .attached = true, .state = "attached"},
        {CATALOG_VOLUME_ATTACHING, .state = "detached"},
        {CATALOG_VOLUME_ATTACHING, .attached = true, .state = "attached"},
        {CATALOG_VOLUME_ATTACHING, .attached = true, .mounted = true, .state = "mounted"},
        {CATALOG_VOLUME_ATTACHED, .attached = true, .mounted = true, .state = "mounted"},
        {CATALOG_VOLUME_ATTACHED, .attached = true, .state = "attached"},
        {CATALOG_VOLUME_ATTACHED, .state = "detached"},
        {CATALOG_VOLUME_ATTACHED, .dead = true, .mounted = true, .state = "dead"},
        {CATALOG_VOLUME_ATTACHED, .attached = true, .fenced = true, .mounted = true,
         .state = "fenced"},
        {CATALOG_VOLUME_FENCED, .attached = true, .mounted = true, .state = "fenced"},
        {CATALOG_VOLUME_FENCED, .state = "fenced"},
        {CATALOG_VOLUME_DETACHING, .attached = true, .mounted = true, .state = "detaching"},
        {CATALOG_VOLUME_DETACHING, .attached = true, .detaching = true, .state = "detaching"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct catalog_workspace row = {0};
        struct fake_volume *volume = fake_volumes_only();
        assert_int_equal(catalog_workspace_get(world->node->catalog, "w", &row, NULL), 0);
        row.volume.state = cases[i].row;
        row.wanted = cases[i].mounted;
        row.mount.path = cases[i].mounted ? strdup("/at") : NULL;
        volume->attached = cases[i].attached;
        volume->dead = cases[i].dead;
        volume->fenced = cases[i].fenced;
        volume->detaching = cases[i].detaching;
        snprintf(volume->mounted, sizeof volume->mounted, "%s", cases[i].mounted ? "/at" : "");
        cleanup_json json_t *json = workspace_json(world->node, &row, NULL);
        const char *have = json_string_value(json_object_get(json, "state"));
        if (strcmp(have, cases[i].state) != 0)
            fail_msg("case %zu: %s", i, have);
        catalog_workspace_free(&row);
    }
}

static void test_what_waits_and_what_happened(void **state)
{
    struct workspace_world *world = *state;
    struct fake_volume *volume = fake_volumes_only();
    volume->attached = true;
    volume->local = 12345;
    volume->held = 7;
    volume->held_ns = 1500000000;
    assert_int_equal(catalog_volume_set_incident(world->node->catalog, volume->id, "it fell", NULL),
                     0);
    cleanup_json json_t *json = describe(world, NULL);
    const json_t *waiting = json_object_get(json, "waiting");
    const json_t *incident = json_object_get(json, "incident");
    const json_t *worker = json_object_get(json, "worker");
    assert_int_equal(json_integer_value(json_object_get(json, "stored")), 12345);
    assert_int_equal(json_integer_value(json_object_get(waiting, "requests")), 7);
    assert_true(json_real_value(json_object_get(waiting, "seconds")) == 1.5);
    assert_string_equal(json_string_value(json_object_get(incident, "what")), "it fell");
    assert_int_equal(strlen(json_string_value(json_object_get(incident, "when"))), 20);
    assert_int_equal(json_integer_value(json_object_get(worker, "locked_bytes")), 1 << 20);
    assert_true(json_is_true(json_object_get(worker, "resends")));
    assert_true(json_is_null(json_object_get(json, "device")));
}

/* Somebody took its directory away: it is described all the same. */
static void test_a_volume_that_is_gone(void **state)
{
    struct workspace_world *world = *state;
    fake_volumes_only()->made = false;
    cleanup_json json_t *json = describe(world, NULL);
    assert_string_equal(json_string_value(json_object_get(json, "state")), "detached");
    assert_int_equal(json_integer_value(json_object_get(json, "stored")), 0);
}

static void test_one_that_cannot_be_read(void **state)
{
    struct workspace_world *world = *state;
    struct err err = ERR_INIT;
    fake_volumes_fail("status", ERR_DAMAGED, "volume.json is damaged", 1);
    assert_null(describe(world, &err));
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "workspace w: volume.json is damaged"));
}

/* Each is described as it is, whatever is wrong with others. */
static void test_many(void **state)
{
    struct workspace_world *world = *state;
    struct catalog_workspace rows[3] = {0};
    json_t *documents[3] = {NULL};
    struct err errs[3] = {ERR_INIT, ERR_INIT, ERR_INIT};
    struct err err = ERR_INIT;
    struct fake_volume *volume = fake_volumes_only();
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(catalog_workspace_get(world->node->catalog, "w", &rows[i], NULL), 0);
        rows[i].volume.state = CATALOG_VOLUME_ATTACHED;
        rows[i].wanted = i != 1;
        rows[i].mount.path = i != 1 ? strdup(i == 0 ? "/at" : "/elsewhere") : NULL;
    }
    volume->attached = true;
    volume->local = 1;
    snprintf(volume->mounted, sizeof volume->mounted, "/at");
    assert_int_equal(workspace_json_each(world->node, rows, 3, documents, errs, &err), 0);
    static const char *const states[] = {"mounted", "attached", "attached"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *fs = json_object_get(documents[i], "filesystem");
        assert_string_equal(json_string_value(json_object_get(documents[i], "state")), states[i]);
        assert_int_equal(json_is_null(fs), i != 0);
        json_decref(documents[i]);
        documents[i] = NULL;
    }
    /* One of them cannot be read. */
    fake_volumes_fail("status", ERR_DAMAGED, "volume.json is damaged", 1);
    assert_int_equal(workspace_json_each(world->node, rows, 3, documents, errs, &err), 0);
    assert_null(documents[0]);
    assert_int_equal(errs[0].code, ERR_DAMAGED);
    for (size_t i = 1; i < 3; i++) {
        assert_non_null(documents[i]);
        json_decref(documents[i]);
    }
    /* None can be looked at. */
    fake_volumes_fail("look", ERR_IO, "no mount table", 1);
    errs[0] = (struct err)ERR_INIT;
    assert_int_equal(workspace_json_each(world->node, rows, 3, documents, errs, &err), -EIO);
    assert_int_equal(err.code, ERR_IO);
    assert_int_equal(workspace_json_each(world->node, rows, 0, documents, errs, &err), 0);
    for (size_t i = 0; i < 3; i++)
        catalog_workspace_free(&rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_one(test_states),
        with_one(test_what_waits_and_what_happened),
        with_one(test_a_volume_that_is_gone),
        with_one(test_one_that_cannot_be_read),
        with_one(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
