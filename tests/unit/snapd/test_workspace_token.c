/* Which writer of a volume counts. */
#include "workspace_token.h"

#include "cleanup.h"
#include "fake_volumes.h"
#include "job_fixture.h"
#include "remote_checkpoint.h"
#include "workspace_fixture.h"

#include <inttypes.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int64_t read_token(const char *text, struct err *err)
{
    int64_t token = -7;
    cleanup_json json_t *params = json_loads(text, 0, NULL);
    assert_non_null(params);
    return workspace_token_read(params, "the request", &token, err) < 0 ? -1 : token;
}

static void test_requests(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"token\": -1}", "{\"token\": \"5\"}", "{\"token\": 1.5}",
                                      "{\"token\": true}", "{\"token\": []}"};
    assert_int_equal(read_token("{}", NULL), 0);
    assert_int_equal(read_token("{\"token\": 0}", NULL), 0);
    assert_int_equal(read_token("{\"token\": 5}", NULL), 5);
    assert_true(read_token("{\"token\": 9223372036854775807}", NULL) == INT64_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(read_token(bad[i], &err), -1);
        assert_int_not_equal(err.code, ERR_NONE);
    }
}

static void test_what_this_node_knows(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct catalog_line line = {.token = 5};
    assert_int_equal(workspace_token_check("w", &line, 0, &err), 0); /* none is asked for */
    assert_int_equal(workspace_token_check("w", &line, 5, &err), 0);
    assert_int_equal(workspace_token_check("w", &line, INT64_MAX, &err), 0);
    assert_true(workspace_token_check("w", &line, 4, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "token 5"));
    assert_non_null(strstr(err.text, "4 is lower"));
    assert_true(err.hint[0] != '\0');
}

/* Equal ones are one writer's; the failure names both, whose it is, and what to do. */
static void test_what_the_remote_shows(void **state)
{
    (void)state;
    struct checkpoint_heads heads = {.has_writer = false};
    struct err err = ERR_INIT;
    assert_int_equal(workspace_token_compare("w", &heads, 0, &err), 0);
    heads.has_writer = true;
    heads.writer = (struct checkpoint_head){.generation = 12, .node = "n2"};
    assert_int_equal(workspace_token_compare("w", &heads, 0, &err), 0);
    heads.writer.token = 7;
    assert_int_equal(workspace_token_compare("w", &heads, 7, &err), 0);
    assert_int_equal(workspace_token_compare("w", &heads, 8, &err), 0);
    for (int64_t token = 0; token < 7; token += 6) {
        char own[32] = "no fencing token";
        err_clear(&err);
        if (token > 0)
            (void)snprintf(own, sizeof own, "token %" PRId64 " ", token);
        assert_true(workspace_token_compare("w", &heads, token, &err) < 0);
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_non_null(strstr(err.text, own));
        assert_non_null(strstr(err.text, "higher token 7"));
        assert_non_null(strstr(err.text, "checkpoint 12 of node n2"));
        assert_non_null(strstr(err.hint, "above 7"));
        assert_non_null(strstr(err.hint, "varve workspace mount w PATH --token N"));
    }
}

/* A checkpoint that changes nothing is stored all the same for a token that nobody sees. */
static void test_what_the_one_before_shows(void **state)
{
    (void)state;
    const struct checkpoint_config parent = {.volume = "0123456789ab", .token = 3};
    assert_false(workspace_token_is_new(&parent, "0123456789ab", 0));
    assert_false(workspace_token_is_new(&parent, "0123456789ab", 3));
    assert_true(workspace_token_is_new(&parent, "0123456789ab", 4));
    /* That of another volume, of which this one was made, shows nothing of this one. */
    assert_true(workspace_token_is_new(&parent, "ba9876543210", 1));
    assert_false(workspace_token_is_new(&parent, "ba9876543210", 0));
}

/* What an older mount has recorded says nothing of one that was killed before it looked. */
static void test_a_repeat_looks(void **state)
{
    struct workspace_world *world = *state;
    static const char with_token[] = "{'path': '%s', 'token': 7}";
    char repository[64];
    char tag[64];
    const char *id = fake_volumes_only()->id;
    workspace_world_do(world, "workspace.mount", "w", with_token);
    workspace_world_do(world, "workspace.unmount", "w", "{}");
    (void)snprintf(repository, sizeof repository, "volumes/%s", id);
    (void)snprintf(tag, sizeof tag, "%s-g1-other", id);
    struct remote *remote = world->node->remote;
    remote_checkpoint_index(remote, repository, tag, id,
                            remote_checkpoint_root(remote, repository, "{}"), 1, 9);
    assert_true(workspace_world_killed(world, "workspace.mount", "w", with_token,
                                       "workspace.token-look=kill"));
    workspace_world_start(world);
    job_fixture_settle(world->node);
    assert_string_equal(workspace_world_rows(world, "w"), "detached at nowhere");
    workspace_world_fails(world, "workspace.mount", "w", with_token, ERR_CONFLICT,
                          "higher token 9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_what_this_node_knows),
        cmocka_unit_test(test_what_the_remote_shows),
        cmocka_unit_test(test_what_the_one_before_shows),
        with_one(test_a_repeat_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
