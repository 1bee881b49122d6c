#include "registry_scope.h"

#include "cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *first, const char *more, const char *const *want, size_t count)
{
    cleanup_registry_scopes struct registry_scopes scopes = {.count = 0};
    assert_int_equal(registry_scopes_add_all(&scopes, first, NULL), 0);
    assert_int_equal(registry_scopes_add_all(&scopes, more, NULL), 0);
    assert_int_equal(scopes.count, count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(scopes.list[i], want[i]);
}
#define CHECK_SCOPES(first, more, ...)                                                             \
    do {                                                                                           \
        static const char *const want_[] = {__VA_ARGS__};                                          \
        check(first, more, want_, ARRAY_SIZE(want_));                                              \
    } while (0)

static void actions_of_one_resource_are_joined(void **state)
{
    (void)state;
    CHECK_SCOPES("repository:a/b:pull", NULL, "repository:a/b:pull");
    CHECK_SCOPES("repository:a/b:pull", "repository:a/b:pull,push", "repository:a/b:pull,push");
    CHECK_SCOPES("repository:a/b:pull,push", "repository:a/b:pull", "repository:a/b:pull,push");
    CHECK_SCOPES("repository:a/b:pull", "repository:a/b:*,pull,,pull", "repository:a/b:pull,*");
    CHECK_SCOPES("repository:a/b:pull", "repository:a:pull registry:catalog:*",
                 "repository:a/b:pull", "repository:a:pull", "registry:catalog:*");
    CHECK_SCOPES("repository:h:5000/a:pull", "  repository:h:5000/a:push  ",
                 "repository:h:5000/a:pull,push");
    CHECK_SCOPES("repository:a:pul", "repository:a:pull", "repository:a:pul,pull");
}

static void what_is_no_scope_is_passed_over(void **state)
{
    (void)state;
    CHECK_SCOPES("repository:a:pull", "x a: :b a:b :a:b a::b a:b: ::: :: :", "repository:a:pull");
}

static void they_are_bounded(void **state)
{
    (void)state;
    cleanup_registry_scopes struct registry_scopes scopes = {.count = 0};
    char text[REGISTRY_SCOPE_TEXT_MAX + 2];
    memset(text, 'a', sizeof text);
    memcpy(text, "r:", 2);
    memcpy(text + REGISTRY_SCOPE_TEXT_MAX - 2, ":p", 3);
    assert_int_equal(registry_scopes_add_all(&scopes, text, NULL), 0);
    assert_int_equal(scopes.count, 1);
    memcpy(text + REGISTRY_SCOPE_TEXT_MAX - 2, "b:p", 4);
    assert_int_equal(registry_scopes_add_all(&scopes, text, NULL), 0);
    assert_int_equal(scopes.count, 1);
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof text, "r:%d:pull", i);
        assert_int_equal(registry_scopes_add_all(&scopes, text, NULL), 0);
    }
    assert_int_equal(scopes.count, REGISTRY_SCOPES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actions_of_one_resource_are_joined),
        cmocka_unit_test(what_is_no_scope_is_passed_over),
        cmocka_unit_test(they_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
