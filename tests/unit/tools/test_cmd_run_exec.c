/* `run exec` from the answer of the daemon to the sandbox; what happens inside is test_sandbox*.c.
 */
#include "cmd.h"

#include "cleanup.h"
#include "tiny_root.h"
#include "varve_call.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void make_body(const struct scratch *scratch, const char *rootfs, bool mounted,
                      char ret[1000])
{
    snprintf(ret, 1000,
             "{\"id\":\"r\",\"rootfs\":\"%s/%s\",\"lock\":\"%s/lock\",\"mounted\":%s,"
             "\"env\":[\"FROM=image\",\"BOTH=image\",7],\"cwd\":\"/srv\"}",
             scratch->path, rootfs, scratch->path, mounted ? "true" : "false");
}

/* Runs against a run whose document is `body`. */
static void exec_run(const struct scratch *scratch, const char *body, const char *const *args,
                     struct varve_call *call)
{
    struct fake_answer answer = {.status = 200, .body = body};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    varve_call(scratch, &setup, args, call);
}

static void test_wrong_command_lines(void **state)
{
    static const struct {
        const char *args[8];
        const char *says;
    } cases[] = {
        {{"run", "exec"}, "needs ID"},
        {{"run", "exec", "r"}, "needs one ID and a command"},
        {{"run", "exec", "r", "--"}, "needs one ID and a command"},
        {{"run", "exec", "r", "x", "--", "y"}, "needs one ID and a command"},
        {{"run", "exec", "r", "--net", "bridge", "--", "true"},
         "'bridge' is no value for --net; it is none, pasta or host"},
        {{"run", "exec", "r", "--env", "novalue", "--", "true"}, "'novalue' is no value for --env"},
        {{"run", "exec", "r", "ls", "-l"},
         "unknown option -l; options of the command stand behind --: varve run exec ID -- "},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        exec_run(*state, "{}", cases[i].args, &call);
        varve_call_expect_error(&call, 2, cases[i].says);
        assert_int_equal(call.fake.request_count, 0);
        varve_call_free(&call);
    }
}

static void test_a_command_runs(void **state)
{
    const struct scratch *scratch = *state;
    char body[1000];
    make_body(scratch, "t/rootfs", true, body);
    struct varve_call call;
    exec_run(scratch, body,
             VARVE_ARGS("run", "exec", "r", "--env", "BOTH=user", "--env=MORE=a b", "--", "sh",
                        "-c", "pwd; echo $FROM $BOTH $MORE; cat /proc/sys/kernel/hostname; exit 7"),
             &call);
    assert_string_equal(call.err, "");
    assert_string_equal(call.out, "/srv\nimage user a b\nr\n");
    assert_int_equal(call.status, 7);
    assert_int_equal(call.fake.request_count, 2); /* before and after the lock */
    varve_call_free(&call);
    exec_run(scratch, body, VARVE_ARGS("run", "exec", "r", "no-such-program"), &call);
    varve_call_expect_error(&call, 127, "cannot run no-such-program in r: no such program in it");
    varve_call_free(&call);
}

