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
#define DONE                                                                                       \
    "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"digest\":\"sha256:ab\",\"names\":[\"a:1\"]," \
    "\"size\":2048}}"

static const struct fake_answer job_answers[] = {{.status = 202, .body = JOB},
                                                 {.status = 200, .body = DONE}};
static const struct varve_call_setup job_setup = {.answers = job_answers, .answer_count = 2};

static void test_pull(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup, VARVE_ARGS("image", "pull", "host:5000/a:1"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "pulled a:1  sha256:ab  2.0 KiB\n");
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/images/pull HTTP"));
    assert_non_null(strstr(call.fake.requests[0], "\r\n\r\n{\"reference\":\"host:5000/a:1\"}"));
    varve_call_free(&call);
}

static void test_import_makes_the_path_absolute(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "rootfs.tar", "x", 1);
    assert_int_equal(mkdir(scratch_path(scratch, "dir"), 0755), 0);
    assert_int_equal(symlink("../rootfs.tar", scratch_path(scratch, "dir/link")), 0);
    cleanup_free char *real = realpath(scratch_path(scratch, "rootfs.tar"), NULL);
    cleanup_fd int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(chdir(scratch_path(scratch, "dir")), 0);
    struct varve_call call;
    varve_call(scratch, &job_setup, VARVE_ARGS("image", "import", "link", "--name", "a:1"), &call);
    assert_int_equal(fchdir(here), 0);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "imported a:1  sha256:ab  2.0 KiB\n");
    char body[500];
    snprintf(body, sizeof body, "\r\n\r\n{\"name\":\"a:1\",\"path\":\"%s\"}", real);
    assert_non_null(strstr(call.fake.requests[0], body));
    varve_call_free(&call);
}

static void test_import_of_one_image_of_several(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "two.tar", "x", 1);
    scratch_write(scratch, "odd:1", "x", 1);
    cleanup_free char *real = realpath(scratch->path, NULL);
    static const struct {
        const char *word, *sent;
    } cases[] = {{"two.tar:a:1", "two.tar:a:1"},
                 {"./two.tar:h:5/a/b:1", "two.tar:h:5/a/b:1"},
                 {"odd:1", "odd:1"},
                 {"odd:1:a", "odd:1:a"}};
    cleanup_fd int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        assert_int_equal(chdir(scratch->path), 0);
        varve_call(scratch, &job_setup, VARVE_ARGS("image", "import", cases[i].word), &call);
        assert_int_equal(fchdir(here), 0);
        assert_int_equal(call.status, 0);
        char body[500];
        snprintf(body, sizeof body, "\r\n\r\n{\"path\":\"%s/%s\"}", real, cases[i].sent);
        if (!strstr(call.fake.requests[0], body))
            fail_msg("%s is not in %s", body, call.fake.requests[0]);
        varve_call_free(&call);
    }
    struct varve_call call;
    varve_call(scratch, &job_setup, VARVE_ARGS("image", "import", "none.tar:a:1"), &call);
    varve_call_expect_error(&call, 3, "cannot import none.tar:a:1: no such file");
    varve_call_free(&call);
}

static void test_import_of_nothing(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup, VARVE_ARGS("image", "import", "/no/such.tar"), &call);
    varve_call_expect_error(&call, 3, "cannot import /no/such.tar: no such file");
    assert_int_equal(call.fake.request_count, 0);
    varve_call_free(&call);
    varve_call(*state, &job_setup, VARVE_ARGS("image", "import", "/etc/passwd/x"), &call);
    varve_call_expect_error(&call, 3, "no such file");
    varve_call_free(&call);
}

