#include "registry_hide.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SIGNATURE "f0e8bdb87c964420e857bd35b5d6ed310bd44f01"

/* What is left of an answer's words after the query of an address was hidden in them. */
static void check(const char *url, const char *words, const char *left)
{
    cleanup_http_response struct registry_http_response response = {
        .refusal = BUF_INIT(REGISTRY_HTTP_REFUSAL_MAX)};
    assert_int_equal(buf_add(&response.refusal, words, strlen(words), "words", NULL), 0);
    response.content_type = strdup("x/" SIGNATURE);
    registry_hide_query(&response, url);
    if (strcmp(buf_str(&response.refusal), left) != 0)
        fail_msg("%s: %s", url, buf_str(&response.refusal));
    assert_int_equal(!strstr(response.content_type, SIGNATURE), strstr(url, SIGNATURE) != NULL);
}

static void parts_of_signed_queries_are_hidden(void **state)
{
    (void)state;
    check("https://s3/b?X-Amz-Expires=600&X-Amz-Signature=" SIGNATURE "#f",
          "<SignatureProvided>" SIGNATURE "</SignatureProvided><Expires>600</Expires>",
          "<SignatureProvided>****************************************</SignatureProvided>"
          "<Expires>600</Expires>");
    check("https://s3/b?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2fus-east-1%2Fs3",
          "AKIAIOSFODNN7EXAMPLE, AKIAIOSFODNN7EXAMPLE%2F20130524%2fus-east-1%2Fs3, us-east-1",
          "********************, ************************************************, us-east-1");
    check("https://blob?sig=a%2Bb%2Fcdefghijklmnop%3D&se=2030",
          "a+b/cdefghijklmnop= a%2Bb%2Fcdefghijklmnop%3D 2030",
          "******************* ************************* 2030");
    /* As JSON writes it. */
    check("https://blob?token=abcdefghijklm%26nop", "{\"e\":\"abcdefghijklm\\u0026nop\"}",
          "{\"e\":\"*****************\"}");
}

static void what_the_specification_asks_for_stays(void **state)
{
    (void)state;
    static const char words[] = "sha256:0123456789abcdef0123456789abcdef of team/application-one";
    check("http://r/v2/a/blobs/uploads/?digest=sha256:0123456789abcdef0123456789abcdef&"
          "from=team/application-one",
          words, words);
    check("http://r/v2/a/blobs/uploads/u?_state=0123456789abcdef&digest=sha256:1",
          "unknown state 0123456789abcdef", "unknown state ****************");
    check("http://r/v2/", words, words);
    check("http://r/v2/?", words, words);
    check("http://r/v2/?a&b=&=cccccccccccccccccc", "cccccccccccccccccc", "******************");
}

/* What has more than can be remembered is not shown at all. */
static void too_many_values_hide_everything(void **state)
{
    (void)state;
    cleanup_buf struct buf url = BUF_INIT(1 << 16);
    buf_addf(&url, NULL, "http://r/?x=1");
    for (int i = 0; i < 100; i++)
        buf_addf(&url, NULL, "&v=0123456789abcde%03d", i);
    check(buf_str(&url), "0123456789abcde099", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_signed_queries_are_hidden),
        cmocka_unit_test(what_the_specification_asks_for_stays),
        cmocka_unit_test(too_many_values_hide_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
