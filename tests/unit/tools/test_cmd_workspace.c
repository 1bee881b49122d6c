#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct fake_answer job_answers[] = {
    {.status = 202, .body = "{\"job\":\"j-1\"}"},
    {.status = 200,
     .body = "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"name\":\"w\",\"state\":\"mounted\","
             "\"size\":10737418240,\"path\":\"/mnt/w\"}}"}};
static const struct varve_call_setup job_setup = {.answers = job_answers, .answer_count = 2};

static void expect_request(const struct scratch *scratch, const char *const *args, const char *line,
                           const char *body)
{
    struct varve_call call;
    char end[5000];
    varve_call(scratch, &job_setup, args, &call);
    if (call.status != 0)
        fail_msg("%s", call.err);
    assert_string_equal(call.out, "w  mounted  10.0 GiB  /mnt/w\n");
    snprintf(end, sizeof end, "\r\n\r\n%s", body);
    if (!strstr(call.fake.requests[0], line) || !strstr(call.fake.requests[0], end))
        fail_msg("%s", call.fake.requests[0]);
    varve_call_free(&call);
}

static void test_verbs_send_what_was_said(void **state)
{
    static const struct {
        const char *args[8];
        const char *line;
        const char *body;
    } cases[] = {
        {{"workspace", "create", "w"}, "POST /v1/workspaces HTTP", "{\"name\":\"w\"}"},
        {{"workspace", "create", "w", "--size", "10G"},
         "POST /v1/workspaces HTTP",
         "{\"name\":\"w\",\"size\":10737418240}"},
        {{"workspace", "create", "--size=0", "w"},
         "POST /v1/workspaces HTTP",
         "{\"name\":\"w\",\"size\":0}"},
        {{"workspace", "unmount", "w"}, "POST /v1/workspaces/w/unmount HTTP", "{}"},
        {{"workspace", "unmount", "--abandon", "w"},
         "POST /v1/workspaces/w/unmount HTTP",
         "{\"abandon\":true}"},
        {{"workspace", "resize", "w", "20GiB"},
         "POST /v1/workspaces/w/resize HTTP",
         "{\"size\":21474836480}"},
        {{"workspace", "mount", "w", "/"}, "POST /v1/workspaces/w/mount HTTP", "{\"path\":\"/\"}"},
        {{"workspace", "mount", "--ro", "w", "/usr/../"},
         "POST /v1/workspaces/w/mount HTTP",
         "{\"path\":\"/usr/../\",\"read_only\":true}"},
        {{"workspace", "mount", "a/b?c", "/"},
         "POST /v1/workspaces/a%2Fb%3Fc/mount HTTP",
         "{\"path\":\"/\"}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_request(*state, cases[i].args, cases[i].line, cases[i].body);
}

/* The daemon is somewhere else. Nothing on the way is looked at here, be it missing or a link. */
static void test_paths_become_absolute(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(symlinkat("loop", scratch->fd, "loop"), 0);
    cleanup_free char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(scratch->path), 0);
    cleanup_free char *here = getcwd(NULL, 0);
    static const char *const paths[] = {"none", "./none/", "none/../other", "loop", "."};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        char body[5000];
        snprintf(body, sizeof body, "{\"path\":\"%s/%s\"}", here, paths[i]);
        expect_request(scratch, VARVE_ARGS("workspace", "mount", "w", paths[i]),
                       "POST /v1/workspaces/w/mount HTTP", body);
    }
    assert_int_equal(chdir(before), 0);
}

static void test_a_working_directory_that_is_gone(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_free char *before = getcwd(NULL, 0);
    struct varve_call call;
    assert_int_equal(mkdirat(scratch->fd, "gone", 0700), 0);
    assert_int_equal(chdir(scratch_path(scratch, "gone")), 0);
    assert_int_equal(unlinkat(scratch->fd, "gone", AT_REMOVEDIR), 0);
    varve_call(scratch, &job_setup, VARVE_ARGS("workspace", "mount", "w", "x"), &call);
    assert_int_equal(chdir(before), 0);
    varve_call_expect_error(&call, 1, "'x': no working directory: No such file");
    assert_int_equal(call.fake.request_count, 0);
    varve_call_free(&call);
}

