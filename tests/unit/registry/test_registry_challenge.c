#include "registry_challenge.h"

#include "buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *values;
    bool basic;
    bool bearer;
    const char *realm;
    const char *service;
    const char *scope;
} cases[] = {
    /* of the specification */
    {"Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\","
     "scope=\"repository:samalba/my-app:pull,push\"",
     false, true, "https://auth.docker.io/token", "registry.docker.io",
     "repository:samalba/my-app:pull,push"},
    {"Basic realm=\"x\"", true, false, NULL, NULL, NULL},
    /* two headers; one header with two challenges, in both orders */
    {"Basic realm=\"x\"\nBearer realm=\"u\",service=\"s\"", true, true, "u", "s", NULL},
    {"Basic realm=\"x\", Bearer realm=\"u\",service=\"s\",scope=\"a:b:pull,push\"", true, true, "u",
     "s", "a:b:pull,push"},
    {"Bearer realm=\"u\",service=\"s\", Basic realm=\"x\"", true, true, "u", "s", NULL},
    /* case of schemes and parameters, their order */
    {"bearer REALM=\"u\",Service=\"s\",sCOPE=\"c\"", false, true, "u", "s", "c"},
    {"BEARER scope=\"c\",service=\"s\",realm=\"u\"", false, true, "u", "s", "c"},
    {"BASIC", true, false, NULL, NULL, NULL},
    /* quotes */
    {"Bearer realm=\"a,b\",service=\"say \\\"hi\\\", ok\"", false, true, "a,b", "say \"hi\", ok",
     NULL},
    {"Bearer realm=\"a\\\\b\"", false, true, "a\\b", NULL, NULL},
    {"Bearer realm=\"Basic x\",scope=\"Digest y, Basic\"", false, true, "Basic x", NULL,
     "Digest y, Basic"},
    /* spaces, empty elements, no quotes */
    {"Bearer  realm = \"u\" , service\t=  \"s\"", false, true, "u", "s", NULL},
    {" , ,Bearer realm=\"u\",, scope=\"c\" ,", false, true, "u", NULL, "c"},
    {"Bearer realm=https://h/t?a=b,service=s", false, true, "https://h/t?a=b", "s", NULL},
    /* nothing but a realm; others' schemes; token68 */
    {"Bearer realm=\"u\"", false, true, "u", NULL, NULL},
    {"Negotiate, Basic realm=\"x\"", true, false, NULL, NULL, NULL},
    {"Negotiate YIIb6w/+x==, Bearer realm=\"u\"", false, true, "u", NULL, NULL},
    {"NTLM TlRMTVNTUAAB\nDigest realm=\"d\", nonce=\"n\", qop=\"auth,auth-int\"\nBearer "
     "realm=\"u\"",
     false, true, "u", NULL, NULL},
    {"Digest realm=\"d\",service=\"e\", Bearer realm=\"u\"", false, true, "u", NULL, NULL},
    /* the first of each scheme and of each parameter counts */
    {"Bearer realm=\"u\",realm=\"v\"", false, true, "u", NULL, NULL},
    {"Bearer realm=\"u\", Bearer realm=\"v\",service=\"s\"", false, true, "u", NULL, NULL},
    /* unusable */
    {"Bearer service=\"s\"", false, false, NULL, NULL, NULL},
    {"Bearer realm=\"\"", false, false, NULL, NULL, NULL},
    {"Bearer", false, false, NULL, NULL, NULL},
    {"Bearer service=\"s\", Bearer realm=\"u\"", false, true, "u", NULL, NULL},
    {NULL, false, false, NULL, NULL, NULL},
    {"", false, false, NULL, NULL, NULL},
    {"\n\n", false, false, NULL, NULL, NULL},
    {"realm=\"u\"", false, false, NULL, NULL, NULL},
    {"=,=,\"\",Bearer", false, false, NULL, NULL, NULL},
    {"<html>\nBasic realm=x", true, false, NULL, NULL, NULL},
    /* a quote that does not end spoils its header only */
    {"Bearer realm=\"u, Basic realm=x\nBasic", true, false, NULL, NULL, NULL},
    {"Bearer realm=\"u\\", false, false, NULL, NULL, NULL},
    {"Bearer service=\"s\",realm=\"u\\\"", false, false, NULL, NULL, NULL},
};

static void same(const char *have, const char *want, const char *values)
{
    if (!have != !want || (have && strcmp(have, want) != 0))
        fail_msg("%s: '%s' is not '%s'", values ? values : "nothing", have ? have : "(none)",
                 want ? want : "(none)");
}

static void shapes_are_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_registry_challenge struct registry_challenge challenge = {0};
        assert_int_equal(registry_challenge_parse(cases[i].values, &challenge, NULL), 0);
        if (challenge.basic != cases[i].basic || challenge.bearer != cases[i].bearer)
            fail_msg("%s: basic %d, bearer %d", cases[i].values, challenge.basic, challenge.bearer);
        same(challenge.realm, cases[i].realm, cases[i].values);
        same(challenge.service, cases[i].service, cases[i].values);
        same(challenge.scope, cases[i].scope, cases[i].values);
    }
}

/* "Bearer realm="xxx...",service="s"" with a realm of `len` bytes. */
static void parse_long(size_t len, struct registry_challenge *ret)
{
    cleanup_buf struct buf text = BUF_INIT(100000);
    assert_int_equal(buf_addf(&text, NULL, "Bearer realm=\""), 0);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(buf_add(&text, "x", 1, "realm", NULL), 0);
    assert_int_equal(buf_addf(&text, NULL, "\",service=\"s\", Basic"), 0);
    assert_int_equal(registry_challenge_parse(buf_str(&text), ret, NULL), 0);
}

static void values_are_bounded(void **state)
{
    (void)state;
    cleanup_registry_challenge struct registry_challenge fits = {0};
    parse_long(REGISTRY_CHALLENGE_VALUE_MAX, &fits);
    assert_true(fits.bearer && fits.basic);
    assert_int_equal(strlen(fits.realm), REGISTRY_CHALLENGE_VALUE_MAX);
    cleanup_registry_challenge struct registry_challenge longer = {0};
    parse_long(REGISTRY_CHALLENGE_VALUE_MAX + 1, &longer);
    assert_true(!longer.bearer && longer.basic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_understood),
        cmocka_unit_test(values_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
