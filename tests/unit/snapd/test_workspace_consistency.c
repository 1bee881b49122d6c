#include "workspace_consistency.h"

#include "freeze.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int read_text(const char *text, struct workspace_stillness *ret, struct err *err)
{
    cleanup_json json_t *params = NULL;
    assert_int_equal(json_doc_parse(text, strlen(text), "the test", &params, NULL), 0);
    return workspace_consistency_read(params, ret, err);
}

static void test_what_is_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum workspace_consistency consistency;
        int budget_ms;
    } cases[] = {
        {"{}", WORKSPACE_SYNC, FREEZE_BUDGET_MS},
        {"{\"consistency\":null,\"freeze_budget_ms\":null}", WORKSPACE_SYNC, FREEZE_BUDGET_MS},
        {"{\"consistency\":\"none\",\"name\":\"w\"}", WORKSPACE_NONE, FREEZE_BUDGET_MS},
        {"{\"consistency\":\"sync\"}", WORKSPACE_SYNC, FREEZE_BUDGET_MS},
        {"{\"consistency\":\"freeze\"}", WORKSPACE_FREEZE, FREEZE_BUDGET_MS},
        {"{\"consistency\":\"freeze\",\"freeze_budget_ms\":10}", WORKSPACE_FREEZE, 10},
        {"{\"consistency\":\"freeze\",\"freeze_budget_ms\":30000}", WORKSPACE_FREEZE, 30000},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct workspace_stillness have = {.freeze_budget_ms = -1};
        struct err err = ERR_INIT;
        if (read_text(cases[i].text, &have, &err) < 0)
            fail_msg("%s: %s", cases[i].text, err.text);
        assert_int_equal(have.consistency, cases[i].consistency);
        assert_int_equal(have.freeze_budget_ms, cases[i].budget_ms);
    }
    assert_string_equal(workspace_consistency_name(WORKSPACE_NONE), "none");
    assert_string_equal(workspace_consistency_name(WORKSPACE_SYNC), "sync");
    assert_string_equal(workspace_consistency_name(WORKSPACE_FREEZE), "freeze");
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"{\"consistency\":\"frozen\"}", "none, sync or freeze, not 'frozen'"},
        {"{\"consistency\":\"\"}", "none, sync or freeze"},
        {"{\"consistency\":7}", "consistency"},
        {"{\"freeze_budget_ms\":1000}", "for the consistency freeze"},
        {"{\"consistency\":\"none\",\"freeze_budget_ms\":1000}", "for the consistency freeze"},
        {"{\"consistency\":\"freeze\",\"freeze_budget_ms\":9}", "10 ms to 30 s"},
        {"{\"consistency\":\"freeze\",\"freeze_budget_ms\":30001}", "10 ms to 30 s"},
        {"{\"consistency\":\"freeze\",\"freeze_budget_ms\":-1}", "10 ms to 30 s"},
        {"{\"consistency\":\"freeze\",\"freeze_budget_ms\":9223372036854775807}", "10 ms to 30 s"},
        {"{\"consistency\":\"freeze\",\"freeze_budget_ms\":\"1s\"}", "freeze_budget_ms"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct workspace_stillness have = {.freeze_budget_ms = -1};
        struct err err = ERR_INIT;
        assert_true(read_text(cases[i].text, &have, &err) < 0);
        if (!strstr(err.text, cases[i].part))
            fail_msg("'%s' is not in '%s'", cases[i].part, err.text);
        assert_int_equal(have.freeze_budget_ms, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_asked_for),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