static void test_what_is_refused_here(void **state)
{
    const struct scratch *scratch = *state;
    static const struct {
        const char *args[6];
        int status;
        const char *text;
    } cases[] = {
        {{"workspace", "create", "w", "--size", "big"}, 2, "'big' is not a size; use whole bytes"},
        {{"workspace", "create", "w", "--size", "-1"}, 2, "'-1' is not a size"},
        {{"workspace", "create", "w", "--size", ""}, 2, "'' is not a size"},
        {{"workspace", "create", "w", "--size", "99999P"}, 2, "'99999P' is not a size"},
        {{"workspace", "create"}, 2, "needs NAME"},
        {{"workspace", "resize", "w"}, 2, "needs NAME SIZE"},
        {{"workspace", "resize", "w", "1.5G"}, 2, "'1.5G' is not a size"},
        {{"workspace", "mount", "w"}, 2, "needs NAME[@CHECKPOINT] PATH"},
        {{"workspace", "mount", "w", ""}, 2, "'': that is no path"},
        {{"workspace", "create", "\xff"}, 2, "the name is not UTF-8"},
        {{"workspace", "unmount", "w", "x"}, 2, "unexpected word 'x'"},
        {{"workspace", "unmount", ""}, 2, "name"},
        {{"workspace", "fork", "w"}, 2, "needs NAME NEW"},
        {{"workspace", "fork", "w", "x", "--count=0"}, 2, "--count is 1 to 1000, not '0'"},
        {{"workspace", "rollback", "w"}, 2, "needs NAME CHECKPOINT"},
        {{"workspace", "clone", "w"}, 2, "varve workspace has no action 'clone'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        varve_call(scratch, &job_setup, cases[i].args, &call);
        varve_call_expect_error(&call, cases[i].status, cases[i].text);
        assert_int_equal(call.fake.request_count, 0);
        varve_call_free(&call);
    }
}

static void test_documents(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup, VARVE_ARGS("--json", "workspace", "mount", "w", "/"), &call);
    assert_string_equal(call.out, "{\"lazy\":false,\"name\":\"w\",\"path\":\"/mnt/w\","
                                  "\"size\":10737418240,\"state\":\"mounted\"}\n");
    varve_call_free(&call);
    varve_call(*state, &job_setup, VARVE_ARGS("--json", "workspace", "unmount", "w"), &call);
    assert_null(strstr(call.out, "lazy"));
    varve_call_free(&call);
    static const struct fake_answer lazy[] = {
        {.status = 202, .body = "{\"job\":\"j-1\"}"},
        {.status = 200, .body = "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"lazy\":true}}"}};
    struct varve_call_setup setup = {.answers = lazy, .answer_count = 2};
    varve_call(*state, &setup, VARVE_ARGS("--json", "workspace", "mount", "w", "/"), &call);
    assert_string_equal(call.out, "{\"lazy\":true}\n"); /* a later daemon knows better */
    varve_call_free(&call);
}

static void test_detach_and_key(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup,
               VARVE_ARGS("workspace", "create", "w", "--detach", "--key", "k 1"), &call);
    assert_int_equal(call.status, 2); /* no key */
    varve_call_free(&call);
    varve_call(*state, &job_setup,
               VARVE_ARGS("workspace", "resize", "--detach", "w", "1G", "--key=k1"), &call);
    assert_string_equal(call.out, "j-1\n");
    assert_int_equal(call.fake.request_count, 1);
    assert_non_null(strstr(call.fake.requests[0], "Idempotency-Key: k1"));
    varve_call_free(&call);
}

static void test_a_workspace_that_is_not_there(void **state)
{
    static const struct fake_answer answer = {
        .status = 404,
        .body = "{\"error\":{\"code\":\"not_found\",\"message\":\"there is no workspace w\","
                "\"hint\":null}}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("workspace", "unmount", "w"), &call);
    varve_call_expect_error(&call, 3, "there is no workspace w; `varve workspace ls` lists");
    varve_call_free(&call);
}

static void test_ls(void **state)
{
    static const struct fake_answer answer = {
        .status = 200,
        .body = "{\"workspaces\":[{\"name\":\"a\",\"state\":\"mounted\",\"size\":1073741824,"
                "\"stored\":5242880,\"filesystem\":{\"used\":1048576},\"path\":\"/mnt/a\","
                "\"created\":null},{\"name\":\"b\",\"state\":\"detached\",\"size\":1099511627776,"
                "\"stored\":0,\"filesystem\":null,\"path\":null,\"created\":null}]}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("workspace", "ls"), &call);
    assert_string_equal(call.out, "NAME  STATE     SIZE     USED     STORED   PATH    AGE\n"
                                  "a     mounted   1.0 GiB  1.0 MiB  5.0 MiB  /mnt/a  -\n"
                                  "b     detached  1.0 TiB  -        0 B      -       -\n");
    varve_call_free(&call);
}

static void test_inspect(void **state)
{
    static const struct fake_answer answer = {
        .status = 200,
        .body =
            "{\"name\":\"a\",\"stored\":5242880,\"filesystem\":{\"used\":1048576},"
            "\"worker\":{\"locked_bytes\":1024},\"incident\":{\"when\":\"2020-01-01T00:00:00Z\","
            "\"what\":\"worker died\"}}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("workspace", "inspect", "a"), &call);
    static const char *const words[] = {
        "5.0 MiB", "1.0 MiB", "1.0 KiB", "2020-01-01T00:00:00Z (", " ago)", "worker died"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        assert_non_null(strstr(call.out, words[i]));
    assert_non_null(strstr(call.fake.requests[0], "GET /v1/workspaces/a HTTP"));
    varve_call_free(&call);
}

static void test_a_file_system_that_grows_later(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 202, .body = "{\"job\":\"j-1\"}"},
        {.status = 200,
         .body =
             "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"name\":\"w\",\"state\":\"mounted\","
             "\"size\":1073741824,\"filesystem_grown\":false}}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("workspace", "resize", "w", "1G"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "w  mounted  1.0 GiB\n");
    assert_non_null(
        strstr(call.err, "varve: warning: the file system on it grows at its next mount"));
    varve_call_free(&call);
}

static void test_rm(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup, VARVE_ARGS("workspace", "rm", "w"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "removed w\n");
    assert_non_null(strstr(call.fake.requests[0], "DELETE /v1/workspaces/w HTTP"));
    varve_call_free(&call);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_verbs_send_what_was_said),
        TEST(test_paths_become_absolute),
        TEST(test_a_working_directory_that_is_gone),
        TEST(test_what_is_refused_here),
        TEST(test_documents),
        TEST(test_detach_and_key),
        TEST(test_a_workspace_that_is_not_there),
        TEST(test_ls),
        TEST(test_inspect),
        TEST(test_a_file_system_that_grows_later),
        TEST(test_rm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
