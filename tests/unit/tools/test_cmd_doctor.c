#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct varve_call_setup no_daemon = {0};

static void test_lines_for_people(void **state)
{
    struct varve_call call;
    varve_call(*state, &no_daemon, VARVE_ARGS("doctor"), &call);
    assert_int_equal(call.status, 0); /* the reference platform has what is needed */
    static const char *const names[] = {
        "kernel",         "overlayfs",       "EROFS",         "io_uring",    "/dev/fuse",
        "loop devices",   "user namespaces", "bwrap",         "pasta",       "helper programs",
        "cgroup freezer", "capabilities",    "varved",        "data space",  "run space",
        "FUSE resend",    "e2fsprogs",       "locked memory", "I/O flusher", "OOM score",
        "open files",     "udev rule",       "online resize", "data disk"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_non_null(strstr(call.out, names[i]));
    assert_non_null(strstr(call.out, "WARN     varved           varved is not reachable at unix:"));
    assert_non_null(strstr(call.out, "What this version needs is there."));
}

static void test_document(void **state)
{
    const struct scratch *scratch = *state;
    char body[300];
    snprintf(body, sizeof body,
             "{\"version\":\"9.9\",\"node\":\"n1\",\"data_dir\":\"%s\",\"run_dir\":\"/\"}",
             scratch->path);
    struct fake_answer answer = {.status = 200, .body = body};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(scratch, &setup, VARVE_ARGS("doctor", "--json"), &call);
    cleanup_json json_t *document = json_loads(call.out, 0, NULL);
    assert_true(json_is_true(json_object_get(document, "ok")));
    json_t *checks = json_object_get(document, "checks");
    assert_int_equal(json_array_size(checks), 25);
    size_t i;
    json_t *check;
    bool daemon = false;
    bool data = false;
    json_array_foreach (checks, i, check) {
        const char *found = json_string_value(json_object_get(check, "found"));
        assert_non_null(found);
        assert_true(json_is_string(json_object_get(check, "status")));
        assert_true(json_is_boolean(json_object_get(check, "needed")));
        assert_non_null(json_object_get(check, "effect"));
        daemon = daemon || strcmp(found, "version 9.9, node n1") == 0;
        data = data || strstr(found, scratch->path);
    }
    assert_true(daemon);
    assert_true(data); /* the daemon's directory, not the default */
    varve_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines_for_people, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_document, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
