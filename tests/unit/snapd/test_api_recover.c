#include "api_handlers.h"

#include "cleanup.h"
#include "site.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_recover(void **state)
{
    struct site *site = *state;
    static const struct {
        const char *body;
        const char *params;
    } cases[] = {{NULL, "{}"}, {"{}", "{}"}, {"{'plan':true}", "{\"plan\":true}"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_json json_t *made = site_expect(site, 202, "POST", "/v1/recover", cases[i].body);
        cleanup_json json_t *given =
            site_job_params(site, json_string_value(json_object_get(made, "job")));
        cleanup_free char *text = json_doc_dump(given);
        assert_string_equal(text, cases[i].params);
    }
    site_refused(site, 400, "invalid", "'plan'", "POST", "/v1/recover", "{'plan':1}");
    site_refused(site, 400, "invalid", "'all'", "POST", "/v1/recover", "{'all':true}");
}

static void test_one_at_a_time(void **state)
{
    struct site *site = *state;
    atomic_store(&site_shared.hold, true);
    json_decref(site_expect(site, 202, "POST", "/v1/recover", NULL));
    site_refused(site, 409, "conflict", "recover", "POST", "/v1/recover", NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_recover), TEST(test_one_at_a_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
