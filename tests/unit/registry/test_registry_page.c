#include "registry_page.h"

#include "registry_fixture.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ANSWER(line, headers, body) "HTTP/1.1 " line "\r\n" headers "Connection: close\r\n\r\n" body

static int get(struct registry_fixture *fixture, const char *answer, struct registry_page *page,
               struct err *err)
{
    static const char *const headers[] = {"Accept: text/x-list", NULL};
    char url[128];
    struct fake_http_rule rule = {"GET", "/list", .response = answer, .end = FAKE_CLOSE};
    fake_http_set(fixture->fake, &rule, 1);
    *page = (struct registry_page){.registry = registry_of(fixture->remote),
                                   .repository = "a/n",
                                   .headers = headers,
                                   .bytes_max = 10};
    snprintf(url, sizeof url, "http://%s/list?n=1", fixture->host);
    return registry_page_get(page, url, "the list", err);
}

static void pages_and_links(void **state)
{
    static const struct {
        const char *answer;
        const char *body;
        const char *link;
    } cases[] = {
        {ANSWER("200 OK", "", "0123456789"), "0123456789", NULL},
        {ANSWER("200 OK", "", ""), "", NULL},
        {ANSWER("200 OK", "Link: </x?n=1>; rel=\"next\"\r\n", "a"), "a", "/x?n=1"},
        {ANSWER("200 OK", "Link: </x>; rel=prev\r\n", "a"), "a", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct registry_fixture *fixture = *state;
        cleanup_registry_page struct registry_page page = {.link = NULL};
        struct err err = ERR_INIT;
        if (get(fixture, cases[i].answer, &page, &err) != 1)
            fail_msg("%zu: %s", i, err.text);
        assert_string_equal(buf_str(&page.body), cases[i].body);
        assert_true((page.link != NULL) == (cases[i].link != NULL));
        if (page.link)
            assert_string_equal(page.link, cases[i].link);
        assert_string_equal(fake_http_header(fake_http_at(fixture->fake, 0), "Accept"),
                            "text/x-list");
    }
}

static void other_statuses_are_the_callers(void **state)
{
    static const struct {
        const char *answer;
        long status;
    } cases[] = {
        {ANSWER("404 Not Found", "Content-Length: 0\r\n", ""), 404},
        {ANSWER("403 Forbidden", "Link: broken\r\n", "a longer body than a page may have"), 403},
        {ANSWER("204 No Content", "", ""), 204},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_registry_page struct registry_page page = {.link = NULL};
        struct err err = ERR_INIT;
        assert_int_equal(get(*state, cases[i].answer, &page, &err), 0);
        assert_int_equal(page.response.status, cases[i].status);
        assert_null(page.link);
    }
}

static void what_is_no_list_fails(void **state)
{
    static const struct {
        const char *answer;
        enum err_code code;
        const char *words;
    } cases[] = {
        {ANSWER("200 OK", "", "01234567890"), ERR_TOO_LARGE, ""},
        {ANSWER("200 OK", "Content-Type: text/html\r\n", "<a>"), ERR_DAMAGED, "web page"},
        {ANSWER("200 OK", "Link: nonsense\r\n", "a"), ERR_DAMAGED, "Link"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n0123", ERR_UNREACHABLE, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_registry_page struct registry_page page = {.link = NULL};
        struct err err = ERR_INIT;
        int rc = get(*state, cases[i].answer, &page, &err);
        if (rc >= 0 || err.code != cases[i].code || !strstr(err.text, cases[i].words))
            fail_msg("%zu: %d %s: %s", i, rc, err_code_name(err.code), err.text);
        assert_null(page.link);
    }
}

#define test(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, registry_fixture_setup, registry_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(pages_and_links),
        test(other_statuses_are_the_callers),
        test(what_is_no_list_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