static void test_import_of_standard_input(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 201, .body = "{\"upload\":\"u-7\",\"size\":5}"},
        {.status = 202, .body = JOB},
        {.status = 200, .body = DONE}};
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "bytes", 5), 5);
    close(ends[1]);
    struct varve_call_setup setup = {.answers = answers, .answer_count = 3, .stdin_fd = ends[0]};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("image", "import", "-", "--name", "a"), &call);
    close(ends[0]);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/uploads HTTP"));
    assert_non_null(strstr(call.fake.requests[0], "\r\n5\r\nbytes\r\n0\r\n\r\n"));
    assert_non_null(strstr(call.fake.requests[1], "\r\n\r\n{\"name\":\"a\",\"upload\":\"u-7\"}"));
    varve_call_free(&call);
}

static void test_import_from_a_terminal_is_refused(void **state)
{
    cleanup_fd int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    cleanup_fd int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct varve_call_setup setup = job_setup;
    setup.stdin_fd = slave;
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("image", "import", "-", "--name=a"), &call);
    varve_call_expect_error(&call, 2, "standard input is a terminal");
    assert_int_equal(call.fake.request_count, 0);
    varve_call_free(&call);
}

static void test_import_of_standard_input_needs_a_name(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup, VARVE_ARGS("image", "import", "-"), &call);
    varve_call_expect_error(&call, 2, "has no name; give one with --name NAME[:TAG]");
    assert_int_equal(call.fake.request_count, 0);
    varve_call_free(&call);
}

static void test_the_name_that_was_asked_for_is_said(void **state)
{
    static const struct {
        const char *asked;
        const char *says;
    } cases[] = {
        {"b:1", "pulled b:1  "}, {"b", "pulled b:latest  "},  {"ab:1", "pulled ab:1  "},
        {"a", "pulled a:1  "},   {"other:1", "pulled a:1  "}, {"", "pulled a:1  "},
    };
    static const struct fake_answer answers[] = {
        {.status = 202, .body = JOB},
        {.status = 200,
         .body = "{\"state\":\"done\",\"result\":{\"digest\":\"sha256:ab\",\"size\":1,"
                 "\"names\":[\"a:1\",null,\"ab:1\",\"b:1\",\"b:latest\"]}}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        varve_call(*state, &setup, VARVE_ARGS("image", "pull", cases[i].asked), &call);
        assert_int_equal(call.status, 0);
        assert_ptr_equal(strstr(call.out, cases[i].says), call.out);
        varve_call_free(&call);
    }
}

static void test_words_that_are_not_utf8(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup, VARVE_ARGS("image", "pull", "a\xff:1"), &call);
    varve_call_expect_error(&call, 2, "the reference is not UTF-8");
    varve_call_free(&call);
}

static void test_ls_and_inspect(void **state)
{
    static const struct fake_answer list = {
        .status = 200,
        .body = "{\"images\":[{\"names\":[\"a\\u001b:1\"],\"digest\":\"sha256:0123456789abcdef\","
                "\"size\":1048576,\"platform\":\"linux/amd64\",\"origin\":\"import\","
                "\"created\":null}]}"};
    struct varve_call_setup setup = {.answers = &list, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("image", "ls"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "NAME     DIGEST        SIZE     PLATFORM     ORIGIN  AGE\n"
                                  "a\\x1b:1  0123456789ab  1.0 MiB  linux/amd64  import  -\n");
    varve_call_free(&call);
    static const struct fake_answer one = {.status = 200, .body = "{\"id\":\"sha256:ab\"}"};
    setup.answers = &one;
    varve_call(*state, &setup, VARVE_ARGS("image", "inspect", "h:1/a/b:1"), &call);
    assert_string_equal(call.out, "id  sha256:ab\n");
    assert_non_null(strstr(call.fake.requests[0], "GET /v1/images/h:1/a/b:1 HTTP"));
    varve_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pull, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_import_makes_the_path_absolute, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_import_of_one_image_of_several, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_import_of_nothing, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_import_of_standard_input, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_import_from_a_terminal_is_refused, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_import_of_standard_input_needs_a_name, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_the_name_that_was_asked_for_is_said, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_words_that_are_not_utf8, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_ls_and_inspect, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
