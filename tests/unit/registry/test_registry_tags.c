#include "fake_fixture.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int list(struct fake_fixture *fixture, struct remote_tags *ret, struct err *err)
{
    return remote_tags_list(fixture->remote, "a/n", NULL, NULL, ret, err);
}

/* The tags come, sorted, with commas between them. */
static void gives(struct fake_fixture *fixture, const char *config, const char *expected)
{
    struct remote_tags tags;
    struct err err = ERR_INIT;
    char text[4096] = "";
    fake_fixture_config(fixture, config);
    if (list(fixture, &tags, &err) < 0)
        fail_msg("%s: %s", config, err.text);
    for (size_t i = 0; i < tags.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? "," : "",
                 tags.names[i]);
    remote_tags_free(&tags);
    if (strcmp(text, expected) != 0)
        fail_msg("%s: %s", config, text);
}

static void fails(struct fake_fixture *fixture, const char *config, enum err_code code)
{
    struct remote_tags tags;
    struct err err = ERR_INIT;
    fake_fixture_config(fixture, config);
    if (list(fixture, &tags, &err) == 0 || err.code != code)
        fail_msg("%s: %s %s", config, err_code_name(err.code), err.text);
    assert_non_null(strstr(err.text, "a/n"));
}

static void test_all_pages(void **state)
{
    struct fake_fixture *fixture = *state;
    gives(fixture, "{}", ""); /* no such repository */
    struct digest digest = fake_fixture_image(fixture, "a/n", "c", "one");
    (void)digest;
    static const char *const tags[] = {"a", "b", "z", "B"};
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        (void)fake_fixture_image(fixture, "a/n", tags[i], "one");
    static const char *const links[] = {
        "", /* the default: a path */
        ",'tags_link':'{main}/v2/{name}/tags/list?n={n}&last={last}>; rel=next'",
        ",'tags_link':'<{main}/v2/{name}/tags/list?n={n}&last={last}>; rel=next'",
        ",'tags_link':'<{other}/v2/{name}/tags/list?last={last}&n={n}>; rel=next'",
        ",'tags_link':'<list?last={last}>; x=y, <?last={last}>; rel=next'",
    };
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        char config[256];
        if (i == 1)
            continue; /* malformed: below */
        snprintf(config, sizeof config, "{'settings':{'tags_page':2%s}}", links[i]);
        gives(fixture, config, "B,a,b,c,z");
    }
    /* Nobody else was asked. */
    cleanup_json json_t *log = fake_registry_log(fixture->fake, 1);
    for (size_t i = 0; i < json_array_size(log); i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(log, i), "host")),
                            "main");
    fails(fixture,
          "{'settings':{'tags_page':2,'tags_link':'{main}/v2/{name}/tags/list?n={n}; rel=next'}}",
          ERR_DAMAGED);
}

static void test_odd_lists(void **state)
{
    struct fake_fixture *fixture = *state;
    gives(fixture, "{'rules':[{'method':'GET','body':{'name':'a/n','tags':null},'status':200}]}",
          "");
    fails(fixture, "{'rules':[{'method':'GET','body':{'name':'a/n'},'status':200}]}", ERR_DAMAGED);
    gives(fixture,
          "{'rules':[{'method':'GET','body':{'name':'a/n','tags':['b','a','b']},'status':200}]}",
          "a,b");
    fails(fixture, "{'rules':[{'method':'GET','body':'nonsense','status':200}]}", ERR_DAMAGED);
    fails(fixture, "{'rules':[{'method':'GET','body':{'tags':'a'},'status':200}]}", ERR_DAMAGED);
    fails(fixture, "{'rules':[{'method':'GET','body':{'tags':[1]},'status':200}]}", ERR_DAMAGED);
    fails(fixture, "{'rules':[{'method':'GET','body':{'tags':['a/b']},'status':200}]}",
          ERR_DAMAGED);
    fails(fixture, "{'rules':[{'method':'GET','status':403}]}", ERR_DENIED);
    fails(fixture, "{'rules':[{'method':'GET','status':405}]}", ERR_REFUSED);
    fails(fixture, "{'rules':[{'method':'GET','body':' ','repeat':5000000,'status':200}]}",
          ERR_TOO_LARGE);
    fails(fixture,
          "{'rules':[{'method':'GET','body':'log in','status':200,'headers':{'Content-Type':"
          "'text/html'}}]}",
          ERR_DAMAGED);
}

/* Lists that never end are noticed, after few requests. */
static void test_circles(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const pages[] = {
        "{'rules':[{'method':'GET','body':{'tags':['a']},'status':200,'headers':"
        "{'Link':'</v2/a/n/tags/list>; rel=next'}}]}",
        "{'rules':[{'method':'GET','body':{'tags':[]},'status':200,'headers':"
        "{'Link':'</v2/a/n/tags/list?last=x>; rel=next'}}]}",
        "{'rules':[{'method':'GET','nth':1,'body':{'tags':['a']},'status':200,'headers':"
        "{'Link':'</v2/a/n/tags/list?1>; rel=next'}},{'method':'GET','body':{'tags':['a']},"
        "'status':200,'headers':{'Link':'</v2/a/n/tags/list?2>; rel=next'}}]}",
    };
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        fails(fixture, pages[i], ERR_DAMAGED);
        assert_true(fake_registry_count(fixture->fake, "GET", "*") <= 12);
    }
    /* A page that went missing in the middle is no end. */
    fails(fixture,
          "{'rules':[{'method':'GET','nth':1,'body':{'tags':['a']},'status':200,'headers':"
          "{'Link':'</v2/a/n/tags/list?2>; rel=next'}},{'method':'GET','status':404}]}",
          ERR_NOT_FOUND);
}

/* A full page without a Link is not believed to be the end. */
static void test_a_registry_that_says_nothing_of_more(void **state)
{
    struct fake_fixture *fixture = *state;
    struct remote_tags tags;
    struct err err = ERR_INIT;
    cleanup_buf struct buf config = BUF_INIT(1 << 20);
    buf_addf(&config, NULL, "{'rules':[");
    for (int page = 0; page < 3; page++) {
        buf_addf(&config, NULL,
                 "{'method':'GET','path':'*/tags/list?n=1000%s','status':200,'body':{'tags':[",
                 page == 0   ? ""
                 : page == 1 ? "&last=t00999"
                             : "&last=t01999");
        for (int i = 0; i < (page < 2 ? 1000 : 5); i++)
            buf_addf(&config, NULL, "%s't%05d'", i ? "," : "", page * 1000 + i);
        buf_addf(&config, NULL, "]}}%s", page < 2 ? "," : "");
    }
    buf_addf(&config, NULL, "]}");
    fake_fixture_config(fixture, buf_str(&config));
    if (list(fixture, &tags, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(tags.count, 2005);
    assert_string_equal(tags.names[2004], "t02004");
    remote_tags_free(&tags);
    assert_int_equal(fake_registry_count(fixture->fake, "GET", "*"), 3);
}

#define with_fake(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fake(test_all_pages),
        with_fake(test_odd_lists),
        with_fake(test_circles),
        with_fake(test_a_registry_that_says_nothing_of_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