static void test_a_locked_run_is_a_conflict(void **state)
{
    const struct scratch *scratch = *state;
    char body[1000];
    make_body(scratch, "t/rootfs", true, body);
    cleanup_fd int lock = open(scratch_path(scratch, "lock"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    struct varve_call call;
    exec_run(scratch, body, VARVE_ARGS("run", "exec", "r", "--", "true"), &call);
    varve_call_expect_error(&call, 4, "run r is being committed or removed");
    varve_call_free(&call);
    assert_int_equal(flock(lock, LOCK_SH), 0); /* another sandbox */
    exec_run(scratch, body, VARVE_ARGS("run", "exec", "r", "--", "true"), &call);
    assert_int_equal(call.status, 0);
    varve_call_free(&call);
}

static void test_a_run_that_is_removed_meanwhile(void **state)
{
    const struct scratch *scratch = *state;
    char body[1000];
    make_body(scratch, "t/rootfs", true, body);
    struct fake_answer answers[] = {
        {.status = 200, .body = body},
        {.status = 404,
         .body = "{\"error\":{\"code\":\"not_found\",\"message\":\"no run r\",\"hint\":null}}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    struct varve_call call;
    varve_call(scratch, &setup, VARVE_ARGS("run", "exec", "r", "--", "true"), &call);
    varve_call_expect_error(&call, 3, "no run r");
    varve_call_free(&call);
}

/* The daemon is asked to mount it; where that does not help the command says so. */
static void test_a_run_that_is_not_mounted(void **state)
{
    const struct scratch *scratch = *state;
    char body[1000];
    char mounted[1000];
    struct varve_call call;
    make_body(scratch, "t/rootfs", false, body);
    make_body(scratch, "t/rootfs", true, mounted);
    struct fake_answer answers[] = {
        {.status = 200, .body = body},
        {.status = 200, .body = body},
        {.status = 202, .body = "{\"job\":\"j-1\"}"},
        {.status = 200, .body = "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{}}"},
        {.status = 200, .body = mounted}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 5};
    varve_call(scratch, &setup, VARVE_ARGS("run", "exec", "r", "--", "sh", "-c", "echo x"), &call);
    assert_string_equal(call.err, "");
    assert_string_equal(call.out, "x\n");
    assert_non_null(strstr(call.fake.requests[2], "POST /v1/runs/r/mount HTTP"));
    varve_call_free(&call);
    answers[4].body = body;
    varve_call(scratch, &setup, VARVE_ARGS("run", "exec", "r", "--", "true"), &call);
    varve_call_expect_error(&call, 4, "is not mounted at");
    assert_non_null(strstr(call.err, "varve recover"));
    varve_call_free(&call);
    make_body(scratch, "t/lower", true, body); /* a directory, as in another mount namespace */
    exec_run(scratch, body, VARVE_ARGS("run", "exec", "r", "--", "true"), &call);
    varve_call_expect_error(&call, 4, "another mount namespace");
    varve_call_free(&call);
}

/* Runs as the user that the daemon makes of a word. */
static void exec_as(const struct scratch *scratch, const char *answer, int status,
                    const char *const *args, struct varve_call *call)
{
    char body[1000];
    make_body(scratch, "t/rootfs", true, body);
    struct fake_answer answers[] = {{.status = 200, .body = body},
                                    {.status = 200, .body = body},
                                    {.status = status, .body = answer}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 3};
    varve_call(scratch, &setup, args, call);
}

static void test_a_user(void **state)
{
    static const struct {
        const char *answer;
        int status;
        int exit;
        const char *says;
    } cases[] = {
        {"{\"uid\":65536,\"gid\":0,\"groups\":[],\"home\":\"/\"}", 200, 2,
         "the uid 65536 is not among the ids 0 to 65535"},
        {"{\"uid\":0,\"gid\":70000,\"groups\":[],\"home\":\"/\"}", 200, 2, "the gid 70000"},
        {"{\"uid\":0,\"gid\":0,\"groups\":[70000],\"home\":\"/\"}", 200, 2, "the group 70000"},
        {"{\"uid\":-1,\"gid\":0,\"groups\":[],\"home\":\"/\"}", 200, 1, "has no uid"},
        {"{\"uid\":\"0\",\"gid\":0,\"groups\":[],\"home\":\"/\"}", 200, 1, "has no uid"},
        {"{\"uid\":0,\"gid\":0,\"groups\":[]}", 200, 1, "home"},
        {"{\"error\":{\"code\":\"not_found\",\"message\":\"no user u\",\"hint\":null}}", 404, 3,
         "no user u"},
    };
    struct varve_call call;
    exec_as(*state, "{\"uid\":12,\"gid\":13,\"groups\":[14],\"home\":\"/srv\"}", 200,
            VARVE_ARGS("run", "exec", "r", "--user", "u:g", "--", "sh", "-c",
                       "id -u; id -G; echo $HOME"),
            &call);
    assert_string_equal(call.err, "");
    assert_string_equal(call.out, "12\n13 14\n/srv\n");
    assert_non_null(strstr(call.fake.requests[2], "POST /v1/runs/r/user HTTP"));
    assert_non_null(strstr(call.fake.requests[2], "\r\n\r\n{\"user\":\"u:g\"}"));
    varve_call_free(&call);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        exec_as(*state, cases[i].answer, cases[i].status,
                VARVE_ARGS("run", "exec", "r", "--user", "u", "--", "true"), &call);
        varve_call_expect_error(&call, cases[i].exit, cases[i].says);
        varve_call_free(&call);
    }
}

static void test_documents_that_are_damaged(void **state)
{
    static const char *const bodies[] = {
        "{}", "{\"id\":\"r\"}", "{\"id\":\"r\",\"rootfs\":1,\"lock\":\"l\"}",
        "{\"id\":\"r\",\"rootfs\":\"/r\",\"lock\":\"/l\",\"mounted\":\"yes\"}",
        "{\"id\":\"r\",\"rootfs\":\"/r\",\"lock\":\"/l\",\"cwd\":[]}"};
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        struct varve_call call;
        exec_run(*state, bodies[i], VARVE_ARGS("run", "exec", "r", "--", "true"), &call);
        varve_call_expect_error(&call, 1, "the document of the run");
        varve_call_free(&call);
    }
}

static void test_locks_that_are_none(void **state)
{
    const struct scratch *scratch = *state;
    char body[1000];
    make_body(scratch, "t/rootfs", true, body);
    assert_int_equal(unlink(scratch_path(scratch, "lock")), 0);
    struct varve_call call;
    exec_run(scratch, body, VARVE_ARGS("run", "exec", "r", "--", "true"), &call);
    varve_call_expect_error(&call, 3, "has no lock file");
    varve_call_free(&call);
    assert_int_equal(symlink("/etc/passwd", scratch_path(scratch, "lock")), 0);
    exec_run(scratch, body, VARVE_ARGS("run", "exec", "r", "--", "true"), &call);
    varve_call_expect_error(&call, 1, "cannot open the lock");
    varve_call_free(&call);
    assert_int_equal(unlink(scratch_path(scratch, "lock")), 0);
    scratch_write(scratch, "lock", "", 0);
}

static int setup(void **state)
{
    int rc = scratch_setup(state);
    if (rc == 0) {
        tiny_root_make(*state);
        scratch_write(*state, "lock", "", 0);
    }
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_command_lines),
        cmocka_unit_test(test_a_command_runs),
        cmocka_unit_test(test_a_locked_run_is_a_conflict),
        cmocka_unit_test(test_a_run_that_is_removed_meanwhile),
        cmocka_unit_test(test_a_run_that_is_not_mounted),
        cmocka_unit_test(test_a_user),
        cmocka_unit_test(test_documents_that_are_damaged),
        cmocka_unit_test(test_locks_that_are_none),
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
