#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_with_a_daemon(void **state)
{
    static const struct fake_answer answer = {
        .status = 200,
        .body = "{\"version\":\"9.9\",\"api\":1,\"node\":\"n1\",\"remote\":\"oci:/x\","
                "\"data_dir\":\"/d\"}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("version"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "varve   " VARVE_VERSION
                                  "\ndaemon  9.9, node n1, remote oci:/x, data /d\n");
    varve_call_free(&call);
    varve_call(*state, &setup, VARVE_ARGS("version", "--json"), &call);
    cleanup_json json_t *document = json_loads(call.out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(document, "version")), VARVE_VERSION);
    json_t *daemon = json_object_get(document, "daemon");
    assert_string_equal(json_string_value(json_object_get(daemon, "remote")), "oci:/x");
    assert_null(json_object_get(document, "daemon_error"));
    varve_call_free(&call);
}

static void test_without_a_daemon(void **state)
{
    static const struct varve_call_setup none = {0};
    struct varve_call call;
    varve_call(*state, &none, VARVE_ARGS("version"), &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.out, "daemon  varved is not reachable at unix:"));
    varve_call(*state, &none, VARVE_ARGS("version", "--json"), &call);
    assert_int_equal(call.status, 0);
    cleanup_json json_t *document = json_loads(call.out, 0, NULL);
    assert_true(json_is_null(json_object_get(document, "daemon")));
    assert_true(json_is_string(json_object_get(document, "daemon_error")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_with_a_daemon, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_without_a_daemon, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
