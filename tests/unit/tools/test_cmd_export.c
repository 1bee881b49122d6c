#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define JOB "{\"job\":\"j-1\"}"
#define DONE(member)                                                                               \
    "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"digest\":\"sha256:ab\",\"size\":2048,"       \
    "\"format\":\"oci-archive\"," member "}}"

static const struct fake_answer file_answers[] = {
    {.status = 202, .body = JOB}, {.status = 200, .body = DONE("\"path\":\"/d/x.tar\"")}};
static const struct varve_call_setup file_setup = {.answers = file_answers, .answer_count = 2};

static void test_to_a_file(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdir(scratch_path(scratch, "dir"), 0755), 0);
    assert_int_equal(symlink("dir", scratch_path(scratch, "link")), 0);
    cleanup_free char *real = realpath(scratch_path(scratch, "dir"), NULL);
    cleanup_fd int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(chdir(scratch->path), 0);
    struct varve_call call;
    varve_call(scratch, &file_setup, VARVE_ARGS("image", "export", "a:1", "link/new.tar"), &call);
    assert_int_equal(fchdir(here), 0);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "exported a:1  /d/x.tar  2.0 KiB\n");
    char body[500];
    snprintf(body, sizeof body, "\r\n\r\n{\"path\":\"%s/new.tar\",\"reference\":\"a:1\"}", real);
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/images/export HTTP"));
    assert_non_null(strstr(call.fake.requests[0], body));
    varve_call_free(&call);
}

static void test_paths(void **state)
{
    const struct scratch *scratch = *state;
    struct varve_call call;
    varve_call(scratch, &file_setup, VARVE_ARGS("image", "export", "a:1", "/x.tar"), &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.fake.requests[0], "{\"path\":\"/x.tar\","));
    varve_call_free(&call);
    varve_call(scratch, &file_setup, VARVE_ARGS("image", "export", "a:1", "/no/such/x"), &call);
    varve_call_expect_error(&call, 3, "there is no such directory");
    varve_call_free(&call);
    static const char *const wrong[] = {"/tmp/", "..", "/tmp/.", ""};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        varve_call(scratch, &file_setup, VARVE_ARGS("image", "export", "a:1", wrong[i]), &call);
        varve_call_expect_error(&call, 2, "is not the name of a file");
        assert_int_equal(call.fake.request_count, 0);
        varve_call_free(&call);
    }
    varve_call(scratch, &file_setup, VARVE_ARGS("image", "export", "a:1"), &call);
    varve_call_expect_error(&call, 2, "needs REF PATH|-");
    varve_call_free(&call);
}

static void test_options(void **state)
{
    struct varve_call call;
    varve_call(*state, &file_setup,
               VARVE_ARGS("image", "export", "a:1", "/x", "--format=docker-archive", "--force",
                          "--key", "k"),
               &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.fake.requests[0], "Idempotency-Key: k\r\n"));
    assert_non_null(strstr(call.fake.requests[0],
                           "\r\n\r\n{\"force\":true,\"format\":\"docker-archive\",\"path\":\"/x\","
                           "\"reference\":\"a:1\"}"));
    varve_call_free(&call);
    varve_call(*state, &file_setup, VARVE_ARGS("--json", "image", "export", "a:1", "/x"), &call);
    assert_int_equal(call.status, 0);
    cleanup_json json_t *json = json_loads(call.out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json, "path")), "/d/x.tar");
    varve_call_free(&call);
}

static void test_snapshots(void **state)
{
    struct varve_call call;
    varve_call(*state, &file_setup, VARVE_ARGS("snapshot", "export", "s-1", "/x"), &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/snapshots/s-1/export HTTP"));
    assert_non_null(strstr(call.fake.requests[0], "\r\n\r\n{\"path\":\"/x\"}"));
    varve_call_free(&call);
    static const struct fake_answer answers[] = {{.status = 200, .body = "{\"id\":\"s-2\"}"},
                                                 {.status = 202, .body = JOB},
                                                 {.status = 200, .body = DONE("\"path\":\"/x\"")}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 3};
    varve_call(*state, &setup, VARVE_ARGS("snapshot", "export", "a:1", "/x"), &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.fake.requests[0], "GET /v1/snapshots/a:1 HTTP"));
    assert_non_null(strstr(call.fake.requests[1], "POST /v1/snapshots/s-2/export HTTP"));
    varve_call_free(&call);
}

static void test_to_standard_output(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 202, .body = JOB},
        {.status = 200, .body = DONE("\"export\":\"j-1\"")},
        {.status = 200, .body = "bytes of\nan archive"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 3};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("image", "export", "a:1", "-"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "bytes of\nan archive");
    assert_string_equal(call.err, "");
    assert_non_null(strstr(call.fake.requests[0], "\r\n\r\n{\"reference\":\"a:1\"}"));
    assert_non_null(strstr(call.fake.requests[2], "GET /v1/exports/j-1 HTTP"));
    varve_call_free(&call);
}

static void test_a_download_that_fails(void **state)
{
    static const struct {
        struct fake_answer last;
        int status;
        const char *words;
    } cases[] = {
        {{.status = 404,
          .body = "{\"error\":{\"code\":\"not_found\",\"message\":\"no archive\",\"hint\":null}}"},
         3,
         "no archive"},
        {{.status = 500, .body = "oops"}, 1, "something else than varved"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct fake_answer answers[] = {{.status = 202, .body = JOB},
                                              {.status = 200, .body = DONE("\"export\":\"j-1\"")},
                                              cases[i].last};
        struct varve_call_setup setup = {.answers = answers, .answer_count = 3};
        struct varve_call call;
        varve_call(*state, &setup, VARVE_ARGS("image", "export", "a:1", "-"), &call);
        varve_call_expect_error(&call, cases[i].status, cases[i].words);
        varve_call_free(&call);
    }
}

static void test_half_an_archive(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 202, .body = JOB},
        {.status = 200, .body = DONE("\"export\":\"j-1\"")},
        {.raw = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 3};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("image", "export", "a:1", "-"), &call);
    assert_int_equal(call.status, 5);
    assert_string_equal(call.out, "half");
    assert_non_null(strstr(call.err, "stopped answering"));
    varve_call_free(&call);
}

static void test_standard_output_is_the_archive_alone(void **state)
{
    struct varve_call call;
    static const char *const wrong[] = {"--json", "--detach", "--force"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        varve_call(*state, &file_setup, VARVE_ARGS("image", "export", "a:1", "-", wrong[i]), &call);
        varve_call_expect_error(&call, 2, wrong[i]);
        assert_int_equal(call.fake.request_count, 0);
        varve_call_free(&call);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_to_a_file, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_paths, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_options, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_snapshots, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_to_standard_output, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_download_that_fails, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_half_an_archive, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_standard_output_is_the_archive_alone, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
