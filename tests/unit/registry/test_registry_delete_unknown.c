/* Deleting where what is there, or what came of it, is not known. */
#include "fake_fixture.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A deletion that leaves the manifest, takes the tag away, and says why. */
static struct remote_deletion kept(struct fake_fixture *fixture, const char *config,
                                   const struct digest *digest)
{
    struct remote_deletion result;
    struct err err = ERR_INIT;
    fake_fixture_config(fixture, config);
    if (remote_delete(fixture->remote, "a/n", digest, "s1", NULL, NULL, &result, &err) < 0)
        fail_msg("%s: %s", config, err.text);
    if (result.state != REMOTE_KEPT || !result.untagged || result.message[0] == '\0')
        fail_msg("%s: state %d, %s", config, result.state, result.message);
    fake_fixture_config(fixture, "{}");
    assert_true(fake_fixture_has(fixture, "a/n", digest_format(digest).s));
    assert_false(fake_fixture_has(fixture, "a/n", "s1"));
    return result;
}

/* Who cannot be asked what is needed is not asked to delete. */
static void test_unknown_is_not_unneeded(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char list[] = "'method':'GET','path':'*/tags/list*'";
    static const char *const answers[] = {
        "'status':405",
        "'status':403",
        "'status':200,'body':'junk'",
        "'status':200,'body':{}",
        "'status':200,'body':{'tags':['s1','no tag']}",
        "'status':200,'body':{'tags':[1]}",
        "'status':200,'body':'[[[[','repeat':1000000000000",
        "'headers':{'Link':'<https://example.org/y>; rel=next'}",
        "'headers':{'Link':'<http://x; rel=next'}",
        "'headers':{'Link':'<?n=5>; rel=next'}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
        char config[300];
        snprintf(config, sizeof config, "{'rules':[{%s,%s}]}", list, answers[i]);
        (void)kept(fixture, config, &digest);
    }
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    (void)fake_fixture_image(fixture, "a/n", "s2", "two");
    (void)kept(fixture,
               "{'rules':[{'method':['GET','HEAD'],'path':'*/manifests/s2','status':403}]}",
               &digest);
}

/* Nor is what a tag leads to that cannot be read. */
static void test_an_illegible_tag_keeps(void **state)
{
    struct fake_fixture *fixture = *state;
    for (int deep = 0; deep < 2; deep++) {
        struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
        struct digest other = fake_fixture_image(fixture, "a/n", NULL, "two");
        for (int depth = 0; depth < 7 && deep; depth++)
            other = fake_fixture_index(fixture, "a/n", NULL, &other);
        other = fake_fixture_index(fixture, "a/n", "s2", &other);
        char config[300] = "{}";
        if (!deep)
            snprintf(config, sizeof config,
                     "{'rules':[{'method':'GET','path':'*/%s','status':200,'body':'junk'}]}",
                     digest_format(&other).s);
        struct remote_deletion result = kept(fixture, config, &digest);
        assert_non_null(strstr(result.message, "tag s2"));
    }
}

/* Nobody knows what came of it: a failure, so that it is not forgotten; or it is done by the next
 * attempt. */
static void test_answers_that_leave_it_open(void **state)
{
    struct fake_fixture *fixture = *state;
    static const long statuses[] = {408, 421, 425, 429, 500, 502, 505, 506, 507, 508,
                                    510, 511, 520, 521, 522, 524, 525, 527, 530};
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        struct remote_deletion result;
        struct err err = ERR_INIT;
        char config[100];
        snprintf(config, sizeof config, "{'rules':[{'method':'DELETE','status':%ld}]}",
                 statuses[i]);
        fake_fixture_config(fixture, config);
        int rc = remote_delete(fixture->remote, "a/n", &digest, "s1", NULL, NULL, &result, &err);
        if (rc >= 0 || err.code != ERR_REFUSED || err.num != REMOTE_REFUSED_FOR_NOW)
            fail_msg("%s: %d, %s", config, rc, err.text);
    }
}

#define with_fake(name)                                                                            \
    cmocka_unit_test_setup_teardown(name, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fake(test_unknown_is_not_unneeded),
        with_fake(test_an_illegible_tag_keeps),
        with_fake(test_answers_that_leave_it_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
