#include "push_fixture.h"

#include "cleanup.h"
#include "remote.h"

#include <string.h>

/* A run with a snapshot "agent:v1"; its document, which the caller owns. */
json_t *push_fixture_snapshot(struct commit_world *world)
{
    commit_make_tree(world);
    cleanup_free char *base = commit_import(world, "tree.tar", "base:1");
    commit_make_run(world, "r1", base, "head -c 3000000 /dev/urandom >m/new");
    return commit_done(world, "snapshot.create",
                       json_pack("{s:s, s:s}", "run", "r1", "name", "agent:v1"));
}

json_t *push_fixture_of(const json_t *snapshot)
{
    return json_pack("{s:s}", "snapshot", layer_str(snapshot, "id"));
}

const char *push_fixture_state_of(const json_t *result, const char *part)
{
    return layer_str(json_object_get(result, part), "state");
}

void push_fixture_durability_is(struct commit_world *world, const json_t *snapshot,
                                enum catalog_durability expected)
{
    struct catalog_snapshot row = {0};
    assert_int_equal(
        catalog_snapshot_get(world->node->catalog, layer_str(snapshot, "id"), &row, NULL), 0);
    assert_int_equal(row.durability, expected);
    if (expected != CATALOG_LOCAL)
        assert_string_equal(row.remote, world->node->remote->url);
    catalog_snapshot_free(&row);
}

void push_fixture_is_gone(struct commit_world *world, const json_t *snapshot)
{
    struct catalog_snapshot row = {0};
    struct err err = ERR_INIT;
    assert_true(catalog_snapshot_get(world->node->catalog, layer_str(snapshot, "id"), &row, &err) <
                0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* Digest of what the remote has under images/agent:v1, or "". Caller frees. */
static char *in_remote(struct commit_world *world)
{
    struct remote_manifest manifest = {0};
    cleanup_free char *repository = remote_repository(world->node->remote, "images/agent");
    char *digest = NULL;
    if (remote_manifest_get(world->node->remote, repository, "v1", &manifest, NULL) == 0)
        digest = strdup(digest_format(&manifest.digest).s);
    remote_manifest_free(&manifest);
    return digest ? digest : strdup("");
}

void push_fixture_remote_has(struct commit_world *world, const char *expected)
{
    cleanup_free char *digest = in_remote(world);
    assert_string_equal(digest, expected);
}

/* Starts the world anew with another remote. */
void push_fixture_use_remote(struct commit_world *world, const char *url)
{
    commit_world_stop(world);
    world->remote = url;
    commit_world_start(world);
}
