/* The program as a whole: verbs, global options, help, exit statuses. */
#include "varve_call.h"

#include "cleanup.h"
#include "spawn.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct varve_call_setup no_daemon = {0};

static void test_wrong_command_lines(void **state)
{
    static const struct {
        const char *args[8];
        const char *says;
    } cases[] = {
        {{NULL}, "no verb was given"},
        {{"nonsense"}, "unknown verb 'nonsense'"},
        {{"image"}, "varve image needs an action; see varve image --help"},
        {{"image", "nonsense"}, "varve image has no action 'nonsense'"},
        {{"doctor", "extra"}, "unexpected word 'extra'"},
        {{"image", "import"}, "varve image import needs PATH|-; see varve image import --help"},
        {{"image", "ls", "extra"}, "unexpected word 'extra' after varve image ls"},
        {{"image", "pull", "a", "b"}, "unexpected word 'b'"},
        {{"--nonsense", "image", "ls"}, "unknown option --nonsense"},
        {{"image", "ls", "--jsn"}, "unknown option --jsn; did you mean --json?"},
        {{"run", "create", "x", "--workspace", "w:/w"}, "unknown option --workspace"},
        {{"snapshot", "create", "--run", "r", "--consistency", "freeze"}, "--consistency"},
        {{"snapshot", "create", "--run", "r", "--ttl", "7d"}, "--ttl"},
        {{"run", "create", "x", "--plain-upper=yes"}, "takes no value"},
        {{"run", "create", "x", "--id"}, "needs a value (ID)"},
        {{"--host"}, "needs a value (unix:PATH)"},
        {{"--host", "tcp:1", "image", "ls"}, "'tcp:1' is not an address of varved"},
        {{"volume", "ls"}, "unknown verb 'volume'"},
        {{"run", "inspect", ""}, "an empty name names nothing"},
        {{"bad\nname"}, "unknown verb 'bad?name'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        varve_call(*state, &no_daemon, cases[i].args, &call);
        varve_call_expect_error(&call, 2, cases[i].says);
    }
}

static void test_help(void **state)
{
    static const char *const cases[][4] = {{"--help"},
                                           {"-h"},
                                           {"run", "--help"},
                                           {"--help", "image"},
                                           {"image", "import", "--help"},
                                           {"run", "exec", "--help"},
                                           {"run", "create", "-h"},
                                           {"doctor", "--help"},
                                           {"snapshot", "create", "--help"},
                                           {"run", "create", "--nonsense", "--help"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        const char *args[5] = {0};
        for (size_t k = 0; k < 4; k++)
            args[k] = cases[i][k];
        varve_call(*state, &no_daemon, args, &call);
        if (i + 1 == ARRAY_SIZE(cases)) {
            assert_int_equal(call.status, 2); /* what is wrong before --help comes first */
            continue;
        }
        assert_int_equal(call.status, 0);
        assert_string_equal(call.err, "");
        assert_int_equal(strncmp(call.out, "usage: varve ", 13), 0);
        for (const char *line = call.out; *line;) {
            size_t len = strcspn(line, "\n");
            assert_true(len <= 100);
            line += len + (line[len] == '\n');
        }
    }
    struct varve_call call;
    varve_call(*state, &no_daemon, VARVE_ARGS("--help"), &call);
    assert_non_null(strstr(call.out, "  varve run ls                        Lists the runs of"));
    assert_non_null(strstr(call.out, "COMMAND...\n                                      Runs a"));
    assert_null(strstr(call.out, "setuid programs")); /* the first sentence is enough */
    varve_call(*state, &no_daemon, VARVE_ARGS("run", "create", "--help"), &call);
    static const char *const parts[] = {"--id ID",          "--plain-upper", "--size SIZE",
                                        "--token N",        "--detach",      "--key KEY",
                                        "--host unix:PATH", "--json"};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        assert_non_null(strstr(call.out, parts[i]));
}

static void test_version(void **state)
{
    struct varve_call call;
    varve_call(*state, &no_daemon, VARVE_ARGS("--version"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "varve " VARVE_VERSION "\n");
    varve_call(*state, &no_daemon, VARVE_ARGS("image", "ls", "--version"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "varve " VARVE_VERSION "\n");
}

static void test_global_options_stand_anywhere(void **state)
{
    static const struct fake_answer answer = {.status = 200, .body = "{\"images\":[]}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    static const char *const cases[][4] = {
        {"--json", "image", "ls"}, {"image", "--json", "ls"}, {"image", "ls", "--json"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        varve_call(*state, &setup, cases[i], &call);
        assert_int_equal(call.status, 0);
        assert_string_equal(call.out, "{\"images\":[]}\n");
        varve_call_free(&call);
    }
}

static void test_host_from_the_environment(void **state)
{
    char host[200];
    snprintf(host, sizeof host, "unix:%s", scratch_path(*state, "elsewhere"));
    assert_int_equal(setenv("VARVE_HOST", host, 1), 0);
    struct varve_call call;
    varve_call(*state, &no_daemon, VARVE_ARGS("image", "ls"), &call);
    varve_call_expect_error(&call, 5, "/sock"); /* --host is given, and wins */
    unsetenv("VARVE_HOST");
}

static void test_an_absent_daemon_is_status_five(void **state)
{
    static const char *const cases[][4] = {
        {"image", "ls"},          {"run", "rm", "r"},           {"job", "wait", "j-1"},
        {"image", "pull", "a:1"}, {"run", "exec", "r", "true"}, {"snapshot", "push", "s"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        const char *args[5] = {0};
        for (size_t k = 0; k < 4; k++)
            args[k] = cases[i][k];
        varve_call(*state, &no_daemon, args, &call);
        varve_call_expect_error(&call, 5, "varved is not reachable at unix:/");
        assert_non_null(strstr(call.err, "start varved"));
    }
}

static void test_status_of_the_daemons_failures(void **state)
{
    static const struct {
        const char *code;
        int status;
    } cases[] = {{"invalid", 2},  {"not_found", 3}, {"exists", 4}, {"conflict", 4}, {"denied", 1},
                 {"no_space", 1}, {"internal", 1},  {"new", 1},
                 {"unreachable", 1} /* a registry: not the daemon */};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char body[200];
        snprintf(body, sizeof body,
                 "{\"error\":{\"code\":\"%s\",\"message\":\"a\\nb\",\"hint\":\"do\"}}",
                 cases[i].code);
        struct fake_answer answer = {.status = 400, .body = body};
        struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
        struct varve_call call;
        varve_call(*state, &setup, VARVE_ARGS("run", "inspect", "r"), &call);
        varve_call_expect_error(&call, cases[i].status, "varve: a?b; do\n");
        varve_call_free(&call);
    }
}

static void test_output_that_cannot_be_written_is_a_failure(void **state)
{
    char command[500];
    snprintf(command, sizeof command, "%s --version > /dev/full 2> %s", VARVE_PROGRAM,
             scratch_path(*state, "full"));
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    struct spawn spawn = {.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1};
    pid_t pid = spawn_start(&spawn, NULL);
    assert_int_equal(spawn_wait(pid, NULL), 1);
    assert_true(access(scratch_path(*state, "full"), F_OK) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_wrong_command_lines, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_help, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_version, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_global_options_stand_anywhere, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_host_from_the_environment, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_an_absent_daemon_is_status_five, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_status_of_the_daemons_failures, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_output_that_cannot_be_written_is_a_failure,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
