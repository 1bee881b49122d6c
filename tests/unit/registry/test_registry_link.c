#include "registry_link.h"

#include "cleanup.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_targets(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *target; /* NULL: none */
    } cases[] = {
        {"", NULL},
        {"</v2/a/tags/list?n=2&last=b>; rel=\"next\"", "/v2/a/tags/list?n=2&last=b"},
        {"<x>;rel=next", "x"},
        {"<x>  ;  REL = \"Next\" ", "x"},
        {"<x>; rel=\"prev\", <y>; rel=\"next\"", "y"},
        {"<x>; rel=\"prev next\"", "x"},
        {"<x>; rel=\"nextish prenext\"", NULL},
        {"<x>; title=\"a, <b>; rel=next\"; rel=\"next\"", "x"},
        {"<x>; title=\"say \\\"rel\\\"\"; rel=next", "x"},
        {"<x>; rel=prev; rel=next", NULL}, /* only the first one counts */
        {"<x>; nofollow; rel=next", "x"},
        {"<a,b;c>; rel=next", "a,b;c"},
        {"<x>", NULL},
        {", <x>; rel=next ,", "x"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *target = NULL;
        struct err err = ERR_INIT;
        if (registry_link_next(cases[i].value, &target, &err) < 0)
            fail_msg("%s: %s", cases[i].value, err.text);
        if (cases[i].target) {
            assert_non_null(target);
            assert_string_equal(target, cases[i].target);
        } else {
            assert_null(target);
        }
    }
}

static void test_what_is_no_link(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "x", "<x", "<x>; rel=\"next", "<x> rel=next", "<x>; rel=\"a\\", "<x>; rel=next junk"};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *target = NULL;
        struct err err = ERR_INIT;
        assert_true(registry_link_next(cases[i], &target, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_null(target);
    }
}

static void test_following(void **state)
{
    (void)state;
    static const char page[] = "https://r.example:5000/v2/a/tags/list?n=2";
    static const struct {
        const char *page;
        const char *target;
        const char *next; /* NULL: of no use */
    } cases[] = {
        {page, "/v2/a/tags/list?n=2&last=b", "https://r.example:5000/v2/a/tags/list?n=2&last=b"},
        {page, "list?last=b", "https://r.example:5000/v2/a/tags/list?last=b"},
        {page, "?last=b", "https://r.example:5000/v2/a/tags/list?last=b"},
        {page, "https://r.example:5000/other?x=1", "https://r.example:5000/other?x=1"},
        /* An address that only the inside of a proxy knows: the query is what matters. */
        {page, "http://registry:8080/v2/a/tags/list?last=b&n=2",
         "https://r.example:5000/v2/a/tags/list?last=b&n=2"},
        {page, "//other.example/v2/a/tags/list?last=b#x",
         "https://r.example:5000/v2/a/tags/list?last=b"},
        {page, "https://user:pw@r.example:5000/v2/a/tags/list?last=b",
         "https://r.example:5000/v2/a/tags/list?last=b"},
        {page, "https://other.example/", NULL},
        {page, "https://other.example/?", NULL},
        {page, "http://[broken?last=b", "https://r.example:5000/v2/a/tags/list?last=b"},
        {"http://lab:5000/v2/a/tags/list?n=2", "/v2/a/tags/list?last=b",
         "http://lab:5000/v2/a/tags/list?last=b"},
        {"http://lab:5000/v2/a/tags/list", "https://lab/v2/a/tags/list?last=c",
         "http://lab:5000/v2/a/tags/list?last=c"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *next = NULL;
        struct err err = ERR_INIT;
        int rc = registry_link_follow(cases[i].page, cases[i].target, &next, &err);
        if (cases[i].next) {
            if (rc < 0)
                fail_msg("%s: %s", cases[i].target, err.text);
            assert_string_equal(next, cases[i].next);
        } else {
            assert_int_equal(err.code, ERR_DAMAGED);
            assert_null(next);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_what_is_no_link),
        cmocka_unit_test(test_following),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
