#include "cmd.h"

#include "cleanup.h"
#include "fdio.h"
#include "varve_call.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct fake_answer answers[] = {
    {.status = 200, .body = "{\"id\":\"r\",\"mounted\":true}"},
    {.status = 200, .body = "{\"root\":{\"path\":\"/r\"},\"process\":{\"args\":[\"sh\"]}}"}};
static const struct varve_call_setup setup = {.answers = answers, .answer_count = 2};

static void assert_config(const struct scratch *scratch, const char *name)
{
    cleanup_buf struct buf text = BUF_INIT(65536);
    struct stat st;
    assert_int_equal(fdio_read_file(scratch->fd, name, &text, NULL), 0);
    assert_string_equal(buf_str(&text),
                        "{\n  \"process\": {\n    \"args\": [\n      \"sh\"\n    ]\n"
                        "  },\n  \"root\": {\n    \"path\": \"/r\"\n  }\n}\n");
    assert_int_equal(fstatat(scratch->fd, name, &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_a_bundle(void **state)
{
    const struct scratch *scratch = *state;
    char dir[200];
    char line[220];
    struct varve_call call;
    snprintf(dir, sizeof dir, "%s/new", scratch->path);
    snprintf(line, sizeof line, "%s\n", dir);
    for (int i = 0; i < 2; i++) { /* the second one replaces the first */
        varve_call(scratch, &setup, VARVE_ARGS("run", "bundle", "r", dir, "--", "sh", "-c", "x"),
                   &call);
        assert_int_equal(call.status, 0);
        assert_string_equal(call.out, line);
        assert_non_null(strstr(call.err, "--overlay2=none"));
        assert_non_null(strstr(call.fake.requests[1], "POST /v1/runs/r/bundle HTTP"));
        assert_non_null(strstr(call.fake.requests[1],
                               "\r\n\r\n{\"args\":[\"sh\",\"-c\",\"x\"],\"terminal\":false}"));
        varve_call_free(&call);
        assert_config(scratch, "new/config.json");
    }
    /* What a killed call left does not count. */
    scratch_write(scratch, "new/.tmp-0123456789abcdef", "", 0);
    varve_call(scratch, &setup,
               VARVE_ARGS("--json", "run", "bundle", "r", dir, "--user", "1:2", "--workdir", "/w",
                          "--env", "A=b", "--env=C=", "--tty"),
               &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.err, "");
    assert_non_null(strstr(call.out, "\"rootfs\":\"/r\""));
    assert_non_null(strstr(call.fake.requests[1],
                           "\r\n\r\n{\"cwd\":\"/w\",\"env\":[\"A=b\",\"C=\"],\"terminal\":true,"
                           "\"user\":\"1:2\"}"));
    varve_call_free(&call);
}

static void test_directories_that_are_none(void **state)
{
    const struct scratch *scratch = *state;
    struct varve_call call;
    assert_int_equal(mkdirat(scratch->fd, "full", 0755), 0);
    scratch_write(scratch, "full/config.json.old", "", 0);
    scratch_write(scratch, "file", "", 0);
    static const struct {
        const char *name;
        int status;
        const char *says;
    } cases[] = {{"full", 4, "holds 'config.json.old' and is no bundle"},
                 {"file", 1, "cannot open the directory"},
                 {"no/such", 1, "cannot make the directory"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        varve_call(scratch, &setup,
                   VARVE_ARGS("run", "bundle", "r", scratch_path(scratch, cases[i].name)), &call);
        varve_call_expect_error(&call, cases[i].status, cases[i].says);
        assert_int_equal(call.fake.request_count, 0);
        varve_call_free(&call);
    }
}

static void test_a_refusal_writes_nothing(void **state)
{
    const struct scratch *scratch = *state;
    static const struct fake_answer refused[] = {
        {.status = 200, .body = "{\"id\":\"r\",\"mounted\":true}"},
        {.status = 400,
         .body = "{\"error\":{\"code\":\"invalid\",\"message\":\"no command\",\"hint\":null}}"}};
    struct varve_call_setup own = {.answers = refused, .answer_count = 2};
    struct varve_call call;
    varve_call(scratch, &own, VARVE_ARGS("run", "bundle", "r", scratch_path(scratch, "b")), &call);
    varve_call_expect_error(&call, 2, "no command");
    varve_call_free(&call);
    assert_int_equal(unlinkat(scratch->fd, "b", AT_REMOVEDIR), 0); /* so it is empty */
}

static void test_a_run_that_is_not_mounted(void **state)
{
    const struct scratch *scratch = *state;
    static const struct fake_answer own[] = {
        {.status = 200, .body = "{\"id\":\"r\",\"mounted\":false}"},
        {.status = 202, .body = "{\"job\":\"j-1\"}"},
        {.status = 200, .body = "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"id\":\"r\"}}"},
        {.status = 200, .body = "{\"root\":{\"path\":\"/r\"},\"process\":{\"args\":[\"sh\"]}}"}};
    struct varve_call_setup mounts = {.answers = own, .answer_count = 4};
    struct varve_call call;
    varve_call(scratch, &mounts, VARVE_ARGS("run", "bundle", "r", scratch_path(scratch, "b")),
               &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.fake.requests[1], "POST /v1/runs/r/mount HTTP"));
    assert_config(scratch, "b/config.json");
    varve_call_free(&call);
}

static void test_wrong_command_lines(void **state)
{
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "bundle", "r"), &call);
    varve_call_expect_error(&call, 2, "run bundle");
    varve_call_free(&call);
    varve_call(*state, &setup, VARVE_ARGS("run", "bundle", "r", "d", "--env", "x"), &call);
    varve_call_expect_error(&call, 2, "'x' is no value for --env");
    assert_int_equal(call.fake.request_count, 0);
    varve_call_free(&call);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_bundle),
        TEST(test_directories_that_are_none),
        TEST(test_a_refusal_writes_nothing),
        TEST(test_a_run_that_is_not_mounted),
        TEST(test_wrong_command_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
